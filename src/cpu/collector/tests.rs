//! A flusher that is held while it compiles tables, as a large one on a crowded machine holds it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::births::tests::{start, wait_until};
use crate::process;
use crate::profile::LabelValue;
use crate::sys::clock::Clock;
use crate::sys::thread::{current_tid, identity};

/// Whether the flusher is to be held, and whether it is.
static IS_TO_HOLD: AtomicBool = AtomicBool::new(false);
static IS_HELD: AtomicBool = AtomicBool::new(false);

pub(super) fn go_on_while_held(go_on: &mut impl FnMut()) {
    while IS_TO_HOLD.load(Ordering::Acquire) {
        IS_HELD.store(true, Ordering::Release);
        go_on();
    }
}

#[test]
fn a_thread_that_comes_and_goes_while_tables_are_compiled_has_its_name() {
    process::succeed(&mut process::child(
        "cpu::collector::tests::child_that_compiles_for_long",
    ));
}

#[test]
#[ignore = "a child process"]
fn child_that_compiles_for_long() {
    IS_TO_HOLD.store(true, Ordering::Release);
    let recording = start();
    wait_until(|| IS_HELD.load(Ordering::Acquire));
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("brief".into());
    // It tells nobody that it ends.
    let leave = move || {
        let end_ns = Clock::THREAD_CPU.now_ns().unwrap() + 300_000_000;
        while Clock::THREAD_CPU.now_ns().unwrap() < end_ns {}
        tell.send(current_tid()).unwrap();
        // SAFETY: ends the thread alone, which owns nothing that anybody waits for.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    };
    // Whoever joins such a thread waits for what it leaves undone.
    std::mem::forget(thread.spawn(leave).unwrap());
    let tid = told.recv().unwrap();
    wait_until(|| identity(tid).is_none());
    IS_TO_HOLD.store(false, Ordering::Release);
    let profile = recording.stop().unwrap();
    let ticks = profile.samples().filter(|sample| {
        sample.labels.iter().any(|label| match label.value {
            LabelValue::Str(text) => profile.string(text) == "brief",
            _ => false,
        })
    });
    let ticks: i64 = ticks.map(|sample| sample.values[0]).sum();
    assert!(ticks > 0, "{}", recording.stats());
}
