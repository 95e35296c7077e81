//! The immutable set of modules and stacks that a handler unwinds with.

mod function;
mod walk;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::dwarf::Dwarf;
use super::rules::Rules;
use crate::restart::Numbers;
use crate::sys::context::coroutine_return;
use crate::sys::maps::Maps;
use crate::sys::modules::Module;

pub(crate) use walk::Subject;

/// All loaded modules with their unwind data, and all mappings that can hold a stack, at one
/// moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    epoch: u32,
    modules: Vec<Arc<Rules>>,
    /// Tables that were made since the snapshot was: rules that handlers remember from before are
    /// not the best ones.
    compiled: AtomicU32,
    dwarf: Dwarf,
    /// Executable ranges in ascending order.
    code: Vec<Code>,
    /// Writable ranges in ascending order.
    stacks: Vec<Range<u64>>,
    /// The main thread's stack, which the kernel lets grow downwards and nobody takes away.
    main_stack: Range<u64>,
    /// What lies between it and the mapping below, into which it grows.
    below_main_stack: Range<u64>,
    /// What the first function of a coroutine of the C library's returns to.
    coroutine_return: Option<u64>,
    /// What handlers have found out of the code.
    numbers: Numbers,
}

/// A range of code.
#[derive(Clone, Debug)]
struct Code {
    range: Range<u64>,
    /// The module that it is of, by its number in the snapshot; code that was made while the
    /// program runs has none.
    module: Option<usize>,
}

impl Snapshot {
    /// A snapshot of `modules`, with the code and the stacks of `maps`, to be published in `epoch`.
    /// What it has in common with `last` is shared, and tables are taken from `known`.
    pub(crate) fn new(
        epoch: u32,
        modules: Vec<Arc<Module>>,
        maps: &Maps,
        last: Option<&Snapshot>,
        known: &[Arc<Rules>],
    ) -> Self {
        let modules: Vec<Arc<Rules>> = modules
            .into_iter()
            .map(|module| {
                let same = known.iter().find(|r| Arc::ptr_eq(r.module(), &module));
                same.cloned()
                    .unwrap_or_else(|| Arc::new(Rules::new(module)))
            })
            .collect();
        let stacks = maps
            .entries()
            .filter(|entry| entry.is_writable())
            .map(|entry| entry.start..entry.end)
            .collect();
        let (main_stack, below_main_stack) = main_stack(maps).unwrap_or((0..0, 0..0));
        let dwarf = match last {
            Some(last) => last
                .dwarf
                .changed(objects(&last.modules), objects(&modules)),
            None => Dwarf::default().changed(objects(&[]), objects(&modules)),
        };
        Self {
            epoch,
            dwarf,
            code: code(&modules, maps),
            modules,
            compiled: AtomicU32::new(0),
            stacks,
            main_stack,
            below_main_stack,
            coroutine_return: coroutine_return(),
            numbers: Numbers::new(),
        }
    }

    /// The same with another stack for the main thread's.
    #[cfg(test)]
    pub(super) fn with_main_stack(self, main_stack: Range<u64>) -> Self {
        Self {
            main_stack,
            below_main_stack: 0..0,
            ..self
        }
    }

    /// The epoch it is read in.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The numbers of the system calls in its code.
    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The modules it knows.
    pub(crate) fn modules(&self) -> &[Arc<Rules>] {
        &self.modules
    }

    /// Compiles the unwind data of small modules, and of large ones that ticks have fallen into.
    /// `meanwhile` is called now and then.
    pub(crate) fn compile_rules(&self, meanwhile: &mut dyn FnMut()) {
        for rules in self.modules.iter().filter(|rules| rules.is_due()) {
            rules.compile_while(meanwhile);
            self.compiled.fetch_add(1, Ordering::Release);
        }
    }

    /// Compiles the unwind data of modules that stacks have led through, where it is no more than
    /// this many bytes, and `can_allocate` as many as that may take. For one caller at a time.
    #[cfg(feature = "heap")]
    pub(crate) fn compile_wanted(&self, most_bytes: usize, can_allocate: fn(usize) -> bool) {
        // Usual tables take twice the bytes of the data, and as much again while they are made.
        let can_compile = |rules: &Rules| can_allocate((1 << 20) + 8 * rules.size_bytes());
        let wanted = self.modules.iter().filter(|r| r.is_wanted(most_bytes));
        for rules in wanted.filter(|rules| can_compile(rules)) {
            rules.compile_while(&mut || ());
            self.compiled.fetch_add(1, Ordering::Release);
        }
    }

    /// Bytes of unwind data.
    pub(crate) fn size_bytes(&self) -> usize {
        self.modules.iter().map(|rules| rules.size_bytes()).sum()
    }
}

fn objects(rules: &[Arc<Rules>]) -> impl Iterator<Item = &Arc<Module>> + Clone {
    rules.iter().map(|rules| rules.module())
}

/// The main thread's stack, and what lies between it and the mapping below.
fn main_stack(maps: &Maps) -> Option<(Range<u64>, Range<u64>)> {
    let mut end_below = 0;
    for entry in maps.entries() {
        if entry.path == "[stack]" {
            return Some((entry.start..entry.end, end_below..entry.start));
        }
        end_below = entry.end;
    }
    None
}

/// All code: that of modules, and what else can be executed and no file is behind, as a
/// just-in-time compiler makes it.
fn code(modules: &[Arc<Rules>], maps: &Maps) -> Vec<Code> {
    let mut code: Vec<Code> = Vec::new();
    for (number, rules) in modules.iter().enumerate() {
        code.extend(rules.module().object.code.iter().map(|segment| Code {
            range: segment.start..segment.end,
            module: Some(number),
        }));
    }
    code.sort_unstable_by_key(|code| code.range.start);
    let is_of_a_module = |range: &Range<u64>| {
        let before = code.partition_point(|code| code.range.start < range.end);
        let last = before.checked_sub(1).and_then(|last| code.get(last));
        last.is_some_and(|last| last.range.end > range.start)
    };
    let made: Vec<Code> = maps
        .entries()
        .filter(|entry| entry.permissions.contains('x'))
        .map(|entry| entry.start..entry.end)
        .filter(|range| !is_of_a_module(range))
        .map(|range| Code {
            range,
            module: None,
        })
        .collect();
    code.extend(made);
    code.sort_unstable_by_key(|code| code.range.start);
    code
}
