//! Threads of the kernel's own, which work for a program that uses io_uring: no clock is spent on
//! them, nobody accuses them, and all of their time is told.

#[path = "support/process.rs"]
mod process;
#[path = "support/mod.rs"]
mod support;
#[path = "support/work.rs"]
mod work;

use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use process::{child, figure, skip, succeed_and_show};
use sigprof::Profile;
use sigprof::cpu::{Clock, Engine, Profiler};
use sigprof::profile::LabelValue;
use work::thread_cpu_of;

const IN_KERNEL: &str = "[kernel: io_uring worker]";
/// Requests at a time: io_uring takes a worker for each.
const REQUESTS: usize = 20;

/// Reads `/dev/zero` through io_uring, which has its workers do it.
struct Reads {
    ring: IoUring,
    zero: File,
    buffers: Vec<Vec<u8>>,
}

impl Reads {
    /// Nothing where the system has no io_uring for us.
    fn begin() -> Option<Self> {
        let mut reads = Self {
            ring: ring(IoUring::builder())?,
            zero: File::open("/dev/zero").unwrap(),
            buffers: vec![vec![0; 1 << 18]; REQUESTS],
        };
        (0..REQUESTS).for_each(|number| reads.submit(number));
        Some(reads)
    }

    fn submit(&mut self, number: usize) {
        let buffer = &mut self.buffers[number];
        let fd = types::Fd(self.zero.as_raw_fd());
        let read = opcode::Read::new(fd, buffer.as_mut_ptr(), buffer.len() as u32)
            .build()
            .flags(squeue::Flags::ASYNC)
            .user_data(number as u64);
        // SAFETY: buffer and file live until the request is answered: `drop` waits for all.
        unsafe { self.ring.submission().push(&read).unwrap() };
    }

    /// Waits for one request or more.
    fn wait(&mut self) -> Vec<usize> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
        let answered = self.ring.completion();
        let numbers = answered.map(|entry| {
            assert!(entry.result() > 0, "{}", entry.result());
            entry.user_data() as usize
        });
        numbers.collect()
    }

    /// Reads until the workers have used so much CPU time more.
    fn read(&mut self, time: Duration) {
        let end = workers_cpu() + time;
        while workers_cpu() < end {
            for number in self.wait() {
                self.submit(number);
            }
        }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        let mut left = REQUESTS;
        while left > 0 {
            left -= self.wait().len();
        }
    }
}

fn ring(builder: io_uring::Builder) -> Option<IoUring> {
    match builder.build(64) {
        Ok(ring) => Some(ring),
        Err(error) => {
            skip(&format!("the system gives no io_uring: {error}"));
            None
        }
    }
}

/// Ids of the process's threads by whether they are io_uring's.
fn threads(are_workers: bool) -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let tids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    let is_worker = |tid: &String| {
        let name = fs::read_to_string(format!("/proc/self/task/{tid}/comm"));
        name.is_ok_and(|name| name.starts_with("iou-"))
    };
    tids.filter(|tid| is_worker(tid) == are_workers)
        .map(|tid| tid.parse().unwrap())
        .collect()
}

/// CPU time that the kernel's threads have used.
fn workers_cpu() -> Duration {
    threads(true).into_iter().filter_map(thread_cpu_of).sum()
}

fn perf_events() -> usize {
    let files = fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    targets
        .filter(|target| target.to_string_lossy().contains("perf_event"))
        .count()
}

/// Time in the frame of io_uring's workers under names of theirs, and in all frames under them.
fn time_of_workers(profile: &Profile) -> [Duration; 2] {
    let mut times = [0; 2];
    for sample in profile.samples() {
        let is_workers = sample.labels.iter().any(|label| {
            let name = match label.value {
                LabelValue::Str(id) => profile.string(id),
                LabelValue::Num { .. } => "",
            };
            profile.string(label.key) == "thread" && name.starts_with("iou-")
        });
        if !is_workers {
            continue;
        }
        times[1] += sample.values[1];
        let line = profile.location(sample.stack[0]).lines.first();
        let name = line.map(|line| profile.function(line.function).name);
        if name.is_some_and(|name| profile.string(name) == IN_KERNEL) {
            times[0] += sample.values[1];
        }
    }
    times.map(|ns| Duration::from_nanos(ns as u64))
}

/// What workers use in a recording: not less than between start and stop, nor more than with those.
struct Worked([Duration; 2]);

impl Worked {
    fn before_start() -> Self {
        Self([Duration::ZERO, workers_cpu()])
    }

    fn after_start(self) -> Self {
        Self([workers_cpu(), self.0[1]])
    }

    fn before_stop(self) -> Self {
        Self([workers_cpu() - self.0[0], self.0[1]])
    }

    fn after_stop(self) -> RangeInclusive<Duration> {
        self.0[0]..=workers_cpu() - self.0[1]
    }
}

fn run(child_test: &str, way: &str) {
    let mut command = child(child_test);
    command.env("SIGPROF_TEST_WAY", way);
    succeed_and_show(&mut command);
}

fn way() -> String {
    std::env::var("SIGPROF_TEST_WAY").unwrap()
}

fn profiler() -> Profiler {
    let profiler = Profiler::new();
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler
}

#[test]
fn the_cpu_time_of_workers_is_told_by_their_clocks() {
    for way in [
        "events, workers first",
        "events, recording first",
        "timers, workers first",
        "timers, recording first",
    ] {
        run("child_that_reads_through_io_uring", way);
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_reads_through_io_uring() {
    let way = way();
    let (engine, frequency_hz) = match way.starts_with("events") {
        true => (Engine::PerfEvent, 1000),
        false => (Engine::ThreadTimer, 250),
    };
    let Some(mut reads) = Reads::begin() else {
        return;
    };
    if way.ends_with("workers first") {
        reads.read(Duration::from_millis(20));
        assert!(threads(true).len() > 1, "{:?}", threads(true));
    }
    let profiler = profiler().engine(engine).frequency_hz(frequency_hz);
    let worked = Worked::before_start();
    let recording = match profiler.start() {
        Ok(recording) => recording,
        Err(error) => return skip(&error.to_string()),
    };
    let worked = worked.after_start();
    reads.read(Duration::from_millis(1000));
    let (events, programs) = (perf_events(), threads(false).len());
    let worked = worked.before_stop();
    let profile = recording.stop().unwrap();
    let worked = worked.after_stop();
    let stats = recording.stats();
    figure!("{way}: {} workers: {}", threads(true).len(), stats.cpu);

    let [in_kernel, under_names] = time_of_workers(&profile);
    assert!(
        worked.contains(&in_kernel),
        "{in_kernel:?} of {worked:?}: {profile}"
    );
    assert_eq!(in_kernel, stats.cpu.kernel_workers, "{stats}");
    assert_eq!(in_kernel, under_names, "{profile}");
    assert!(stats.cpu.unsampled < stats.cpu.total / 20, "{stats}");
    assert!(stats.cpu.coverage() > 0.95, "{stats}");
    assert!(
        events <= programs,
        "{events} for {programs} threads: {stats}"
    );
    assert!(stats.threads_armed <= programs as u64, "{stats}");
    assert_eq!(stats.threads_blocking, Vec::<String>::new(), "{stats}");
    assert_eq!(stats.fallbacks, [], "{stats}");
}

#[test]
fn a_thread_that_polls_a_submission_queue_is_told_of() {
    for way in ["events", "timers"] {
        run("child_whose_queue_is_polled", way);
    }
}

#[test]
#[ignore = "a child process"]
fn child_whose_queue_is_polled() {
    const IDLE_MS: u32 = 60_000;
    let engine = match way().as_str() {
        "events" => Engine::PerfEvent,
        _ => Engine::ThreadTimer,
    };
    let mut builder = IoUring::builder();
    builder.setup_sqpoll(IDLE_MS);
    let Some(mut polled) = ring(builder) else {
        return;
    };
    // The thread begins to poll with the first request.
    // SAFETY: the request has no buffer.
    unsafe {
        polled
            .submission()
            .push(&opcode::Nop::new().build())
            .unwrap()
    };
    polled.submit().unwrap();
    let worked = Worked::before_start();
    let recording = match profiler().engine(engine).frequency_hz(1000).start() {
        Ok(recording) => recording,
        Err(error) => return skip(&error.to_string()),
    };
    let worked = worked.after_start();
    let end = workers_cpu() + Duration::from_millis(300);
    while workers_cpu() < end {
        thread::sleep(Duration::from_millis(10));
    }
    let worked = worked.before_stop();
    let profile = recording.stop().unwrap();
    let worked = worked.after_stop();
    let stats = recording.stats();
    figure!("{}", stats.cpu);
    let [in_kernel, under_name] = time_of_workers(&profile);
    assert!(
        worked.contains(&in_kernel),
        "{in_kernel:?} of {worked:?}: {profile}"
    );
    assert_eq!(in_kernel, under_name, "{profile}");
    assert_eq!(in_kernel, stats.cpu.kernel_workers, "{stats}");
    assert!(
        stats.threads_armed <= threads(false).len() as u64,
        "{stats}"
    );
    assert_eq!(stats.threads_blocking, Vec::<String>::new(), "{stats}");
}

#[test]
fn the_elapsed_time_of_workers_is_told() {
    run("child_that_reads_by_elapsed_time", "");
}

#[test]
#[ignore = "a child process"]
fn child_that_reads_by_elapsed_time() {
    let Some(mut reads) = Reads::begin() else {
        return;
    };
    reads.read(Duration::from_millis(20));
    let recording = profiler().clock(Clock::Wall).start().unwrap();
    reads.read(Duration::from_millis(1000));
    let profile = recording.stop().unwrap();
    let stats = recording.stats();
    let wall = stats.wall.unwrap();
    figure!("{wall}");
    let [in_kernel, under_names] = time_of_workers(&profile);
    assert_eq!(in_kernel, under_names, "{profile}");
    assert_eq!(in_kernel, wall.kernel_workers, "{stats}");
    let all = wall.in_stacks + wall.unsampled + wall.kernel_workers;
    assert_eq!(
        Duration::from_nanos(profile.total(1) as u64),
        all,
        "{stats}"
    );
    assert!(in_kernel > stats.duration, "of several: {stats}");
    assert_eq!(stats.threads_blocking, Vec::<String>::new(), "{stats}");
}
