//! Modules that come and go while the process is watched, and the words of all modules.

use std::mem::transmute;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sigprof::contention;

use crate::below::{sums_below, sums_of};
use crate::compile::{as_c_string, function, library};
use crate::locks::{Lock, contend};
use crate::process;
use crate::support::tool;

const ROUNDS: usize = 5;

const LOCKS_OF_CPP: &str = r#"
#include <mutex>
#include <shared_mutex>
static std::mutex mutex;
static std::shared_mutex shared;
extern "C" void takes_cpp_mutex() { mutex.lock(); }
extern "C" void releases_cpp_mutex() { mutex.unlock(); }
extern "C" void takes_cpp_shared() { shared.lock_shared(); }
extern "C" void releases_cpp_shared() { shared.unlock_shared(); }
extern "C" void takes_cpp_exclusive() { shared.lock(); }
extern "C" void releases_cpp_exclusive() { shared.unlock(); }
"#;

/// A library that was opened.
struct Library(*mut libc::c_void);

impl Library {
    fn open(path: &Path) -> Self {
        let path = as_c_string(path);
        // SAFETY: loads a library that the test built.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        Self(handle)
    }

    fn lock(&self, name: &str) -> Foreign<'_> {
        let function = |verb: &str| {
            let name = std::ffi::CString::new(format!("{verb}_{name}")).unwrap();
            // SAFETY: the library is open, and defines it so.
            unsafe { transmute::<*mut libc::c_void, extern "C" fn()>(function(self.0, &name)) }
        };
        Foreign {
            take: function("takes"),
            release: function("releases"),
            _library: self,
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened above, and nothing of it is in use.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// A lock of a library.
struct Foreign<'l> {
    take: extern "C" fn(),
    release: extern "C" fn(),
    _library: &'l Library,
}

// SAFETY: functions for any thread; the library's handle is not used.
unsafe impl Sync for Foreign<'_> {}

impl Lock for Foreign<'_> {
    fn with(&self, work: impl FnOnce()) {
        (self.take)();
        work();
        (self.release)();
    }
}

/// A lock that is held for reading while others wait for it to write.
struct Shared<'l> {
    reader: Foreign<'l>,
    writer: Foreign<'l>,
    is_held: AtomicBool,
}

impl Lock for Shared<'_> {
    fn with(&self, work: impl FnOnce()) {
        // The one who has work comes first.
        if self.is_held.swap(true, Ordering::AcqRel) {
            self.writer.with(work);
        } else {
            self.reader.with(work);
        }
        self.is_held.store(false, Ordering::Release);
    }
}

/// Waits of all functions of this name.
fn seen(function: &str, kind: &str) -> i64 {
    sums_of(&contention::profile().unwrap(), function, kind)[0]
}

#[test]
fn locks_of_modules_that_come_and_go_are_seen() {
    if tool("c++").is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let flags = [
        &["-std=c++17", "-Wl,-z,lazy,-z,norelro"][..],
        &["-std=c++17", "-Wl,-z,now,-z,relro"],
    ];
    contention::set_sample_interval(Duration::from_nanos(1));
    let watch = contention::watch_process().unwrap();
    let (mut opened, mut mutexes) = (0, 0);
    for (nth, flags) in flags.iter().enumerate() {
        let file = format!("locks{nth}.cc");
        let path = library(directory.path(), &file, LOCKS_OF_CPP, flags);
        // The second time it may be where it was before.
        for _ in 0..2 {
            let library = Library::open(&path);
            // A module that was just loaded is not watched yet.
            let mutex = library.lock("cpp_mutex");
            while seen("takes_cpp_mutex", "mutex") == mutexes {
                contend(&mutex, 1);
            }
            contend(&mutex, ROUNDS);
            mutexes = seen("takes_cpp_mutex", "mutex");
            let shared = Shared {
                reader: library.lock("cpp_shared"),
                writer: library.lock("cpp_exclusive"),
                is_held: AtomicBool::new(false),
            };
            contend(&shared, ROUNDS);
            opened += 1;
        }
    }
    let all = opened * ROUNDS as i64;
    assert_eq!(seen("takes_cpp_exclusive", "rwlock"), all);
    drop(watch);
    let library = Library::open(&directory.path().join("locks0.so"));
    contend(&library.lock("cpp_mutex"), ROUNDS);
    assert_eq!(seen("takes_cpp_mutex", "mutex"), mutexes);
    let holders = contention::holders().unwrap();
    let [mutexes_held, shared_held] = ["releases_cpp_mutex", "releases_cpp_shared"]
        .map(|function| sums_below(&holders, function)[0]);
    assert_eq!(
        [mutexes_held, shared_held],
        [mutexes, all],
        "{}",
        holders.top(20)
    );
}

/// The words through which modules call functions of others, with what they hold.
pub fn words() -> Vec<(usize, usize)> {
    unsafe extern "C" fn of_module(
        info: *mut libc::dl_phdr_info,
        _: usize,
        words: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: what the loader passes, and what the test does.
        unsafe {
            let (info, words) = (&*info, &mut *words.cast::<Vec<(usize, usize)>>());
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let bias = info.dlpi_addr as usize;
            // The kernel's own module has tables that are no addresses.
            let is_library = headers.iter().any(|h| h.p_type == libc::PT_GNU_RELRO);
            let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC);
            let (Some(dynamic), true) = (dynamic, is_library) else {
                return 0;
            };
            let entries = (bias + dynamic.p_vaddr as usize) as *const [usize; 2];
            let entries: Vec<_> = (0..)
                .map(|nth| *entries.add(nth))
                .take_while(|entry| entry[0] != 0)
                .collect();
            let value = |tag| entries.iter().find(|e| e[0] == tag).map_or(0, |e| e[1]);
            // Relocations of data and of calls, as the ELF format numbers them.
            for (table, bytes) in [(7, 8), (23, 2)] {
                let table = value(table) as *const [usize; 3];
                for nth in 0..value(bytes) / 24 {
                    let [offset, info, _] = *table.add(nth);
                    // `GLOB_DAT` and `JUMP_SLOT` of x86_64 and of aarch64.
                    if [6, 7, 1025, 1026].contains(&(info & 0xffff_ffff)) {
                        let slot = bias + offset;
                        words.push((slot, (slot as *const usize).read_volatile()));
                    }
                }
            }
        }
        0
    }
    let mut words = Vec::new();
    // SAFETY: the callback takes what it is passed.
    unsafe { libc::dl_iterate_phdr(Some(of_module), (&raw mut words).cast()) };
    words
}

#[test]
pub fn words_of_modules_are_restored_to_the_bit() {
    // With nothing that is looked up at its first call: that would change words, too.
    let mut child = process::child("modules::child_with_words");
    process::succeed(child.env("LD_BIND_NOW", "1"));
}

#[test]
#[ignore = "a child process"]
fn child_with_words() {
    let before = words();
    let watch = contention::watch_process().unwrap();
    let during = words();
    drop(watch);
    let after = words();
    let changed = before.iter().zip(&during).filter(|(b, d)| b != d).count();
    // Of the test's program: `syscall`, and the locks that the tests use.
    assert!(changed >= 5, "{changed} of {}", before.len());
    assert_same(&before, &after);
}

pub fn assert_same(before: &[(usize, usize)], after: &[(usize, usize)]) {
    assert_eq!(before.len(), after.len());
    let changed: Vec<_> = (before.iter().zip(after)).filter(|(b, a)| b != a).collect();
    assert_eq!(changed, []);
}

/// Another tool, which has a module's calls of a function come to it.
struct Tool {
    slot: usize,
    /// What stood there.
    before: usize,
}

static TOOLS_TIMES: AtomicUsize = AtomicUsize::new(0);
static TOOLS_FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// Counts a call, and makes it.
unsafe extern "C" fn tools_function(lock: usize) -> libc::c_int {
    TOOLS_TIMES.fetch_add(1, Ordering::Relaxed);
    let function = TOOLS_FUNCTION.load(Ordering::Relaxed);
    // SAFETY: what stood there, for calls of this kind.
    unsafe { transmute::<usize, unsafe extern "C" fn(usize) -> libc::c_int>(function)(lock) }
}

impl Tool {
    fn put_in(slot: usize) -> Self {
        // SAFETY: a word of a loaded library.
        let before = unsafe { (slot as *const usize).read_volatile() };
        TOOLS_FUNCTION.store(before, Ordering::Relaxed);
        write_word(slot, tools_function as *const () as usize);
        Self { slot, before }
    }

    fn take_out(self) {
        write_word(self.slot, self.before);
    }
}

fn write_word(slot: usize, value: usize) {
    // SAFETY: a word of a loaded library, whose page nobody writes to meanwhile.
    unsafe {
        let bytes = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let page = (slot & !(bytes - 1)) as *mut libc::c_void;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(libc::mprotect(page, bytes, writable), 0);
        (slot as *mut usize).write_volatile(value);
        assert_eq!(libc::mprotect(page, bytes, libc::PROT_READ), 0);
    }
}

#[test]
fn another_tools_entries_are_its_own() {
    if tool("c++").is_none() {
        return;
    }
    process::succeed(process::child("modules::child_with_another_tool").env("LD_BIND_NOW", "1"));
}

#[test]
#[ignore = "a child process"]
fn child_with_another_tool() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-std=c++17", "-Wl,-z,now,-z,relro"];
    let path = library(directory.path(), "locks.cc", LOCKS_OF_CPP, &flags);
    let of_others = words();
    let library = Library::open(&path);
    let lock = library.lock("cpp_mutex");
    let before = words();
    // SAFETY: looks up a name that is there.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_mutex_lock".as_ptr()) };
    let is_librarys = |(slot, _): &(usize, usize)| !of_others.iter().any(|word| word.0 == *slot);
    let mut own = before.iter().filter(|word| is_librarys(word));
    let (slot, _) = *own.find(|word| word.1 == function as usize).unwrap();
    contention::set_sample_interval(Duration::from_nanos(1));
    let rounds = ROUNDS as i64;
    let seen = || seen("takes_cpp_mutex", "mutex");
    let times = || TOOLS_TIMES.swap(0, Ordering::Relaxed);

    // The tool was there first: what it sees is not seen a second time.
    let tool = Tool::put_in(slot);
    let watch = contention::watch_process().unwrap();
    contend(&lock, ROUNDS);
    assert_eq!((times(), seen()), (2 * ROUNDS, 0));
    tool.take_out();
    drop(watch);
    assert_same(&before, &words());

    // It comes second, and stays longer: it has been told the address of what stands in.
    let watch = contention::watch_process().unwrap();
    let tool = Tool::put_in(slot);
    contend(&lock, ROUNDS);
    assert_eq!((times(), seen()), (2 * ROUNDS, rounds));
    drop(watch);
    contend(&lock, ROUNDS);
    assert_eq!((times(), seen()), (2 * ROUNDS, rounds));
    tool.take_out();
    contend(&lock, ROUNDS);
    assert_eq!((times(), seen()), (0, rounds));

    // What it has put back ends with the next watch.
    let watch = contention::watch_process().unwrap();
    contend(&lock, ROUNDS);
    assert_eq!(seen(), 2 * rounds);
    drop(watch);
    assert_same(&before, &words());
}
