//! Modules that come and go while the process is watched, and the words of all modules.

use std::mem::transmute;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sigprof::contention;

use crate::compile::{as_c_string, function, library};
use crate::locks::{Lock, contend, sums_below, sums_of};
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
fn words() -> Vec<(usize, usize)> {
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
fn words_of_modules_are_restored_to_the_bit() {
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
    let mut pairs = before.iter().zip(&after);
    assert_eq!(pairs.find(|(before, after)| before != after), None);
}
