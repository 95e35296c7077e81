//! Elapsed time: every thread's share is its lifetime, and a thread that waits is left alone once
//! it was seen.

#[path = "support/process.rs"]
mod process;
#[path = "support/mod.rs"]
mod support;
#[path = "support/work.rs"]
mod work;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use process::{child, skip, soak, succeed};
use sigprof::cpu::{Clock, Engine, Profiler, Recording, Stats, WallTime};
use sigprof::profile::{LabelValue, ValueType};
use sigprof::{ErrorKind, Profile};
use work::{StopOnDrop, burn};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn profiler(frequency_hz: u32) -> Profiler {
    let profiler = Profiler::new()
        .clock(Clock::Wall)
        .frequency_hz(frequency_hz);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler
}

fn start(frequency_hz: u32) -> Recording {
    profiler(frequency_hz)
        .start()
        .expect("nothing else records")
}

/// Time of the samples that have all of these labels.
fn time(profile: &Profile, labels: &[(&str, &str)]) -> Duration {
    let has = |sample_labels: &[sigprof::profile::Label], (key, value): (&str, &str)| {
        sample_labels.iter().any(|label| {
            profile.string(label.key) == key
                && matches!(label.value, LabelValue::Str(id) if profile.string(id) == value)
        })
    };
    let ns: i64 = profile
        .samples()
        .filter(|sample| labels.iter().all(|&label| has(sample.labels, label)))
        .map(|sample| sample.values[1])
        .sum();
    Duration::from_nanos(ns as u64)
}

fn wall(stats: &Stats) -> WallTime {
    stats.wall.expect("elapsed time is recorded")
}

/// Fails unless `a` and `b` are equal within a part of `b`.
fn assert_near(a: Duration, b: Duration, part: f64, what: &str) {
    let off = (a.as_secs_f64() - b.as_secs_f64()).abs() / b.as_secs_f64();
    assert!(
        off <= part,
        "{what}: {a:?} of {b:?}, {:.1} % off",
        off * 1e2
    );
}

/// What every stopped recording owes: all time of all threads has a place, and the figures are the
/// profile's.
fn assert_exact(stats: &Stats, profile: &Profile) {
    assert_eq!(stats.ticks, stats.samples + stats.lost.total(), "{stats}");
    let wall = wall(stats);
    let total = Duration::from_nanos(profile.total(1) as u64);
    assert_eq!(total, wall.in_stacks + wall.unsampled, "{stats}");
    // Counts are rounded, for each thread.
    let counted = profile.total(0) as f64 * profile.period as f64 / 1e9;
    let slack = wall.threads as f64 * profile.period as f64 / 1e9;
    assert!(
        (counted - total.as_secs_f64()).abs() <= slack,
        "{counted} s of {total:?}\n{stats}"
    );
}

fn named<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    name: &str,
    body: impl FnOnce() + Send + 'scope,
) {
    thread::Builder::new()
        .name(name.into())
        .stack_size(64 * 1024)
        .spawn_scoped(scope, body)
        .unwrap();
}

macro_rules! in_a_process_of_their_own {
    ($($test:ident runs $child:ident;)*) => {$(
        #[test]
        fn $test() {
            let output = succeed(&mut child(stringify!($child)));
            // Figures that a person may want to see.
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
    )*};
}

in_a_process_of_their_own! {
    a_thread_has_the_same_share_whatever_it_does runs child_of_three_threads;
    sleeping_threads_are_left_alone runs child_of_sleepers;
    a_call_that_waits_is_interrupted_once runs child_of_interrupted_calls;
    a_threads_total_is_its_lifetime runs child_of_short_lived_threads;
    a_thread_that_blocks_the_signal_loses_no_time runs child_that_blocks_the_signal;
    a_thread_is_seen_to_run_as_much_as_it_does runs child_that_works_and_sleeps;
    a_waiting_thread_keeps_its_labels runs child_with_a_labelled_sleeper;
    a_filtered_threads_time_is_told runs child_that_filters;
    a_snapshot_takes_nothing_away runs child_that_takes_snapshots;
    the_time_says_what_it_is runs child_that_asks_for_engines;
}

#[test]
#[ignore = "a child process"]
fn child_of_three_threads() {
    let stop = AtomicBool::new(false);
    let lock = Mutex::new(());
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        named(scope, "busy", || {
            while !stop.load(Ordering::Relaxed) {
                burn(MILLISECOND);
            }
        });
        named(scope, "sleeping", || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(200 * MILLISECOND);
            }
        });
        named(scope, "blocked", || drop(lock.lock()));
        // The names are the threads' own, so they may come a little later than the threads.
        thread::sleep(50 * MILLISECOND);
        let recording = start(100);
        thread::sleep(2 * SECOND);
        let profile = recording.stop().unwrap();
        drop(stopping);
        drop(guard);
        let stats = recording.stats();
        eprintln!("{stats}");
        assert_exact(&stats, &profile);
        for name in ["busy", "sleeping", "blocked"] {
            let total = time(&profile, &[("thread", name)]);
            assert_near(total, stats.duration, 0.02, name);
        }
        let part = |name, state| {
            time(&profile, &[("thread", name), ("state", state)]).as_secs_f64()
                / stats.duration.as_secs_f64()
        };
        assert!(part("busy", "running") > 0.9, "{stats}");
        assert!(part("sleeping", "waiting") > 0.8, "{stats}");
        assert!(part("blocked", "waiting") > 0.9, "{stats}");
        is_focused_by_state(&profile);
    });
}

/// `pprof` finds the time of the waiting threads by their label.
fn is_focused_by_state(profile: &Profile) {
    let Some(go) = support::tool("go") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wall.pb.gz");
    profile.save(&path).unwrap();
    let options = [
        "-top",
        "-unit=ms",
        "-symbolize=none",
        "-tagfocus=state=waiting",
    ];
    let output = support::go_pprof(&go, &options, &path);
    assert!(output.stdout.contains("Type: wall"), "{}", output.stdout);
    let accounted = output
        .stdout
        .split_once("accounting for ")
        .and_then(|(_, rest)| rest.split_once("ms"))
        .and_then(|(ms, _)| ms.parse::<f64>().ok())
        .expect("pprof says how much it shows");
    let waiting = time(profile, &[("state", "waiting")]).as_secs_f64() * 1e3;
    assert!(
        accounted <= waiting + 1.0 && accounted > waiting * 0.9,
        "{accounted} ms of {waiting}\n{}",
        output.stdout
    );
}

/// Waits until every thread has been looked at, and for a while none needed another look.
fn wait_until_seen(recording: &Recording, threads: u64) {
    let mut looks = 0;
    let mut is_quiet = false;
    for _ in 0..600 {
        thread::sleep(200 * MILLISECOND);
        let now = wall(&recording.stats()).looks;
        // This thread is looked at again after each sleep.
        let was_quiet = std::mem::replace(&mut is_quiet, now - looks <= 2);
        if now >= threads && is_quiet && was_quiet {
            return;
        }
        looks = now;
    }
    panic!("{threads} threads are not at rest: {}", recording.stats());
}

#[test]
#[ignore = "a child process"]
fn child_of_sleepers() {
    const SLEEPERS: usize = 200;
    let stop = AtomicBool::new(false);
    let lock = Mutex::new(());
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        // Not all sleepers end by themselves, and the scope would wait for them.
        let _exit = ExitOnDrop;
        for i in 0..SLEEPERS {
            let (stop, lock) = (&stop, &lock);
            named(scope, "sleeper", move || match i % 3 {
                0 => drop(lock.lock()),
                1 => {
                    while !stop.load(Ordering::Relaxed) {
                        thread::park();
                    }
                }
                _ => while poll(stop, 30 * SECOND) {},
            });
        }
        let recording = start(100);
        wait_until_seen(&recording, SLEEPERS as u64);
        let (before, begun) = (recording.stats(), Instant::now());
        thread::sleep((2 * SECOND).mul_f64(soak()));
        let after = recording.stats();
        let seconds = begun.elapsed().as_secs_f64();
        let looks = wall(&after).looks - wall(&before).looks;
        eprintln!(
            "{:.2} signals a second for {SLEEPERS} sleeping threads, {:.2} % CPU of the profiler's thread",
            looks as f64 / seconds,
            (after.own_cpu - before.own_cpu).as_secs_f64() / seconds * 1e2
        );
        let profile = recording.stop().unwrap();
        let stats = recording.stats();
        eprintln!("{stats}");
        assert!(looks as f64 / seconds < 5.0, "{looks} looks in {seconds} s");
        assert_exact(&stats, &profile);
        let total = time(&profile, &[("thread", "sleeper")]);
        assert_near(total, SLEEPERS as u32 * stats.duration, 0.02, "sleepers");
    });
    drop(guard);
}

/// Ends the process, with a code that says whether the thread panics.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        std::process::exit(i32::from(thread::panicking()));
    }
}

/// Sleeps in `poll` until the time is over. The answer is false, and counted, where a signal
/// interrupted it.
fn poll(stop: &AtomicBool, longest: Duration) -> bool {
    // SAFETY: no descriptors are passed.
    unsafe { libc::poll(std::ptr::null_mut(), 0, longest.as_millis() as i32) };
    !stop.load(Ordering::Relaxed)
}

fn nanosleep(longest: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: longest.as_secs() as i64,
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: the time is read only.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) == 0 }
}

#[test]
#[ignore = "a child process"]
fn child_of_interrupted_calls() {
    const TIME: Duration = Duration::from_secs(3);
    let poll = |longest: Duration| {
        // SAFETY: no descriptors are passed.
        unsafe { libc::poll(std::ptr::null_mut(), 0, longest.as_millis() as i32) == 0 }
    };
    let epoll_wait = |longest: Duration| {
        // SAFETY: a descriptor of its own, with nothing in it, and room for one event.
        unsafe {
            let epoll = libc::epoll_create1(0);
            let mut event: libc::epoll_event = std::mem::zeroed();
            let n = libc::epoll_wait(epoll, &mut event, 1, longest.as_millis() as i32);
            libc::close(epoll);
            n == 0
        }
    };
    type Call<'c> = &'c (dyn Fn(Duration) -> bool + Sync);
    let calls: [(&str, Call<'_>); 3] = [
        ("poll", &poll),
        ("epoll_wait", &epoll_wait),
        ("nanosleep", &nanosleep),
    ];
    let counts: Vec<AtomicU64> = (0..10).map(|_| AtomicU64::new(0)).collect();
    let recording = start(100);
    thread::scope(|scope| {
        for (i, count) in counts.iter().enumerate() {
            let (_, call) = calls[i % calls.len()];
            // The last ones wake ten times a second.
            let at_once = if i < 8 { TIME } else { SECOND / 10 };
            scope.spawn(move || {
                let end = Instant::now() + TIME;
                loop {
                    let left = end.saturating_duration_since(Instant::now());
                    if left < MILLISECOND {
                        break;
                    }
                    if !call(left.min(at_once)) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    recording.stop().unwrap();
    let counts: Vec<u64> = counts.into_iter().map(AtomicU64::into_inner).collect();
    for (i, count) in counts.iter().enumerate() {
        let often = if i < 8 { "once" } else { "ten times a second" };
        eprintln!("{count} EINTR in {TIME:?}: {} {often}", calls[i % 3].0);
    }
    eprintln!("{}", recording.stats());
    // One each, and up to three where a loaded machine kept a thread from going back to sleep.
    assert!(counts[..8].iter().sum::<u64>() <= 24, "{counts:?}");
    assert!(counts[8..].iter().all(|&n| n <= 2 * 30), "{counts:?}");
}

#[test]
#[ignore = "a child process"]
fn child_of_short_lived_threads() {
    let lifetimes = Mutex::new(Vec::new());
    let recording = start(100);
    thread::scope(|scope| {
        for (name, is_busy) in [("worker", true), ("waiter", false)] {
            for length in [60, 150, 300] {
                let lifetimes = &lifetimes;
                let name = format!("{name}{length}");
                named(scope, &name.clone(), move || {
                    let begun = Instant::now();
                    match is_busy {
                        true => burn(length * MILLISECOND),
                        false => thread::sleep(length * MILLISECOND),
                    }
                    lifetimes.lock().unwrap().push((name, begun.elapsed()));
                });
                thread::sleep(20 * MILLISECOND);
            }
        }
    });
    let profile = recording.stop().unwrap();
    let stats = recording.stats();
    eprintln!("{stats}");
    assert_exact(&stats, &profile);
    for (name, lifetime) in lifetimes.into_inner().unwrap() {
        let total = time(&profile, &[("thread", &name)]);
        let seen = time(&profile, &[("thread", &name), ("state", "waiting")])
            + time(&profile, &[("thread", &name), ("state", "running")]);
        eprintln!("{name}: {lifetime:?} lived, {total:?} counted, {seen:?} in stacks");
        // A thread lives a little longer than its work: the system makes it, and buries it.
        assert!(total + 2 * MILLISECOND >= lifetime, "{name}");
        assert!(
            total <= lifetime + lifetime / 10 + 40 * MILLISECOND,
            "{name}"
        );
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_blocks_the_signal() {
    let recording = start(100);
    thread::scope(|scope| {
        named(scope, "deaf", || {
            // SAFETY: a set of this function's, and the mask of this thread.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGURG);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            }
            thread::sleep(SECOND / 2);
            burn(SECOND / 4);
        });
    });
    let profile = recording.stop().unwrap();
    let stats = recording.stats();
    eprintln!("{stats}");
    assert_exact(&stats, &profile);
    let total = time(&profile, &[("thread", "deaf")]);
    assert!(total >= SECOND * 3 / 4, "{total:?}\n{stats}");
    let unsampled = wall(&stats).unsampled;
    assert!(unsampled + 100 * MILLISECOND >= total, "{stats}");
    assert!(
        stats.threads_blocking.iter().any(|t| t.contains("deaf")),
        "{stats}"
    );
}

/// Time that the calling thread had a CPU, and time that it waited for one, by the kernel's books.
fn ran_and_waited() -> Option<[Duration; 2]> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split(' ').map(|field| field.parse::<u64>());
    let (ran, waited) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some([ran, waited].map(Duration::from_nanos))
}

#[test]
#[ignore = "a child process"]
fn child_that_works_and_sleeps() {
    const HZ: u32 = 500;
    if ran_and_waited().is_none() {
        return skip("it needs a kernel with CONFIG_SCHED_INFO");
    }
    for (work, rest) in [(6, 14), (10, 10), (1, 60)] {
        let recording = start(HZ);
        let truth = Mutex::new([0.0; 2]);
        let name = format!("{work} of {}", work + rest);
        thread::scope(|scope| {
            named(scope, &name, || {
                let begun = Instant::now();
                let before = ran_and_waited().unwrap();
                // Half to one and a half times as long, spread evenly by the golden ratio: ticks
                // that came at the same places of each turn would not tell how long they are.
                let lengths = (0..).map(|turn| (f64::from(turn) * 0.618_034).fract() + 0.5);
                for length in lengths.take_while(|_| begun.elapsed() < 2 * SECOND) {
                    burn((work * MILLISECOND).mul_f64(length));
                    thread::sleep((rest * MILLISECOND).mul_f64(length));
                }
                let after = ran_and_waited().unwrap();
                let share = |i: usize| (after[i] - before[i]).div_duration_f64(begun.elapsed());
                *truth.lock().unwrap() = [share(0), share(1)];
            });
        });
        let profile = recording.stop().unwrap();
        let running = time(&profile, &[("thread", &name), ("state", "running")]);
        let waiting = time(&profile, &[("thread", &name), ("state", "waiting")]);
        let share = running.div_duration_f64(running + waiting);
        let [ran, waited] = truth.into_inner().unwrap();
        eprintln!(
            "{name}: ran {:.1} %, in truth {:.1} %, and waited for a CPU {:.1} %",
            share * 1e2,
            ran * 1e2,
            waited * 1e2
        );
        eprintln!("{}", recording.stats());
        // Of the time that a loaded machine lets a thread wait for a CPU, what comes after a sleep
        // still looks like it.
        let possible = ran - 0.05..ran + waited + 0.05;
        assert!(possible.contains(&share), "{share} in {possible:?}");
    }
}

#[test]
#[ignore = "a child process"]
fn child_with_a_labelled_sleeper() {
    let recording = start(100);
    thread::scope(|scope| {
        named(scope, "sleeper", || {
            let _first = sigprof::label("request", "first");
            thread::sleep(SECOND / 2);
            let _second = sigprof::label("request", "second");
            thread::sleep(SECOND);
        });
    });
    let profile = recording.stop().unwrap();
    for (value, length) in [("first", SECOND / 2), ("second", SECOND)] {
        let total = time(
            &profile,
            &[
                ("thread", "sleeper"),
                ("request", value),
                ("state", "waiting"),
            ],
        );
        // The boundary is seen at a tick, or on a loaded machine at the next one.
        assert!(
            total + 100 * MILLISECOND >= length && total <= length + 300 * MILLISECOND,
            "{value}: {total:?} of {length:?}\n{}",
            recording.stats()
        );
    }
}

extern "C" fn keep_none(_: *mut libc::c_void) -> libc::c_int {
    0
}

#[test]
#[ignore = "a child process"]
fn child_that_filters() {
    // SAFETY: the function does nothing.
    let recording = unsafe { profiler(100).filter(keep_none, std::ptr::null_mut()) }
        .start()
        .unwrap();
    thread::scope(|scope| {
        scope.spawn(|| burn(SECOND / 2));
        scope.spawn(|| thread::sleep(SECOND));
    });
    let profile = recording.stop().unwrap();
    let stats = recording.stats();
    eprintln!("{stats}");
    assert_exact(&stats, &profile);
    assert_eq!(stats.samples, 0, "{stats}");
    assert!(wall(&stats).filtered > SECOND * 5 / 4, "{stats}");
    assert!(stats.lost.filtered > 100, "{stats}");
}

#[test]
#[ignore = "a child process"]
fn child_that_takes_snapshots() {
    let stop = Arc::new(AtomicBool::new(false));
    let recording = start(1000);
    let sleeper = thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(100 * MILLISECOND);
            }
        }
    });
    let mut last = 0;
    for _ in 0..50 {
        let snapshot = recording.snapshot().unwrap();
        let duration = snapshot.duration_nanos;
        let total = snapshot.total(1);
        assert!(total >= last, "a snapshot forgets nothing");
        assert!(total <= 3 * duration, "{total} ns by then");
        last = total;
        burn(5 * MILLISECOND);
        thread::sleep(5 * MILLISECOND);
    }
    stop.store(true, Ordering::Relaxed);
    sleeper.join().unwrap();
    let profile = recording.stop().unwrap();
    assert_exact(&recording.stats(), &profile);
    assert!(profile.total(1) >= last);
    // SAFETY: the child leaves by `_exit`.
    let in_child = unsafe { libc::fork() };
    if in_child == 0 {
        let own = start(100);
        thread::sleep(50 * MILLISECOND);
        let total = own.stop().map_or(0, |profile| profile.total(1));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(total == 0)) };
    }
    let mut status = 1;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(in_child, &mut status, 0) };
    assert_eq!(
        status, 0,
        "a forked child may record elapsed time of its own"
    );
}

#[test]
#[ignore = "a child process"]
fn child_that_asks_for_engines() {
    for engine in [Engine::PerfEvent, Engine::ThreadTimer, Engine::ProcessTimer] {
        let error = profiler(100).engine(engine).start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("Clock::Wall"), "{error}");
    }
    let recording = start(250);
    thread::sleep(100 * MILLISECOND);
    let profile = recording.stop().unwrap();
    let words = |of: &ValueType| format!("{}/{}", of.r#type, of.unit);
    let types: Vec<String> = profile.sample_types().iter().map(words).collect();
    assert_eq!(types, ["samples/count", "wall/nanoseconds"]);
    assert_eq!(words(&profile.period_type), "wall/nanoseconds");
    assert_eq!(profile.default_sample_type, "wall");
    assert_eq!(profile.period, 4_000_000);
    assert_exact(&recording.stats(), &profile);
    let text = recording.stats().to_string();
    assert!(text.contains("250 Hz of wall time"), "{text}");
    assert!(text.contains("wall: "), "{text}");
}
