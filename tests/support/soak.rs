//! How much a test does: enough to find a defect in `scripts/test`, and all there is in
//! `scripts/soak`.
#![allow(dead_code, reason = "each test binary uses a part of it")]

/// How many times as much as usual a test is to do: `SIGPROF_SOAK`, which `scripts/soak` sets, and
/// 1 otherwise.
pub fn soak() -> f64 {
    let factor = std::env::var("SIGPROF_SOAK").ok();
    let factor = factor.and_then(|factor| factor.parse().ok());
    factor.map_or(1.0, |factor: f64| factor.max(1.0))
}

/// What a test goes through: all of it in a soak, and a part of it otherwise.
pub fn all_or<'c, T>(part: &'c [T], all: &'c [T]) -> &'c [T] {
    if soak() > 1.0 { all } else { part }
}
