//! `CPUPROFILE` and its relatives, as gperftools' users know them, for programs that ask for them.
#![forbid(unsafe_code)]

mod path;
pub(crate) mod value;

use std::path::PathBuf;

pub(crate) use self::path::path_of_process;
#[cfg(feature = "capi")]
pub(crate) use self::path::with_suffix;
use self::value::{c_number, frequency_hz, variable, word};
use crate::cpu::{Clock, Engine, Guard, Profiler};
use crate::error::Result;
use crate::sys::process;

/// Starts a CPU profile if the environment asks for one; `None` where it does not. Keep the guard
/// until the end of what is to be profiled, as with [`profile_to`](crate::profile_to).
///
/// | variable | meaning |
/// |---|---|
/// | `CPUPROFILE` | the file to write; unset or empty: no profile. An extension of [ours](crate::Format::from_path) picks that format, any other path is gperftools' CPU file. Ignored in a program that runs with more rights than its user (setuid, setgid). |
/// | `CPUPROFILE_FREQUENCY` | samples a second, at most 4000; missing, 0, negative or not a number: 100 |
/// | `CPUPROFILE_REALTIME` | set, to whatever: elapsed time instead of CPU time |
/// | `CPUPROFILE_PER_THREAD_TIMERS` | accepted: each thread has a clock of its own anyway |
/// | `CPUPROFILE_TIMER_SIGNAL` | the number of the signal that timers send, as in C (`0x`, `0`); missing: `SIGPROF` |
/// | `CPUPROFILE_USE_PID` | set, to nothing or a word that begins with `t`, `y` or `1`: the file's name gets `_` and the process's id, so that each process has a file of its own |
/// | `PMIX_RANK`, `SLURM_PROCID`, `PMI_RANK` | in a job of MPI's: the file's name gets the process's number in the job (`.rank-N` or `.slurmid-N`); or its id, where the job is known by `SLURM_JOB_ID` or `OMPI_HOME` alone |
/// | `SIGPROF_CLOCK` | `cpu` or `wall` |
/// | `SIGPROF_ENGINE` | `auto`, `perf_event`, `thread_timer` or `process_timer` |
/// | `SIGPROF_SYMBOLIZE` | `0`: addresses without names |
///
/// What a name gets stands at its end, as gperftools has it, but before an extension that says
/// another format than gperftools' (`cpu_4711.pb.gz`).
///
/// # Errors
///
/// Those of [`Profiler::start_to`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) where a
/// variable is none of the words, or no number, that it can be.
pub fn from_env() -> Result<Option<Guard>> {
    let Some(asked) = asked()? else {
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
    /// The signal that starts and stops the profile.
    #[cfg(feature = "capi")]
    pub(crate) toggle: Option<i32>,
}

/// The profile that the environment asks for, if it asks for one.
///
/// # Errors
///
/// Those of [`profiler`].
pub(crate) fn asked() -> Result<Option<Asked>> {
    let Some(path) = variable("CPUPROFILE") else {
        return Ok(None);
    };
    if process::has_elevated_rights() {
        return Ok(None);
    }
    let (path, has_pid) = path_of_process(path, "CPUPROFILE_USE_PID");
    Ok(Some(Asked {
        path,
        has_pid,
        profiler: profiler()?,
        #[cfg(feature = "capi")]
        toggle: match variable("CPUPROFILESIGNAL") {
            Some(number) => Some(value::decimal("CPUPROFILESIGNAL", &number)?),
            None => None,
        },
    }))
}

/// What the environment has a profile recorded with; nothing of it in a process with the rights of
/// another user, who did not set the variables.
///
/// # Errors
///
/// Where a variable is none of the words, or no number, that it can be.
pub(crate) fn profiler() -> Result<Profiler> {
    if process::has_elevated_rights() {
        return Ok(Profiler::new());
    }
    let frequency = frequency_hz(std::env::var_os("CPUPROFILE_FREQUENCY"));
    let mut profiler = Profiler::new().frequency_hz(frequency);
    if std::env::var_os("CPUPROFILE_REALTIME").is_some() {
        profiler = profiler.clock(Clock::Wall);
    }
    if let Some(number) = variable("CPUPROFILE_TIMER_SIGNAL") {
        profiler = profiler.signal(c_number("CPUPROFILE_TIMER_SIGNAL", &number)?);
    }
    let clocks = [("cpu", Clock::Cpu), ("wall", Clock::Wall)];
    if let Some(clock) = word("SIGPROF_CLOCK", &clocks)? {
        profiler = profiler.clock(clock);
    }
    let engines = [
        ("auto", Engine::Auto),
        ("perf_event", Engine::PerfEvent),
        ("thread_timer", Engine::ThreadTimer),
        ("process_timer", Engine::ProcessTimer),
    ];
    if let Some(engine) = word("SIGPROF_ENGINE", &engines)? {
        profiler = profiler.engine(engine);
    }
    let is_named = word("SIGPROF_SYMBOLIZE", &[("0", false), ("1", true)])?;
    #[cfg(feature = "symbolize")]
    if let Some(is_named) = is_named {
        profiler = profiler.symbolize(is_named);
    }
    // Without names there are none to leave out.
    #[cfg(not(feature = "symbolize"))]
    let _ = is_named;
    Ok(profiler)
}
