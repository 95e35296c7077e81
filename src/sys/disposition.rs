//! What a process does with a signal, and a handler that stands before that.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::signal::{Handler, note_own};

/// What a process does with a signal: its default action, nothing, or a handler.
pub(crate) struct Disposition(libc::sigaction);

impl Disposition {
    /// What this process does with `signal` at the moment. *Async-signal-safe.*
    pub(crate) fn of(signal: libc::c_int) -> io::Result<Self> {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: only asks for the current action.
        let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
        super::check(asked.into())?;
        // SAFETY: written by the call above, which succeeded.
        Ok(Self(unsafe { action.assume_init() }))
    }

    /// The default action.
    pub(crate) fn default_action() -> Self {
        // SAFETY: a sigaction is integers and pointers, all of which may be zero.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = libc::SIG_DFL;
        Self(action)
    }

    /// `handler` in the place of the default action. All other signals wait while it runs, so that
    /// it is not interrupted by a handler that jumps away; system calls are restarted.
    pub(crate) fn in_place_of_default(handler: Handler) -> Self {
        note_own(handler as usize);
        let mut action = Self::default_action();
        action.0.sa_sigaction = handler as usize;
        action.0.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: a set to be filled.
        unsafe { libc::sigfillset(&mut action.0.sa_mask) };
        action
    }

    /// `handler`, which is called where this one's handler would be: on the same stack, with the
    /// same signals blocked, and with the same to follow for an interrupted system call.
    pub(crate) fn with_handler(&self, handler: Handler) -> Self {
        let mut action = self.0;
        action.sa_sigaction = handler as usize;
        action.sa_flags |= libc::SA_SIGINFO;
        Self(action)
    }

    pub(crate) fn is_default(&self) -> bool {
        self.0.sa_sigaction == libc::SIG_DFL
    }

    pub(crate) fn is_ignored(&self) -> bool {
        self.0.sa_sigaction == libc::SIG_IGN
    }

    /// The address of the handler, where there is one.
    pub(crate) fn handler(&self) -> usize {
        self.0.sa_sigaction
    }

    /// *Async-signal-safe.*
    pub(crate) fn is_handler(&self, handler: Handler) -> bool {
        self.0.sa_sigaction == handler as usize
    }

    /// Whether the same function is called.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.0.sa_sigaction == other.0.sa_sigaction
    }

    /// Makes this what the process does with `signal`. The answer is what the process did
    /// before. *Async-signal-safe.*
    pub(crate) fn set(&self, signal: libc::c_int) -> io::Result<Self> {
        let mut before = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: an action that was the process's own, or one with a handler that is
        // async-signal-safe and has the signature that its flags promise.
        let set = unsafe { libc::sigaction(signal, &self.0, before.as_mut_ptr()) };
        super::check(set.into())?;
        // SAFETY: written by the call above, which succeeded.
        Ok(Self(unsafe { before.assume_init() }))
    }

    /// Calls the handler, if there is one, as the kernel has called the caller. *Async-signal-safe*
    /// if the handler is.
    ///
    /// # Safety
    ///
    /// The handler is still to be called: its code is loaded. The arguments are those of an
    /// `SA_SIGINFO` handler for the same signal.
    pub(crate) unsafe fn call(
        &self,
        signal: libc::c_int,
        info: *const libc::siginfo_t,
        context: *const libc::c_void,
    ) {
        if self.is_default() || self.is_ignored() {
            return;
        }
        let handler = self.0.sa_sigaction as *const ();
        if self.0.sa_flags & libc::SA_SIGINFO != 0 {
            // SAFETY: the flag says that the handler has this signature.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        } else {
            // SAFETY: without the flag, a handler has this one.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

/// Sends `signal` to this process. *Async-signal-safe.*
pub(crate) fn send_to_process(signal: libc::c_int) {
    // SAFETY: sends a signal; nothing is read.
    unsafe { libc::kill(libc::getpid(), signal) };
}

/// Whether the signal's default action ends the process, and a handler for the signal can put that
/// off: a fault's cannot, nor can `abort`'s.
pub(crate) fn can_put_off_end(signal: libc::c_int) -> bool {
    const DO_NOT_END: [libc::c_int; 8] = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGURG,
        libc::SIGWINCH,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGABRT,
    ];
    super::signal::is_for_programs(signal) && !DO_NOT_END.contains(&signal)
}
