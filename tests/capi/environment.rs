//! `CPUPROFILE` and its relatives, with the library preloaded.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::legacy::Legacy;
use crate::library::{compiled, library, plain};
use crate::process::succeed;
use crate::support::tool;

/// A program that works for some time, and has so many children that do the same, with the library
/// preloaded and these variables.
struct Works {
    program: PathBuf,
    _built_in: TempDir,
    /// Where it runs, and nothing but its profiles lies.
    directory: TempDir,
}

impl Works {
    fn new() -> Self {
        let built_in = tempfile::tempdir().unwrap();
        Self {
            program: compiled("cc", "works.c", built_in.path(), &[]),
            _built_in: built_in,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Runs the program for so many milliseconds of CPU time: the ids that it and its children
    /// have printed, and what they have said on stderr.
    fn run(&self, ms: u32, children: u32, variables: &[(&str, &str)]) -> (Vec<String>, String) {
        let mut command = plain(&self.program);
        command.args([ms.to_string(), children.to_string()]);
        command.current_dir(&self.directory);
        command.env("LD_PRELOAD", library());
        command.envs(variables.iter().copied());
        let output = succeed(&mut command);
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|s| String::from_utf8(s).unwrap());
        (stdout.lines().map(Into::into).collect(), stderr)
    }

    fn files(&self) -> Vec<String> {
        names(self.directory.path())
    }

    fn read(&self, file: &str) -> Legacy {
        Legacy::read(&self.directory.path().join(file))
    }
}

fn names(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).unwrap();
    let name = |file: std::fs::DirEntry| file.file_name().into_string().unwrap();
    let mut names: Vec<String> = files.map(|file| name(file.unwrap())).collect();
    names.sort();
    names
}

/// Runs a program where the variables ask for no profile that can be: one line says why, and the
/// program runs.
fn refused(variables: &[(&str, &str)]) -> String {
    let works = Works::new();
    let (ids, said) = works.run(0, 0, variables);
    assert_eq!(ids.len(), 1);
    assert_eq!(works.files(), [""; 0]);
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn without_a_path_nothing_happens() {
    for variables in [&[][..], &[("CPUPROFILE", "")]] {
        let works = Works::new();
        let (_, said) = works.run(0, 0, variables);
        assert_eq!(said, "");
        assert_eq!(works.files(), [""; 0]);
    }
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let file = ("CPUPROFILE", "cpu");
    let said = refused(&[("CPUPROFILE", "no/such/directory/cpu")]);
    assert!(said.contains("no/such/directory"), "{said}");
    for number in ["0", "9", "11", "32", "65", "-1"] {
        for name in ["CPUPROFILE_TIMER_SIGNAL", "CPUPROFILESIGNAL"] {
            let said = refused(&[file, (name, number)]);
            assert!(said.contains(number), "{said}");
        }
    }
    for (name, junk) in [
        ("CPUPROFILE_TIMER_SIGNAL", "SIGUSR1"),
        ("CPUPROFILESIGNAL", "x"),
        ("CPUPROFILESIGNAL", "27"),
        ("SIGPROF_CLOCK", "sundial"),
        ("SIGPROF_ENGINE", "steam"),
        ("SIGPROF_SYMBOLIZE", "perhaps"),
    ] {
        let said = refused(&[file, (name, junk)]);
        assert!(said.contains(name) && said.contains(junk), "{said}");
    }
}

fn record(variables: &[(&str, &str)]) -> Legacy {
    record_for(100, variables)
}

/// The profile of so many milliseconds of CPU time.
fn record_for(ms: u32, variables: &[(&str, &str)]) -> Legacy {
    let works = Works::new();
    let (_, said) = works.run(ms, 0, &[&[("CPUPROFILE", "cpu")], variables].concat());
    let line = "PROFILE: interrupts/evictions/bytes = ";
    assert!(said.starts_with(line), "{said}");
    assert_eq!(works.files(), ["cpu"]);
    works.read("cpu")
}

#[test]
fn the_frequency_is_as_gperftools_takes_it() {
    for (value, period_us) in [("250", 4000), ("4001", 250), ("0", 10_000), ("1x", 10_000)] {
        let legacy = record(&[("CPUPROFILE_FREQUENCY", value)]);
        assert_eq!(legacy.period_us, period_us, "{value}");
        assert!(legacy.counted() > 0, "{value}");
    }
}

#[test]
fn timers_send_the_signal_that_is_asked_for() {
    for number in ["0xc", "014", "40"] {
        // The kernel looks at a thread's timer in its own ticks, of which a thread among many may
        // have none in 100 ms.
        let legacy = record_for(400, &[("CPUPROFILE_TIMER_SIGNAL", number)]);
        assert!(
            legacy.records.iter().any(|(_, pcs)| pcs.len() > 3),
            "{number}: {:x?}\n{}",
            legacy.records,
            legacy.text
        );
    }
}

#[test]
fn our_own_variables_choose_clock_and_engine() {
    for variables in [
        [("SIGPROF_CLOCK", "wall")],
        [("SIGPROF_ENGINE", "thread_timer")],
        [("SIGPROF_ENGINE", "process_timer")],
        [("CPUPROFILE_PER_THREAD_TIMERS", "")],
    ] {
        assert!(record(&variables).counted() > 0, "{variables:?}");
    }
}

#[test]
fn a_program_that_sleeps_shows_time_where_time_is_real() {
    let Some(sleep) = tool("sleep") else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cpu");
    let mut command = plain(&sleep);
    command.arg("0.5").env("LD_PRELOAD", library());
    command
        .env("CPUPROFILE", &file)
        .env("CPUPROFILE_REALTIME", "");
    succeed(&mut command);
    let counted = Legacy::read(&file).counted();
    assert!(counted >= 45, "{counted} of 50");
}

#[test]
fn a_program_that_executes_two_others_leaves_three_files() {
    let works = Works::new();
    let (ids, said) = works.run(20, 2, &[("CPUPROFILE", "cpu")]);
    let [_, first, second] = ids.as_slice() else {
        panic!("{ids:?}")
    };
    let mut expected = [
        "cpu".into(),
        format!("cpu_{first}"),
        format!("cpu_{second}"),
    ];
    expected.sort();
    assert_eq!(works.files(), expected, "{said}");
    for file in expected {
        works.read(&file);
    }
}

#[test]
fn each_process_has_its_id_in_the_name_where_that_is_asked_for() {
    let works = Works::new();
    let variables = [("CPUPROFILE", "cpu.pb.gz"), ("CPUPROFILE_USE_PID", "1")];
    let (ids, said) = works.run(0, 1, &variables);
    let mut expected: Vec<String> = ids.iter().map(|id| format!("cpu_{id}.pb.gz")).collect();
    expected.sort();
    assert_eq!(works.files(), expected, "{said}");
}

#[test]
fn each_process_of_a_job_has_its_place_in_the_name() {
    for (variables, suffix) in [
        (&[("PMIX_RANK", "3")][..], ".rank-3"),
        (
            &[("SLURM_JOB_ID", "9"), ("SLURM_PROCID", "4")],
            ".slurmid-4",
        ),
        (&[("SLURM_JOB_ID", "9")], "_PID"),
        (&[("OMPI_HOME", "/opt/openmpi")], "_PID"),
        (&[("PMI_RANK", "5")], ".rank-5"),
    ] {
        let works = Works::new();
        let path = [("CPUPROFILE", "cpu")];
        let (ids, said) = works.run(0, 0, &[&path, variables].concat());
        let expected = format!("cpu{}", suffix.replace("PID", &ids[0].to_string()));
        assert_eq!(works.files(), [expected], "{variables:?}: {said}");
    }
}

#[test]
fn a_signal_starts_and_stops_profiles() {
    let directory = tempfile::tempdir().unwrap();
    let toggled = compiled("cc", "toggled.c", directory.path(), &[]);
    let mut command = plain(&toggled);
    command.current_dir(directory.path());
    command.env("LD_PRELOAD", library());
    command
        .env("CPUPROFILE", "cpu")
        .env("CPUPROFILESIGNAL", "12");
    let said = String::from_utf8(succeed(&mut command).stderr).unwrap();
    std::fs::remove_file(&toggled).unwrap();
    assert_eq!(names(directory.path()), ["cpu.0", "cpu.1"], "{said}");
    for file in ["cpu.0", "cpu.1"] {
        Legacy::read(&directory.path().join(file));
    }
    assert_eq!(said.matches("PROFILE: ").count(), 2, "{said}");
}
