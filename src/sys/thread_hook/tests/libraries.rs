//! Libraries that come and go, linked in the ways that linkers offer.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(target_arch = "x86_64")]
use std::time::{Duration, Instant};

use super::support::{run as run_program, tool};
use super::*;
use crate::process;

/// `run` creates a thread and joins it.
pub(super) const SOURCE: &str = r#"
#include <pthread.h>
static void *start(void *argument) { return (char *)argument + 1; }
long run(void) {
    pthread_t thread;
    void *result = 0;
    if (pthread_create(&thread, 0, start, (void *)41) != 0) return -1;
    pthread_join(thread, &result);
    return (long)result;
}
"#;

/// The loader calls `resolve` while it relocates the library, after its data and before its calls.
#[cfg(target_arch = "x86_64")]
const SLOW: &str = r#"
static int one(void) { return 1; }
static void *resolve(void) {
    long time[2] = {0, 500000000}, result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(35L), "D"(time), "S"(0L) : "rcx", "r11", "memory");
    return one;
}
static int resolved(void) __attribute__((ifunc("resolve")));
int (*pointer)(void) = resolved;
"#;

/// Without pages that are sealed, with some, and with all; calls through stubs, and straight
/// through the word.
const LINKED: [&[&str]; 4] = [
    &["-Wl,-z,lazy,-z,norelro"],
    &["-Wl,-z,lazy,-z,relro"],
    &["-Wl,-z,now,-z,relro"],
    &["-fno-plt", "-Wl,-z,now,-z,norelro"],
];

pub(super) fn build(directory: &Path, source: &str, options: &[&str]) -> Option<PathBuf> {
    let gcc = tool("gcc")?;
    let name = format!("{}.so", options.concat().replace(',', ""));
    let (library, code) = (directory.join(&name), directory.join(name + ".c"));
    std::fs::write(&code, source).unwrap();
    let mut command = Command::new(gcc);
    command.args(["-shared", "-fPIC", "-pthread", "-o"]);
    run_program(command.arg(&library).arg(&code).args(options));
    Some(library)
}

/// A library that was opened.
pub(super) struct Library(*mut libc::c_void);

// SAFETY: the loader's handles are for any thread.
unsafe impl Send for Library {}

impl Library {
    pub(super) fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: loads a library that a test built.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        Self(handle)
    }

    pub(super) fn run(&self) -> libc::c_long {
        // SAFETY: looks up a name in an open library.
        let run = unsafe { libc::dlsym(self.0, c"run".as_ptr()) };
        assert!(!run.is_null());
        // SAFETY: `SOURCE` defines it so.
        let run: extern "C" fn() -> libc::c_long = unsafe { std::mem::transmute(run) };
        run()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened above, and none of its threads is left.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

#[test]
fn libraries_are_seen_at_the_next_refresh() {
    succeed("libraries::child_with_libraries");
}

#[test]
#[ignore = "a child process"]
fn child_with_libraries() {
    let directory = tempfile::tempdir().unwrap();
    for options in LINKED {
        let Some(path) = build(directory.path(), SOURCE, options) else {
            return;
        };
        let (begun, _) = seen();
        let mut hook = install();
        let modules = hook.modules();

        // Before anything was called in it, so that its calls are not looked up yet.
        let library = Library::open(&path);
        let fresh = Words::now();
        refresh(&mut hook);
        assert_eq!(hook.modules(), modules + 1, "{options:?}");
        assert!(!hook.is_pending(), "{options:?}");
        for _ in 0..2 {
            assert_eq!(library.run(), 42);
        }
        assert_eq!(seen(), (begun + 2, begun + 2), "{options:?}");
        refresh(&mut hook);
        assert_eq!(hook.modules(), modules + 1);
        drop(hook);
        let restored = Words::now();
        assert_eq!(library.run(), 42);
        assert_eq!(seen().0, begun + 2);

        let looked_up = Words::now();
        let hook = install();
        assert_eq!(library.run(), 42);
        assert_eq!(seen().0, begun + 3, "{options:?}");
        drop(hook);
        assert_eq!(looked_up, Words::now(), "{options:?}");
        assert_eq!(fresh.mappings, restored.mappings, "{options:?}");
        // The first is as it was before the hook saw the library: a stub's address, where calls are
        // lazy.
        let of_library = |words: &Words| {
            let others = values_without(&path);
            let mut own = words.values.clone();
            own.retain(|(slot, _)| !others.contains(slot));
            own
        };
        assert_eq!(of_library(&fresh), of_library(&restored), "{options:?}");
        assert!(!of_library(&fresh).is_empty());
    }
}

/// Where the words are that are not of a library.
fn values_without(library: &Path) -> Vec<usize> {
    let maps = Maps::read().unwrap();
    let own: Vec<_> = maps
        .entries()
        .filter(|e| Path::new(e.path) == library)
        .collect();
    let range = own.first().unwrap().start..own.last().unwrap().end;
    let mut slots: Vec<usize> = values().into_iter().map(|(slot, _)| slot).collect();
    slots.retain(|slot| !range.contains(&(*slot as u64)));
    slots
}

#[test]
fn libraries_may_leave() {
    succeed("libraries::child_with_libraries_that_leave");
}

#[test]
#[ignore = "a child process"]
fn child_with_libraries_that_leave() {
    let directory = tempfile::tempdir().unwrap();
    let before = Words::now();
    for options in LINKED {
        let Some(path) = build(directory.path(), SOURCE, options) else {
            return;
        };
        for refreshes in [false, true] {
            let mut hook = install();
            let library = Library::open(&path);
            refresh(&mut hook);
            assert_eq!(library.run(), 42);
            drop(library);
            if refreshes {
                refresh(&mut hook);
            }
            drop(hook);
            assert_eq!(before, Words::now(), "{options:?}");
        }
    }
}

#[test]
fn a_word_that_another_changed_is_left() {
    succeed("libraries::child_with_a_word_that_changes");
}

#[test]
#[ignore = "a child process"]
fn child_with_a_word_that_changes() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = build(directory.path(), SOURCE, LINKED[0]) else {
        return;
    };
    let before = values();
    let library = Library::open(&path);
    let mut slots = values().into_iter().map(|(slot, _)| slot);
    let slot = slots.find(|s| before.iter().all(|(b, _)| b != s)).unwrap();
    let mut hook = install();
    // As the loader's look-up does at the first call.
    let real = REAL.load(Ordering::Relaxed).addr();
    let put = |value: usize| {
        // SAFETY: a word of an open library, which it calls no more than this test does.
        unsafe { ptr::write_volatile(slot as *mut usize, value) };
    };
    put(real);
    assert_eq!((library.run(), seen().0), (42, 0));
    refresh(&mut hook);
    assert_eq!((library.run(), seen().0), (42, 1), "it is found again");
    put(real);
    drop(hook);
    assert!(values().contains(&(slot, real)));

    // As a wrapper of the host's does.
    extern "C" fn refuse() -> libc::c_int {
        libc::EPERM
    }
    let wrapper = (refuse as extern "C" fn() -> libc::c_int) as usize;
    put(wrapper);
    let hook = install();
    assert_eq!(library.run(), -1, "it is not passed over");
    drop(hook);
    assert!(values().contains(&(slot, wrapper)));
}

/// Defines `pthread_create` before the C library does, and counts its calls.
const WRAPPER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
int wrapped;
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*s)(void *), void *x) {
    __atomic_add_fetch(&wrapped, 1, __ATOMIC_SEQ_CST);
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    next = dlsym(RTLD_NEXT, "pthread_create");
    return next(t, a, s, x);
}
"#;

#[test]
fn a_preloaded_wrapper_keeps_working() {
    let directory = tempfile::tempdir().unwrap();
    if let Some(path) = build(directory.path(), WRAPPER, &[]) {
        let child = "sys::thread_hook::tests::libraries::child_with_a_wrapper";
        process::succeed(process::child(child).env("LD_PRELOAD", path));
    }
}

#[test]
#[ignore = "a child process"]
fn child_with_a_wrapper() {
    // SAFETY: looks up a name.
    let wrapped = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"wrapped".as_ptr()) };
    assert!(!wrapped.is_null());
    // SAFETY: the wrapper defines it so.
    let wrapped = || unsafe { ptr::read_volatile(wrapped.cast::<libc::c_int>()) };
    let before = wrapped();
    let hook = install();
    assert_eq!(run(add_one_if_begun, 1), 2);
    assert_eq!(wrapped(), before + 1);
    drop(hook);
    assert_eq!(run(add_one_if_begun, 1), 0);
    assert_eq!(wrapped(), before + 2);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn libraries_are_left_alone_until_they_are_relocated() {
    succeed("libraries::child_with_slow_libraries");
}

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "a child process"]
fn child_with_slow_libraries() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&LINKED[..2], &[&["-Wl,-z,now,-z,relro"]]].concat() {
        let source = format!("{SOURCE}{SLOW}");
        let Some(path) = build(directory.path(), &source, options) else {
            return;
        };
        let mut hook = install();
        let (modules, (begun, _)) = (hook.modules(), seen());
        let generation = Generation::now();
        let opening = {
            let path = path.clone();
            std::thread::spawn(move || {
                let library = Library::open(&path);
                (library.run(), library)
            })
        };
        let mut left_alone = 0;
        let deadline = Instant::now() + Duration::from_secs(5);
        while hook.modules() == modules && Instant::now() < deadline {
            if Generation::now() != generation {
                refresh(&mut hook);
                if hook.is_pending() {
                    left_alone += 1;
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let (result, library) = opening.join().unwrap();
        assert!(left_alone > 10, "{options:?}: {left_alone}");
        assert_eq!(result, 42);
        assert_eq!(library.run(), 42);
        assert!(!hook.is_pending(), "{options:?}");
        assert!(seen().0 >= begun + 2, "{options:?}");
        drop(hook);
        assert_eq!(library.run(), 42);
    }
}
