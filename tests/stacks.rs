//! Stacks through code that compilers did not describe, and across signals: by their frames' own addresses.
#![cfg(target_arch = "x86_64")]

#[path = "support/mappings.rs"]
mod mappings;
#[path = "support/process.rs"]
mod process;
#[path = "support/work.rs"]
mod work;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mappings::{Code, made};
use process::turn;
use sigprof::Profile;
use sigprof::cpu::{Profiler, Recording};
use work::burn;

fn start() -> Recording {
    let profiler = Profiler::new().frequency_hz(1000);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler.start().unwrap()
}

/// The addresses of each sample's stack, leaf first, with its count.
fn stacks(profile: &Profile) -> Vec<(Vec<u64>, i64)> {
    profile
        .samples()
        .map(|sample| {
            let address = |&id| profile.location(id).address;
            (sample.stack.iter().map(address).collect(), sample.values[0])
        })
        .collect()
}

/// Whether an address lies in a function of less than `len` bytes.
fn is_in(address: u64, function: usize, len: u64) -> bool {
    address
        .checked_sub(function as u64)
        .is_some_and(|offset| offset < len)
}

#[inline(never)]
fn call(code: Code) {
    code(300_000_000);
    std::hint::black_box(());
}

/// Counts of samples in `code`: all, those under `call`, and those that say that they are cut short.
fn recorded_in(code: Code) -> [i64; 3] {
    let recording = start();
    call(code);
    let profile = recording.stop().unwrap();
    let mut counts = [0; 3];
    for (stack, count) in stacks(&profile) {
        if !is_in(stack[0], code as usize, 64) {
            continue;
        }
        counts[0] += count;
        let under_call = stack
            .get(1)
            .is_some_and(|&a| is_in(a, call as *const () as usize, 256));
        if under_call {
            counts[1] += count;
        }
        // Frames that no code lies behind have no address.
        if stack.last() == Some(&0) {
            counts[2] += count;
        }
    }
    counts
}

#[test]
fn code_made_at_run_time_is_walked_by_frame_pointers() {
    let _turn = turn();
    let [all, under_call, cut_short] = recorded_in(made(true));
    assert!(all >= 20, "{all}");
    assert!(under_call * 100 >= all * 98, "{under_call} of {all}");
    assert!(cut_short * 100 <= all * 2, "{cut_short} of {all}");
}

#[test]
fn a_stack_that_cannot_be_walked_says_so() {
    let _turn = turn();
    let [all, under_call, cut_short] = recorded_in(made(false));
    assert!(all >= 20, "{all}");
    assert_eq!(under_call, 0);
    assert!(cut_short * 100 >= all * 98, "{cut_short} of {all}");
}

static IN_HANDLER: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
extern "C" fn on_signal(_: libc::c_int) {
    burn(Duration::from_millis(300));
    IN_HANDLER.fetch_add(1, Ordering::Relaxed);
}

/// Waits for a signal by computing, so that it is interrupted at any instruction.
#[inline(never)]
fn interrupted(done: &AtomicBool) {
    let mut value = 1_u64;
    let before = IN_HANDLER.load(Ordering::Relaxed);
    while IN_HANDLER.load(Ordering::Relaxed) == before && !done.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005));
        }
    }
}

#[test]
fn stacks_go_on_below_a_signal_handler_on_a_stack_of_its_own() {
    let _turn = turn();
    const STACK: usize = 256 * 1024;
    let handler = on_signal as extern "C" fn(libc::c_int) as usize;
    let worker = std::thread::spawn(move || {
        let mut stack = vec![0_u8; STACK];
        // SAFETY: the stack outlives its use, which ends before the thread does; the handler computes and counts.
        unsafe {
            let alternate = libc::stack_t {
                ss_sp: stack.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: STACK,
            };
            assert_eq!(libc::sigaltstack(&alternate, std::ptr::null_mut()), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_ONSTACK;
            assert_eq!(
                libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()),
                0
            );
        }
        let recording = start();
        // SAFETY: asks for this thread's own id.
        let this = unsafe { libc::pthread_self() } as usize;
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            // SAFETY: the thread waits for the signal.
            unsafe { libc::pthread_kill(this as libc::pthread_t, libc::SIGUSR2) };
        });
        interrupted(&AtomicBool::new(false));
        sender.join().unwrap();
        // SAFETY: takes the alternate stack away before it is freed.
        unsafe {
            let none = libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            libc::sigaltstack(&none, std::ptr::null_mut());
        }
        recording.stop().unwrap()
    });
    let profile = worker.join().unwrap();
    let (mut in_handler, mut whole) = (0, 0);
    for (stack, count) in stacks(&profile) {
        if stack.iter().any(|&a| is_in(a, handler, 256)) {
            in_handler += count;
            let below = stack
                .iter()
                .any(|&a| is_in(a, interrupted as *const () as usize, 512));
            if below && stack.last() != Some(&0) {
                whole += count;
            }
        }
    }
    assert!(in_handler >= 50, "{in_handler}");
    assert!(whole * 100 >= in_handler * 98, "{whole} of {in_handler}");
}
