//! RAII: watch from here until the guard goes out of scope, then write the files.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::watch::{Watch, watch_process};
use super::{Role, View, of};
use crate::ending::{Ending, Unfinished};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Format, HeldFile, OutputFile};
use crate::sync::Mutex;

/// The process's locks are watched until this is [finished](Self::finish) or dropped, or the
/// process ends, which writes who has waited for them to a file.
///
/// Bind it to a name that lives as long as what is to be watched (`let _watch = …`; a bare `_`
/// drops at once), or keep it in a `static`: the return from `main` and `std::process::exit` write
/// the files of a guard that is alive then, and a signal that ends the process does where
/// [`write_on`](Self::write_on) has asked for that. `abort` and `_exit` write none.
///
/// Where a file cannot be written at the drop or at the end, a line on stderr says why;
/// [`finish`](Self::finish) returns the error instead. A forked child writes no file.
#[derive(Debug)]
#[must_use = "dropping the guard ends the watch: bind it, as in `let _watch = …`"]
pub struct Guard {
    watched: Arc<FileWatch>,
    ending: Ending,
}

/// A watch for files.
#[derive(Debug)]
struct FileWatch {
    watch: Mutex<Option<Watch>>,
    files: Mutex<Vec<RoleFile>>,
}

impl FileWatch {
    /// Writes what can be written; the first error, if there is one.
    fn write(&self) -> Result<()> {
        let mut written = Ok(());
        for file in &*self.files.lock() {
            let saved = of(file.role, View::Busy, None)
                .and_then(|profile| file.file.save(&profile, file.format));
            written = written.and(saved);
        }
        written
    }
}

impl FileWatch {
    /// Ends the watch and writes the files.
    fn finish(&self) -> Result<()> {
        drop(self.watch.lock().take());
        self.write()
    }
}

impl Unfinished for FileWatch {
    fn end(&self) {
        say_if_not_written(self.finish());
    }

    fn flush(&self) {
        say_if_not_written(self.write());
    }
}

fn say_if_not_written(written: Result<()>) {
    if let Err(error) = written {
        // Nobody is left to return it to. `eprintln` would panic where stderr takes none.
        let line = format!("sigprof: no contention profile was written: {error}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Where the profile of one role is written to.
#[derive(Debug)]
struct RoleFile {
    role: Role,
    file: HeldFile,
    format: Format,
}

/// Watches this process's locks from here until the guard drops, then writes who has waited for
/// them, [`profile`](super::profile()), to `path`; the extension says in which
/// [format](Format::from_path): `.pb.gz`, `.pb`, `.collapsed` or `.contention`.
///
/// ```no_run
/// fn main() -> sigprof::Result<()> {
///     let _watch = sigprof::contention::profile_to("waits.pb.gz")?;
///     // … the program's work …
///     Ok(())
/// }
/// ```
///
/// # Errors
///
/// Those of [`watch_process`]; [`InvalidInput`](ErrorKind::InvalidInput) for an extension that is
/// unknown, or that of a profile of CPU time or memory; [`Io`](ErrorKind::Io) where the file could
/// not be written.
pub fn profile_to(path: impl AsRef<Path>) -> Result<Guard> {
    let path = path.as_ref();
    let file = RoleFile::new(Role::Waiter, path, format_of(path)?, HeldFile::unopened)?;
    Guard::start(vec![file])
}

impl Guard {
    fn start(files: Vec<RoleFile>) -> Result<Self> {
        let watched = Arc::new(FileWatch {
            watch: Mutex::new(Some(watch_process()?)),
            files: Mutex::new(files),
        });
        let ending = Ending::of(watched.clone())?;
        Ok(Self { watched, ending })
    }

    /// For files as an environment names them: in gperftools' text where a path does not say
    /// another format, and [held](HeldFile).
    pub(super) fn start_for(paths: &[(Role, &Path)]) -> Result<Self> {
        let file = |&(role, path): &(Role, &Path)| {
            let format = format_of(path).unwrap_or(Format::Contention);
            RoleFile::new(role, path, format, HeldFile::new)
        };
        let files = paths.iter().map(file);
        Self::start(files.collect::<Result<_>>()?)
    }

    /// Has the end of the process leave it alone: the caller finishes it then.
    #[cfg(feature = "capi")]
    pub(crate) fn left_to_caller(self) -> Self {
        self.ending.leave_to_caller();
        self
    }

    /// Also writes who has kept others waiting, [`holders`](super::holders), to a file of its own.
    ///
    /// # Errors
    ///
    /// As of [`profile_to`], whose file is then not written.
    pub fn and_holders_to(self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = format_of(path)
            .and_then(|format| RoleFile::new(Role::Holder, path, format, HeldFile::unopened));
        let mut files = self.watched.files.lock();
        match file {
            Ok(file) => files.push(file),
            Err(error) => {
                files.clear();
                return Err(error);
            }
        }
        drop(files);
        Ok(self)
    }

    /// Also writes the files where one of these signals is about to end the process, as
    /// [`cpu::Guard::write_on`](crate::cpu::Guard::write_on) does.
    ///
    /// # Errors
    ///
    /// Those of that.
    pub fn write_on(self, signals: &[i32]) -> Result<Self> {
        self.ending.write_on(signals)?;
        Ok(self)
    }

    /// Ends the watch and writes the files.
    ///
    /// # Errors
    ///
    /// Where a file cannot be written: an older file of that name is then still whole. In a forked
    /// child, which owns neither the watch nor the files. While the process ends, and another
    /// thread writes the files.
    pub fn finish(self) -> Result<()> {
        let _turn = self.ending.begin()?;
        self.watched.finish()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // In a forked child there is nothing to end and no file to write.
        if let Ok(_turn) = self.ending.begin() {
            self.watched.end();
        }
    }
}

impl RoleFile {
    /// A file that is tried first, so that one that cannot be written is an error now.
    fn new(
        role: Role,
        path: &Path,
        format: Format,
        hold: impl FnOnce(std::path::PathBuf) -> HeldFile,
    ) -> Result<Self> {
        OutputFile::probe(path)?;
        // The program may change its directory, and the file belongs where it was tried.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            role,
            file: hold(path),
            format,
        })
    }
}

fn format_of(path: &Path) -> Result<Format> {
    let format = Format::from_path(path)?;
    match format.holds_waits() {
        true => Ok(format),
        false => Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "the extension of `{}` is that of a profile of CPU time or of memory: end the name of one of locks in \
                 .pb.gz or .contention",
                path.display()
            ),
        )),
    }
}
