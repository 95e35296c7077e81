//! The immutable set of modules and stacks that a handler unwinds with.

use std::ops::Range;
use std::sync::Arc;

use super::StopReason;
use super::dwarf::{Cache, Dwarf};
use crate::sys::arch::Registers;
use crate::sys::maps::Maps;
use crate::sys::memory::StackReader;
use crate::sys::modules::Module;
use crate::sys::thread_stack::BoundsPlace;

/// How far above the stack pointer is read where the mapping that holds it is not known: the first samples of a thread
/// that began after the snapshot was made.
const UNKNOWN_STACK: u64 = 256 * 1024;

/// All loaded modules with their unwind data, and all mappings that can hold a stack, at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    epoch: u32,
    modules: Vec<Arc<Module>>,
    dwarf: Dwarf,
    /// Executable ranges in ascending order.
    code: Vec<Range<u64>>,
    /// Writable ranges in ascending order.
    stacks: Vec<Range<u64>>,
    /// The main thread's stack, which the kernel lets grow downwards and nobody takes away.
    main_stack: Range<u64>,
}

/// Whose stack is unwound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// This process.
    pub(crate) pid: i32,
    /// Where threads keep the bounds of their stacks, if that is known.
    pub(crate) bounds: Option<BoundsPlace>,
}

/// What an unwind came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unwound {
    /// How many frames were written.
    pub(crate) depth: usize,
    pub(crate) reason: StopReason,
    /// The mapping that holds the stack pointer was not known: a newer snapshot would do better.
    pub(crate) unknown_stack: bool,
}

impl Snapshot {
    /// A snapshot of `modules`, with the stacks of `maps`, to be published in `epoch`. What it has in common with
    /// `last` is shared.
    pub(crate) fn new(
        epoch: u32,
        modules: Vec<Arc<Module>>,
        maps: &Maps,
        last: Option<&Snapshot>,
    ) -> Self {
        let mut code: Vec<_> = modules
            .iter()
            .flat_map(|module| &module.object.code)
            .map(|segment| segment.start..segment.end)
            .collect();
        code.sort_unstable_by_key(|range| range.start);
        let stacks = maps
            .entries()
            .filter(|entry| entry.is_writable())
            .map(|entry| entry.start..entry.end)
            .collect();
        let main_stack = maps
            .entries()
            .find(|entry| entry.path == "[stack]")
            .map_or(0..0, |entry| entry.start..entry.end);
        let dwarf = match last {
            Some(last) => last.dwarf.changed(&last.modules, &modules),
            None => Dwarf::default().changed(&[], &modules),
        };
        Self {
            epoch,
            modules,
            dwarf,
            code,
            stacks,
            main_stack,
        }
    }

    /// The epoch it is read in.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The modules it knows.
    pub(crate) fn modules(&self) -> &[Arc<Module>] {
        &self.modules
    }

    /// Writes the call chain of a thread with these registers into `frames`, leaf first: the pc, then return addresses
    /// as they are. The pc is always there, if there is room for one frame.
    ///
    /// *Async-signal-safe.*
    pub(crate) fn unwind(
        &self,
        registers: Registers,
        subject: Subject,
        cache: &mut Cache,
        frames: &mut [u64],
    ) -> Unwound {
        let sp = registers.sp;
        let lasting = match self.main_stack.contains(&sp) {
            true => Some(self.main_stack.clone()),
            false => subject.bounds.and_then(|bounds| bounds.stack_of(sp)),
        };
        let (lasting, limit, unknown_stack) = match lasting {
            Some(lasting) => (lasting.clone(), lasting.end, false),
            None => match holding(&self.stacks, sp) {
                Some(range) => (0..0, range.end, false),
                None => (0..0, sp.saturating_add(UNKNOWN_STACK), true),
            },
        };
        let Cache { steps, window } = cache;
        // SAFETY: the main thread's stack, or the one that the interrupted thread was born with, from its stack pointer up:
        // both stay while its handler runs.
        let mut reader = unsafe { StackReader::new(sp, limit, lasting, subject.pid, window) };
        let mut last_code = 0..0;
        let (depth, reason) = self.dwarf.unwind(
            registers,
            steps,
            self.epoch,
            &mut reader,
            |pc| {
                last_code.contains(&pc)
                    || match holding(&self.code, pc) {
                        Some(range) => {
                            last_code = range.clone();
                            true
                        }
                        None => false,
                    }
            },
            frames,
        );
        Unwound {
            depth,
            reason,
            unknown_stack,
        }
    }
}

/// The range that holds `address` in an ascending list of disjoint ones. *Async-signal-safe.*
fn holding(ranges: &[Range<u64>], address: u64) -> Option<&Range<u64>> {
    let after = ranges.partition_point(|range| range.start <= address);
    ranges
        .get(after.checked_sub(1)?)
        .filter(|range| address < range.end)
}
