//! The process: its rights, its threads, its environment, its children, its end.

#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
use std::ffi::{CStr, CString, c_char};
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
use std::ptr;

#[cfg(feature = "capi")]
use super::brief_file::{FileId, read_directory, read_to_string};
#[cfg(feature = "capi")]
use super::fork::has_forked;
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
use super::thread;

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
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
fn has_one_thread() -> bool {
    let mut threads = Vec::new();
    thread::list(&mut threads).is_ok() && threads.len() == 1
}

/// Adds a variable, as `NAME=value`, to the environment, for programs that children execute. Not
/// where the process has other threads, which may be reading the environment.
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
pub(crate) fn tell_children(variable: &CStr) {
    if has_one_thread() {
        // SAFETY: there is no other thread.
        unsafe { set_variable(variable) };
    }
}

/// Adds a variable, as `NAME=value`, to the environment, in place of one of that name. Pointers
/// into the environment stay good, unlike with `setenv`, which moves an array that it has made
/// before.
///
/// # Safety
///
/// The calling thread is the only one.
#[cfg(any(feature = "capi", feature = "contention", feature = "heap"))]
unsafe fn set_variable(variable: &CStr) {
    unsafe extern "C" {
        static mut environ: *const *const c_char;
    }
    let bytes = variable.to_bytes();
    let name = bytes.split_inclusive(|&b| b == b'=').next();
    // Programs write into their variables, as shells do: not into a literal.
    let mut array = vec![CString::from(variable).into_raw().cast_const()];
    // SAFETY: an array of strings with a null pointer at its end, or null where it was cleared.
    // Nobody else changes it, by the caller's contract. What is new is never freed.
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

/// The processes that were forked from this one, or from such a process, go on, and have executed no
/// program since.
#[cfg(feature = "capi")]
pub(crate) fn forked_children() -> Vec<u32> {
    let Some(this) = Process::of("thread-self") else {
        return Vec::new();
    };
    // Where the kernel does not list children (CONFIG_PROC_CHILDREN), there are none here.
    let mut threads = Vec::new();
    let lists = thread::list(&mut threads)
        .into_iter()
        .flat_map(|()| &threads);
    let lists =
        lists.filter_map(|tid| read_to_string(&format!("/proc/self/task/{tid}/children")).ok());
    let mut ids: Vec<u32> = lists
        .flat_map(|list| {
            let ids = list.split_ascii_whitespace().map(str::parse);
            ids.flatten().collect::<Vec<u32>>()
        })
        .filter(|id| Process::of(id).is_some_and(|child| child.goes_on_without_a_program()))
        .collect();
    // A child's children are another process's when the child ends, as a server's in the background
    // are. What this process was executed from lies at random addresses, where no other has it.
    if has_forked() && !this.is_forked {
        let mut others = Vec::new();
        let id = |name: &[u8]| str::from_utf8(name).ok()?.parse().ok();
        // Where they cannot be listed, there are none.
        let _ = read_directory("/proc", &mut others, id);
        let others = others.into_iter();
        ids.extend(others.filter(|id: &u32| {
            Process::of(id).is_some_and(|process| {
                process.goes_on_without_a_program()
                    && this.memory.is_some()
                    && process.memory == this.memory
                    && process.started >= this.started
            })
        }));
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// What `/proc/<id>/stat` says of a process (proc_pid_stat(5)).
#[cfg(feature = "capi")]
#[derive(Debug)]
struct Process {
    has_ended: bool,
    /// It "forked but didn't exec", as ps(1) says (`PF_FORKNOEXEC` in include/linux/sched.h).
    is_forked: bool,
    /// Ticks of the clock since the system began.
    started: u64,
    /// Where its code and its stack begin; `None` where the caller may not know.
    memory: Option<(u64, u64)>,
}

#[cfg(feature = "capi")]
impl Process {
    fn of(id: impl std::fmt::Display) -> Option<Self> {
        const FORKED: u64 = 0x40;
        let stat = read_to_string(&format!("/proc/{id}/stat")).ok()?;
        // `id (name) state …`: the state is the third field.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let memory = (number(26)?, number(28)?);
        Some(Self {
            has_ended: matches!(*fields.first()?, "Z" | "X"),
            is_forked: number(9)? & FORKED != 0,
            started: number(22)?,
            memory: (memory.0 > 1 && memory.1 > 1).then_some(memory),
        })
    }

    fn goes_on_without_a_program(&self) -> bool {
        self.is_forked && !self.has_ended
    }
}

/// The file behind stderr; none where it is closed.
#[cfg(feature = "capi")]
pub(crate) fn file_of_stderr() -> Option<FileId> {
    FileId::of(libc::STDERR_FILENO)
}

/// Has `f` called when the process ends by `exit`, or by the return of `main`: before what was
/// asked for earlier, as `atexit` has it.
pub(crate) fn at_exit(f: extern "C" fn()) {
    // SAFETY: a function of a library that is never unloaded. Where there is no memory for it,
    // nothing is called.
    unsafe { libc::atexit(f) };
}
