//! RAII: record from here until the guard goes out of scope, then write the file.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;

use super::profiler::Profiler;
use super::recording::Recording;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Format, HeldFile, OutputFile};
use crate::profile::Profile;

/// A recording that writes its profile to a file when it is [finished](Self::finish) or dropped.
///
/// Bind it to a name that lives as long as what is to be profiled (`let _profiling = …`; a bare `_`
/// drops at once). `std::process::exit` and a panic that aborts drop nothing, so they leave no
/// file.
#[derive(Debug)]
#[must_use = "dropping the guard ends the profile: bind it, as in `let _profiling = …`"]
pub struct Guard {
    recording: Option<Recording>,
    file: HeldFile,
    format: Format,
}

impl Guard {
    /// Starts `profiler` for a file of this format at `path`, which is tried first.
    pub(crate) fn start(profiler: Profiler, path: &Path, format: Format) -> Result<Self> {
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
        Ok(Self {
            recording: Some(profiler.start()?),
            file: HeldFile::unopened(path),
            format,
        })
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
        let mut guard = Self::start(profiler, path, format)?;
        guard.file = HeldFile::new(guard.file.path().to_owned());
        Ok(guard)
    }

    /// The recording, to take a snapshot of or ask for its figures.
    ///
    /// # Panics
    ///
    /// Never: only [`finish`](Self::finish), which takes the guard, ends it.
    pub fn recording(&self) -> &Recording {
        self.recording
            .as_ref()
            .expect("the recording is taken by `finish` and `drop` only")
    }

    /// Writes the profile so far to the file, and goes on recording: no tick is lost. A pipe or a
    /// device, which cannot be written anew, gets the profile at the end, and nothing now.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written: an older file of that name is then still whole. In a
    /// forked child, which owns neither the recording nor the file.
    pub fn flush(&self) -> Result<()> {
        if OutputFile::is_direct(self.file.path()) {
            return Ok(());
        }
        let profile = self.recording().snapshot()?;
        self.file.save(&profile, self.format)
    }

    /// Stops, writes the file, and returns the profile that was written.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written: an older file of that name is then still whole. In a
    /// forked child, which owns neither the recording nor the file.
    pub fn finish(self) -> Result<Profile> {
        self.finish_with(Vec::new())
    }

    /// The same, with these comments in the profile.
    fn finish_with(mut self, comments: Vec<String>) -> Result<Profile> {
        let recording = self
            .recording
            .take()
            .expect("`finish` takes the guard, so it runs once");
        let mut profile = recording.stop()?;
        profile.comments.extend(comments);
        self.file.save(&profile, self.format)?;
        Ok(profile)
    }

    /// Does what [`finish`](Self::finish) does, and returns the size of the file, without the text
    /// that a file of gperftools' ends in; and a sentence about what the format leaves out, if it
    /// says so. The profile gets these comments.
    #[cfg(feature = "capi")]
    pub(crate) fn finish_and_measure(self, comments: Vec<String>) -> Result<(u64, Option<String>)> {
        let (path, format) = (self.file.path().to_owned(), self.format);
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
        let Some(recording) = self.recording.take() else {
            return;
        };
        // In a forked child there is nothing to stop and no file to write.
        if !recording.is_own() {
            return;
        }
        let written = recording
            .stop()
            .and_then(|profile| self.file.save(&profile, self.format));
        if let Err(error) = written {
            // Nobody is left to return it to, and a profile that is missing without a word is worse
            // than a line. `eprintln` would panic where stderr takes none.
            let line = format!("sigprof: no profile was written: {error}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
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
