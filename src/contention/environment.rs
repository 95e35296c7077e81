//! `CONTENTIONPROFILE` and its relatives, which are to `CPUPROFILE` what gperftools' users expect.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::{Guard, Role, set_sample_interval};
use crate::env::path_of_process;
use crate::env::value::{nanoseconds, variable};
use crate::error::Result;
use crate::sys::process;

/// Watches this process's locks if the environment asks for that; `None` where it does not. Keep
/// the guard until the end of `main`.
///
/// Where the process has one thread yet, as at the beginning of `main`, children that execute
/// another program are told to have files of their own, with their ids in the names.
///
/// | variable | meaning |
/// |---|---|
/// | `CONTENTIONPROFILE` | the file to write [who has waited](super::profile()) to; unset or empty: none. An extension of [ours](crate::Format::from_path) picks that format, any other path is gperftools' text. Ignored in a program that runs with more rights than its user (setuid, setgid). |
/// | `CONTENTIONPROFILE_HOLDERS` | the file to write [who has kept others waiting](super::holders) to |
/// | `CONTENTIONPROFILE_SAMPLE_INTERVAL` | [nanoseconds of waiting between two samples](super::set_sample_interval), with or without files |
/// | `CONTENTIONPROFILE_USE_PID` | set, to nothing or a word that begins with `t`, `y` or `1`: the files' names get `_` and the process's id, so that each process has files of its own |
/// | `PMIX_RANK`, `SLURM_PROCID`, `PMI_RANK` | in a job of MPI's, the names get the process's number, as with [`CPUPROFILE`](crate::from_env) |
///
/// # Errors
///
/// Those of [`watch_process`](super::watch_process); [`Io`](crate::ErrorKind::Io) where a file
/// could not be written; [`InvalidInput`](crate::ErrorKind::InvalidInput) where a variable is no
/// number of nanoseconds.
pub fn from_env() -> Result<Option<Guard>> {
    if process::has_elevated_rights() {
        return Ok(None);
    }
    if let Some(interval) = nanoseconds("CONTENTIONPROFILE_SAMPLE_INTERVAL")? {
        set_sample_interval(Duration::from_nanos(interval));
    }
    let mut has_pids = true;
    let mut files = Vec::new();
    for (name, role) in [
        ("CONTENTIONPROFILE", Role::Waiter),
        ("CONTENTIONPROFILE_HOLDERS", Role::Holder),
    ] {
        if let Some(path) = variable(name) {
            let (path, has_pid) = path_of_process(path, "CONTENTIONPROFILE_USE_PID");
            has_pids &= has_pid;
            files.push((role, path));
        }
    }
    if files.is_empty() {
        return Ok(None);
    }
    // A child that executes a program inherits the environment, and would write to the same files.
    // Before there is another thread.
    if !has_pids {
        process::tell_children(c"CONTENTIONPROFILE_USE_PID=1");
    }
    let paths: Vec<_> = (files.iter().map(|(role, path)| (*role, path.as_path()))).collect();
    Guard::start_for(&paths).map(Some)
}
