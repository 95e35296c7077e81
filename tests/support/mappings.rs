//! Memory of a test's own: to run on, to take away again, and to make code in.
#![allow(dead_code, reason = "each test binary uses a part of it")]

/// Fresh memory, of whole pages.
pub fn map(len: usize) -> *mut u8 {
    // SAFETY: a fresh mapping.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

/// Gives memory back.
///
/// # Safety
///
/// The whole of it is the caller's own, and nothing uses it any more.
pub unsafe fn unmap(start: *mut u8, len: usize) {
    // SAFETY: the caller's contract.
    assert_eq!(unsafe { libc::munmap(start.cast(), len) }, 0);
}

#[cfg(target_arch = "x86_64")]
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use code::*;

#[cfg(target_arch = "x86_64")]
mod code {
    use super::map;

    pub type Code = extern "C" fn(u64);

    /// What code that was made takes.
    pub const CODE_BYTES: usize = 4096;

    /// A function that counts down, made at run time: with a frame pointer, or without. It stays
    /// until it is unmapped.
    pub fn made(with_frame_pointer: bool) -> Code {
        // push rbp; mov rbp, rsp; 1: dec rdi; jnz 1b; pop rbp; ret
        const FRAME: [u8; 11] = [
            0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3,
        ];
        // push rbp; xor ebp, ebp; 1: dec rdi; jnz 1b; pop rbp; ret
        const NO_FRAME: [u8; 10] = [0x55, 0x31, 0xed, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3];
        let code: &[u8] = if with_frame_pointer {
            &FRAME
        } else {
            &NO_FRAME
        };
        let page = map(CODE_BYTES);
        // SAFETY: a mapping of its own, written before it is made executable.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), page, code.len());
            assert_eq!(
                libc::mprotect(page.cast(), CODE_BYTES, libc::PROT_READ | libc::PROT_EXEC),
                0
            );
            std::mem::transmute::<*mut u8, Code>(page)
        }
    }
}
