//! The stack of the thread that allocates.
//!
//! It is walked by the unwinder of the CPU profiler, with a snapshot of the loaded modules that the
//! threads which sample keep up to date themselves.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::countdown::{self, without_samples};
use crate::aggregate::Layouts;
use crate::ring::MAX_DEPTH;
use crate::sys::arch::Registers;
use crate::sys::fork::try_holding_off_forks;
use crate::sys::fork_mutex::{ForkMutex, Held};
use crate::sys::maps::Maps;
use crate::sys::modules::{self, Generation};
use crate::sys::stack::Stack;
use crate::sys::thread::{current_tid, thread_pointer};
use crate::sys::thread_stack::BoundsPlace;
use crate::unwind::{Cache, Snapshot, StopReason, Subject};

/// How many threads can walk at once. Others wait for microseconds.
const BENCHES: usize = 32;

/// Between two looks whether modules have come or gone, in nanoseconds. A look takes some
/// microseconds; a stack that leads through a module which has come since has the next one at once.
const LOOK_SPACING_NS: u64 = 100_000_000;

/// Between two snapshots for the sake of stacks that end too early although no module has come: a
/// just-in-time compiler's code is in no list of the loader's.
const GUESS_SPACING_NS: u64 = 1_000_000_000;

/// Bytes of unwind data that a walk without their table pays for: a walk by framehop takes some
/// microseconds more, and compiling 512 KiB some milliseconds. So compiling takes no longer than
/// what was lost by not having done it.
const WORTH_OF_WALK: usize = 1024;

static BENCHES_OF_ALL: [Bench; BENCHES] = [const { Bench::new() }; BENCHES];
/// Held for moments, and not while the loader is asked: a thread may allocate that holds a lock of
/// the loader's.
static VIEWS: ForkMutex<Views> = ForkMutex::new(Views {
    current: None,
    layouts: None,
});

/// A thread looks what is loaded, and others do not wait for it.
static IS_LOOKING: AtomicBool = AtomicBool::new(false);

/// How often a thread tries that has no view at all, while another one makes the first.
const TRIES_FOR_VIEW: usize = 1000;

/// Bytes of a bench's stack: what the look at the modules and the compiler of their tables take in
/// a build without optimization, several times over. A thread that allocates may have next to no
/// stack left.
const STACK_BYTES: usize = 256 * 1024;

/// Bytes that have to be free for a look, which takes less: a process without memory is not ended
/// for the sake of its profile.
const LOOK_BYTES: usize = 2 << 20;

/// Counts views, so that a bench knows whether it has the last one.
static VERSION: AtomicU32 = AtomicU32::new(0);
/// When modules are to be looked at again,
static NEXT_LOOK_NS: AtomicU64 = AtomicU64::new(0);
/// and when a new snapshot may be made although none has come or gone.
static NEXT_GUESS_NS: AtomicU64 = AtomicU64::new(0);
static PID: AtomicI32 = AtomicI32::new(0);
/// One more than the place of the bounds of threads' stacks; 0 while that is not known.
static BOUNDS: AtomicUsize = AtomicUsize::new(0);
/// The control block of the main thread, whose stack is known from the maps; 0 until it walks.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);
/// How many threads may still be asked for it.
static TRIES_FOR_BOUNDS: AtomicU32 = AtomicU32::new(8);

/// What is loaded, as threads see it.
#[derive(Debug)]
struct View {
    snapshot: Snapshot,
    /// The layout that its addresses are of.
    layout: u32,
    /// The system has said what is mapped.
    has_maps: bool,
    generation: Generation,
    /// Walks that were made with it.
    walks: AtomicU32,
    /// A thread makes tables of rules.
    is_compiling: AtomicBool,
}

#[derive(Debug)]
struct Views {
    current: Option<Arc<View>>,
    layouts: Option<Layouts>,
}

/// What a walk takes.
struct Bench {
    is_taken: AtomicBool,
    room: UnsafeCell<Room>,
}

/// A stack, and the tools that are used on it.
struct Room {
    stack: Option<Stack>,
    tools: Option<Box<Tools>>,
}

// SAFETY: only the thread that has taken the bench touches the room.
unsafe impl Sync for Bench {}

struct Tools {
    cache: Cache,
    /// The version of `view`, and that.
    version: u32,
    view: Option<Arc<View>>,
    /// The layout with how the stack ended, and then its return addresses.
    words: [u64; MAX_DEPTH + 1],
}

impl Bench {
    const fn new() -> Self {
        let room = Room {
            stack: None,
            tools: None,
        };
        Self {
            is_taken: AtomicBool::new(false),
            room: UnsafeCell::new(room),
        }
    }

    /// Works with the bench's tools on its stack, if nobody else does. `Some(None)` where there is
    /// no memory for them.
    fn try_work<T>(&self, work: impl FnOnce(&mut Tools) -> T) -> Option<Option<T>> {
        if self.is_taken.load(Ordering::Relaxed) || self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: the bench was taken by this thread just now.
        let Room { stack, tools } = unsafe { &mut *self.room.get() };
        if stack.is_none() {
            *stack = Stack::of_bytes(STACK_BYTES).ok();
        }
        let mut done = None;
        if let Some(stack) = stack {
            let work_there = || {
                if tools.is_none() && can_allocate(2 * size_of::<Tools>()) {
                    *tools = Some(Box::new(Tools::new()));
                }
                done = tools.as_deref_mut().map(work);
            };
            // SAFETY: the stack is the bench's, which this thread has taken, and no part of the
            // work unwinds: a panic would end the process, as in any allocator.
            unsafe { stack.run(work_there) };
        }
        self.is_taken.store(false, Ordering::Release);
        Some(done)
    }
}

/// Whether the program's allocator has this much memory now. Collections of the standard library
/// end the process where it has none.
fn can_allocate(bytes: usize) -> bool {
    let mut room = Vec::<u8>::new();
    let is_there = room.try_reserve_exact(bytes).is_ok();
    std::hint::black_box(room.as_ptr());
    is_there
}

impl Tools {
    fn new() -> Self {
        Self {
            cache: Cache::new(),
            version: 0,
            view: None,
            words: [0; MAX_DEPTH + 1],
        }
    }

    /// Walks: how many words the stack has, and whether a newer view could do better. Without a
    /// view the stack is one that ends at once.
    fn walk(&mut self, registers: Registers, now_ns: u64) -> (usize, bool) {
        let Self {
            cache, view, words, ..
        } = self;
        let Some(view) = view.as_deref() else {
            words[0] = (StopReason::NoUnwindData as u64) << 32;
            return (1, false);
        };
        let subject = Subject {
            pid: PID.load(Ordering::Relaxed),
            bounds: (BOUNDS.load(Ordering::Relaxed).checked_sub(1)).map(BoundsPlace::from_index),
        };
        let unwound = view.snapshot.unwind(registers, subject, cache, words);
        // The first frame is the allocator's own. What comes in its place is no address.
        words[0] = u64::from(view.layout) | (unwound.reason as u64) << 32;
        // A stack that is in no snapshot is a coroutine's, most often: only now and then is it
        // worth a new one.
        let is_time = NEXT_GUESS_NS.load(Ordering::Relaxed) <= now_ns;
        let could_do_better = unwound.reason.may_be_outdated() || unwound.unknown_stack && is_time;
        (unwound.depth.max(1), could_do_better)
    }

    /// Takes the last view, if this is another one.
    fn update(&mut self) {
        if self.version != VERSION.load(Ordering::Acquire) || self.view.is_none() {
            let views = VIEWS.lock();
            self.version = VERSION.load(Ordering::Relaxed);
            self.view.clone_from(&views.current);
        }
    }
}

/// Makes ready for the first walk.
pub(super) fn begin() {
    PID.store(std::process::id() as i32, Ordering::Relaxed);
    MAIN_THREAD.store(0, Ordering::Relaxed);
}

/// Goes on in a forked child, which has no other threads.
pub(super) fn begin_in_child() {
    begin();
    IS_LOOKING.store(false, Ordering::Relaxed);
    for bench in &BENCHES_OF_ALL {
        if bench.is_taken.load(Ordering::Relaxed) {
            let room = Room {
                stack: None,
                tools: None,
            };
            // SAFETY: whoever had taken it is not in this process. What was in use is left as it
            // is.
            unsafe { bench.room.get().write(room) };
            bench.is_taken.store(false, Ordering::Relaxed);
        }
    }
}

/// Calls `count` with the stack that leads to these registers: a word with the layout and how the
/// stack ended, and then return addresses, beginning with that of the frame of the registers. The
/// time is that of the monotonic clock.
///
/// Called within [`without_samples`].
pub(super) fn walk<T>(
    registers: Registers,
    now_ns: u64,
    count: impl FnOnce(&[u64]) -> T,
) -> Option<T> {
    find_bounds();
    let mut count = Some(count);
    let mut work = |tools: &mut Tools| {
        let mut looked = Looked::Nothing;
        if now_ns >= NEXT_LOOK_NS.load(Ordering::Relaxed) {
            looked = look(now_ns, false);
        }
        tools.update();
        for _ in 0..TRIES_FOR_VIEW {
            if tools.view.is_some() || looked != Looked::Busy {
                break;
            }
            std::thread::yield_now();
            looked = look(now_ns, false);
            tools.update();
        }
        let (mut depth, could_do_better) = tools.walk(registers, now_ns);
        if could_do_better && look(now_ns, true) == Looked::New {
            tools.update();
            depth = tools.walk(registers, now_ns).0;
        }
        if let Some(view) = &tools.view {
            view.compile();
        }
        Some(count.take()?(&tools.words[..depth]))
    };
    let first = countdown::thread_number() as usize % BENCHES;
    loop {
        for i in 0..BENCHES {
            let bench = &BENCHES_OF_ALL[(first + i) % BENCHES];
            if let Some(done) = bench.try_work(&mut work) {
                return done.flatten();
            }
        }
        std::thread::yield_now();
    }
}

impl View {
    /// Makes the tables of rules that walks have missed for long enough, for which files of the
    /// modules may be opened. As [`look`] it waits for nobody.
    fn compile(&self) {
        let walks = self.walks.fetch_add(1, Ordering::Relaxed) as usize;
        // A child that was forked meanwhile has nobody who goes on.
        if walks % 64 == 63 && !self.is_compiling.swap(true, Ordering::Acquire) {
            let compile = || {
                (self.snapshot).compile_wanted(walks * WORTH_OF_WALK, can_allocate);
            };
            let _ = try_holding_off_forks(compile);
            self.is_compiling.store(false, Ordering::Release);
        }
    }
}

/// What a look has come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Looked {
    /// There is a new view.
    New,
    /// There is nothing new, or it could not be seen.
    Nothing,
    /// Another thread looks, or holds off forks.
    Busy,
}

/// Looks whether modules have come or gone, or guesses so, and makes a new view. Nobody waits here
/// for another thread that may wait for the loader: the calling thread may hold the loader's lock.
fn look(now_ns: u64, is_guess: bool) -> Looked {
    if IS_LOOKING.swap(true, Ordering::Acquire) {
        return Looked::Busy;
    }
    let looked = look_alone(now_ns, is_guess);
    IS_LOOKING.store(false, Ordering::Release);
    looked
}

fn look_alone(now_ns: u64, is_guess: bool) -> Looked {
    let Some(generation) = try_holding_off_forks(Generation::now) else {
        return Looked::Busy;
    };
    NEXT_LOOK_NS.store(now_ns + LOOK_SPACING_NS, Ordering::Relaxed);
    let current = VIEWS.lock().current.clone();
    if (current.as_ref()).is_some_and(|view| view.generation == generation) {
        if !is_guess || now_ns < NEXT_GUESS_NS.load(Ordering::Relaxed) {
            return Looked::Nothing;
        }
        NEXT_GUESS_NS.store(now_ns + GUESS_SPACING_NS, Ordering::Relaxed);
    }
    if !can_allocate(LOOK_BYTES) {
        return Looked::Nothing;
    }
    let last = current.as_deref().map(|view| &view.snapshot);
    // What was copied without the maps is to be copied again.
    let had_maps = (current.as_deref()).is_some_and(|view| view.has_maps);
    let known = last.filter(|_| had_maps).map_or(&[][..], Snapshot::modules);
    let see = || {
        let maps = Maps::read();
        let has_maps = maps.is_ok();
        if current.is_some() && !has_maps {
            return None;
        }
        // Where files cannot be opened the loader says what is loaded all the same.
        let maps = maps.unwrap_or_else(|_| Maps::of(String::new()));
        let loaded = modules::loaded(known.iter().map(|rules| rules.module()), &maps);
        Some((maps, has_maps, loaded))
    };
    let (maps, has_maps, loaded) = match try_holding_off_forks(see) {
        Some(Some(seen)) => seen,
        Some(None) => return Looked::Nothing,
        None => return Looked::Busy,
    };
    let epoch = last.map_or(1, |last| last.epoch() + 1);
    let objects: Vec<_> = (loaded.iter().map(|module| module.object.clone())).collect();
    let snapshot = Snapshot::new(epoch, loaded, &maps, last, known);
    let mut views = VIEWS.lock();
    let layouts = views.layouts.get_or_insert_default();
    layouts.observe(epoch, objects.iter());
    let view = View {
        layout: layouts.of_epoch(epoch),
        has_maps,
        snapshot,
        generation,
        walks: AtomicU32::new(0),
        is_compiling: AtomicBool::new(false),
    };
    let gone = views.current.replace(Arc::new(view));
    VERSION.fetch_add(1, Ordering::Release);
    drop(views);
    drop(gone);
    Looked::New
}

/// Finds out where threads keep the bounds of their stacks.
fn find_bounds() {
    if BOUNDS.load(Ordering::Relaxed) != 0 || TRIES_FOR_BOUNDS.load(Ordering::Relaxed) == 0 {
        return;
    }
    let thread = thread_pointer();
    if thread == MAIN_THREAD.load(Ordering::Relaxed) {
        return;
    }
    if current_tid() == PID.load(Ordering::Relaxed) {
        MAIN_THREAD.store(thread, Ordering::Relaxed);
        return;
    }
    match BoundsPlace::find() {
        Some(place) => BOUNDS.store(place.index() + 1, Ordering::Relaxed),
        None => {
            let less = |tries: u32| tries.checked_sub(1);
            let _ = TRIES_FOR_BOUNDS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

/// What the addresses of all stacks so far are of.
pub(super) fn layouts() -> Layouts {
    without_samples(|| VIEWS.lock().layouts.clone()).unwrap_or_default()
}

/// The mutexes that a fork holds.
pub(super) fn mutexes() -> impl Iterator<Item = &'static dyn Held> {
    std::iter::once(&VIEWS as &dyn Held)
}
