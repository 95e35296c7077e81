//! What stands in for functions of the C library while the process is watched: those through which
//! threads wait for each other.

mod objects;
mod pthread;
mod syscall;

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::got::{self, Outcome, Replacement};
use crate::sys::maps::Maps;
use crate::sys::modules::Generation;

/// A function of the C library, and what stands in for it.
struct StandIn {
    name: &'static str,
    /// The real one: set before any word leads to the stand-in, and never cleared.
    real: &'static AtomicPtr<()>,
    address: usize,
    /// What tries where the real one waits.
    attempt: Option<Attempt>,
}

/// A function of the C library that tries something.
struct Attempt {
    name: &'static str,
    /// Null where it is not one with the real function that waits.
    function: &'static AtomicPtr<()>,
}

impl StandIn {
    fn definition(&self) -> Option<usize> {
        got::definition(self.name.as_bytes())
    }

    fn replacement(&self) -> Option<Replacement> {
        let function = self.real.load(Ordering::Acquire) as usize;
        (function != 0).then_some(Replacement {
            name: self.name.as_bytes(),
            function,
            stand_in: self.address,
            // Condition variables of another layout, of programs older than glibc 2.3.2.
            other_version: match self.name.starts_with("pthread_cond_") {
                true => b"GLIBC_2.2.5",
                false => b"",
            },
        })
    }
}

fn all() -> Vec<StandIn> {
    let mut all = pthread::stand_ins();
    all.push(syscall::stand_in());
    all
}

/// Whether there is a function to stand in for.
pub(super) fn is_possible() -> bool {
    syscall::stand_in().definition().is_some()
}

/// Has modules that were loaded since call the stand-ins. `generation` was taken before `maps` were
/// read. `None` if modules have come or gone since.
pub(super) fn put_in(generation: Generation, maps: &Maps) -> Option<Outcome> {
    let mut replacements = Vec::new();
    for stand_in in all() {
        // A function that this C library does not have, nobody calls.
        if let Some(function) = stand_in.definition() {
            if let Some(Attempt {
                name,
                function: found,
            }) = &stand_in.attempt
            {
                // Where another library defines one of the two, a lock checker for instance, what
                // is tried would be unknown to it.
                let attempt = got::definition(name.as_bytes())
                    .filter(|&attempt| got::are_of_one_module(attempt, function));
                found.store(attempt.unwrap_or(0) as *mut (), Ordering::Relaxed);
            }
            stand_in.real.store(function as *mut (), Ordering::Release);
            replacements.extend(stand_in.replacement());
        }
    }
    got::replace(&replacements, generation, maps)
}

/// Has all modules call the real functions again.
pub(super) fn take_out() {
    let replacements: Vec<_> = (all().iter()).filter_map(StandIn::replacement).collect();
    got::restore(&replacements);
}
