//! RAII: record from here until the guard goes out of scope, then write the file.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::profiler::Profiler;
use super::recording::Recording;
use crate::ending::{Ending, Unfinished};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Format, HeldFile, OutputFile};
use crate::profile::Profile;
use crate::sync::Mutex;

/// A recording that writes its profile to a file when it is [finished](Self::finish) or dropped, or
/// when the process ends.
///
/// Bind it to a name that lives as long as what is to be profiled (`let _profiling = …`; a bare `_`
/// drops at once), or keep it in a `static`: the return from `main` and `std::process::exit` write
/// the file of a guard that is alive then, and a signal that ends the process does where
/// [`write_on`](Self::write_on) has asked for that. `abort` and `_exit` write none.
///
/// Where the file cannot be written at the drop or at the end, a line on stderr says why;
/// [`finish`](Self::finish) returns the error instead. A forked child writes no file.
#[derive(Debug)]
#[must_use = "dropping the guard ends the profile: bind it, as in `let _profiling = …`"]
pub struct Guard {
    recorded: Arc<FileRecording>,
    ending: Ending,
}

/// What is recorded for a file.
#[derive(Debug)]
struct FileRecording {
    recording: Recording,
    file: HeldFile,
    format: Format,
    /// Held by who writes the file.
    writing: Mutex<()>,
}

impl FileRecording {
    /// Writes the profile so far. A pipe or a device is written to once, at the end.
    fn flush(&self) -> Result<()> {
        if OutputFile::is_direct(self.file.path()) {
            return Ok(());
        }
        let profile = self.recording.snapshot()?;
        // Where the end of the process has come before, the file is the whole profile's.
        let _writing = self.writing.lock();
        match self.recording.is_stopped() {
            true => Ok(()),
            false => self.file.save(&profile, self.format),
        }
    }

    fn write(&self, profile: &Profile) -> Result<()> {
        let _writing = self.writing.lock();
        self.file.save(profile, self.format)
    }
}

impl Unfinished for FileRecording {
    fn end(&self) {
        let stopped = self.recording.stop();
        say_if_not_written(stopped.and_then(|profile| self.write(&profile)));
    }

    fn flush(&self) {
        say_if_not_written(self.flush());
    }
}

/// For an error that nobody is left to return to: a profile that is missing without a word is worse
/// than a line.
fn say_if_not_written(written: Result<()>) {
    if let Err(error) = written {
        // `eprintln` would panic where stderr takes none.
        let line = format!("sigprof: no profile was written: {error}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

impl Guard {
    /// Starts `profiler` for a file of this format at `path`, which is tried first.
    pub(crate) fn start(profiler: Profiler, path: &Path, format: Format) -> Result<Self> {
        Self::start_with(profiler, path, format, HeldFile::unopened)
    }

    fn start_with(
        profiler: Profiler,
        path: &Path,
        format: Format,
        hold: impl FnOnce(std::path::PathBuf) -> HeldFile,
    ) -> Result<Self> {
        if !format.holds_cpu_time() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "the extension of `{}` is that of a profile of memory or of locks: end the name of one of CPU time \
                     in .pb.gz",
                    path.display()
                ),
            ));
        }
        OutputFile::probe(path)?;
        // The program may change its directory, and the file belongs where it was tried.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let recorded = Arc::new(FileRecording {
            recording: profiler.start()?,
            file: hold(path),
            format,
            writing: Mutex::default(),
        });
        let ending = Ending::of(recorded.clone())?;
        Ok(Self { recorded, ending })
    }

    /// As [`start`](Self::start), for gperftools' CPU file where the path does not say another
    /// format, and for a file that is [held](HeldFile).
    pub(crate) fn start_for(profiler: Profiler, path: &Path) -> Result<Self> {
        let format = Format::from_path(path).ok();
        let format = format.filter(|format| format.holds_cpu_time());
        let format = format.unwrap_or(Format::CpuProfile);
        // What that file cannot hold need not be found out.
        #[cfg(feature = "symbolize")]
        let profiler = match format.has_names() {
            true => profiler,
            false => profiler.symbolize(false),
        };
        Self::start_with(profiler, path, format, HeldFile::new)
    }

    /// Has the end of the process leave it alone: the caller finishes it then.
    #[cfg(feature = "capi")]
    pub(crate) fn left_to_caller(self) -> Self {
        self.ending.leave_to_caller();
        self
    }

    /// The recording, to take a snapshot of or ask for its figures.
    pub fn recording(&self) -> &Recording {
        &self.recorded.recording
    }

    /// Writes the profile so far to the file, and goes on recording: no tick is lost. A pipe or a
    /// device, which cannot be written anew, gets the profile at the end, and nothing now.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written: an older file of that name is then still whole. In a
    /// forked child, which owns neither the recording nor the file.
    pub fn flush(&self) -> Result<()> {
        self.recorded.flush()
    }

    /// Also writes the file where one of these signals is about to end the process: an ordinary
    /// thread (`sigprof-signal`) does so, and then the signal takes its course, so that whoever
    /// waits for the process sees the same end.
    ///
    /// ```no_run
    /// fn main() -> sigprof::Result<()> {
    ///     const SIGINT: i32 = 2; // as libc has them
    ///     const SIGTERM: i32 = 15;
    ///     let _profiling = sigprof::profile_to("cpu.pb.gz")?.write_on(&[SIGINT, SIGTERM])?;
    ///     loop {
    ///         // … until Ctrl-C …
    /// #       break Ok(());
    ///     }
    /// }
    /// ```
    ///
    /// A second delivery ends the process without the file where the first has been written for
    /// more than 2 seconds. A signal that the program ignores stays ignored, and one that the
    /// program has a handler for (its own, or a library's, before or after this call) is the
    /// program's: that handler is called at once, and the file is written [so far](Self::flush)
    /// beside it. A forked child ends by the signal as ever.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a signal that ends no process by default, or
    /// whose end cannot be put off (a fault's, `SIGABRT`, `SIGKILL`);
    /// [`SignalInUse`](ErrorKind::SignalInUse) for the profiler's own signal;
    /// [`Os`](ErrorKind::Os) where the system gives no thread. The guard is dropped then, which
    /// writes the file.
    pub fn write_on(self, signals: &[i32]) -> Result<Self> {
        self.ending.write_on(signals)?;
        Ok(self)
    }

    /// Stops, writes the file, and returns the profile that was written.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written: an older file of that name is then still whole. In a
    /// forked child, which owns neither the recording nor the file. While the process ends, and
    /// another thread writes the file.
    pub fn finish(self) -> Result<Profile> {
        self.finish_with(Vec::new())
    }

    /// The same, with these comments in the profile.
    fn finish_with(self, comments: Vec<String>) -> Result<Profile> {
        let recorded = &self.recorded;
        let _turn = self.ending.begin()?;
        let mut profile = recorded.recording.stop()?;
        profile.comments.extend(comments);
        recorded.write(&profile)?;
        Ok(profile)
    }

    /// Does what [`finish`](Self::finish) does, and returns the size of the file, without the text
    /// that a file of gperftools' ends in; and a sentence about what the format leaves out, if it
    /// says so. The profile gets these comments.
    #[cfg(feature = "capi")]
    pub(crate) fn finish_and_measure(self, comments: Vec<String>) -> Result<(u64, Option<String>)> {
        let (path, format) = (self.recorded.file.path().to_owned(), self.recorded.format);
        let profile = self.finish_with(comments)?;
        let bytes = match format {
            Format::CpuProfile => profile.cpu_profile_size_before_text()? as u64,
            // Of a pipe there is none.
            _ => path.metadata().map_or(0, |file| file.len()),
        };
        Ok((bytes, profile.left_out(format)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // In a forked child there is nothing to stop and no file to write.
        if let Ok(_turn) = self.ending.begin() {
            self.recorded.end();
        }
    }
}

impl Profiler {
    /// Starts to record, and writes the profile to `path` when the guard drops; the extension says
    /// in which [format](Format::from_path). The path is tried first, so that one that cannot be
    /// written is an error now.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start); [`InvalidInput`](crate::ErrorKind::InvalidInput) for an
    /// unknown extension; [`Io`](crate::ErrorKind::Io) where the file could not be written.
    pub fn start_to(self, path: impl AsRef<Path>) -> Result<Guard> {
        let path = path.as_ref();
        Guard::start(self, path, Format::from_path(path)?)
    }
}

/// Records this process at 100 Hz from here until the guard drops, then writes the profile to
/// `path`; the extension says in which [format](Format::from_path).
///
/// ```no_run
/// fn main() -> sigprof::Result<()> {
///     let _profiling = sigprof::profile_to("cpu.pb.gz")?;
///     // … the program's work …
///     Ok(())
/// }
/// ```
///
/// # Errors
///
/// Those of [`Profiler::start_to`].
pub fn profile_to(path: impl AsRef<Path>) -> Result<Guard> {
    Profiler::new().start_to(path)
}
