//! Memory that comes and goes: code, stacks, and what lies between.

use std::cell::Cell;
use std::time::Duration;

use crate::judge::Expected;
use crate::mappings::{CODE_BYTES, made, map, unmap};
use crate::work::burn;
use crate::{Storm, Weather};

const KIB: usize = 1024;

pub const MAPPING: Storm = Storm {
    name: "mapping",
    run: mapping,
    expected: Expected {
        roots: &["mapping"],
        calls: &[("touch", "mapping")],
        most_truncated: 0.01,
        most_wrong: 0.01,
        most_unreadable: 0.001,
    },
};

pub const MAKING_FRAMES: Storm = Storm {
    name: "making-frames",
    run: making_frames,
    expected: Expected {
        roots: &["making_frames"],
        calls: &[("(made code)", "make_and_call")],
        most_truncated: 0.01,
        most_wrong: 0.01,
        most_unreadable: 0.001,
    },
};

pub const MAKING_FRAMELESS: Storm = Storm {
    name: "making-bare",
    run: making_frameless,
    expected: Expected {
        roots: &["making_frameless"],
        calls: &[],
        // Nothing says where such code's caller is.
        most_truncated: 1.0,
        most_wrong: 0.01,
        most_unreadable: 0.001,
    },
};

pub const COROUTINES: Storm = Storm {
    name: "coroutines",
    run: coroutines,
    expected: Expected {
        roots: &["coroutines", "on_coroutine"],
        calls: &[("burn", "on_coroutine")],
        // A switch of stacks has no unwind data that is right, for some instructions.
        most_truncated: 0.01,
        most_wrong: 0.01,
        most_unreadable: 0.001,
    },
};

pub const SMALL_STACKS: Storm = Storm {
    name: "small-stacks",
    run: small_stacks,
    expected: Expected {
        roots: &["small_stacks", "on_small_stack"],
        calls: &[("burn", "on_small_stack")],
        // New threads begin and end outside of what they run, which takes a part of their 2 ms.
        most_truncated: 0.01,
        most_wrong: 0.08,
        most_unreadable: 0.001,
    },
};

/// Mappings between, above and below others.
#[inline(never)]
fn mapping(weather: &Weather) -> u64 {
    let mut turns = 0;
    while weather.lasts() {
        let pages = 3 + turns as usize % 61;
        let start = map(pages * 4096);
        touch(start, pages);
        // SAFETY: mapped above; first a hole, then the rest, of which a hole is no part any more
        // but may be.
        unsafe {
            unmap(start.add(4096), 4096);
            touch(start, 1);
            unmap(start, 4096);
            unmap(start.add(2 * 4096), (pages - 2) * 4096);
        }
        turns += 1;
    }
    turns
}

#[inline(never)]
fn touch(start: *mut u8, pages: usize) {
    for page in 0..pages {
        // SAFETY: pages of the caller's own.
        unsafe { start.add(page * 4096).write_volatile(1) };
    }
}

#[inline(never)]
fn making_frames(weather: &Weather) -> u64 {
    let mut turns = 0;
    while weather.lasts() {
        make_and_call(true);
        turns += 1;
    }
    turns
}

#[inline(never)]
fn making_frameless(weather: &Weather) -> u64 {
    let mut turns = 0;
    while weather.lasts() {
        make_and_call(false);
        turns += 1;
    }
    turns
}

/// Makes code, runs it, and takes it away.
#[inline(never)]
fn make_and_call(with_frame_pointer: bool) {
    let code = made(with_frame_pointer);
    code(200_000);
    // SAFETY: `made` maps as much, and the code has returned.
    unsafe { unmap(code as *mut u8, CODE_BYTES) };
}

/// The two sides of a coroutine.
struct Sides {
    caller: libc::ucontext_t,
    coroutine: libc::ucontext_t,
}

thread_local! {
    static SIDES: Cell<*mut Sides> = const { Cell::new(std::ptr::null_mut()) };
}

const SWITCHES: u32 = 10;

#[inline(never)]
extern "C" fn on_coroutine() {
    let sides = SIDES.get();
    for _ in 0..SWITCHES {
        burn(Duration::from_micros(20));
        // SAFETY: both sides live for as long as the coroutine, on one thread.
        unsafe { libc::swapcontext(&raw mut (*sides).coroutine, &raw const (*sides).caller) };
    }
}

/// Coroutines on stacks that are unmapped when they have ended.
#[inline(never)]
fn coroutines(weather: &Weather) -> u64 {
    const STACK: usize = 64 * KIB;
    let mut turns = 0;
    while weather.lasts() {
        let stack = map(STACK);
        // SAFETY: contexts are integers and pointers, which may be zero; they are filled before
        // they are used.
        let mut sides: Sides = unsafe { std::mem::zeroed() };
        let sides = &raw mut sides;
        SIDES.set(sides);
        // SAFETY: the stack and both sides outlive the coroutine, which ends at the last switch to
        // it.
        unsafe {
            assert_eq!(libc::getcontext(&raw mut (*sides).coroutine), 0);
            (*sides).coroutine.uc_stack.ss_sp = stack.cast();
            (*sides).coroutine.uc_stack.ss_size = STACK;
            (*sides).coroutine.uc_link = &raw mut (*sides).caller;
            libc::makecontext(&raw mut (*sides).coroutine, on_coroutine, 0);
            for _ in 0..=SWITCHES {
                libc::swapcontext(&raw mut (*sides).caller, &raw const (*sides).coroutine);
            }
            unmap(stack, STACK);
        }
        turns += 1;
    }
    turns
}

/// Threads on the smallest stacks that glibc takes, which are unmapped when they have ended; every
/// other one has a small alternate signal stack, too.
#[inline(never)]
fn small_stacks(weather: &Weather) -> u64 {
    const STACK: usize = 16 * KIB;
    let mut turns = 0_u64;
    while weather.lasts() {
        let mapped = map(GUARD + STACK);
        let has_alternate = turns % 2 == 1;
        // SAFETY: the stack lies above its guard page and outlives the thread, which is joined.
        unsafe {
            assert_eq!(libc::mprotect(mapped.cast(), GUARD, libc::PROT_NONE), 0);
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            let stack = mapped.add(GUARD).cast();
            assert_eq!(
                libc::pthread_attr_setstack(&mut attributes, stack, STACK),
                0
            );
            let mut thread: libc::pthread_t = 0;
            let argument = usize::from(has_alternate) as *mut libc::c_void;
            assert_eq!(
                libc::pthread_create(&mut thread, &attributes, on_small_stack, argument),
                0
            );
            libc::pthread_join(thread, std::ptr::null_mut());
            libc::pthread_attr_destroy(&mut attributes);
            unmap(mapped, GUARD + STACK);
        }
        turns += 1;
    }
    turns
}

const GUARD: usize = 4096;

#[inline(never)]
extern "C" fn on_small_stack(has_alternate: *mut libc::c_void) -> *mut libc::c_void {
    if has_alternate.is_null() {
        burn(Duration::from_millis(2));
        return std::ptr::null_mut();
    }
    const ALTERNATE: usize = 8 * KIB;
    let mapped = map(GUARD + ALTERNATE);
    let mut alternate = libc::stack_t {
        // Above a guard page.
        ss_sp: mapped.wrapping_add(GUARD).cast(),
        ss_flags: 0,
        ss_size: ALTERNATE,
    };
    // SAFETY: the alternate stack is taken away before its memory is.
    unsafe {
        assert_eq!(libc::mprotect(mapped.cast(), GUARD, libc::PROT_NONE), 0);
        assert_eq!(libc::sigaltstack(&alternate, std::ptr::null_mut()), 0);
        burn(Duration::from_millis(2));
        alternate.ss_flags = libc::SS_DISABLE;
        assert_eq!(libc::sigaltstack(&alternate, std::ptr::null_mut()), 0);
        unmap(mapped, GUARD + ALTERNATE);
    }
    std::ptr::null_mut()
}
