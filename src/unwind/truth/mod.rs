//! Unwinding against the truth: programs of all kinds run an instruction at a time, and behind each
//! one the unwinder's stack is compared with what was seen of calls and returns.
//!
//! 25,000 instructions of each program are compared, as many times more as `SIGPROF_SOAK` says,
//! divided among the ways in which it is compiled; outside a soak that is optimization as most
//! programs have it. What is missed is printed, and listed with its reasons in `docs/unwinding.md`.

mod fixture;
mod shadow;
mod tally;
pub(crate) mod tracer;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fixture::{Fixture, can_run, load};
use shadow::Shadow;
use tally::{Miss, Tally};
use tracer::{Stop, Tracee, refusal};

use super::{Cache, Rules, Snapshot, Subject};
use crate::process;
use crate::sys::maps::Maps;
use crate::sys::modules::loaded;

/// Instructions that are compared of each source.
const STEPS: u64 = 25_000;
/// How many steps a program gets at most to run whole once.
const MOST_STEPS: u64 = 1_000_000;
/// In the environment of a child process, which has no other tests beside this one.
const IS_CHILD: &str = "SIGPROF_TRUTH_CHILD";

#[test]
fn every_instruction_has_its_true_stack() {
    let is_required = std::env::var_os("SIGPROF_REQUIRE_TOOLS").is_some_and(|v| v == "1");
    if std::env::var_os(IS_CHILD).is_some() {
        return run_all(is_required);
    }
    if let Some(error) = refusal() {
        assert!(!is_required, "a child cannot be traced: {error}");
        crate::process::skip(&format!("a child cannot be traced here: {error}"));
        return;
    }
    let test = concat!(module_path!(), "::every_instruction_has_its_true_stack");
    let test = test.split_once("::").map_or(test, |(_, test)| test);
    let mut child = process::this_program();
    child
        .args([test, "--exact", "--nocapture"])
        .env(IS_CHILD, "1");
    let output = process::succeed(&mut child);
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

/// What the threads that trace have in common.
struct Shared {
    /// Held from before a fixture is loaded until its child is forked, so that no child inherits a
    /// lock of the loader's. In it are the modules that were met.
    known: Mutex<Vec<Arc<Rules>>>,
    tally: Mutex<Tally>,
}

fn run_all(is_required: bool) {
    let steps = (STEPS as f64 * process::soak()) as u64;
    let only = std::env::var("SIGPROF_TRUTH_ONLY").ok();
    let directory = tempfile::tempdir().expect("a directory for what is compiled");
    let jobs: Vec<(Fixture, &str)> = Fixture::ALL
        .iter()
        .filter(|fixture| only.as_ref().is_none_or(|only| fixture.source == only))
        .flat_map(|&fixture| {
            // A program has to run whole at least once, which takes long without optimization.
            let is_part = |options: &&&str| process::soak() > 1.0 || options.contains('2');
            let options = fixture.options.iter().filter(is_part);
            options.map(move |&options| (fixture, options))
        })
        .filter(|&(_, options)| can_run(options))
        .collect();
    let next = AtomicUsize::new(0);
    let shared = Shared {
        known: Mutex::default(),
        tally: Mutex::default(),
    };
    let work = || {
        while let Some(&(fixture, options)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let built = match fixture.build(options, directory.path()) {
                Ok(built) => built,
                Err(error) => {
                    assert!(!is_required, "{error}");
                    crate::process::skip(&format!("{} {options}: {error}", fixture.source));
                    continue;
                }
            };
            let share = steps / fixture.options.len() as u64;
            let tally = trace(fixture, &built, share, &shared);
            println!("{} {options}: {tally}", fixture.source);
            lock(&shared.tally).add(tally);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Threads of their own, since the main thread's stack would be read directly, and it is the
    // child's that counts.
    std::thread::scope(|scope| {
        for _ in 0..threads.min(8) {
            scope.spawn(work);
        }
    });
    let tally = lock(&shared.tally);
    println!("{}", tally.report());
    tally.check();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Steps through one program.
fn trace(fixture: Fixture, built: &std::path::Path, share: u64, shared: &Shared) -> Tally {
    let (function, snapshot, tracee) = {
        let mut known = lock(&shared.known);
        let function = load(built);
        let maps = Maps::read().expect("the maps of this process");
        let modules = loaded(known.iter().map(|rules| rules.module()), &maps);
        let snapshot = Snapshot::new(1, modules, &maps, None, &known);
        *known = snapshot.modules().to_vec();
        let tracee = Tracee::start(function).expect("a child that is traced");
        (function as usize as u64, snapshot, tracee)
    };
    for rules in snapshot.modules() {
        rules.compile();
    }
    let subject = Subject {
        pid: tracee.pid(),
        bounds: None,
    };
    let mut tally = Tally::default();
    let mut shadow = Shadow::default();
    let mut cache = Cache::new();
    let (mut truth, mut frames) = (Vec::new(), Vec::new());
    let (mut last, mut rounds, mut instructions) = ((0, 0), 0, 0);
    let mut pending = 0;
    while tally.steps < share || rounds < 2 {
        let delivered = std::mem::take(&mut pending);
        match tracee.step(delivered).expect("the child can be stepped") {
            Stop::Step => {}
            Stop::Signal(signal) => {
                pending = signal;
                continue;
            }
            Stop::Gone(status) => panic!("{}: the child is gone: {status:#x}", built.display()),
        }
        let registers = tracee.registers().expect("the child's registers");
        let (pc, sp) = (registers.pc, registers.sp());
        let read = |address| tracee.word(address);
        let mapping = |address| tracee.mapping(address);
        match delivered {
            0 => shadow.step(pc, sp, read, mapping),
            _ => shadow.enter_handler(pc, sp, read, mapping),
        }
        rounds += u64::from(pc == function);
        assert!(tally.steps < MOST_STEPS, "{} does not end", built.display());
        // What comes before the first call of the function is no part of it. An instruction that
        // repeats itself is one.
        if rounds == 0 || (pc, sp) == last {
            continue;
        }
        last = (pc, sp);
        instructions += 1;
        if let Some((signal, every)) = fixture.signal
            && instructions % every == 0
            && rounds > 1
        {
            tracee.send(signal);
        }
        shadow.frames(&mut truth);
        frames.resize(truth.len(), 0);
        let unwound = snapshot.unwind(registers, subject, &mut cache, &mut frames);
        let mut is_true = frames.get(..unwound.depth) == Some(&truth[..]);
        if !is_true
            && shadow.stands_above_last_call()
            && is_return(&tracee, pc)
            && let Some(target) = tracee.word(sp)
        {
            // A return to where nobody called from, as at the end of an exception's flight: it is a
            // jump to that address.
            truth.insert(1, target);
            frames.resize(truth.len(), 0);
            let unwound = snapshot.unwind(registers, subject, &mut cache, &mut frames);
            is_true = frames.get(..unwound.depth) == Some(&truth[..]);
        }
        let miss = (!is_true).then(|| Miss {
            reason: unwound.reason,
            frames: &frames[..unwound.depth.min(frames.len())],
            truth: &truth,
        });
        tally.note(pc, &snapshot, built, miss);
    }
    tally.rounds = rounds;
    tally
}

/// Whether the instruction at an address is a near return.
fn is_return(tracee: &Tracee, pc: u64) -> bool {
    let bytes = tracee.word(pc).unwrap_or(0).to_le_bytes();
    matches!(bytes, [0xc3 | 0xc2, ..] | [0xf2 | 0xf3, 0xc3, ..])
}
