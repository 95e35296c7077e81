//! The operating system, one concept a file; the home of libc.
//!
//! # What is async-signal-safe
//!
//! A handler, and what it reaches, calls only what is listed here; everything else in this room is
//! ordinary code.
//!
//! | item | what it does there |
//! |---|---|
//! | [`arch::Registers::from_ucontext`] | reads the interrupted registers |
//! | [`arch::InterruptedCall`] | reads and changes the interrupted registers; a system call |
//! | [`clock::Clock::now_ns`] | a system call for CPU clocks, none for the others as a rule |
//! | [`disposition::Disposition::of`], `set` | a system call |
//! | [`disposition::Disposition::call`] | calls a handler of the program's |
//! | [`disposition::send_to_process`] | two system calls |
//! | [`futex::Futex::wake_once`] | one system call at most |
//! | [`memory::StackReader`] | loads from a stack that stays; a system call for each page of another |
//! | [`perf_event::go_on`] | two system calls |
//! | [`signal::ErrnoGuard`] | a load and a store of errno |
//! | [`signal::handled_by_program`] | a system call for each signal |
//! | [`signal::pending`] | a system call |
//! | [`signal::Tick::from_siginfo`] | reads the signal's `siginfo_t` |
//! | [`signal_frame::handler_returned`] | reads a stack, and writes below its end; a system call |
//! | [`stack::Stack::run`] | changes the stack pointer for a call |
//! | [`system_call::is_socket`] | one system call |
//! | [`thread::current_tid`] | one system call |
//! | [`thread::thread_pointer`] | reads a register |
//! | [`thread_stack::BoundsPlace::stack_of`] | reads two words of the thread's control block |
//!
//! None of them locks, allocates, panics or touches thread-local state of ours.

#[cfg(feature = "symbolize")]
pub(crate) mod allocator;
pub(crate) mod arch;
pub(crate) mod brief_file;
pub(crate) mod clock;
pub(crate) mod context;
pub(crate) mod debug_frame;
pub(crate) mod disposition;
mod dynamic;
pub(crate) mod eh_frame_hdr;
pub(crate) mod elf;
pub(crate) mod fork;
#[cfg(feature = "heap")]
pub(crate) mod fork_mutex;
pub(crate) mod futex;
pub(crate) mod got;
mod image;
#[cfg(feature = "capi")]
pub(crate) mod libgcc;
pub(crate) mod limits;
mod loader;
pub(crate) mod loader_lock;
#[cfg(feature = "symbolize")]
pub(crate) mod mapped_file;
pub(crate) mod maps;
pub(crate) mod memory;
pub(crate) mod modules;
mod originals;
pub(crate) mod own_threads;
pub(crate) mod per_process;
pub(crate) mod perf_event;
pub(crate) mod process;
mod protections;
pub(crate) mod signal;
pub(crate) mod signal_frame;
pub(crate) mod stack;
pub(crate) mod system_call;
pub(crate) mod thread;
#[cfg(feature = "heap")]
pub(crate) mod thread_counter;
pub(crate) mod thread_hook;
pub(crate) mod thread_sets;
pub(crate) mod thread_stack;
pub(crate) mod timer;
mod unlisted;

use std::io;

/// The result of a call that returns a negative number and sets errno when it fails.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
