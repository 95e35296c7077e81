//! RAII: watch from here until the guard goes out of scope, then write the files.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;

use super::watch::{Watch, watch_process};
use super::{Role, View, of};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Format, HeldFile, OutputFile};

/// The process's locks are watched until this is [finished](Self::finish) or dropped, which writes
/// who has waited for them to a file.
///
/// Bind it to a name that lives as long as what is to be watched (`let _watch = …`; a bare `_`
/// drops at once). `std::process::exit` and a panic that aborts drop nothing, so they leave no
/// file; a forked child writes none.
#[derive(Debug)]
#[must_use = "dropping the guard ends the watch: bind it, as in `let _watch = …`"]
pub struct Guard {
    watch: Option<Watch>,
    files: Vec<RoleFile>,
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
        Ok(Self {
            watch: Some(watch_process()?),
            files,
        })
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

    /// Also writes who has kept others waiting, [`holders`](super::holders), to a file of its own.
    ///
    /// # Errors
    ///
    /// As of [`profile_to`], whose file is then not written.
    pub fn and_holders_to(mut self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = format_of(path)
            .and_then(|format| RoleFile::new(Role::Holder, path, format, HeldFile::unopened));
        match file {
            Ok(file) => self.files.push(file),
            Err(error) => {
                self.files.clear();
                return Err(error);
            }
        }
        Ok(self)
    }

    /// Ends the watch and writes the files.
    ///
    /// # Errors
    ///
    /// Where a file cannot be written: an older file of that name is then still whole. In a forked
    /// child, which owns neither the watch nor the files.
    pub fn finish(mut self) -> Result<()> {
        let watch = self.watch.take();
        if watch.as_ref().is_some_and(Watch::is_own) {
            drop(watch);
            return self.write();
        }
        let message = "a forked child does not write the files of the process that is watched";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Writes what can be written; the first error, if there is one.
    fn write(&self) -> Result<()> {
        let mut written = Ok(());
        for file in &self.files {
            let saved = of(file.role, View::Busy, None)
                .and_then(|profile| file.file.save(&profile, file.format));
            written = written.and(saved);
        }
        written
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(watch) = self.watch.take().filter(Watch::is_own) else {
            return;
        };
        drop(watch);
        if let Err(error) = self.write() {
            // Nobody is left to return it to. `eprintln` would panic where stderr takes none.
            let line = format!("sigprof: no contention profile was written: {error}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
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
