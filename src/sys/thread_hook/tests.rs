//! The hook is one for the process, so each test that installs it has a process of its own.

#[path = "../../../tests/support/mod.rs"]
mod support;
#[path = "../../../tests/support/work.rs"]
mod work;

mod libraries;
mod storms;

use crate::process;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::*;
use crate::sys::dynamic::Dynamic;
use crate::sys::image::Image;
use crate::sys::loader::iterate;

static BEGUN: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicUsize = AtomicUsize::new(0);
static WANTS_END: AtomicBool = AtomicBool::new(true);

thread_local! {
    static IS_BEGUN: Cell<bool> = const { Cell::new(false) };
}

/// The last number that was given out.
static LAST: AtomicU32 = AtomicU32::new(0);

const CALLBACKS: Callbacks = Callbacks { create, begin, end };

fn create() -> u32 {
    LAST.fetch_add(1, Ordering::SeqCst) + 1
}

fn begin(number: u32) -> bool {
    assert!(number > 0 && number <= LAST.load(Ordering::SeqCst));
    IS_BEGUN.set(true);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    WANTS_END.load(Ordering::SeqCst)
}

fn end() {
    ENDED.fetch_add(1, Ordering::SeqCst);
}

/// Threads that began and ended.
fn seen() -> (usize, usize) {
    (BEGUN.load(Ordering::SeqCst), ENDED.load(Ordering::SeqCst))
}

fn install() -> ThreadHook {
    let generation = Generation::now();
    ThreadHook::install(CALLBACKS, generation, &Maps::read().unwrap()).unwrap()
}

fn refresh(hook: &mut ThreadHook) {
    let generation = Generation::now();
    hook.refresh(generation, &Maps::read().unwrap());
}

/// Runs the child of that name in this file, or in a part of it.
fn succeed(child: &str) {
    process::succeed(&mut process::child(&format!(
        "sys::thread_hook::tests::{child}"
    )));
}

/// Every word for `pthread_create`, and the protections of everything that a file is behind.
#[derive(Debug, Eq, PartialEq)]
struct Words {
    values: Vec<(usize, usize)>,
    mappings: Vec<(u64, u64, String, String)>,
}

impl Words {
    fn now() -> Self {
        let maps = Maps::read().unwrap();
        let mappings = maps.entries().filter(|e| e.path.starts_with('/'));
        let mappings = mappings.map(|e| (e.start, e.end, e.permissions.into(), e.path.into()));
        Self {
            values: values(),
            mappings: mappings.collect(),
        }
    }
}

fn values() -> Vec<(usize, usize)> {
    let mut values = Vec::new();
    iterate(&mut |info| {
        // SAFETY: the loader passes its own list, and holds its lock until the callback returns.
        let image = unsafe { Image::new(info) };
        if let Some(image) = image
            && let Some(dynamic) = Dynamic::new(&image)
        {
            for (_, slot) in dynamic.slots(|name| (name == NAME).then_some(())) {
                let slot = image.slot(slot.address).unwrap();
                // SAFETY: a word of a loaded module.
                values.push((slot, unsafe { ptr::read_volatile(slot as *const usize) }));
            }
        }
        true
    });
    values
}

type Start = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;

/// Creates a thread as a C program does, and returns what it returns.
fn run(start: Start, argument: usize) -> usize {
    join(spawn(start, argument))
}

fn spawn(start: Start, argument: usize) -> libc::pthread_t {
    let mut thread = 0;
    // SAFETY: a start routine of the right type, and an argument that it takes as a number.
    let error = unsafe {
        libc::pthread_create(
            &mut thread,
            ptr::null(),
            start,
            ptr::without_provenance_mut(argument),
        )
    };
    assert_eq!(error, 0);
    thread
}

fn join(thread: libc::pthread_t) -> usize {
    let mut result = ptr::null_mut();
    // SAFETY: a thread that was created and is joined once.
    assert_eq!(unsafe { libc::pthread_join(thread, &mut result) }, 0);
    result.addr()
}

extern "C" fn add_one_if_begun(argument: *mut libc::c_void) -> *mut libc::c_void {
    let result = if IS_BEGUN.get() {
        argument.addr() + 1
    } else {
        0
    };
    ptr::without_provenance_mut(result)
}

#[test]
fn threads_tell_of_themselves() {
    succeed("child_with_threads");
}

#[test]
#[ignore = "a child process"]
fn child_with_threads() {
    let before = Words::now();
    assert!(!before.values.is_empty());
    for round in 1..=3 {
        let hook = install();
        assert!(hook.modules() > 0 && !hook.is_pending(), "{hook:?}");
        assert_ne!(before.values, values());
        assert_eq!(run(add_one_if_begun, 41), 42);
        assert_eq!(seen(), (round * 2 - 1, round * 2 - 1));
        assert!(std::thread::spawn(|| IS_BEGUN.get()).join().unwrap());
        // The standard library's `join` is the C library's.
        assert_eq!(seen(), (round * 2, round * 2));
        let second = ThreadHook::install(CALLBACKS, Generation::now(), &Maps::read().unwrap());
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(hook);
        assert_eq!(before, Words::now());
        assert_eq!(run(add_one_if_begun, 41), 0, "nothing is installed");
    }
    WANTS_END.store(false, Ordering::SeqCst);
    let _hook = install();
    assert_eq!(run(add_one_if_begun, 1), 2);
    assert_eq!(seen(), (7, 6), "it does not want to be told of the end");
}

#[test]
fn threads_that_leave_early_end() {
    succeed("child_with_threads_that_leave_early");
}

unsafe extern "C-unwind" {
    fn pthread_exit(value: *mut libc::c_void) -> !;
    fn pause() -> libc::c_int;
}

#[test]
#[ignore = "a child process"]
fn child_with_threads_that_leave_early() {
    extern "C-unwind" fn exits(argument: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: no frame of this thread has anything to drop.
        unsafe { pthread_exit(argument) }
    }
    extern "C-unwind" fn waits(_: *mut libc::c_void) -> *mut libc::c_void {
        loop {
            // SAFETY: waits for a signal; no frame of this thread has anything to drop.
            unsafe { pause() };
        }
    }
    type Unwinding = extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void;
    // SAFETY: the two types differ in what may pass through, which is C's code only.
    let [exits, waits] = [exits as Unwinding, waits]
        .map(|start| unsafe { std::mem::transmute::<Unwinding, Start>(start) });

    let hook = install();
    assert_eq!(run(exits, 7), 7);
    assert_eq!(seen(), (1, 1));
    let cancel = |is_blocked: bool| {
        let thread = if is_blocked {
            crate::sys::signal::with_signals_blocked(|| spawn(waits, 0))
        } else {
            spawn(waits, 0)
        };
        // SAFETY: a thread that was not joined yet.
        assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
        assert_eq!(join(thread) as isize, -1, "PTHREAD_CANCELED");
    };
    for _ in 0..200 {
        cancel(false);
    }
    cancel(true);
    assert_eq!(seen(), (202, 202));
    drop(hook);
}

#[test]
fn stacks_are_whole_and_have_no_frame_of_ours() {
    succeed("child_that_looks_at_stacks");
}

#[test]
#[ignore = "a child process"]
fn child_that_looks_at_stacks() {
    static INTRODUCED: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());
    static STARTED: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());
    fn stack() -> Vec<usize> {
        let mut stack = [ptr::null_mut(); 64];
        // SAFETY: room for as many frames as the call is told of.
        let depth = unsafe { libc::backtrace(stack.as_mut_ptr(), stack.len() as i32) };
        stack[..depth as usize].iter().map(|ip| ip.addr()).collect()
    }
    fn introduce(_: u32) -> bool {
        *INTRODUCED.lock().unwrap() = stack();
        false
    }
    extern "C" fn start(_: *mut libc::c_void) -> *mut libc::c_void {
        *STARTED.lock().unwrap() = stack();
        ptr::null_mut()
    }
    run(start, 0);
    let without = STARTED.lock().unwrap().clone();
    let generation = Generation::now();
    let callbacks = Callbacks {
        begin: introduce,
        ..CALLBACKS
    };
    let _hook = ThreadHook::install(callbacks, generation, &Maps::read().unwrap()).unwrap();
    run(start, 0);
    let with = STARTED.lock().unwrap().clone();
    assert_eq!(with, without);
    let introduced = INTRODUCED.lock().unwrap().clone();
    let begin = trampoline::begin as *const () as usize;
    let ours = introduced
        .iter()
        .position(|ip| (begin..begin + 64).contains(ip));
    let callers = &introduced[ours.expect("it is called from there") + 1..];
    assert!(with.ends_with(callers), "{introduced:x?} {with:x?}");
    assert!(callers.iter().any(|ip| *ip != 0));
}

#[test]
fn a_thread_may_outlive_the_hook() {
    succeed("child_with_a_thread_that_stays");
}

#[test]
#[ignore = "a child process"]
fn child_with_a_thread_that_stays() {
    let hook = install();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || gone.recv());
    while seen().0 == 0 {
        std::thread::yield_now();
    }
    drop(hook);
    assert_eq!(seen(), (1, 0));
    drop(go);
    let _ = thread.join().unwrap();
    assert_eq!(seen(), (1, 1));
}

#[test]
fn a_failing_call_is_the_callers_own() {
    succeed("child_that_cannot_create");
}

#[test]
#[ignore = "a child process"]
fn child_that_cannot_create() {
    let _hook = install();
    let mut attributes = std::mem::MaybeUninit::uninit();
    // SAFETY: initializes the attributes, and asks for more stack than there are addresses.
    unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), 1 << 50);
    }
    // More often than there are cells.
    for _ in 0..3000 {
        let mut thread = 0;
        // SAFETY: as in `spawn`; the attributes are initialized.
        let error = unsafe {
            libc::pthread_create(
                &mut thread,
                attributes.as_ptr(),
                add_one_if_begun,
                ptr::null_mut(),
            )
        };
        assert_eq!(error, libc::EAGAIN);
    }
    assert_eq!(seen(), (0, 0));
    assert_eq!(run(add_one_if_begun, 1), 2);
}

#[test]
fn a_forked_child_passes_calls_through() {
    succeed("child_that_forks");
}

#[test]
#[ignore = "a child process"]
fn child_that_forks() {
    let before = Words::now();
    let mut hook = Some(install());
    // SAFETY: this process has no other thread that holds a lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert_ne!(before.values, values(), "words are inherited");
            assert_eq!(run(add_one_if_begun, 1), 0);
            let own = install();
            assert_eq!(run(add_one_if_begun, 1), 2);
            drop(hook.take());
            assert_eq!(run(add_one_if_begun, 1), 2, "its own stays");
            drop(own);
            assert_eq!(before, Words::now());
        }));
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(result.is_err().into()) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child says on stderr what it found");
    assert_eq!(run(add_one_if_begun, 1), 2);
    drop(hook);
    assert_eq!(before, Words::now());
}
