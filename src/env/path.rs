//! Which file is this process's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::format::Format;

/// The path of this process's file, and whether the process's id is in it, as a variable of this
/// name asks for.
pub(crate) fn path_of_process(base: OsString, use_pid: &str) -> (PathBuf, bool) {
    path_of(base, use_pid, std::process::id(), |name| {
        std::env::var_os(name)
    })
}

fn path_of(
    base: OsString,
    use_pid: &str,
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
    let has_pid = needs_pid || variable(use_pid).is_some_and(|value| is_yes(&value));
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
pub(crate) fn with_suffix(path: &OsStr, suffix: &OsStr) -> PathBuf {
    let extension = match Format::extension_of(path) {
        Some((extension, format)) if format != Format::CpuProfile && format.holds_cpu_time() => {
            extension
        }
        _ => "",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of process 7 where these variables are set.
    fn path(base: &str, variables: &[(&str, &str)]) -> String {
        let value = |name: &str| {
            variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| v.into())
        };
        let (path, _) = path_of(base.into(), "CPUPROFILE_USE_PID", 7, value);
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
