//! System calls that threads wait in, and that signals interrupt.

use std::mem::MaybeUninit;

use super::arch::InterruptedCall;
use super::brief_file::read_to_string;

/// A system call that a thread waits in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SystemCall {
    pub(crate) number: u32,
    pub(crate) arguments: [u64; 6],
    /// Stack pointer.
    pub(crate) sp: u64,
    /// Program counter: the instruction after the call's.
    pub(crate) pc: u64,
}

impl SystemCall {
    /// The call that a thread waits in. `None` where it runs, is gone or waits for something else
    /// (a page, for instance), and where the kernel does not say (CONFIG_HAVE_ARCH_TRACEHOOK).
    pub(crate) fn of_thread(tid: i32) -> Option<Self> {
        let text = text_of(tid)?;
        let mut fields = text.split_ascii_whitespace();
        let number = fields.next()?.parse().ok()?;
        let mut hex = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = hex()?;
        }
        let (sp, pc) = (hex()?, hex()?);
        Some(Self {
            number,
            arguments,
            sp,
            pc,
        })
    }

    /// What a signal can carry of it.
    pub(crate) fn trace(&self) -> Trace {
        Trace {
            number: self.number,
            digest: digest(&self.arguments),
            sp: self.sp,
            pc: self.pc,
        }
    }
}

/// The address at which a thread waits in the kernel: the system call's, as a rule. `None` as of
/// [`SystemCall::of_thread`].
#[cfg(feature = "http")]
pub(crate) fn waiting_at(tid: i32) -> Option<u64> {
    let text = text_of(tid)?;
    let address = text.trim_end().rsplit(' ').next()?.strip_prefix("0x")?;
    u64::from_str_radix(address, 16).ok()
}

/// `running`; or a call's number in decimal, -1 for none, and its arguments, the stack pointer and
/// the program counter in hexadecimal (proc_pid_syscall(5)).
fn text_of(tid: i32) -> Option<String> {
    read_to_string(&format!("/proc/self/task/{tid}/syscall")).ok()
}

/// Whether a descriptor is a socket. *Async-signal-safe.*
pub(crate) fn is_socket(fd: u64) -> bool {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes the status.
    if unsafe { libc::fstat(fd as libc::c_int, status.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: written by the call above, which succeeded.
    unsafe { status.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFSOCK
}

/// What a signal carries of the system call that its sender saw the thread wait in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Trace {
    pub(crate) number: u32,
    /// Of the arguments.
    pub(crate) digest: u32,
    pub(crate) sp: u64,
    pub(crate) pc: u64,
}

impl Trace {
    /// Whether it is of a call that a signal has interrupted: the same place in the code and on the
    /// stack, and the same arguments. *Async-signal-safe.*
    pub(crate) fn is_of(&self, call: &InterruptedCall) -> bool {
        (self.pc, self.sp) == (call.pc, call.sp) && self.digest == digest(&call.arguments)
    }
}

/// Tells the calls of a thread apart: by the place in the code and on the stack, and the
/// arguments. *Async-signal-safe.*
pub(crate) fn key(call: &InterruptedCall) -> u32 {
    let [a, b, c, d, e, f] = call.arguments;
    digest(&[a ^ call.pc, b ^ call.sp, c, d, e, f])
}

/// Tells the arguments of two calls apart. *Async-signal-safe.*
fn digest(arguments: &[u64; 6]) -> u32 {
    // Fibonacci hashing; the upper half depends on all bits before.
    let sum = arguments.iter().fold(0_u64, |sum, &argument| {
        (sum.rotate_left(29) ^ argument).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    (sum >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::thread::current_tid;

    #[test]
    fn a_waiting_thread_s_call_is_seen() {
        let (tell, told) = std::sync::mpsc::channel();
        let mut ends = [0; 2];
        // SAFETY: makes two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let [reads, writes] = ends;
        let thread = std::thread::spawn(move || {
            let mut byte = 0_u8;
            tell.send((current_tid(), &raw mut byte as u64)).unwrap();
            // SAFETY: reads into the byte.
            unsafe { libc::read(reads, (&raw mut byte).cast(), 1) }
        });
        let (tid, byte) = told.recv().unwrap();
        let call = loop {
            match SystemCall::of_thread(tid) {
                Some(call) if call.arguments[1] == byte => break call,
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!(i64::from(call.number), libc::SYS_read);
        assert_eq!((call.arguments[0], call.arguments[2]), (reads as u64, 1));
        assert!(call.sp.abs_diff(byte) < 1 << 20, "{call:x?}");
        // SAFETY: writes a byte.
        assert_eq!(unsafe { libc::write(writes, [1_u8].as_ptr().cast(), 1) }, 1);
        assert_eq!(thread.join().unwrap(), 1);
        assert_eq!(SystemCall::of_thread(tid), None);
        assert_ne!(digest(&[1, 2, 3, 4, 5, 6]), digest(&[1, 2, 3, 4, 6, 5]));
    }
}
