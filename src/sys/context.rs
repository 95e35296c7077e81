//! Where the C library's coroutines begin.

use std::sync::OnceLock;

/// The return address that `makecontext` gives to a coroutine's first function. It lies behind no
/// call, but is the first instruction of the code that goes on to `uc_link`, so unwind data does
/// not say that the stack ends there. `None` where it is not known: by another C library, which has
/// no such coroutines, and on another machine.
pub(crate) fn coroutine_return() -> Option<u64> {
    static FOUND: OnceLock<Option<u64>> = OnceLock::new();
    *FOUND.get_or_init(find)
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn find() -> Option<u64> {
    extern "C" fn never_called() {}

    let mut stack = [0_u64; 64];
    // SAFETY: a context is integers and pointers, all of which may be zero.
    let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
    // SAFETY: the context is filled by the first call and changed by the second, which writes to
    // the end of a stack that is large enough for a function without arguments. Nothing goes to the
    // context.
    unsafe {
        if libc::getcontext(&mut context) != 0 {
            return None;
        }
        context.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        context.uc_stack.ss_size = size_of_val(&stack);
        libc::makecontext(&mut context, never_called, 0);
    }
    let sp = context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    let offset = sp.checked_sub(stack.as_ptr() as usize)?;
    let address = stack.get(offset / 8).copied().filter(|&word| word != 0)?;
    // An instruction of one byte before it could be interrupted there; what fills the space between
    // functions is not. SAFETY: a place in the C library's code, which is neither its first nor
    // ever unmapped.
    let before = unsafe { (address as *const u8).sub(1).read() };
    matches!(before, 0x00 | 0x90 | 0xcc).then_some(address)
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn find() -> Option<u64> {
    None
}

#[cfg(all(test, target_arch = "x86_64", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn coroutines_return_into_the_c_library() {
        let address = coroutine_return().expect("glibc has coroutines");
        let maps = crate::sys::maps::Maps::read().unwrap();
        let entry = maps.find(address).expect("it is mapped");
        assert!(entry.permissions.contains('x') && entry.path.contains("libc"));
    }
}
