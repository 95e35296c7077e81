//! `CPUPROFILE` and its relatives, as gperftools' users know them, for programs that ask for them.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::cpu::{Clock, Guard, Profiler};
use crate::error::Result;
use crate::format::Format;
use crate::sys::process;

/// What gperftools takes for a frequency that is missing, or makes no sense.
const DEFAULT_FREQUENCY_HZ: u32 = 100;
/// What gperftools limits the variable to.
const MAX_FREQUENCY_HZ: u32 = 4000;

/// Starts a CPU profile if the environment asks for one; `None` where it does not. Keep the guard
/// until the end of what is to be profiled, as with [`profile_to`](crate::profile_to).
///
/// | variable | meaning |
/// |---|---|
/// | `CPUPROFILE` | the file to write; unset or empty: no profile. An extension of [ours](crate::Format::from_path) picks that format, any other path is gperftools' CPU file. Ignored in a program that runs with more rights than its user (setuid, setgid). |
/// | `CPUPROFILE_FREQUENCY` | samples a second, at most 4000; missing, 0, negative or not a number: 100 |
/// | `CPUPROFILE_REALTIME` | set, to whatever: elapsed time instead of CPU time |
/// | `CPUPROFILE_USE_PID` | set, to nothing or a word that begins with `t`, `y` or `1`: the file's name gets `_` and the process's id, so that each process has a file of its own |
/// | `PMIX_RANK`, `SLURM_PROCID`, `PMI_RANK` | in a job of MPI's: the file's name gets the process's number in the job (`.rank-N` or `.slurmid-N`); or its id, where the job is known by `SLURM_JOB_ID` or `OMPI_HOME` alone |
///
/// What a name gets stands at its end, as gperftools has it, but before an extension that says
/// another format than gperftools' (`cpu_4711.pb.gz`).
///
/// # Errors
///
/// Those of [`Profiler::start_to`].
pub fn from_env() -> Result<Option<Guard>> {
    let Some(asked) = asked() else {
        return Ok(None);
    };
    Guard::start_for(asked.profiler, &asked.path).map(Some)
}

/// A profile that the environment asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) path: PathBuf,
    /// Whether the path has the process's id in it, as those of its children will.
    #[cfg_attr(
        not(feature = "capi"),
        expect(dead_code, reason = "children are told of by `libsigprof.so` alone")
    )]
    pub(crate) has_pid: bool,
    pub(crate) profiler: Profiler,
}

/// The profile that the environment asks for, if it asks for one.
pub(crate) fn asked() -> Option<Asked> {
    let path = variable("CPUPROFILE")?;
    if process::has_elevated_rights() {
        return None;
    }
    let (path, has_pid) = path_of_process(path, std::process::id(), |name| std::env::var_os(name));
    Some(Asked {
        path,
        has_pid,
        profiler: profiler(),
    })
}

/// What the environment has a profile recorded with.
pub(crate) fn profiler() -> Profiler {
    let frequency = frequency_hz(std::env::var_os("CPUPROFILE_FREQUENCY"));
    let clock = match std::env::var_os("CPUPROFILE_REALTIME") {
        Some(_) => Clock::Wall,
        None => Clock::Cpu,
    };
    Profiler::new().frequency_hz(frequency).clock(clock)
}

/// A variable that is neither missing nor empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The path of this process's file, and whether the process's id is in it.
fn path_of_process(
    base: OsString,
    pid: u32,
    variable: impl Fn(&str) -> Option<OsString>,
) -> (PathBuf, bool) {
    let full = |name| variable(name).filter(|value| !value.is_empty());
    let (place, needs_pid) = if let Some(rank) = full("PMIX_RANK") {
        (suffix(".rank-", &rank), false)
    } else if full("SLURM_JOB_ID").is_some() {
        match full("SLURM_PROCID") {
            Some(id) => (suffix(".slurmid-", &id), false),
            None => (OsString::new(), true),
        }
    } else if full("OMPI_HOME").is_some() {
        (OsString::new(), true)
    } else if let Some(rank) = full("PMI_RANK") {
        (suffix(".rank-", &rank), false)
    } else {
        (OsString::new(), false)
    };
    let has_pid = needs_pid || variable("CPUPROFILE_USE_PID").is_some_and(|value| is_yes(&value));
    let mut suffix = place;
    if has_pid {
        suffix.push(format!("_{pid}"));
    }
    (with_suffix(&base, &suffix), has_pid)
}

fn suffix(word: &str, value: &OsStr) -> OsString {
    let mut suffix = OsString::from(word);
    suffix.push(value);
    suffix
}

/// A path with something at the end of its name, but before an extension that says another format
/// than gperftools'.
fn with_suffix(path: &OsStr, suffix: &OsStr) -> PathBuf {
    let extension = match Format::extension_of(path) {
        Some((_, Format::CpuProfile)) | None => "",
        Some((extension, _)) => extension,
    };
    let stem = path.as_bytes();
    let stem = OsStr::from_bytes(&stem[..stem.len() - extension.len()]);
    let mut path = stem.to_owned();
    path.push(suffix);
    path.push(extension);
    path.into()
}

/// gperftools' yes.
fn is_yes(value: &OsStr) -> bool {
    matches!(
        value.as_encoded_bytes().first(),
        None | Some(b't' | b'T' | b'y' | b'Y' | b'1')
    )
}

/// A whole number or nothing: not a number's prefix.
fn frequency_hz(value: Option<OsString>) -> u32 {
    match value
        .as_deref()
        .and_then(OsStr::to_str)
        .map(str::parse::<u64>)
    {
        Some(Ok(hz @ 1..)) => hz.min(MAX_FREQUENCY_HZ.into()) as u32,
        _ => DEFAULT_FREQUENCY_HZ,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_that_make_no_sense_are_the_default() {
        let parsed = |text: &str| frequency_hz(Some(text.into()));
        assert_eq!(frequency_hz(None), 100);
        for junk in ["", "0", "-5", "12x", "x", "1e3", "99999999999999999999"] {
            assert_eq!(parsed(junk), 100, "{junk:?}");
        }
        assert_eq!(parsed("1"), 1);
        assert_eq!(parsed("250"), 250);
        assert_eq!(parsed("4000"), 4000);
        assert_eq!(parsed("4001"), 4000);
        assert_eq!(parsed("10000000000"), 4000);
    }

    /// The path of process 7 where these variables are set.
    fn path(base: &str, variables: &[(&str, &str)]) -> String {
        let value = |name: &str| {
            variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| v.into())
        };
        let (path, _) = path_of_process(base.into(), 7, value);
        path.into_os_string().into_string().unwrap()
    }

    #[test]
    fn a_process_has_a_file_of_its_own_where_that_is_asked_for() {
        assert_eq!(path("cpu", &[]), "cpu");
        for yes in ["", "1", "t", "True", "yes", "Y", "10"] {
            assert_eq!(
                path("cpu", &[("CPUPROFILE_USE_PID", yes)]),
                "cpu_7",
                "{yes:?}"
            );
        }
        for no in ["0", "no", "false", "on", " 1"] {
            assert_eq!(path("cpu", &[("CPUPROFILE_USE_PID", no)]), "cpu", "{no:?}");
        }
        let pid = [("CPUPROFILE_USE_PID", "1")];
        assert_eq!(path("a.b/cpu.pb.gz", &pid), "a.b/cpu_7.pb.gz");
        assert_eq!(path("a.pb/cpu.txt", &pid), "a.pb/cpu.txt_7");
    }

    #[test]
    fn a_process_of_an_mpi_job_has_its_number_in_the_files_name() {
        let pmix = ("PMIX_RANK", "3");
        let slurm = ("SLURM_JOB_ID", "99");
        let slurm_process = ("SLURM_PROCID", "4");
        let open_mpi = ("OMPI_HOME", "/opt/openmpi");
        let hydra = ("PMI_RANK", "5");
        let pid = ("CPUPROFILE_USE_PID", "1");
        assert_eq!(path("cpu", &[pmix, slurm, open_mpi, hydra]), "cpu.rank-3");
        assert_eq!(
            path("cpu", &[slurm, slurm_process, open_mpi]),
            "cpu.slurmid-4"
        );
        assert_eq!(path("cpu", &[slurm, hydra]), "cpu_7");
        assert_eq!(path("cpu", &[slurm_process]), "cpu");
        assert_eq!(path("cpu", &[open_mpi, hydra]), "cpu_7");
        assert_eq!(path("cpu", &[hydra]), "cpu.rank-5");
        assert_eq!(path("cpu.prof", &[hydra, pid]), "cpu.prof.rank-5_7");
        assert_eq!(path("cpu", &[("PMIX_RANK", ""), hydra]), "cpu.rank-5");
    }
}
