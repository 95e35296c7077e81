//! Which system calls may begin again after `EINTR`.
#![forbid(unsafe_code)]

/// How much of the signal mask a call leaves in force while it waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mask {
    /// The thread's own.
    Kept,
    /// One that the call is given: signals that the thread blocks otherwise may come.
    Replaced,
}

/// Whether a call that returned `EINTR` has done nothing yet, so that it may begin again, and which
/// mask it waits with; `None` where it may not. *Async-signal-safe* if `is_socket` is.
///
/// Calls that the kernel restarts itself after a handler with `SA_RESTART` are not here, except
/// where a timeout keeps the kernel from it (signal(7)). `close` has freed its descriptor, and
/// `connect` goes on by itself: both never begin again.
pub(super) fn waits_with(
    number: u32,
    arguments: &[u64; 6],
    is_socket: impl FnOnce(u64) -> bool,
) -> Option<Mask> {
    let replaced_where = |is_given: bool| match is_given {
        true => Some(Mask::Replaced),
        false => Some(Mask::Kept),
    };
    let kept_where = |is_safe: bool| is_safe.then_some(Mask::Kept);
    match libc::c_long::from(number) {
        libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_semop
        | libc::SYS_semtimedop
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_io_getevents
        | libc::SYS_futex_waitv
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_accept
        | libc::SYS_accept4 => Some(Mask::Kept),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll | libc::SYS_select | libc::SYS_epoll_wait | libc::SYS_pause => {
            Some(Mask::Kept)
        }
        libc::SYS_ppoll => replaced_where(arguments[3] != 0),
        libc::SYS_pselect6 => replaced_where(arguments[5] != 0),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => replaced_where(arguments[4] != 0),
        SYS_IO_PGETEVENTS => replaced_where(arguments[5] != 0),
        libc::SYS_rt_sigsuspend => Some(Mask::Replaced),
        libc::SYS_io_uring_enter if arguments[3] & IORING_ENTER_GETEVENTS != 0 => {
            replaced_where(arguments[4] != 0)
        }
        libc::SYS_futex => kept_where(is_wait(arguments[1])),
        SYS_FUTEX_WAIT => Some(Mask::Kept),
        libc::SYS_sendto => kept_where(!opens_fast(arguments[3])),
        libc::SYS_sendmsg => kept_where(!opens_fast(arguments[2])),
        libc::SYS_sendmmsg => kept_where(!opens_fast(arguments[3])),
        // A socket may have a timeout. Other files wait without one, and the kernel restarts them.
        libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev => {
            kept_where(is_socket(arguments[0]))
        }
        _ => None,
    }
}

/// Where libc does not name it for every target (include/uapi/asm-generic/unistd.h).
const SYS_IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") {
    333
} else {
    292
};
const SYS_FUTEX_WAIT: libc::c_long = 455;
/// include/uapi/linux/io_uring.h.
const IORING_ENTER_GETEVENTS: u64 = 1;

/// Whether a futex operation waits, and begins again without harm. `FUTEX_LOCK_PI` and its kin are
/// restarted by the kernel, `FUTEX_WAIT_REQUEUE_PI` may have been requeued.
fn is_wait(operation: u64) -> bool {
    let command =
        operation as libc::c_int & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    matches!(command, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
}

/// Whether sending begins a connection as well, which goes on by itself.
fn opens_fast(flags: u64) -> bool {
    flags as libc::c_int & libc::MSG_FASTOPEN != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_begin_again() {
        let waits =
            |number: libc::c_long, arguments| waits_with(number as u32, &arguments, |fd| fd == 7);
        let none = [0; 6];
        assert_eq!(waits(libc::SYS_nanosleep, none), Some(Mask::Kept));
        assert_eq!(waits(libc::SYS_close, none), None);
        assert_eq!(waits(libc::SYS_connect, none), None);
        assert_eq!(waits(libc::SYS_ppoll, none), Some(Mask::Kept));
        assert_eq!(
            waits(libc::SYS_ppoll, [0, 0, 0, 8, 8, 0]),
            Some(Mask::Replaced)
        );
        assert_eq!(waits(libc::SYS_rt_sigsuspend, none), Some(Mask::Replaced));
        let futex =
            |operation: libc::c_int| waits(libc::SYS_futex, [0, operation as u64, 0, 0, 0, 0]);
        let private = libc::FUTEX_PRIVATE_FLAG;
        assert_eq!(futex(libc::FUTEX_WAIT | private), Some(Mask::Kept));
        assert_eq!(
            futex(libc::FUTEX_WAIT_BITSET | private | libc::FUTEX_CLOCK_REALTIME),
            Some(Mask::Kept)
        );
        assert_eq!(futex(libc::FUTEX_WAKE | private), None);
        assert_eq!(futex(libc::FUTEX_WAIT_REQUEUE_PI), None);
        let fast = libc::MSG_FASTOPEN as u64;
        assert_eq!(waits(libc::SYS_sendto, [0, 0, 0, fast, 0, 0]), None);
        assert_eq!(waits(libc::SYS_sendto, none), Some(Mask::Kept));
        assert_eq!(waits(libc::SYS_read, [7, 0, 0, 0, 0, 0]), Some(Mask::Kept));
        assert_eq!(waits(libc::SYS_read, none), None);
        assert_eq!(waits(libc::SYS_io_uring_enter, [0, 1, 0, 0, 0, 0]), None);
        assert_eq!(
            waits(libc::SYS_io_uring_enter, [0, 0, 1, 1, 0, 0]),
            Some(Mask::Kept)
        );
    }
}
