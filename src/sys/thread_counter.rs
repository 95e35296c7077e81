//! A number that each thread has of its own, and that one instruction counts down: what every
//! allocation does.
//!
//! What `thread_local!` makes is too slow there: its accessor is a function that is not always
//! inlined, and the number is loaded, changed, compared and stored. On x86_64 the number lies in a
//! thread-local variable of ours, which is reached by a TLS descriptor (A. Oliva, G. Araújo:
//! "Speeding Up Thread-Local Storage Access in Dynamic Libraries", 2005): the linker makes a
//! constant of the descriptor in a program, and a shared library that is loaded at any time may
//! have one too.

/// Takes an amount off the calling thread's number. Whether that was as large; else
/// [`put_back`] is to be called next.
///
/// An amount is no larger than `isize` holds.
#[inline(always)]
pub(crate) fn take(amount: usize) -> bool {
    native::take(amount)
}

/// Undoes a [`take`] of more than there was. Apart from it, so that a take needs no more registers
/// than its own where it succeeds. Nothing changes where the number is not below 0: a signal's
/// handler has set it meanwhile, or nothing was taken.
pub(crate) fn put_back(amount: usize) {
    let number = get();
    if number < 0 {
        set(number.wrapping_add(amount as i64));
    }
}

/// The calling thread's number, 0 at first. It is below 0 between a [`take`] of more than there
/// was and its [`put_back`], where a signal's handler may see it.
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

    /// Instructions after the two of a descriptor, which leave the variable's distance from the
    /// thread pointer in rax, and keep all other registers but the flags; those of glibc before
    /// 2.40 change the vector registers where the library was loaded late.
    macro_rules! with_variable {
        ($instructions:literal, $($operands:tt)*) => {
            asm!(
                concat!("lea rax, [rip + ", variable!(), "@tlsdesc]"),
                concat!("call [rax + ", variable!(), "@tlscall]"),
                $instructions,
                $($operands)*
                out("rax") _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            )
        };
    }

    #[inline(always)]
    pub(super) fn take(amount: usize) -> bool {
        // SAFETY: what is changed in memory is the thread's own variable, which is there as long
        // as the thread.
        unsafe {
            with_variable!(
                "sub qword ptr fs:[rax], {amount}; js {too_much}",
                amount = in(reg) amount,
                too_much = label { return false },
            );
        }
        true
    }

    pub(super) fn get() -> i64 {
        let number;
        // SAFETY: as in `take`.
        unsafe {
            with_variable!("mov {number}, fs:[rax]", number = lateout(reg) number,);
        }
        number
    }

    pub(super) fn set(number: i64) {
        // SAFETY: as in `take`.
        unsafe {
            with_variable!("mov fs:[rax], {number}", number = in(reg) number,);
        }
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
        let fails = |amount| {
            let is_taken = take(amount);
            put_back(amount);
            !is_taken
        };
        assert_eq!(get(), 0);
        assert!(fails(1) && take(0));
        set(100);
        assert!(take(60) && take(40) && fails(1));
        assert_eq!(get(), 0);
        set(5);
        assert!(fails(6) && fails(isize::MAX as usize) && take(5));
        put_back(5);
        assert_eq!(get(), 0);
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
