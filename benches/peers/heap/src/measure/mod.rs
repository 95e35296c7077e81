//! The measurements. Each runs once in a fresh process.

pub mod churn;
mod clock;
pub mod live;
pub mod pair;
mod pairs;
pub mod sampled;
pub mod server;

/// The middle one, or one of the two in the middle; not a number where there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
