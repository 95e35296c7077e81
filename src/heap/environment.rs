//! `HEAPPROFILE` and its relatives, as gperftools' users know them, for programs that ask for them.
#![forbid(unsafe_code)]

use super::{Dumper, Dumps, set_sample_interval};
use crate::env::path_of_process;
use crate::env::value::{bytes, variable};
use crate::error::Result;
use crate::sys::process;

/// Writes files of the heap profile if the environment asks for them; `None` where it does not.
/// Keep the guard until the end of `main`.
///
/// Files of another run that have the same names are removed first, as gperftools does. Where the
/// process has one thread yet, as at the beginning of `main`, children that execute another program
/// are told to have files of their own, with their ids in the names.
///
/// | variable | meaning |
/// |---|---|
/// | `HEAPPROFILE` | what the files' names begin with: `prefix.0001.heap` and so on; unset or empty: no files. Ignored in a program that runs with more rights than its user (setuid, setgid). |
/// | `HEAP_PROFILE_ALLOCATION_INTERVAL` | a file for each so many bytes that are allocated; missing: 1 GiB; 0: none |
/// | `HEAP_PROFILE_INUSE_INTERVAL` | a file wherever so many bytes more are in use; missing: 100 MiB; 0: none |
/// | `HEAP_PROFILE_DUMP_AT` | a file where so many bytes are in use, for which threads that allocate wait: [`Dumper::dump_at`]; missing or 0: none |
/// | `HEAP_PROFILE_SAMPLE_INTERVAL` | [bytes between two samples](super::set_sample_interval), with or without files |
/// | `HEAPPROFILE_USE_PID` | set, to nothing or a word that begins with `t`, `y` or `1`: names get `_` and the process's id, so that each process has files of its own |
/// | `PMIX_RANK`, `SLURM_PROCID`, `PMI_RANK` | in a job of MPI's, names get the process's number, as with [`CPUPROFILE`](crate::from_env) |
///
/// # Errors
///
/// Those of [`Dumper::start`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) where a variable is
/// no number of bytes.
pub fn from_env() -> Result<Option<Dumps>> {
    if process::has_elevated_rights() {
        return Ok(None);
    }
    if let Some(interval) = bytes("HEAP_PROFILE_SAMPLE_INTERVAL")? {
        set_sample_interval(interval);
    }
    let Some(prefix) = variable("HEAPPROFILE") else {
        return Ok(None);
    };
    let (prefix, has_pid) = path_of_process(prefix, "HEAPPROFILE_USE_PID");
    let mut dumper = Dumper::new(prefix).in_place_of_old_files();
    if let Some(interval) = bytes("HEAP_PROFILE_ALLOCATION_INTERVAL")? {
        dumper = dumper.allocation_interval(interval);
    }
    if let Some(interval) = bytes("HEAP_PROFILE_INUSE_INTERVAL")? {
        dumper = dumper.inuse_interval(interval);
    }
    if let Some(bound) = bytes("HEAP_PROFILE_DUMP_AT")? {
        dumper = dumper.dump_at(bound);
    }
    // A child that executes a program inherits the environment, and would write to the same files.
    // Before there is another thread.
    if !has_pid {
        process::tell_children(c"HEAPPROFILE_USE_PID=1");
    }
    dumper.start().map(Some)
}
