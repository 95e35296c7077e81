//! How often something happens a second, by kind, of late.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// What happened so long ago counts for 1 / e of what happens now. What comes in bursts that are
/// shorter is taken for as many in this time.
const MEMORY: Duration = Duration::from_millis(100);

/// Means that forget.
#[derive(Debug)]
pub(super) struct Rates {
    per_second: Box<[f64]>,
    /// Since the last turn.
    noted: Box<[f64]>,
    turned: Instant,
}

impl Rates {
    /// Of so many kinds.
    pub(super) fn of_kinds(kinds: usize) -> Self {
        Self {
            per_second: vec![0.0; kinds].into(),
            noted: vec![0.0; kinds].into(),
            turned: Instant::now(),
        }
    }

    /// Time counts again from now on, after one in which nothing could be noted.
    pub(super) fn begin(&mut self) {
        self.turned = Instant::now();
    }

    /// Notes that something of a kind has happened so many times.
    pub(super) fn note(&mut self, kind: usize, times: f64) {
        self.noted[kind] += times;
    }

    /// Takes what was noted into account; returns how long ago that was done before.
    pub(super) fn turn(&mut self) -> Duration {
        let elapsed = self.turned.elapsed();
        self.turned += elapsed;
        self.turn_after(elapsed);
        elapsed
    }

    pub(super) fn turn_after(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let kept = (-seconds / MEMORY.as_secs_f64()).exp();
        // Each counts for so much where no time has passed.
        let weight = match seconds > 0.0 {
            true => (1.0 - kept) / seconds,
            false => 1.0 / MEMORY.as_secs_f64(),
        };
        for (per_second, noted) in self.per_second.iter_mut().zip(&mut self.noted) {
            *per_second = *per_second * kept + *noted * weight;
            *noted = 0.0;
        }
    }

    /// By kind.
    pub(super) fn per_second(&self) -> &[f64] {
        &self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_known_however_often_it_is_asked_for() {
        for turn_ms in [1, 50, 3000] {
            let mut rates = Rates::of_kinds(2);
            for _ in 0..3000 / turn_ms {
                rates.note(1, turn_ms as f64);
                rates.turn_after(Duration::from_millis(turn_ms));
            }
            let &[none, thousand] = rates.per_second() else {
                unreachable!()
            };
            assert_eq!(none, 0.0);
            assert!((thousand - 1000.0).abs() < 1.0, "{turn_ms} ms: {thousand}");
            rates.turn_after(Duration::from_secs(3));
            assert!(rates.per_second()[1] < 1.0);
        }
    }

    #[test]
    fn a_burst_counts_for_a_time() {
        for turn_us in [0, 1, 1000] {
            let mut rates = Rates::of_kinds(1);
            rates.note(0, 10.0);
            rates.turn_after(Duration::from_micros(turn_us));
            let rate = rates.per_second()[0];
            assert!((rate - 100.0).abs() < 1.0, "{turn_us} µs: {rate}");
        }
    }
}
