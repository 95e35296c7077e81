//! Counts of steps and misses, by where they were.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt;
use std::path::Path;

use crate::unwind::{Snapshot, StopReason};

/// What the code of fixtures is counted as.
const FIXTURE: &str = "compiled code";

/// A stack that was not the true one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss<'m> {
    pub(super) reason: StopReason,
    pub(super) frames: &'m [u64],
    pub(super) truth: &'m [u64],
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    steps: u64,
    misses: u64,
    /// Not among the misses.
    landings: u64,
}

/// What became of many steps.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) steps: u64,
    pub(super) rounds: u64,
    by_module: BTreeMap<String, Count>,
    /// How often, by place and what was wrong, and one of them in full.
    misses: BTreeMap<(String, String), (u64, String)>,
}

impl Tally {
    pub(super) fn note(&mut self, pc: u64, snapshot: &Snapshot, built: &Path, miss: Option<Miss>) {
        self.steps += 1;
        let module = name_of_module(pc, snapshot, built);
        if !self.by_module.contains_key(module) {
            self.by_module.insert(module.to_owned(), Count::default());
        }
        let Some(count) = self.by_module.get_mut(module) else {
            return;
        };
        count.steps += 1;
        let Some(miss) = miss else {
            return;
        };
        if is_landing(&miss, snapshot, built) {
            count.landings += 1;
            return;
        }
        count.misses += 1;
        let place = |address| {
            format!(
                "{} {}",
                function(address, snapshot, built),
                offset(address, snapshot)
            )
        };
        let right = miss.frames.iter().zip(miss.truth);
        let right = right.take_while(|(a, b)| a == b).count();
        let wrong = match miss.frames.get(right) {
            None => format!("ends, {:?}, after {right} frames", miss.reason),
            Some(_) => format!("frame {right} is another"),
        };
        let key = (function(pc, snapshot, built), wrong);
        let (times, _) = self.misses.entry(key).or_insert_with(|| {
            let list = |addresses: &[u64]| addresses.iter().map(|&a| place(a)).collect::<Vec<_>>();
            let full = format!("{:#?} for {:#?}", list(miss.frames), list(miss.truth));
            (0, full)
        });
        *times += 1;
    }

    pub(super) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        for (module, count) in other.by_module {
            let sum = self.by_module.entry(module).or_default();
            sum.steps += count.steps;
            sum.misses += count.misses;
            sum.landings += count.landings;
        }
        for (place, (times, full)) in other.misses {
            self.misses.entry(place).or_insert((0, full)).0 += times;
        }
    }

    /// A line for each place where stacks were wrong, and one for each module.
    pub(super) fn report(&self) -> String {
        let is_long = std::env::var_os("SIGPROF_TRUTH_LONG").is_some();
        let mut lines = Vec::new();
        for ((place, wrong), (times, full)) in &self.misses {
            lines.push(format!("{times} at {place}: {wrong}"));
            if is_long {
                lines.push(full.clone());
            }
        }
        for (module, count) in &self.by_module {
            let Count {
                steps,
                misses,
                landings,
            } = count;
            let landings = match landings {
                0 => String::new(),
                landings => format!(", {landings} at a landing"),
            };
            lines.push(format!("{module}: {misses} of {steps} missed{landings}"));
        }
        lines.push(format!("in all: {self}"));
        lines.join("\n")
    }

    /// All is right in compiled code, 99.9 % anywhere, and where an exception lands all but a small
    /// part of what it takes.
    pub(super) fn check(&self) {
        let compiled = self.by_module.get(FIXTURE).copied().unwrap_or_default();
        assert_eq!(compiled.misses, 0, "stacks of compiled code are wrong");
        for (module, count) in &self.by_module {
            let Count {
                steps, landings, ..
            } = count;
            assert!(
                landings * 25 <= *steps,
                "{landings} of {steps} in {module} are at a landing"
            );
        }
        let misses = self.misses();
        assert!(
            misses * 1000 <= self.steps,
            "{misses} stacks of {} are wrong",
            self.steps
        );
    }

    fn landings(&self) -> u64 {
        self.by_module.values().map(|count| count.landings).sum()
    }

    fn misses(&self) -> u64 {
        self.by_module.values().map(|count| count.misses).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compiled = self.by_module.get(FIXTURE).copied().unwrap_or_default();
        write!(
            f,
            "{} steps, {} missed, {} at a landing; in compiled code {}, {} missed",
            self.steps,
            self.misses(),
            self.landings(),
            compiled.steps,
            compiled.misses
        )?;
        match self.rounds {
            0 => Ok(()),
            rounds => write!(f, "; {rounds} rounds"),
        }
    }
}

fn name_of_module<'s>(pc: u64, snapshot: &'s Snapshot, built: &Path) -> &'s str {
    let mut modules = snapshot.modules().iter().map(|rules| rules.module());
    let module = modules.find(|module| module.range.contains(&pc));
    module.map_or("no module", |module| {
        let path = Path::new(&module.object.path);
        match path == built {
            true => FIXTURE,
            false if module.object.is_main => "the test itself",
            false => path.file_name().and_then(|n| n.to_str()).unwrap_or("?"),
        }
    })
}

/// Whether an exception is about to land: libgcc puts the registers of the frame that catches it in
/// place of those that its own callers have saved, one by one, and then the return address. What is
/// left of the stack then is no longer what was called.
fn is_landing(miss: &Miss, snapshot: &Snapshot, built: &Path) -> bool {
    let is_in_libgcc =
        |&frame: &u64| name_of_module(frame, snapshot, built).starts_with("libgcc_s");
    let is_raising = |&frame: &u64| {
        let function = function(frame, snapshot, built);
        ["_Unwind_RaiseException", "_Unwind_Resume"]
            .iter()
            .any(|name| function.ends_with(name))
    };
    miss.frames.first().is_some_and(is_in_libgcc) && miss.frames.iter().take(2).any(is_raising)
}

/// The function that holds an address, by name, or else by the offset in the module.
fn function(address: u64, snapshot: &Snapshot, built: &Path) -> String {
    let module = name_of_module(address, snapshot, built);
    // SAFETY: the loader looks the address up and fills in what it finds, which lasts as modules of
    // this test do.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address as *const libc::c_void, &mut info) != 0;
        (found && !info.dli_sname.is_null()).then(|| {
            CStr::from_ptr(info.dli_sname)
                .to_string_lossy()
                .into_owned()
        })
    };
    match name {
        Some(name) => format!("{module} {name}"),
        None => format!("{module} {}", offset(address, snapshot)),
    }
}

/// The address as it is in its module's file.
fn offset(address: u64, snapshot: &Snapshot) -> String {
    let mut modules = snapshot.modules().iter().map(|rules| rules.module());
    let module = modules.find(|module| module.range.contains(&address));
    format!("{:#x}", address - module.map_or(0, |module| module.bias))
}
