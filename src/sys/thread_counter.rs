//! A number that each thread has of its own, and that one instruction counts down: what every
//! allocation does.
//!
//! What `thread_local!` makes is too slow there: its accessor is a function that is not always
//! inlined, and the number is loaded, changed, compared and stored. On x86_64 the number lies in a
//! thread-local variable of ours, which is reached by a TLS descriptor (A. Oliva, G. Araújo:
//! "Speeding Up Thread-Local Storage Access in Dynamic Libraries", 2005): the linker makes a
//! constant of the descriptor in a program, and a shared library that is loaded at any time may
//! have one too.

/// Takes an amount off the calling thread's number. Whether that was as large; else the number
/// stays.
///
/// An amount is no larger than `isize` holds.
#[inline(always)]
pub(crate) fn take(amount: usize) -> bool {
    native::take(amount)
}

/// The calling thread's number, 0 at first. In a signal's handler it may be below 0.
pub(crate) fn get() -> i64 {
    native::get()
}

/// Sets the calling thread's number.
pub(crate) fn set(number: i64) {
    native::set(number);
}

#[cfg(target_arch = "x86_64")]
mod native {
    use std::arch::{asm, global_asm};

    /// The variable's name. Two versions of this crate in one program have two variables.
    macro_rules! variable {
        () => {
            concat!(
                "sigprof_thread_counter_",
                env!("CARGO_PKG_VERSION_MAJOR"),
                "_",
                env!("CARGO_PKG_VERSION_MINOR"),
                "_",
                env!("CARGO_PKG_VERSION_PATCH"),
            )
        };
    }

    // Weak, so that the same version may be in a program twice, from two sources.
    global_asm!(
        ".pushsection .tbss.sigprof, \"awT\", @nobits",
        concat!(".weak ", variable!()),
        concat!(".hidden ", variable!()),
        concat!(".type ", variable!(), ", @object"),
        concat!(".size ", variable!(), ", 8"),
        ".balign 8",
        concat!(variable!(), ": .zero 8"),
        ".popsection",
    );

    #[inline(always)]
    pub(super) fn take(amount: usize) -> bool {
        // SAFETY: the two instructions of a descriptor, which leave the variable's distance from
        // the thread pointer in rax, and keep all other registers but the flags; those of glibc
        // before 2.40 change the vector registers where the library was loaded late. What is
        // changed in memory is the thread's own number.
        unsafe {
            asm!(
                concat!("lea rax, [rip + ", variable!(), "@tlsdesc]"),
                concat!("call [rax + ", variable!(), "@tlscall]"),
                "sub qword ptr fs:[rax], {amount}",
                "js {too_much}",
                amount = in(reg) amount,
                too_much = label {
                    put_back(amount);
                    return false;
                },
                out("rax") _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            );
        }
        true
    }

    /// Undoes what was one too many. A signal's handler may have set the number meanwhile, which
    /// then is no longer below 0.
    fn put_back(amount: usize) {
        let number = get();
        if number < 0 {
            set(number.wrapping_add(amount as i64));
        }
    }

    pub(super) fn get() -> i64 {
        // SAFETY: the variable of the thread is there as long as the thread.
        unsafe { address().read() }
    }

    pub(super) fn set(number: i64) {
        // SAFETY: as in `get`; no reference to the variable is ever made.
        unsafe { address().write(number) }
    }

    /// Where the calling thread's variable lies.
    #[inline(never)]
    fn address() -> *mut i64 {
        let address;
        // SAFETY: as in `take`; a thread pointer leads to itself.
        unsafe {
            asm!(
                concat!("lea rax, [rip + ", variable!(), "@tlsdesc]"),
                concat!("call [rax + ", variable!(), "@tlscall]"),
                "add rax, fs:[0]",
                out("rax") address,
                clobber_abi("C"),
            );
        }
        address
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod native {
    use std::cell::Cell;

    thread_local! {
        static NUMBER: Cell<i64> = const { Cell::new(0) };
    }

    #[inline(always)]
    pub(super) fn take(amount: usize) -> bool {
        NUMBER.with(|number| {
            let left = number.get().wrapping_sub(amount as i64);
            if left < 0 {
                return false;
            }
            number.set(left);
            true
        })
    }

    pub(super) fn get() -> i64 {
        NUMBER.get()
    }

    pub(super) fn set(number: i64) {
        NUMBER.set(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_is_there_and_nothing_that_is_not() {
        assert_eq!(get(), 0);
        assert!(!take(1) && take(0));
        set(100);
        assert!(take(60) && take(40) && !take(1));
        assert_eq!(get(), 0);
        set(5);
        assert!(!take(6) && !take(isize::MAX as usize) && take(5));
    }

    #[test]
    fn each_thread_has_its_own() {
        set(7);
        std::thread::spawn(|| {
            assert_eq!(get(), 0);
            set(3);
            assert!(take(2));
            assert_eq!(get(), 1);
        })
        .join()
        .unwrap();
        assert_eq!(get(), 7);
    }
}
