//! Files that are open for a moment, in a program that may close any descriptor meanwhile.
//!
//! A program that closes all of its files closes ours with them, and may then open a file of its own
//! by the same number. So a descriptor is trusted, and closed, only while it leads to the file that
//! was opened. What is read without that knowledge is read by place: no place of the program's moves
//! in a file of its own, and no byte is missing from its pipe. The standard library's `File` knows
//! none of this, and ends a program with debug assertions whose descriptor is closed already.
//!
//! A fork waits meanwhile, so that no child inherits the open file.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use super::check;
use super::fork::holding_off_forks;

/// Which file that is, whatever its name is by now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    /// The file behind a descriptor; `None` where it is closed.
    pub(crate) fn of(fd: RawFd) -> Option<Self> {
        status(fd).ok().as_ref().map(Self::in_status)
    }

    fn in_status(status: &libc::stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
        }
    }
}

/// A file that is open while [`with`] calls a function.
#[derive(Debug)]
pub(crate) struct BriefFile {
    fd: RawFd,
    /// Which file it is.
    pub(crate) id: FileId,
    /// How many bytes it had when it was opened; 0 for what `/proc` makes up.
    pub(crate) len: u64,
    /// It is neither a directory, nor a pipe, nor a device.
    pub(crate) is_regular: bool,
}

/// Opens a file to read, calls `f` with it, and closes it. `f` is called again, with the file opened
/// anew, where another thread has closed the first.
///
/// # Errors
///
/// Where the file cannot be opened, where `f` fails, and where the file was closed each time.
pub(crate) fn with<T>(
    path: impl AsRef<[u8]>,
    f: impl FnMut(&BriefFile) -> io::Result<T>,
) -> io::Result<T> {
    // A program closes all of its files once, as a rule.
    const TRIES: usize = 3;
    let path = CString::new(path.as_ref())?;
    let mut f = f;
    let mut attempt = || {
        holding_off_forks(|| {
            let Some(file) = BriefFile::open(&path)? else {
                return Ok(None);
            };
            let result = f(&file);
            Ok::<_, io::Error>(file.close().then_some(result))
        })
    };
    for _ in 0..TRIES {
        if let Some(result) = attempt()? {
            return result;
        }
    }
    let message = "the program closes descriptors that it has not opened";
    Err(io::Error::other(message))
}

/// All bytes of a file.
///
/// # Errors
///
/// Where the file cannot be opened or read.
pub(crate) fn read(path: &str) -> io::Result<Vec<u8>> {
    with(path, |file| {
        let mut bytes = Vec::new();
        loop {
            bytes.reserve(1024);
            let place = bytes.len();
            let filled = file.read_at(place as u64, bytes.spare_capacity_mut())?;
            // SAFETY: the kernel has filled that many bytes of the spare ones.
            unsafe { bytes.set_len(place + filled) };
            if filled == 0 {
                return Ok(bytes);
            }
        }
    })
}

/// All bytes of a file of text.
///
/// # Errors
///
/// As [`read`], and where the bytes are not UTF-8.
pub(crate) fn read_to_string(path: &str) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Puts into `entries` what `parse` makes of each name in a directory, `.` and `..` among them.
///
/// # Errors
///
/// Where the directory cannot be opened or read.
pub(crate) fn read_directory<T>(
    path: &str,
    entries: &mut Vec<T>,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<()> {
    with(path, |directory| {
        entries.clear();
        directory.each_name(|name| entries.extend(parse(name)))
    })
}

/// The names in a buffer of `struct linux_dirent64`: inode (8 bytes), offset (8), record length
/// (2), type (1), name.
fn names(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?);
        let (entry, rest) = bytes.split_at_checked(len.into())?;
        bytes = rest;
        entry.get(19..)?.split(|&b| b == 0).next()
    })
}

impl BriefFile {
    /// Opens a file; `None` where another thread has closed it already. To open a pipe or a terminal
    /// must not wait, nor make it this process's own.
    fn open(path: &CString) -> io::Result<Option<Self>> {
        const FLAGS: libc::c_int =
            libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends with a 0.
        let fd = check(unsafe { libc::open(path.as_ptr(), FLAGS) }.into())? as RawFd;
        Ok(status(fd).ok().map(|status| Self {
            fd,
            id: FileId::in_status(&status),
            len: u64::try_from(status.st_size).unwrap_or(0),
            is_regular: status.st_mode & libc::S_IFMT == libc::S_IFREG,
        }))
    }

    /// The descriptor, which another thread may have closed.
    #[cfg(feature = "symbolize")]
    pub(super) fn descriptor(&self) -> RawFd {
        self.fd
    }

    /// Whether the descriptor still leads to the file.
    fn is_open(&self) -> bool {
        FileId::of(self.fd) == Some(self.id)
    }

    /// Closes the file, and says whether it was open until then.
    fn close(self) -> bool {
        let is_open = self.is_open();
        if is_open {
            // SAFETY: it is the file that was opened here.
            unsafe { libc::close(self.fd) };
        }
        is_open
    }

    /// Calls `f` with each name in a directory.
    fn each_name(&self, mut f: impl FnMut(&[u8])) -> io::Result<()> {
        let mut buffer = [0_u64; 1024];
        // What is read next depends on the place of the open file, which moves: that of a directory
        // of the program's must not.
        while self.is_open() {
            // SAFETY: the buffer is as long as said, and aligned for the records.
            let filled = check(unsafe {
                libc::syscall(
                    libc::SYS_getdents64,
                    self.fd,
                    buffer.as_mut_ptr(),
                    size_of_val(&buffer),
                )
            })? as usize;
            if filled == 0 {
                break;
            }
            // SAFETY: the kernel filled that many bytes of the buffer.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), filled) };
            names(bytes).for_each(&mut f);
        }
        Ok(())
    }

    /// Fills the first of `bytes` from a place of the file on, and says how many; 0 at its end.
    fn read_at(&self, place: u64, bytes: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        let place = libc::off64_t::try_from(place).map_err(io::Error::other)?;
        loop {
            // SAFETY: the buffer is as long as said.
            let filled = check(unsafe {
                libc::pread64(self.fd, bytes.as_mut_ptr().cast(), bytes.len(), place)
                    as libc::c_long
            });
            match filled {
                Ok(filled) => return Ok(filled as usize),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills `bytes` from a place of the file on.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, and where there are not as many.
    pub(crate) fn read_exact_at(&self, mut place: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // SAFETY: the kernel writes bytes, which are initialized then as before.
            let unfilled = unsafe { &mut *(&raw mut *bytes as *mut [MaybeUninit<u8>]) };
            let filled = self.read_at(place, unfilled)?;
            if filled == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            place += filled as u64;
            bytes = &mut bytes[filled..];
        }
        Ok(())
    }
}

fn status(fd: RawFd) -> io::Result<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills what it is given.
    check(unsafe { libc::fstat(fd, status.as_mut_ptr()) }.into())?;
    // SAFETY: it has been filled.
    Ok(unsafe { status.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file by the number of `file`, as another thread of the program has it.
    fn replace(file: &BriefFile, path: &str) {
        let path = CString::new(path).unwrap();
        // SAFETY: what stands behind the number now is nobody else's.
        unsafe {
            let other = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            assert!(libc::dup3(other, file.fd, libc::O_CLOEXEC) >= 0);
            libc::close(other);
        }
    }

    #[test]
    fn a_file_that_is_closed_meanwhile_is_opened_again() {
        let mut calls = 0;
        let text = with("/proc/thread-self/comm", |file| {
            calls += 1;
            if calls == 1 {
                // SAFETY: as a program does that closes all of its files.
                unsafe { libc::close(file.fd) };
            }
            let mut bytes = [0; 4];
            file.read_exact_at(0, &mut bytes).map(|()| bytes)
        });
        assert_eq!(calls, 2);
        assert_eq!(text.unwrap().len(), 4);
    }

    #[test]
    fn a_file_that_has_taken_the_number_is_left_open() {
        let mut taken = Vec::new();
        let read = with("/proc/thread-self/comm", |file| {
            replace(file, "/dev/null");
            taken.push(file.fd);
            Ok(())
        });
        assert!(read.is_err());
        taken.dedup();
        assert_eq!(
            taken.len(),
            3,
            "each is open, so that the next gets another"
        );
        for fd in taken {
            assert!(FileId::of(fd).is_some());
            // SAFETY: it is this test's.
            unsafe { libc::close(fd) };
        }
    }

    #[test]
    fn a_directory_that_has_taken_the_number_stays_at_its_place() {
        let mut taken = Vec::new();
        let listed = with("/proc/self/task", |directory| {
            replace(directory, "/");
            taken.push(directory.fd);
            directory.each_name(|name| panic!("{name:?} is of the program's directory"))
        });
        assert!(listed.is_err());
        for fd in taken {
            // SAFETY: it is this test's.
            unsafe {
                assert_eq!(libc::lseek(fd, 0, libc::SEEK_CUR), 0);
                libc::close(fd);
            }
        }
    }

    #[test]
    fn directories_are_listed() {
        let mut names = vec![b"before".to_vec()];
        let name = |name: &[u8]| Some(name.to_vec());
        read_directory("/proc/self/task", &mut names, name).unwrap();
        let this = super::super::thread::current_tid().to_string();
        assert!(names.contains(&this.into_bytes()));
        assert!(!names.contains(&b"before".to_vec()));
        assert!(read_directory("/proc/self/stat", &mut names, name).is_err());
    }

    #[test]
    fn files_are_read_to_their_end() {
        let long = vec![7; 100_000];
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &long).unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(read(path).unwrap(), long);
        let beyond = with(path, |file| {
            assert!(file.is_regular);
            assert_eq!(file.len, 100_000);
            file.read_exact_at(99_990, &mut [0; 11])
        });
        assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(
            read_to_string("/proc/thread-self/stat")
                .unwrap()
                .ends_with('\n')
        );
        assert!(read("/nowhere").is_err() && read("/").is_err() && read("a\0b").is_err());
    }
}
