//! What a profiler's allocator adds, from pairs of the same work with it and without.

use super::median;
use crate::switched::set_profiled;
use crate::{Result, Results};

/// What pieces of work cost.
#[derive(Debug, Default)]
pub struct Pairs {
    profiled: Vec<f64>,
    alone: Vec<f64>,
}

/// Whether the profiler's allocator is on in each piece of work, of so many pairs. Which one is
/// first takes turns: a machine that grows slower or faster meanwhile favours none.
pub fn order(count: u32) -> impl Iterator<Item = bool> {
    (0..count).flat_map(|pair| {
        let first = pair % 2 == 0;
        [first, !first]
    })
}

impl Pairs {
    /// Does the work with the profiler's allocator and without it, so many times each. The work is
    /// told which.
    pub fn measure(count: u32, mut work: impl FnMut(bool) -> Result<f64>) -> Result<Self> {
        let mut pairs = Self::default();
        for is_profiled in order(count) {
            set_profiled(is_profiled);
            pairs.push(is_profiled, work(is_profiled)?);
        }
        set_profiled(true);
        Ok(pairs)
    }

    /// Adds what a piece of work cost.
    pub fn push(&mut self, is_profiled: bool, cost: f64) {
        match is_profiled {
            true => self.profiled.push(cost),
            false => self.alone.push(cost),
        }
    }

    /// What the first costs over the second in each pair, in percent: the median. And the medians
    /// of both, by these names.
    pub fn results(self, profiled: &'static str, alone: &'static str) -> Results {
        let added = self.profiled.iter().zip(&self.alone);
        let added = added.map(|(profiled, alone)| (profiled / alone - 1.0) * 100.0);
        let added = median(added.collect());
        let [profiled_cost, alone_cost] = self.medians();
        vec![
            ("added_percent", added),
            (profiled, profiled_cost),
            (alone, alone_cost),
        ]
    }

    pub fn medians(self) -> [f64; 2] {
        [self.profiled, self.alone].map(median)
    }

    /// The least of both: what others make a thread wait for only adds to its time.
    pub fn least(&self) -> [f64; 2] {
        [&self.profiled, &self.alone]
            .map(|costs| costs.iter().copied().fold(f64::INFINITY, f64::min))
    }
}
