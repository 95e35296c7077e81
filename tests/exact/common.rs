//! Recordings to be judged, work of known cost, and the clocks that judge.

use std::process::Output;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use sigprof::cpu::{Engine, Profiler};

pub(crate) use crate::measured::*;
pub(crate) use crate::process::{all_or, figure, soak};
use crate::process::{child, skip, succeed_and_show};
use crate::witness::Witness;
use crate::work::{burn, thread_cpu};

pub const MS: Duration = Duration::from_millis(1);

/// The frames that say why time is in no stack.
pub const UNSAMPLED: &str = "[unsampled]";
pub const KERNEL: &str = "[kernel]";

pub fn profiler(engine: Engine, frequency_hz: u32) -> Profiler {
    let profiler = Profiler::new().engine(engine).frequency_hz(frequency_hz);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler
}

/// Runs a child test with arguments for [`argument`], and shows its figures.
pub fn run_child(test: &str, arguments: &[(&str, &str)]) -> Output {
    let mut command = child(test);
    for (name, value) in arguments {
        command.env(format!("SIGPROF_EXACT_{name}"), value);
    }
    succeed_and_show(&mut command)
}

/// What the parent test passed to this child.
pub fn argument(name: &str) -> Option<String> {
    std::env::var(format!("SIGPROF_EXACT_{name}")).ok()
}

/// The engine that the parent asked for, [`Engine::Auto`] if it did not say.
pub fn engine_argument() -> Engine {
    match argument("ENGINE").as_deref() {
        Some("perf") => Engine::PerfEvent,
        Some("timer") => Engine::ThreadTimer,
        Some("process") => Engine::ProcessTimer,
        _ => Engine::Auto,
    }
}

pub fn hz_argument() -> u32 {
    argument("HZ").map_or(1000, |hz| hz.parse().unwrap())
}

/// Whether perf events that see the kernel, too, can be had here: for root, or with
/// `perf_event_paranoid` of 1 or less.
pub fn has_perf_events() -> bool {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let paranoid: Option<i32> = std::fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let has = paranoid.is_some_and(|paranoid| paranoid <= 1 || is_root());
    if !has {
        skip("it needs perf events (root, or kernel.perf_event_paranoid of 1)");
    }
    has
}

pub fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Gives up root's privileges, as a user who never had them.
pub fn become_nobody() {
    become_user(65534);
}

/// Turns root into another user; anybody else stays who they are.
pub fn become_user(id: libc::uid_t) {
    if !is_root() {
        return;
    }
    // SAFETY: numbers alone. Group first, since it takes root to change it. A process that changed
    // its user is not dumpable, and its files in /proc are root's, until it says otherwise.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(id, id, id), 0);
        assert_eq!(libc::setresuid(id, id, id), 0);
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
    }
}

/// A kind of work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Load {
    Arithmetic,
    /// `read` of `/dev/zero`.
    SystemCalls,
    /// Pages of a mapping that are given back and touched again.
    PageFaults,
    /// A walk through more memory than caches hold, in no order.
    Memory,
}

impl Load {
    pub const ALL: [Self; 4] = [
        Self::Arithmetic,
        Self::SystemCalls,
        Self::PageFaults,
        Self::Memory,
    ];

    /// Makes ready what the load needs, so that threads do not do it while they are measured.
    pub fn prepare() {
        walk();
    }

    /// Works until the calling thread's CPU clock has gone on by `time`.
    pub fn work(self, time: Duration) {
        let end = thread_cpu() + time;
        match self {
            Self::Arithmetic => burn(time),
            Self::SystemCalls => read_zeros(end),
            Self::PageFaults => fault(end),
            Self::Memory => wander(end),
        }
    }
}

fn read_zeros(end: Duration) {
    let mut buffer = vec![0_u8; 16 * 1024];
    let mut file = std::fs::File::open("/dev/zero").unwrap();
    while thread_cpu() < end {
        for _ in 0..20 {
            std::io::Read::read_exact(&mut file, &mut buffer).unwrap();
        }
    }
}

fn fault(end: Duration) {
    const LEN: usize = 256 * 4096;
    // SAFETY: a fresh mapping, in which small pages are touched, given back, and at last unmapped.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        libc::madvise(start, LEN, libc::MADV_NOHUGEPAGE);
        while thread_cpu() < end {
            for page in 0..LEN / 4096 {
                start.cast::<u8>().add(page * 4096).write_volatile(1);
            }
            assert_eq!(libc::madvise(start, LEN, libc::MADV_DONTNEED), 0);
        }
        libc::munmap(start, LEN);
    }
}

/// Steps of a random walk through 32 MiB that comes by every place.
fn walk() -> &'static [u32] {
    static WALK: OnceLock<Vec<u32>> = OnceLock::new();
    const LEN: u32 = 8 * 1024 * 1024;
    // A linear congruential generator of full period.
    WALK.get_or_init(|| {
        let next = |i: u32| i.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % LEN;
        (0..LEN).map(next).collect()
    })
}

fn wander(end: Duration) {
    let walk = walk();
    let mut at = end.subsec_nanos() as usize % walk.len();
    while thread_cpu() < end {
        for _ in 0..2000 {
            at = walk[at] as usize;
        }
        std::hint::black_box(at);
    }
}

/// What a thread used, by its own clock.
#[derive(Clone, Debug)]
pub struct Ran {
    pub name: String,
    pub cpu: Duration,
    /// How much of that a clock of the profiler's has to have seen.
    pub seen: Duration,
}

/// Threads to run: a name, what to do, and for how long by the thread's clock.
type Threads = (String, Load, Duration);

/// Runs threads by name, all at once, to their ends. The clocks begin with the threads.
pub fn run_threads(threads: impl IntoIterator<Item = Threads>) -> Vec<Ran> {
    run(threads, false)
}

/// As [`run_threads`], of which `engine` can see some of the time alone.
pub fn run_threads_with(engine: Engine, threads: impl IntoIterator<Item = Threads>) -> Vec<Ran> {
    run(threads, engine != Engine::PerfEvent)
}

fn run(threads: impl IntoIterator<Item = Threads>, is_witnessed: bool) -> Vec<Ran> {
    let handles: Vec<_> = threads
        .into_iter()
        .map(|(name, load, time)| {
            let in_thread = name.clone();
            thread::Builder::new()
                .name(name)
                .stack_size(256 * 1024)
                .spawn(move || {
                    let witness = is_witnessed.then(Witness::new);
                    load.work(time);
                    let seen = witness.map(Witness::finish);
                    let cpu = thread_cpu();
                    Ran {
                        name: in_thread,
                        cpu,
                        seen: seen.unwrap_or(cpu),
                    }
                })
                .unwrap()
        })
        .collect();
    handles
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

/// The sum of clocks.
pub fn sum<'r>(ran: impl IntoIterator<Item = &'r Ran>) -> Duration {
    ran.into_iter().map(|ran| ran.cpu).sum()
}

/// How far the time in the stacks of threads is from what it has to be: at least what the
/// profiler's clocks have to have seen, and at most what the threads used.
pub fn deviation<'r>(
    in_stacks: Duration,
    ran: impl IntoIterator<Item = &'r Ran> + Clone,
) -> Duration {
    let seen: Duration = ran.clone().into_iter().map(|ran| ran.seen).sum();
    seen.saturating_sub(in_stacks) + in_stacks.saturating_sub(sum(ran))
}

/// Part by whole.
pub fn ratio(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64()
}

/// Sets a limit of this process, down from what it is.
#[allow(
    clippy::unnecessary_cast,
    reason = "the types differ between C libraries"
)]
pub fn limit(resource: libc::c_int, most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the limit is read by the call.
    assert_eq!(unsafe { libc::setrlimit(resource as _, &limit) }, 0);
}
