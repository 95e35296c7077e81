//! Other people's unwinders at work: panics, exceptions, and backtraces that a program takes of
//! itself.

use std::backtrace::Backtrace;
use std::panic::catch_unwind;

use crate::judge::Expected;
use crate::{Storm, Weather};

pub const PANICKING: Storm = Storm {
    name: "panicking",
    run: panicking,
    expected: Expected {
        roots: &["panicking"],
        calls: &[],
        // Where an exception lands libgcc overwrites the return addresses of its own callers.
        most_truncated: 0.03,
        most_wrong: 0.05,
        most_unreadable: 0.001,
    },
};

pub const THROWING: Storm = Storm {
    name: "throwing",
    run: throwing,
    expected: Expected {
        roots: &["throwing"],
        calls: &[("throw_and_catch", "throwing")],
        // As above.
        most_truncated: 0.03,
        most_wrong: 0.03,
        most_unreadable: 0.001,
    },
};

pub const CAPTURING: Storm = Storm {
    name: "capturing",
    run: capturing,
    expected: Expected {
        roots: &["capturing"],
        calls: &[],
        most_truncated: 0.01,
        most_wrong: 0.01,
        most_unreadable: 0.001,
    },
};

pub const WALKING: Storm = Storm {
    name: "walking",
    run: walking,
    expected: Expected {
        roots: &["walking"],
        calls: &[],
        most_truncated: 0.01,
        most_wrong: 0.01,
        most_unreadable: 0.001,
    },
};

/// Calls `leaf` below `depth` frames of this function.
#[inline(never)]
fn descend(depth: u32, leaf: &dyn Fn()) -> u32 {
    if depth == 0 {
        leaf();
        return 0;
    }
    std::hint::black_box(descend(depth - 1, leaf)) + 1
}

#[inline(never)]
fn panicking(weather: &Weather) -> u64 {
    let mut turns = 0;
    while weather.lasts() {
        let depth = 1 + (turns % 30) as u32;
        assert!(catch_unwind(|| descend(depth, &|| panic!("of the storm"))).is_err());
        turns += 1;
    }
    turns
}

#[inline(never)]
fn throwing(weather: &Weather) -> u64 {
    let throw_and_catch = weather.libraries.throw_and_catch;
    let mut turns = 0;
    while weather.lasts() {
        let depth = (turns % 30) as u32;
        assert_eq!(throw_and_catch(depth), depth + 4);
        turns += 1;
    }
    turns
}

#[inline(never)]
fn capturing(weather: &Weather) -> u64 {
    let mut turns = 0;
    while weather.lasts() {
        descend((turns % 30) as u32, &|| {
            let backtrace = Backtrace::force_capture();
            // Names are looked up under a lock, and take long.
            if turns % 100 == 0 {
                assert!(backtrace.to_string().contains("capturing"));
            }
        });
        turns += 1;
    }
    turns
}

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut libc::c_void, *mut libc::c_void) -> libc::c_int,
        argument: *mut libc::c_void,
    ) -> libc::c_int;
}

extern "C" fn count(_: *mut libc::c_void, frames: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the caller's number, as `walking` passes it.
    unsafe { *frames.cast::<u32>() += 1 };
    0
}

/// Backtraces of the C library's and of libgcc's.
#[inline(never)]
fn walking(weather: &Weather) -> u64 {
    let mut turns = 0;
    while weather.lasts() {
        let depth = (turns % 30) as u32;
        descend(depth, &|| {
            let mut frames = [std::ptr::null_mut(); 100];
            let mut walked = 0_u32;
            // SAFETY: as many frames are written as there is room for; the callback counts.
            let written = unsafe {
                _Unwind_Backtrace(count, (&raw mut walked).cast());
                libc::backtrace(frames.as_mut_ptr(), frames.len() as libc::c_int)
            };
            assert!(walked > depth && written > depth as libc::c_int);
        });
        turns += 1;
    }
    turns
}
