//! Stacks through code that compilers did not describe, and across signals: by their frames' own
//! addresses.
#![cfg(target_arch = "x86_64")]

#[path = "support/mappings.rs"]
mod mappings;
#[path = "support/process.rs"]
mod process;
#[path = "support/work.rs"]
mod work;

use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mappings::{Code, made};
use process::{skip, turn};
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

/// Counts of samples in `code`: all, those under `call`, and those that say that they are cut
/// short.
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

/// A function of a library that is compiled without `.eh_frame`, and with `.debug_frame`. What it
/// calls has no frame pointer, and leaves 0 in its register. `None` where there is no compiler.
fn compiled_for_debuggers(directory: &Path) -> Option<std::path::PathBuf> {
    const SOURCE: &str = r#"
        __attribute__((noinline)) static unsigned long leaf(unsigned long n) {
            __asm__ volatile("xor %%ebp, %%ebp\n1: dec %0\njnz 1b" : "+r"(n) : : "rbp", "cc");
            return n;
        }
        __attribute__((noinline)) unsigned long count(unsigned long n) {
            volatile char room[100];
            room[n % 100] = 1;
            return leaf(n) + room[n % 100];
        }
    "#;
    let (source, library) = (directory.join("count.c"), directory.join("count.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O2", "-g", "-fomit-frame-pointer"]);
    command.args(["-fno-asynchronous-unwind-tables", "-fno-exceptions", "-o"]);
    let Ok(ended) = process::output(command.arg(&library).arg(&source)) else {
        skip("there is no cc (apt-get install gcc)");
        return None;
    };
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {said}");
    Some(library)
}

fn count_of(library: &Path) -> Code {
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library has no initializers, is never closed, and defines the function so.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null());
        std::mem::transmute::<*mut libc::c_void, Code>(libc::dlsym(handle, c"count".as_ptr()))
    }
}

/// Samples under `call`, whose callee is `count`: all, those with the frames from its callee to the
/// root, and those that say that they are cut short.
fn recorded_in_library(count: Code) -> [i64; 3] {
    let page = |address: u64| address / 4096;
    let recording = start();
    // Unwind data is read from the file at the first turn.
    count(100_000_000);
    let begun = recording.snapshot().unwrap();
    call(count);
    call(count);
    let profile = recording.stop().unwrap();
    let counts = |profile: &Profile| {
        let mut counts = [0; 3];
        for (stack, weight) in stacks(profile) {
            if page(stack[0]) != page(count as usize as u64) {
                continue;
            }
            counts[0] += weight;
            let at = stack
                .iter()
                .position(|&a| is_in(a, call as *const () as usize, 256));
            counts[1] += if at == Some(2) && stack.last() != Some(&0) {
                weight
            } else {
                0
            };
            counts[2] += if stack.last() == Some(&0) { weight } else { 0 };
        }
        counts
    };
    let (before, all) = (counts(&begun), counts(&profile));
    std::array::from_fn(|i| all[i] - before[i])
}

#[test]
fn code_that_only_debuggers_are_told_of_is_walked_by_its_file() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = compiled_for_debuggers(directory.path()) else {
        return;
    };
    let stripped = directory.path().join("stripped.so");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&stripped).arg(&library);
    process::succeed(&mut strip);

    let [all, whole, _] = recorded_in_library(count_of(&library));
    assert!(all >= 20, "{all}");
    assert!(whole * 100 >= all * 98, "{whole} of {all}");
    let [all, whole, cut_short] = recorded_in_library(count_of(&stripped));
    assert!(all >= 20, "{all}");
    assert_eq!(whole, 0);
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
        // SAFETY: the stack outlives its use, which ends before the thread does; the handler
        // computes and counts.
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

// A C library's code that handlers return to, as musl has it: without unwind data.
std::arch::global_asm!(
    "nop",
    ".globl sigprof_test_restorer",
    ".type sigprof_test_restorer, @function",
    "sigprof_test_restorer:",
    "mov rax, 15",
    "syscall",
    ".size sigprof_test_restorer, . - sigprof_test_restorer",
    "nop",
    ".globl sigprof_test_short_restorer",
    ".type sigprof_test_short_restorer, @function",
    "sigprof_test_short_restorer:",
    "mov eax, 15",
    "syscall",
    ".size sigprof_test_short_restorer, . - sigprof_test_short_restorer",
);

unsafe extern "C" {
    fn sigprof_test_restorer();
    fn sigprof_test_short_restorer();
}

/// `struct sigaction` as the kernel has it.
#[repr(C)]
struct KernelAction {
    handler: extern "C" fn(libc::c_int),
    flags: libc::c_ulong,
    restorer: unsafe extern "C" fn(),
    mask: u64,
}

#[test]
fn stacks_go_on_below_a_handler_whose_return_nobody_describes() {
    const SA_RESTORER: libc::c_ulong = 0x0400_0000;
    let _turn = turn();
    let handler = on_signal as extern "C" fn(libc::c_int) as usize;
    for restorer in [sigprof_test_restorer, sigprof_test_short_restorer] {
        let action = KernelAction {
            handler: on_signal,
            flags: SA_RESTORER,
            restorer,
            mask: 0,
        };
        // SAFETY: the kernel's own structure, with the size of its mask; the handler computes and
        // counts, and the restorer returns from it.
        let installed = unsafe {
            let old = std::ptr::null_mut::<KernelAction>();
            libc::syscall(libc::SYS_rt_sigaction, libc::SIGWINCH, &action, old, 8)
        };
        assert_eq!(installed, 0);
        let recording = start();
        // SAFETY: asks for this thread's own id.
        let this = unsafe { libc::pthread_self() } as usize;
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            // SAFETY: the thread waits for the signal.
            unsafe { libc::pthread_kill(this as libc::pthread_t, libc::SIGWINCH) };
        });
        interrupted(&AtomicBool::new(false));
        sender.join().unwrap();
        let profile = recording.stop().unwrap();
        let (mut in_handler, mut whole) = (0, 0);
        for (stack, count) in stacks(&profile) {
            if stack.iter().any(|&a| is_in(a, handler, 256)) {
                in_handler += count;
                let is_there =
                    |function: usize, len| stack.iter().any(|&a| is_in(a, function, len));
                // A return address is one less in a profile.
                if is_there(restorer as *const () as usize - 1, 2)
                    && is_there(interrupted as *const () as usize, 512)
                    && stack.last() != Some(&0)
                {
                    whole += count;
                }
            }
        }
        assert!(in_handler >= 50, "{in_handler}");
        assert!(whole * 100 >= in_handler * 98, "{whole} of {in_handler}");
    }
}
