//! The process's own rights.

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
