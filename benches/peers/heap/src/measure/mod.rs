//! The measurements. Each runs once in a fresh process.

pub mod churn;
mod clock;
pub mod pair;
pub mod server;

/// The middle one, of an odd number of values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
