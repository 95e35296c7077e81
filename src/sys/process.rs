//! The process: its rights, its threads, its environment, its children, its end.

#[cfg(feature = "capi")]
use std::ffi::{CStr, c_char};
#[cfg(feature = "capi")]
use std::fs;
#[cfg(feature = "capi")]
use std::ptr;

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
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Adds a variable, as `NAME=value`, to the environment, in place of one of that name. Pointers
/// into the environment stay good, unlike with `setenv`, which moves an array that it has made
/// before.
///
/// # Safety
///
/// The calling thread is the only one.
#[cfg(feature = "capi")]
pub(crate) unsafe fn set_variable(variable: &'static CStr) {
    unsafe extern "C" {
        static mut environ: *const *const c_char;
    }
    let bytes = variable.to_bytes();
    let name = bytes.split_inclusive(|&b| b == b'=').next();
    let mut array = vec![variable.as_ptr()];
    // SAFETY: an array of strings with a null pointer at its end, or null where it was cleared.
    // Nobody else changes it, by the caller's contract. The new one is never freed.
    unsafe {
        let mut old = environ;
        while !old.is_null() && !(*old).is_null() {
            let is_other = |name| !CStr::from_ptr(*old).to_bytes().starts_with(name);
            if name.is_some_and(is_other) {
                array.push(*old);
            }
            old = old.add(1);
        }
        array.push(ptr::null());
        environ = array.leak().as_ptr();
    }
}

/// The children of this process that were forked from it, go on, and have executed no program
/// since. Where the kernel does not list children (CONFIG_PROC_CHILDREN), none are found.
#[cfg(feature = "capi")]
pub(crate) fn forked_children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = threads.flatten().filter_map(|thread| {
        let children = thread.path().join("children");
        fs::read_to_string(children).ok()
    });
    let mut children: Vec<u32> = lists
        .flat_map(|list| {
            let ids = list.split_ascii_whitespace().map(str::parse);
            ids.flatten().collect::<Vec<u32>>()
        })
        .filter(|&child| runs_code_of_its_parent(child))
        .collect();
    children.sort_unstable();
    children
}

#[cfg(feature = "capi")]
fn runs_code_of_its_parent(child: u32) -> bool {
    /// "Forked but didn't exec", as ps(1) says (`PF_FORKNOEXEC` in include/linux/sched.h).
    const HAS_NOT_EXECUTED: u64 = 0x40;
    let Ok(stat) = fs::read_to_string(format!("/proc/{child}/stat")) else {
        return false;
    };
    // `id (name) state …`: the state is the third field, the flags are the ninth
    // (proc_pid_stat(5)).
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return false;
    };
    let mut fields = fields.split(' ');
    let has_ended = matches!(fields.next(), Some("Z" | "X"));
    let flags = fields
        .nth(9 - 4)
        .and_then(|flags| flags.parse::<u64>().ok());
    !has_ended && flags.is_some_and(|flags| flags & HAS_NOT_EXECUTED != 0)
}

/// Has `f` called when the process ends by `exit`, or by the return of `main`: before what was
/// asked for earlier, as `atexit` has it.
#[cfg(feature = "capi")]
pub(crate) fn at_exit(f: extern "C" fn()) {
    // SAFETY: a function of a library that is never unloaded. Where there is no memory for it,
    // nothing is called.
    unsafe { libc::atexit(f) };
}
