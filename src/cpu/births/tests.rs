//! Threads that are held at each step of their beginning, while scans, ends of recordings and other
//! threads come between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

use super::*;
use crate::cpu::{Engine, Profiler, Recording};
use crate::process;
use crate::profile::{LabelValue, Profile};
use crate::slots::Slots;
use crate::sys::perf_event;
use crate::sys::signal::disposition;
use crate::sys::thread::identity;

/// CPU time that threads take before the steps of a beginning: before they create one, and
/// then, before they ask which recording runs, claim their slots, make their clocks and tell of
/// them, and while they tell. So scans, and the ends of recordings, find them there.
pub(super) static BEFORE_CLONE_NS: AtomicU64 = AtomicU64::new(0);
pub(super) static BEFORE_ASKING_NS: AtomicU64 = AtomicU64::new(0);
pub(super) static BEFORE_CLAIM_NS: AtomicU64 = AtomicU64::new(0);
pub(super) static BEFORE_CLOCK_NS: AtomicU64 = AtomicU64::new(0);
pub(super) static BEFORE_TELLING_NS: AtomicU64 = AtomicU64::new(0);
pub(super) static WHILE_TELLING_NS: AtomicU64 = AtomicU64::new(0);
/// CPU time that a scan takes after it has listed the threads: so that others begin meanwhile.
pub(in crate::cpu) static AFTER_LIST_NS: AtomicU64 = AtomicU64::new(0);

/// Threads that have come to a step whose time is endless, and whether they are to stay there.
static HELD: AtomicU32 = AtomicU32::new(0);
static IS_HELD: AtomicBool = AtomicBool::new(false);
/// The last of them.
static HELD_TID: AtomicI32 = AtomicI32::new(0);

/// A scan that is to stand still between the claim to a thread's slot and the thread's clock,
/// and whether it does.
static IS_SCAN_TO_STAND: AtomicBool = AtomicBool::new(false);
static DOES_SCAN_STAND: AtomicBool = AtomicBool::new(false);

pub(in crate::cpu) fn before_scans_clock() {
    while IS_SCAN_TO_STAND.load(Ordering::Acquire) {
        DOES_SCAN_STAND.store(true, Ordering::Release);
        std::thread::yield_now();
    }
    DOES_SCAN_STAND.store(false, Ordering::Release);
}

pub(in crate::cpu) fn dawdle(ns: &AtomicU64) {
    let ns = ns.load(Ordering::Relaxed);
    if ns < u64::MAX {
        return burn(ns);
    }
    HELD_TID.store(current_tid(), Ordering::Release);
    HELD.fetch_add(1, Ordering::AcqRel);
    while IS_HELD.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

fn burn(ns: u64) {
    let cpu_ns = || Clock::THREAD_CPU.now_ns().unwrap();
    let end = cpu_ns() + ns;
    while ns > 0 && cpu_ns() < end {}
}

#[test]
fn a_thread_has_one_event_whether_a_scan_or_itself_is_first() {
    slow_births("auto");
}

#[test]
fn a_thread_has_one_timer_whether_a_scan_or_itself_is_first() {
    slow_births("timer");
}

fn slow_births(engine: &str) {
    let mut child = process::child("cpu::births::tests::child_of_slow_births");
    process::succeed_and_show(child.env("ENGINE", engine));
}

const MS: u64 = 1_000_000;

#[test]
#[ignore = "a child process"]
fn child_of_slow_births() {
    let recording = start();
    assert!(recording.stats().threads_hooked);
    // Scans come every 10 ms where there are new threads; the second that finds one may take
    // it.
    let slow = [
        (0, 0, 0),
        (40, 0, 0),
        (0, 40, 0),
        (40, 40, 0),
        (1, 1, 0),
        (0, 0, 10),
    ];
    let mut clocks_ms = Vec::new();
    for (before_claim, before_clock, after_list) in slow {
        AFTER_LIST_NS.store(after_list * MS, Ordering::Relaxed);
        BEFORE_CLAIM_NS.store(before_claim * MS, Ordering::Relaxed);
        BEFORE_CLOCK_NS.store(before_clock * MS, Ordering::Relaxed);
        for _ in 0..(2.0 * process::soak()) as u32 {
            let armed = recording.stats().threads_armed;
            let threads: [_; 8] = std::array::from_fn(|i| {
                std::thread::sleep(Duration::from_millis(after_list / 2));
                let thread = std::thread::Builder::new().name(name(clocks_ms.len() + i));
                let body = || {
                    burn(30 * MS);
                    (Clock::THREAD_CPU.now_ns().unwrap() / MS) as i64
                };
                thread.spawn(body).unwrap()
            });
            clocks_ms.extend(threads.map(|thread| thread.join().unwrap()));
            // The flusher hears of the last of them when it next wakes.
            wait_until(|| recording.stats().threads_armed >= armed + 8);
            assert_eq!(recording.stats().threads_armed, armed + 8);
        }
    }
    // Nobody leaves a slot behind.
    let slots = Slots::get().unwrap();
    let is_there = |tid: &i32| identity(*tid).is_some();
    wait_until(|| slots.recorded().iter().all(is_there));
    let profile = recording.stop().unwrap();
    let stats = recording.stats();
    assert_eq!(stats.foreign_signals, 0, "{stats}");
    assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
    let ticks = ticks_in_stacks(&profile, clocks_ms.len());
    let (most, least) = (ticks.iter().max().unwrap(), ticks.iter().min().unwrap());
    process::figure!("slow births: {least} to {most} ticks in stacks, at least 30 by the clocks");
    // On a crowded machine the kernel can leave a thread of 30 ms without a timer's tick.
    let least = i64::from(stats.engine == Engine::PerfEvent);
    for (i, (&ticks, clock_ms)) in ticks.iter().zip(clocks_ms).enumerate() {
        // One more for the period that has begun, and one for the random phase of events.
        assert!(
            ticks >= least && ticks <= clock_ms + 2,
            "{}: {ticks} ticks of {clock_ms} ms\n{stats}",
            name(i)
        );
    }
}

pub(in crate::cpu) fn start() -> Recording {
    let engine = match std::env::var("ENGINE").as_deref() {
        Ok("timer") => Engine::ThreadTimer,
        _ => Engine::Auto,
    };
    let profiler = Profiler::new().engine(engine).frequency_hz(1000);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler.start().unwrap()
}

fn name(i: usize) -> String {
    format!("slow-{i:03}")
}

/// Ticks in the stacks of each thread.
pub(in crate::cpu) fn ticks_in_stacks(profile: &Profile, threads: usize) -> Vec<i64> {
    let mut ticks = vec![0; threads];
    for sample in profile.samples() {
        let thread = sample.labels.iter().find_map(|label| match label.value {
            LabelValue::Str(text) => profile.string(text).strip_prefix("slow-")?.parse().ok(),
            _ => None,
        });
        // Time in no stack has a place without an address.
        let is_stack = profile.location(sample.stack[0]).address != 0;
        if let Some(ticks) = thread
            .and_then(|i: usize| ticks.get_mut(i))
            .filter(|_| is_stack)
        {
            *ticks += sample.values[0];
        }
    }
    ticks
}

#[test]
fn a_thread_that_begins_while_one_recording_follows_another_is_the_laters() {
    for engine in ["auto", "timer"] {
        process::succeed_and_show(
            process::child("cpu::births::tests::child_of_births_between_recordings")
                .env("ENGINE", engine),
        );
    }
}

/// Threads are held at each step of their beginning until the recording has ended that they
/// were created in, and another one has been started.
#[test]
#[ignore = "a child process"]
fn child_of_births_between_recordings() {
    let steps = [
        &BEFORE_ASKING_NS,
        &BEFORE_CLAIM_NS,
        &BEFORE_CLOCK_NS,
        &BEFORE_TELLING_NS,
    ];
    for (number, step) in steps.into_iter().enumerate() {
        let earlier = start();
        let others = earlier.stats().threads_armed;
        assert!(earlier.stats().threads_hooked);
        let are_armed = Arc::new(AtomicBool::new(false));
        let threads = threads_held_at::<8>(step, &are_armed);
        earlier.stop().unwrap();
        step.store(0, Ordering::Relaxed);
        let later = start();
        let known = later.stats().threads_armed;
        IS_HELD.store(false, Ordering::Release);
        wait_until(|| later.stats().threads_armed >= others + 8);
        are_armed.store(true, Ordering::Release);
        for thread in threads {
            thread.join().unwrap();
        }
        let profile = later.stop().unwrap();
        let stats = later.stats();
        let ticks = ticks_in_stacks(&profile, 8);
        process::figure!(
            "births held at step {number}: {ticks:?} ticks, {known} armed at the start, {} in the end",
            stats.threads_armed
        );
        assert_eq!(stats.threads_armed, others + 8, "{stats}");
        if stats.engine == Engine::PerfEvent {
            assert!(ticks.iter().all(|&ticks| ticks > 0), "{ticks:?}\n{stats}");
        }
        // At the last step they have clocks of the earlier recording.
        if number < 3 {
            assert_eq!(stats.foreign_signals, 0, "{stats}");
        }
        assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
    }
}

#[test]
fn a_thread_that_stands_still_while_it_tells_holds_up_nobody() {
    for engine in ["auto", "timer"] {
        process::succeed_and_show(
            process::child("cpu::births::tests::child_of_a_birth_that_stands_still")
                .env("ENGINE", engine),
        );
    }
}

/// Where many threads share a CPU, one of them can lose it at any place for longer than lanes
/// have room.
#[test]
#[ignore = "a child process"]
fn child_of_a_birth_that_stands_still() {
    for step in [&WHILE_TELLING_NS, &BEFORE_TELLING_NS] {
        let recording = start();
        let others = recording.stats().threads_armed;
        let is_enough = Arc::new(AtomicBool::new(false));
        let threads = threads_held_at::<1>(step, &is_enough);
        if std::ptr::eq(step, &WHILE_TELLING_NS) {
            // No handler of the program's runs there, which might wait for another thread that
            // begins.
            let held = identity(HELD_TID.load(Ordering::Acquire)).unwrap();
            assert!(held.blocks(libc::SIGUSR1));
        }
        // More turns than one, and ticks of the thread itself among what is counted.
        for _ in 0..5 {
            let counted = recording.stats().ticks;
            wait_until(|| {
                burn(MS);
                recording.stats().ticks >= counted + 20
            });
        }
        assert_eq!(recording.stats().threads_armed, others);
        step.store(0, Ordering::Relaxed);
        IS_HELD.store(false, Ordering::Release);
        wait_until(|| recording.stats().threads_armed == others + 1);
        is_enough.store(true, Ordering::Release);
        let [clock_ns] = threads.map(|thread| thread.join().unwrap());
        let profile = recording.stop().unwrap();
        let stats = recording.stats();
        let ticks = ticks_in_stacks(&profile, 1);
        let all_ns = ns_of(&profile, &name(0));
        process::figure!(
            "a birth that stood still: {ticks:?} ticks, {all_ns} ns in all of {clock_ns}"
        );
        if stats.engine == Engine::PerfEvent {
            assert!(ticks[0] > 0, "{stats}");
            // Ticks that came before the thread was heard of are not said to be missing, too.
            assert!(
                all_ns <= clock_ns + 3 * MS,
                "{all_ns} of {clock_ns}\n{stats}"
            );
        }
        assert_eq!(stats.foreign_signals, 0, "{stats}");
        assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
    }
}

/// A thread's time, in stacks and elsewhere.
fn ns_of(profile: &Profile, name: &str) -> u64 {
    let of_thread = profile.samples().filter(|sample| {
        sample.labels.iter().any(|label| match label.value {
            LabelValue::Str(text) => profile.string(text) == name,
            _ => false,
        })
    });
    of_thread.map(|sample| sample.values[1] as u64).sum()
}

#[test]
fn a_thread_that_was_numbered_before_the_recording_is_found_by_a_scan() {
    for engine in ["auto", "timer"] {
        process::succeed_and_show(
            process::child("cpu::births::tests::child_of_a_birth_that_was_numbered_before")
                .env("ENGINE", engine),
        );
    }
}

/// A thread gets its number in one recording, and begins when the next one has armed all that
/// there are.
#[test]
#[ignore = "a child process"]
fn child_of_a_birth_that_was_numbered_before() {
    let earlier = start();
    let [is_to_create, is_enough] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let creator = std::thread::spawn({
        let (is_to_create, is_enough) = (is_to_create.clone(), is_enough.clone());
        move || {
            wait_until(|| is_to_create.load(Ordering::Acquire));
            threads_until::<1>(&is_enough).map(|thread| thread.join().unwrap())
        }
    });
    hold_at(&BEFORE_CLONE_NS);
    is_to_create.store(true, Ordering::Release);
    wait_until(|| HELD.load(Ordering::Acquire) == 1);
    earlier.stop().unwrap();
    BEFORE_CLONE_NS.store(0, Ordering::Relaxed);
    let later = start();
    let others = later.stats().threads_armed;
    IS_HELD.store(false, Ordering::Release);
    wait_until(|| later.stats().threads_armed == others + 1);
    is_enough.store(true, Ordering::Release);
    creator.join().unwrap();
    let profile = later.stop().unwrap();
    let stats = later.stats();
    let ticks = ticks_in_stacks(&profile, 1);
    process::figure!("a birth that was numbered before: {ticks:?} ticks");
    if stats.engine == Engine::PerfEvent {
        assert!(ticks[0] > 0, "{stats}");
    }
    assert_eq!(stats.foreign_signals, 0, "{stats}");
    assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
}

#[test]
fn a_thread_does_not_wait_for_the_clock_that_a_scan_is_making() {
    for engine in ["auto", "timer"] {
        process::succeed_and_show(
            process::child("cpu::births::tests::child_that_a_slow_scan_finds")
                .env("ENGINE", engine),
        );
    }
}

/// A scan finds a thread that is about to arm itself, and loses its CPU before it has made a
/// clock: until the thread has one, or is gone.
#[test]
#[ignore = "a child process"]
fn child_that_a_slow_scan_finds() {
    for is_gone in [false, true] {
        let recording = start();
        let others = recording.stats().threads_armed;
        let is_enough = Arc::new(AtomicBool::new(is_gone));
        IS_SCAN_TO_STAND.store(true, Ordering::Release);
        let threads = threads_held_at::<1>(&BEFORE_CLAIM_NS, &is_enough);
        let tid = HELD_TID.load(Ordering::Acquire);
        wait_until(|| DOES_SCAN_STAND.load(Ordering::Acquire));
        BEFORE_CLAIM_NS.store(0, Ordering::Relaxed);
        IS_HELD.store(false, Ordering::Release);
        let slots = Slots::get().unwrap();
        let is_armed = || slots.find(tid).is_some_and(|slot| slot.serial() != 0);
        wait_until(|| is_armed() && (!is_gone || identity(tid).is_none()));
        IS_SCAN_TO_STAND.store(false, Ordering::Release);
        wait_until(|| recording.stats().threads_armed > others);
        is_enough.store(true, Ordering::Release);
        for thread in threads {
            thread.join().unwrap();
        }
        let profile = recording.stop().unwrap();
        let stats = recording.stats();
        let ticks = ticks_in_stacks(&profile, 1);
        process::figure!("found by a slow scan, gone {is_gone}: {ticks:?} ticks, {stats}");
        if stats.engine == Engine::PerfEvent {
            assert!(ticks[0] >= 15, "{ticks:?}\n{stats}");
        }
        assert_eq!(stats.threads_armed, others + 1, "{stats}");
        assert_eq!(stats.foreign_signals, 0, "{stats}");
        assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
    }
}

#[test]
fn a_thread_that_begins_while_events_are_given_up_has_a_timer() {
    process::succeed_and_show(&mut process::child(
        "cpu::births::tests::child_of_births_while_events_are_given_up",
    ));
}

/// The program takes the signal of perf events while threads are about to have one, and when
/// they have one nobody has heard of.
#[test]
#[ignore = "a child process"]
fn child_of_births_while_events_are_given_up() {
    for (number, step) in [&BEFORE_CLOCK_NS, &BEFORE_TELLING_NS]
        .into_iter()
        .enumerate()
    {
        let recording = start();
        if recording.stats().engine != Engine::PerfEvent {
            return;
        }
        let others = recording.stats().threads_armed;
        let are_armed = Arc::new(AtomicBool::new(false));
        let threads = threads_held_at::<8>(step, &are_armed);
        let given_up = perf_event::open::all();
        disposition::set(QUIET, libc::SIG_IGN);
        wait_until(|| recording.stats().handler_replaced);
        step.store(0, Ordering::Relaxed);
        IS_HELD.store(false, Ordering::Release);
        wait_until(|| recording.stats().threads_armed == others + 8);
        let events = perf_event::open::all();
        // What they have sent until now is still known as theirs.
        let table = &Owner::get().unwrap().recorder().unwrap().events;
        let known = given_up.iter().filter(|fd| table.get(**fd).is_some());
        assert_eq!(known.count(), given_up.len());
        are_armed.store(true, Ordering::Release);
        for thread in threads {
            thread.join().unwrap();
        }
        let profile = recording.stop().unwrap();
        disposition::set(QUIET, libc::SIG_DFL);
        let stats = recording.stats();
        let ticks = ticks_in_stacks(&profile, 8);
        process::figure!("events given up at step {number}: {ticks:?} ticks");
        assert!(events.is_empty(), "{} events are left", events.len());
        assert!(ticks.iter().any(|&ticks| ticks > 0), "{ticks:?}\n{stats}");
        assert_eq!(stats.threads_armed, others + 8, "{stats}");
        assert_eq!(stats.foreign_signals, 0, "{stats}");
        assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
    }
}

/// Threads, as [`threads_until`] makes them, that have come to a step of their beginning and
/// are held there.
fn threads_held_at<const N: usize>(
    step: &AtomicU64,
    is_enough: &Arc<AtomicBool>,
) -> [std::thread::JoinHandle<u64>; N] {
    hold_at(step);
    let threads = threads_until(is_enough);
    wait_until(|| HELD.load(Ordering::Acquire) == N as u32);
    threads
}

/// From now on threads that come to a step are held there.
fn hold_at(step: &AtomicU64) {
    IS_HELD.store(true, Ordering::Release);
    HELD.store(0, Ordering::Release);
    step.store(u64::MAX, Ordering::Relaxed);
}

/// Threads that use CPU time until `is_enough`, and 20 ms more, and then say how much they have
/// used, in nanoseconds.
pub(in crate::cpu) fn threads_until<const N: usize>(
    is_enough: &Arc<AtomicBool>,
) -> [std::thread::JoinHandle<u64>; N] {
    std::array::from_fn(|i| {
        let is_enough = is_enough.clone();
        let body = move || {
            while !is_enough.load(Ordering::Acquire) {
                burn(MS);
            }
            burn(20 * MS);
            Clock::THREAD_CPU.now_ns().unwrap()
        };
        let thread = std::thread::Builder::new().name(name(i));
        thread.spawn(body).unwrap()
    })
}

/// Waits for a state that comes, however slow the machine.
pub(in crate::cpu) fn wait_until(is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_there() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn phases_are_spread_over_the_period() {
    let period = Duration::from_millis(10);
    let phases: Vec<Duration> = (1..=10_000)
        .map(|i| random_part(period, i, Purpose::Phase))
        .collect();
    assert!(phases.iter().all(|p| !p.is_zero() && *p <= period));
    // The standard error of the mean is 0.3 % of the period.
    let mean = phases.iter().sum::<Duration>() / 10_000;
    assert!(mean.abs_diff(period / 2) < period / 40, "{mean:?}");
}
