//! Handler installation, what a signal says of itself, errno, and masks.

use std::borrow::Cow;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::system_call::Trace;

/// A handler as `SA_SIGINFO` wants it.
pub(crate) type Handler = extern "C" fn(libc::c_int, *const libc::siginfo_t, *const libc::c_void);

/// What installing a handler came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Installed {
    /// The handler is in place.
    Ours,
    /// Another handler is; it was left alone.
    Foreign,
}

/// Makes `handler` the handler of `signal`, unless a handler other than it is installed.
///
/// All signals but those of a fault are blocked while it runs, so that no other handler can
/// interrupt it and jump away with what it holds, and the host's crash reporter still sees a fault;
/// it runs on the alternate stack where the thread has one, and interrupted system calls are
/// restarted.
pub(crate) fn install(signal: libc::c_int, handler: Handler) -> io::Result<Installed> {
    note_own(handler as usize);
    let current = action(signal)?;
    if current.sa_sigaction == handler as usize {
        return Ok(Installed::Ours);
    }
    if !matches!(current.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        return Ok(Installed::Foreign);
    }
    // SAFETY: a sigaction is integers and pointers, all of which may be zero.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // Not sigfillset, which leaves out the signals that the C library keeps for itself
    // (cancellation is one). SAFETY: a sigset_t is a bit set; all bits may be set.
    unsafe {
        std::ptr::from_mut(&mut new.sa_mask).write_bytes(0xff, 1);
        unblock_faults(&mut new.sa_mask);
    }
    let mut old = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the handler has the signature that SA_SIGINFO promises, and is async-signal-safe.
    super::check(unsafe { libc::sigaction(signal, &new, old.as_mut_ptr()) }.into())?;
    // SAFETY: written by the call above, which succeeded.
    let old = unsafe { old.assume_init() };
    if matches!(old.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
        || old.sa_sigaction == handler as usize
    {
        return Ok(Installed::Ours);
    }
    // Somebody came between the look and the change: theirs goes back.
    // SAFETY: `old` is an action that was installed a moment ago.
    super::check(unsafe { libc::sigaction(signal, &old, std::ptr::null_mut()) }.into())?;
    Ok(Installed::Foreign)
}

/// Whether `handler` is the handler of `signal`.
pub(crate) fn is_installed(signal: libc::c_int, handler: Handler) -> io::Result<bool> {
    Ok(action(signal)?.sa_sigaction == handler as usize)
}

/// Signals that the program has handlers for: signal n is bit n - 1.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Handled {
    pub(crate) signals: u64,
    /// Whether a handler may run on the alternate stack.
    pub(crate) is_on_alternate_stack: bool,
}

/// The signals that are not among `blocked` (signal n is bit n - 1) and that the program has a
/// handler for; no faults. sigprof's own handlers do not count. *Async-signal-safe.*
///
/// The kernel is asked, because the C library does not tell of the signals that it keeps for itself
/// (cancellation is one).
pub(crate) fn handled_by_program(blocked: u64) -> Handled {
    let mut handled = Handled::default();
    let signals = (1..=SIGNALS)
        .filter(|signal| blocked & bit(*signal) == 0)
        .filter(|signal| !FAULTS.contains(signal) && Some(*signal) != SETXID);
    for signal in signals {
        let mut action = KernelAction::default();
        // SAFETY: only asks for the current action, which the kernel writes as it lays it out.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                std::ptr::null::<KernelAction>(),
                &raw mut action,
                size_of::<u64>(),
            )
        };
        if asked != 0 {
            // Whatever the kernel does not tell may be the program's.
            handled.signals |= bit(signal);
            handled.is_on_alternate_stack = true;
        } else if !matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN)
            && !is_own(action.handler)
        {
            handled.signals |= bit(signal);
            handled.is_on_alternate_stack |= action.flags & libc::SA_ONSTACK as libc::c_ulong != 0;
        }
    }
    handled
}

/// The signals that wait until the thread unblocks them; all where the kernel does not
/// tell. *Async-signal-safe.*
pub(crate) fn pending() -> u64 {
    let mut signals = 0_u64;
    // SAFETY: the kernel writes a set of this size.
    let asked =
        unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut signals, size_of::<u64>()) };
    match asked {
        0 => signals,
        _ => u64::MAX,
    }
}

fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// With it glibc has each thread change its user, which no program waits for (`SIGSETXID`); its
/// handler is there from the first thread on.
const SETXID: Option<libc::c_int> = if cfg!(target_env = "gnu") {
    Some(33)
} else {
    None
};

/// The kernel's signals, with those for real time.
const SIGNALS: libc::c_int = 64;

/// What the kernel says of a signal's action, with room to spare for any architecture's fields
/// behind these (include/linux/signal_types.h).
#[repr(C)]
#[derive(Default)]
struct KernelAction {
    handler: libc::sighandler_t,
    flags: libc::c_ulong,
    rest: [u64; 6],
}

/// sigprof's own handlers.
static OWN: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// Notes a handler as sigprof's own.
pub(super) fn note_own(handler: usize) {
    for own in &OWN {
        let before = own.compare_exchange(0, handler, Ordering::Relaxed, Ordering::Relaxed);
        if before.is_ok() || before == Err(handler) {
            return;
        }
    }
}

/// Whether a handler is sigprof's own.
pub(crate) fn is_own(handler: usize) -> bool {
    handler != libc::SIG_DFL && OWN.iter().any(|own| own.load(Ordering::Relaxed) == handler)
}

/// Whether nobody has asked for a signal to be handled or ignored.
#[cfg(feature = "capi")]
pub(crate) fn has_default_action(signal: libc::c_int) -> bool {
    action(signal).is_ok_and(|action| action.sa_sigaction == libc::SIG_DFL)
}

fn action(signal: libc::c_int) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: only asks for the current action.
    super::check(unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) }.into())?;
    // SAFETY: written by the call above, which succeeded.
    Ok(unsafe { action.assume_init() })
}

/// Where a signal came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tick {
    /// A POSIX timer: the cookie it was made with, and the expiries since the last signal beyond
    /// the first.
    Timer { cookie: u64, overrun: u32 },
    /// A file descriptor that was told to send it: a perf event, which may have stopped.
    Descriptor { fd: libc::c_int, has_stopped: bool },
    /// The profiler's own thread asks for a look at a thread, which it saw wait in this call.
    Look { cookie: u64, call: Option<Trace> },
    /// A thread of some process sent it: `raise`, `kill`, `pthread_kill`, `sigqueue`.
    Sent,
    /// Anything else: an interval timer, the kernel.
    Other,
}

/// `siginfo_t` of a POSIX timer's signal, as the kernel lays it out
/// (include/uapi/asm-generic/siginfo.h).
#[repr(C)]
struct TimerInfo {
    si_signo: libc::c_int,
    si_errno: libc::c_int,
    si_code: libc::c_int,
    _pad: libc::c_int,
    si_timerid: libc::c_int,
    si_overrun: libc::c_int,
    si_value: u64,
}

/// `siginfo_t` of a descriptor's signal.
#[repr(C)]
struct DescriptorInfo {
    si_signo: libc::c_int,
    si_errno: libc::c_int,
    si_code: libc::c_int,
    _pad: libc::c_int,
    si_band: libc::c_long,
    si_fd: libc::c_int,
}

/// `siginfo_t` of a [`Tick::Look`]. The kernel hands over 48 bytes of it as they are, under codes
/// that it does not know (`struct kernel_siginfo`, include/linux/signal_types.h).
#[repr(C)]
struct LookInfo {
    si_signo: libc::c_int,
    /// In the place of `si_errno`: one more than the system call's number, 0 for none.
    call: u32,
    si_code: libc::c_int,
    _pad: libc::c_int,
    si_pid: libc::pid_t,
    /// In the place of `si_uid`.
    digest: u32,
    si_value: u64,
    sp: u64,
    pc: u64,
}

/// The `si_code` of a [`Tick::Look`]. Negative codes are for programs to use, and no C library uses
/// this one.
const LOOK: libc::c_int = -0x5350;

/// `si_code` of a descriptor's signal: `POLL_IN` to `POLL_HUP` (sigaction(2)).
const POLL: std::ops::RangeInclusive<libc::c_int> = 1..=POLL_HUP;
/// What an event says that has sent as many signals as it was to send.
const POLL_HUP: libc::c_int = 6;

const _: () = assert!(size_of::<TimerInfo>() <= size_of::<libc::siginfo_t>());
const _: () = assert!(size_of::<LookInfo>() == 48);
const _: () = assert!(std::mem::offset_of!(TimerInfo, si_timerid) == 16);

impl Tick {
    /// Reads where a signal came from. *Async-signal-safe.*
    ///
    /// # Safety
    ///
    /// `info` is the second argument of an `SA_SIGINFO` handler.
    pub(crate) unsafe fn from_siginfo(info: *const libc::siginfo_t) -> Self {
        // SAFETY: the first fields are common to all kinds of signals, by the caller's contract.
        match unsafe { (*info).si_code } {
            libc::SI_TIMER => {
                // SAFETY: `SI_TIMER` says that the timer's fields are the ones that were filled in.
                let info = unsafe { &*info.cast::<TimerInfo>() };
                Self::Timer {
                    cookie: info.si_value,
                    overrun: info.si_overrun.max(0) as u32,
                }
            }
            code if POLL.contains(&code) => {
                // SAFETY: such a code says that a descriptor's fields are the ones that were filled
                // in.
                let info = unsafe { &*info.cast::<DescriptorInfo>() };
                Self::Descriptor {
                    fd: info.si_fd,
                    has_stopped: code == POLL_HUP,
                }
            }
            LOOK => {
                // SAFETY: `look_at` sent it, with these fields.
                let info = unsafe { &*info.cast::<LookInfo>() };
                Self::Look {
                    cookie: info.si_value,
                    call: info.call.checked_sub(1).map(|number| Trace {
                        number,
                        digest: info.digest,
                        sp: info.sp,
                        pc: info.pc,
                    }),
                }
            }
            libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE => Self::Sent,
            _ => Self::Other,
        }
    }
}

/// Sends `signal` to a thread of this process, as a [`Tick::Look`] that carries `cookie` and what
/// the thread was seen to wait in.
///
/// # Errors
///
/// `ESRCH` where the thread is gone, `EAGAIN` where too many signals are queued.
pub(crate) fn look_at(
    tid: i32,
    signal: libc::c_int,
    cookie: u64,
    call: Option<Trace>,
) -> io::Result<()> {
    queue(
        tid,
        signal,
        LookInfo {
            si_signo: signal,
            call: call.map_or(0, |call| call.number + 1),
            si_code: LOOK,
            _pad: 0,
            si_pid: std::process::id() as libc::pid_t,
            digest: call.map_or(0, |call| call.digest),
            si_value: cookie,
            sp: call.map_or(0, |call| call.sp),
            pc: call.map_or(0, |call| call.pc),
        },
    )
}

/// Sends `signal` to a thread of this process, with the fields of one kind of `siginfo_t`.
fn queue<F>(tid: i32, signal: libc::c_int, fields: F) -> io::Result<()> {
    const { assert!(size_of::<F>() <= size_of::<libc::siginfo_t>()) };
    // SAFETY: a siginfo_t is integers, all of which may be zero.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the fields lie within the siginfo_t.
    unsafe { (&raw mut info).cast::<F>().write(fields) };
    // SAFETY: `info` is read only.
    super::check(unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            std::process::id() as libc::pid_t,
            tid,
            signal,
            &raw const info,
        )
    })?;
    Ok(())
}

/// What clocks send, sent by a test.
#[cfg(test)]
pub(crate) mod disposition {
    /// What a program does that wants the signal for itself.
    pub(crate) fn set(signal: libc::c_int, action: libc::sighandler_t) {
        // SAFETY: the tests set the default action, or that the signal is ignored.
        let last = unsafe { libc::signal(signal, action) };
        assert_ne!(last, libc::SIG_ERR);
    }
}

#[cfg(test)]
pub(crate) mod forged {
    use super::{DescriptorInfo, POLL_HUP, TimerInfo, io, queue};

    /// As a POSIX timer with this cookie.
    pub(crate) fn timer(tid: i32, signal: libc::c_int, cookie: u64) -> io::Result<()> {
        let fields = TimerInfo {
            si_signo: signal,
            si_errno: 0,
            si_code: libc::SI_TIMER,
            _pad: 0,
            si_timerid: 0,
            si_overrun: 0,
            si_value: cookie,
        };
        queue(tid, signal, fields)
    }

    /// As a perf event with this descriptor, which its first tick has stopped.
    pub(crate) fn descriptor(tid: i32, signal: libc::c_int, fd: libc::c_int) -> io::Result<()> {
        let fields = DescriptorInfo {
            si_signo: signal,
            si_errno: 0,
            si_code: POLL_HUP,
            _pad: 0,
            si_band: 0,
            si_fd: fd,
        };
        queue(tid, signal, fields)
    }
}

/// Puts errno back when dropped: a handler must not change what the interrupted code is about to
/// read. *Async-signal-safe.*
#[derive(Debug)]
pub(crate) struct ErrnoGuard(libc::c_int);

impl ErrnoGuard {
    pub(crate) fn new() -> Self {
        // SAFETY: the C library's errno of this thread.
        Self(unsafe { *libc::__errno_location() })
    }

    /// What errno was, and will be again.
    #[cfg(feature = "contention")]
    pub(crate) fn value(&self) -> libc::c_int {
        self.0
    }
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The signals that a fault raises.
const FAULTS: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    // Raised by a system call that a sandbox answers with a trap.
    libc::SIGSYS,
];

/// Whether a program may have a handler for a signal, by number, and no fault raises the signal: a
/// handler that returned from one would be called for ever.
pub(crate) fn is_for_programs(signal: libc::c_int) -> bool {
    let is_kept = FAULTS.contains(&signal) || [libc::SIGKILL, libc::SIGSTOP].contains(&signal);
    // The C library refuses those that it keeps for itself.
    !is_kept && action(signal).is_ok()
}

/// What a signal is called.
pub(crate) fn name(signal: libc::c_int) -> Cow<'static, str> {
    match signal {
        libc::SIGPROF => "SIGPROF".into(),
        _ => format!("signal {signal}").into(),
    }
}

/// Takes the signals that a fault raises out of a set: blocked, they would kill the process unseen.
///
/// # Safety
///
/// `set` points to an initialized signal set.
unsafe fn unblock_faults(set: *mut libc::sigset_t) {
    for fault in FAULTS {
        // SAFETY: the caller's contract.
        unsafe { libc::sigdelset(set, fault) };
    }
}

/// Blocks signals on the calling thread, which is about to end.
pub(crate) fn block(signals: &[libc::c_int]) {
    // SAFETY: a signal set is plain data; the calls fill and read it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Unblocks signals on the calling thread. The answer is the signals that were blocked.
pub(crate) fn unblock(signals: &[libc::c_int]) -> Blocked {
    // SAFETY: a signal set is plain data; the calls fill and read it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut old = set;
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut old);
        Blocked(old)
    }
}

/// Has the calling thread take the signals of profilers, whatever else it blocks: it is sampled as
/// any other.
#[cfg(any(feature = "symbolize", feature = "heap"))]
pub(crate) fn unblock_profilers() {
    unblock(&[libc::SIGPROF, libc::SIGURG]);
}

/// Signals that a thread blocks.
pub(crate) struct Blocked(libc::sigset_t);

impl Blocked {
    pub(crate) fn has(&self, signal: libc::c_int) -> bool {
        // SAFETY: reads a set that the system has filled.
        unsafe { libc::sigismember(&self.0, signal) == 1 }
    }
}

/// Unblocks all signals on the calling thread.
pub(crate) fn unblock_all() {
    // SAFETY: a signal set is plain data; the calls fill and read it.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Runs `f`, which may write to a pipe that nobody reads, or more than the process may have in a
/// file: it gets an error, and the process no `SIGPIPE` and no `SIGXFSZ`.
#[cfg(feature = "capi")]
pub(crate) fn without_signals_of_writing<T>(f: impl FnOnce() -> T) -> T {
    const OF_WRITING: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];
    // SAFETY: the calls fill the sets before they are read, and cannot fail with these arguments.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let [mut old, mut pending] = [set; 2];
        libc::sigemptyset(&mut set);
        for signal in OF_WRITING {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigpending(&mut pending);
        // One that the host has blocked stays.
        for signal in OF_WRITING {
            if libc::sigismember(&pending, signal) == 1 {
                libc::sigdelset(&mut set, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut old);
        let result = f();
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Each call takes one that waits.
        while libc::sigtimedwait(&set, std::ptr::null_mut(), &now) > 0 {}
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}

/// Runs `f` with every signal blocked that can be sent from outside, so that a thread begun in it
/// starts that way. Signals that a fault raises stay as they are: the host's crash reporter sees a
/// fault of ours, too.
pub(crate) fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    with_signals_blocked_but(&[], f)
}

/// As [`with_signals_blocked`]; those of `open` stay as they are, too.
pub(crate) fn with_signals_blocked_but<T>(open: &[libc::c_int], f: impl FnOnce() -> T) -> T {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the calls initialize `set` before they change it, and `old` when they fill it; none
    // of them can fail with these arguments.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        unblock_faults(set.as_mut_ptr());
        for &signal in open {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), old.as_mut_ptr());
    }
    let result = f();
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    result
}
