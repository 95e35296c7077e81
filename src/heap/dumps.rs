//! Heap profiles as files, written as the heap grows.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io, ptr};

use super::sites::Counted;
use super::watch::{Bounds, Due, Watch};
use super::{check, peak, report};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Format, OutputFile};
use crate::sys::own_threads::{OwnThread, as_own, look_around};
use crate::sys::signal;

/// gperftools' intervals.
const DEFAULT_BOUNDS: Bounds = Bounds {
    allocated: 1 << 30,
    in_use: 100 << 20,
    last_stop: 0,
};

/// How often the writer looks whether it alone keeps the process from ending.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// How long the end of the process waits for the last file.
const LONGEST_END: Duration = Duration::from_secs(30);

/// When files of the heap profile are written, and where: by gperftools' names and intervals.
///
/// ```no_run
/// use sigprof::heap::{self, Dumper};
///
/// #[global_allocator]
/// static ALLOCATOR: heap::Allocator = heap::Allocator::system();
///
/// fn main() -> sigprof::Result<()> {
///     let _dumps = Dumper::new("server").allocation_interval(10 << 30).start()?;
///     // … the program's work, which leaves `server.0001.heap` and so on …
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a dumper writes nothing until it is started"]
pub struct Dumper {
    prefix: PathBuf,
    bounds: Bounds,
    /// Files of these names are removed first.
    removes_old: bool,
}

impl Dumper {
    /// Writes `prefix.0001.heap`, `prefix.0002.heap` and so on, each whole or not at all: what
    /// [`profile`](super::profile()) has, as gperftools' text.
    pub fn new(prefix: impl AsRef<Path>) -> Self {
        Self {
            prefix: prefix.as_ref().to_owned(),
            bounds: DEFAULT_BOUNDS,
            removes_old: false,
        }
    }

    /// Removes files of these names first, so that all that are there are of this run.
    pub(super) fn in_place_of_old_files(mut self) -> Self {
        self.removes_old = true;
        self
    }

    /// One for each so many bytes that are allocated, freed or not: 1 GiB, unless this says
    /// otherwise. 0: none.
    pub fn allocation_interval(mut self, bytes: u64) -> Self {
        self.bounds.allocated = bytes;
        self
    }

    /// One wherever so many bytes more are in use than at the last that was written for this
    /// reason: 100 MiB, unless this says otherwise. 0: none.
    pub fn inuse_interval(mut self, bytes: u64) -> Self {
        self.bounds.in_use = bytes;
        self
    }

    /// One where this many bytes are in use, before more memory is used up than there is: threads
    /// that allocate more wait for the file, up to 10 s. After that there is another one once the
    /// use has been below half of it. 0, and unless this says otherwise: none.
    ///
    /// Only sampled allocations are seen, so the use may be a few [sample
    /// intervals](super::sample_interval) higher. The file itself needs memory, too: some for each
    /// stack, and for the program's debug information.
    pub fn dump_at(mut self, bytes: u64) -> Self {
        self.bounds.last_stop = bytes;
        self
    }

    /// Begins to write them, on a thread named `sigprof-heap`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) where there is [no heap profile](super::profile());
    /// [`AlreadyRunning`](ErrorKind::AlreadyRunning) where there are such files already;
    /// [`Io`](ErrorKind::Io) where the first could not be written; [`Os`](ErrorKind::Os) where the
    /// system gives no thread.
    pub fn start(self) -> Result<Dumps> {
        // The calling thread may be at the last stop, and does not wait for a thread that is not
        // there yet.
        as_own(|| self.start_as_own())
    }

    fn start_as_own(self) -> Result<Dumps> {
        check()?;
        let no_thread = |error| {
            let message = "could not start the thread that writes heap profiles";
            Error::with_source(ErrorKind::Os, message, error)
        };
        let mut prefix = self.prefix;
        // The program may change its directory, and the files belong where the first was tried.
        if let Ok(absolute) = std::path::absolute(&prefix) {
            prefix = absolute;
        }
        let files = Files { prefix, written: 0 };
        OutputFile::probe(files.next())?;
        let watch = Watch::get_or_make().map_err(no_thread)?;
        if !watch.claim_writer() {
            let message = "heap profiles are being written to files already: drop the guard first";
            return Err(Error::new(ErrorKind::AlreadyRunning, message));
        }
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: a function of ours, which does not unwind.
            unsafe { libc::atexit(at_exit) };
        });
        if self.removes_old {
            files.remove_old();
        }
        // Before there is a writer: what the last one was told does not hold any more.
        peak::begin_watch(watch, self.bounds);
        let thread = signal::with_signals_blocked(|| {
            let thread = thread::Builder::new().name("sigprof-heap".into());
            thread.spawn(move || {
                signal::unblock_profilers();
                write_all(watch, files);
            })
        });
        match thread {
            Ok(thread) => Ok(Dumps {
                thread: Some(thread),
                watch,
            }),
            Err(error) => {
                peak::end_watch(watch);
                watch.end_writer();
                Err(no_thread(error))
            }
        }
    }
}

/// Files of the heap profile are written until this is dropped, which writes the last one.
///
/// `exit` and the return from `main` write the last one, too, as long as this lives; `abort`, fatal
/// signals and the out-of-memory killer do not. A forked child writes none. A file that cannot be
/// written is a line on stderr.
#[derive(Debug)]
#[must_use = "dropping it ends the files: bind it, as in `let _dumps = …`"]
pub struct Dumps {
    thread: Option<JoinHandle<()>>,
    /// That of the process whose thread that is.
    watch: &'static Watch,
}

impl Drop for Dumps {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A child would wait for its parent's thread for ever.
        if Watch::get().is_some_and(|watch| ptr::eq(watch, self.watch)) {
            self.watch.ask_for_the_last();
            // A panic of the thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Has the last file written where the process ends with a [`Dumps`] alive: by the writer, since
/// the calling thread has run the destructors of its thread-locals.
extern "C" fn at_exit() {
    let Some(watch) = Watch::get().filter(|watch| watch.has_writer()) else {
        return;
    };
    watch.ask_for_the_last();
    let begin = Instant::now();
    while watch.has_writer() && begin.elapsed() < LONGEST_END {
        thread::sleep(Duration::from_millis(1));
    }
}

/// What the writer does.
fn write_all(watch: &'static Watch, mut files: Files) {
    /// Has nobody wait for a thread that has ended, whatever happens.
    struct Ends(&'static Watch);

    impl Drop for Ends {
        fn drop(&mut self) {
            peak::end_watch(self.0);
            self.0.end_writer();
        }
    }

    let _ends = Ends(watch);
    let _own = OwnThread::begin();
    let mut tids = Vec::new();
    loop {
        let due = watch.sleep(LOOK_AROUND);
        look_around(&mut tids);
        if due == Due::Nothing {
            continue;
        }
        if let Err(error) = files.write() {
            // Nobody is there to return it to. `eprintln` would panic where stderr takes none.
            let line = format!("sigprof: no heap profile was written: {error}\n");
            let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
        }
        peak::end_file(watch);
        if due == Due::Last {
            break;
        }
    }
}

/// The files.
#[derive(Debug)]
struct Files {
    prefix: PathBuf,
    written: u32,
}

impl Files {
    fn next(&self) -> PathBuf {
        let mut path = self.prefix.clone().into_os_string();
        path.push(format!(".{:04}.heap", self.written + 1));
        path.into()
    }

    /// Removes files that others have written under these names, as far as the system lets it.
    fn remove_old(&self) {
        let Some(name) = self.prefix.file_name() else {
            return;
        };
        let is_old = |file: &OsStr| {
            let number = (file.as_bytes().strip_prefix(name.as_bytes()))
                .and_then(|rest| rest.strip_prefix(b"."))
                .and_then(|rest| rest.strip_suffix(b".heap"));
            number.is_some_and(|number| number.len() >= 4 && number.iter().all(u8::is_ascii_digit))
        };
        let directory = self.prefix.parent().map(fs::read_dir);
        for entry in directory.into_iter().flatten().flatten().flatten() {
            if is_old(&entry.file_name()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn write(&mut self) -> Result<()> {
        check()?;
        let profile = report::profile(&Counted::default());
        profile.save_as(&self.next(), Format::Heap)?;
        self.written += 1;
        Ok(())
    }
}
