//! A stack of our own for the handler, or an allocation that is sampled, to work on.
//!
//! Threads have small stacks, and an alternate signal stack is smaller still (8 KiB under Rust's
//! standard library, of which the signal frame takes up to 4), while evaluating a row of unwind
//! data takes gimli more than 10 KiB. So the handler leaves the interrupted stack at once.

use std::io;

use super::memory::Pages;

/// Usable bytes of the handler's: what evaluating takes in a build without optimization, several times over.
/// Untouched pages take no memory.
const STACK_BYTES: usize = 128 * 1024;
const GUARD_BYTES: usize = 4096;
/// Left free above the first frame, which by the calling conventions may look at arguments there
/// (libc's `syscall` loads as many as there could be).
const TOP_BYTES: usize = 128;

/// A stack with a guard page below it.
#[derive(Debug)]
pub(crate) struct Stack {
    pages: Pages,
    /// Usable bytes.
    bytes: usize,
}

// SAFETY: memory that only the user of `run` touches, whose contract it is to be alone.
unsafe impl Sync for Stack {}

impl Stack {
    /// A stack of 128 KiB.
    pub(crate) fn new() -> io::Result<Self> {
        Self::of_bytes(STACK_BYTES)
    }

    /// A stack of this many bytes, which are whole pages.
    pub(crate) fn of_bytes(bytes: usize) -> io::Result<Self> {
        let pages = Pages::map(GUARD_BYTES + bytes)?;
        // SAFETY: the first page of a mapping of our own, which nothing uses yet.
        let guarded =
            unsafe { libc::mprotect(pages.as_ptr().cast(), GUARD_BYTES, libc::PROT_NONE) };
        super::check(guarded.into())?;
        Ok(Self { pages, bytes })
    }

    /// Runs `f` on this stack. *Async-signal-safe* if `f` is.
    ///
    /// # Safety
    ///
    /// Nobody else uses this stack until the call returns, and `f` returns: it neither unwinds nor
    /// jumps out.
    pub(crate) unsafe fn run<F: FnOnce()>(&self, f: F) {
        extern "C" fn call<F: FnOnce()>(f: *mut Option<F>) {
            // SAFETY: the pointer to the caller's local below, which outlives the call.
            if let Some(f) = unsafe { (*f).take() } {
                f();
            }
        }
        let mut f = Some(f);
        // SAFETY: within the mapping, which is a whole number of pages, and so aligned as a stack
        // must be.
        let top = unsafe { (self.pages.as_ptr()).add(GUARD_BYTES + self.bytes - TOP_BYTES) };
        // SAFETY: `call::<F>` follows the C calling convention, keeps within the stack (a guard
        // page ends it), and returns.
        unsafe { call_on(top, call::<F>, &raw mut f) };
    }

    /// Gives the memory back; the stack stays usable.
    ///
    /// # Safety
    ///
    /// Nobody uses the stack while this runs.
    pub(crate) unsafe fn release_memory(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.pages.discard() };
    }
}

/// Calls `function(argument)` with the stack pointer at `top`, and puts the old one back.
///
/// # Safety
///
/// `top` is the aligned end of a stack that is large enough and nobody else's, and the function
/// returns.
#[cfg(target_arch = "x86_64")]
unsafe fn call_on<T>(top: *mut u8, function: extern "C" fn(*mut T), argument: *mut T) {
    // SAFETY: r12 is kept by the callee, so it holds the old stack pointer across the call;
    // everything that the C convention lets a callee change is declared as changed.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {function}",
            "mov rsp, r12",
            top = in(reg) top,
            function = in(reg) function,
            in("rdi") argument,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// Calls `function(argument)` with the stack pointer at `top`, and puts the old one back.
///
/// # Safety
///
/// `top` is the aligned end of a stack that is large enough and nobody else's, and the function
/// returns.
#[cfg(target_arch = "aarch64")]
unsafe fn call_on<T>(top: *mut u8, function: extern "C" fn(*mut T), argument: *mut T) {
    // SAFETY: x20 is kept by the callee, so it holds the old stack pointer across the call;
    // everything that the C convention lets a callee change is declared as changed.
    unsafe {
        std::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {function}",
            "mov sp, x20",
            top = in(reg) top,
            function = in(reg) function,
            in("x0") argument,
            out("x20") _,
            clobber_abi("C"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn address_of_a_local() -> usize {
        let local = 0u8;
        std::hint::black_box(&raw const local) as usize
    }

    #[test]
    fn runs_there_and_comes_back() {
        let stack = Stack::new().unwrap();
        let mine = address_of_a_local();
        let mut there = 0;
        let text = String::from("captured");
        // SAFETY: the stack is this test's own.
        unsafe {
            stack.run(|| {
                there = address_of_a_local();
                assert_eq!(text, "captured");
            });
        }
        let range = stack.pages.as_ptr() as usize + GUARD_BYTES..;
        assert!(range.contains(&there) && there < range.start + STACK_BYTES);
        assert!(
            mine.abs_diff(address_of_a_local()) < 4096,
            "back where it was"
        );
    }
}
