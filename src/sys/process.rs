//! The process: its rights, its threads, its end.

/// Whether the process runs with other rights than the user or group that started it (setuid,
/// setgid, file capabilities), so that the environment is not to be trusted.
pub(crate) fn has_elevated_rights() -> bool {
    // SAFETY: none of the calls takes a pointer or can fail.
    unsafe {
        libc::getauxval(libc::AT_SECURE) != 0
            || libc::getuid() != libc::geteuid()
            || libc::getgid() != libc::getegid()
    }
}

/// Whether the process may do what root may: become another user, change its root directory.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes no pointer and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether the calling thread is the only one; false where that cannot be known.
#[cfg(feature = "capi")]
pub(crate) fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Has `f` called when the process ends by `exit`, or by the return of `main`: before what was
/// asked for earlier, as `atexit` has it.
#[cfg(feature = "capi")]
pub(crate) fn at_exit(f: extern "C" fn()) {
    // SAFETY: a function of a library that is never unloaded. Where there is no memory for it,
    // nothing is called.
    unsafe { libc::atexit(f) };
}
