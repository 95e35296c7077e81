//! What the benchmarks of a profiler beside its peers share: programs built with one of them each,
//! measurements in processes of their own, medians.

pub mod bar;
pub mod child;
pub mod program;

/// The middle one; between the two in the middle of an even number.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}
