//! What the system lets this process, and its user, have at most.
#![allow(
    clippy::unnecessary_cast,
    reason = "the types differ between C libraries"
)]

use super::brief_file;
use super::thread::current_tid;

/// How many signals may be queued for the processes of this user, each timer's counting for one
/// (`RLIMIT_SIGPENDING`).
pub(crate) fn pending_signals_limit() -> u64 {
    limit(libc::RLIMIT_SIGPENDING as libc::c_int)
}

/// How many files this process may have open (`RLIMIT_NOFILE`).
pub(crate) fn open_files_limit() -> u64 {
    limit(libc::RLIMIT_NOFILE as libc::c_int)
}

/// How many files this process has open.
pub(crate) fn open_files() -> u64 {
    // Not `/proc/self/fd`, which is empty once the thread that `main` ran on has ended.
    let path = format!("/proc/self/task/{}/fd", current_tid());
    let mut files = Vec::new();
    let is_file = |name: &[u8]| (!name.starts_with(b".")).then_some(());
    // What cannot be listed leaves nothing to spare.
    brief_file::read_directory(&path, &mut files, is_file).map_or(u64::MAX, |()| files.len() as u64)
}

/// Bytes of address space that this process may still map (`RLIMIT_AS`).
pub(crate) fn address_space_left() -> u64 {
    let limit = limit(libc::RLIMIT_AS as libc::c_int);
    if limit == u64::MAX {
        return limit;
    }
    // Not of `self`, as above. What cannot be read leaves nothing to be known of.
    let pages = brief_file::read_to_string("/proc/thread-self/statm").ok();
    let pages = pages.and_then(|pages| pages.split(' ').next()?.parse::<u64>().ok());
    // SAFETY: takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    pages.map_or(u64::MAX, |pages| limit.saturating_sub(pages * page))
}

fn limit(resource: libc::c_int) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills `limit`.
    match unsafe { libc::getrlimit(resource as _, &mut limit) } {
        0 => limit.rlim_cur as u64,
        // What cannot be asked is no limit of ours.
        _ => u64::MAX,
    }
}
