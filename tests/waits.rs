//! System calls that wait, while the threads that make them are sampled.
#![cfg(target_arch = "x86_64")]

#[path = "support/process.rs"]
mod process;
#[path = "support/work.rs"]
mod work;

use std::io;
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use process::{child, figure, skip, soak, succeed, succeed_and_show};
use sigprof::Error;
use sigprof::cpu::{Clock, Engine, Profiler, Recording};
use work::burn;

const WAIT: Duration = Duration::from_millis(2);

fn start(clock: Clock, engine: Engine, frequency_hz: u32) -> Result<Recording, Error> {
    let profiler = Profiler::new().clock(clock).engine(engine);
    #[cfg(feature = "symbolize")]
    let profiler = profiler.symbolize(false);
    profiler.frequency_hz(frequency_hz).start()
}

/// One kind of wait, which lasts for [`WAIT`]. A negative number is a failure that `errno` has.
struct Kind {
    name: &'static str,
    wait: Box<dyn FnMut() -> i64 + Send>,
}

impl Kind {
    fn new<R: Into<i64>>(name: &'static str, mut wait: impl FnMut() -> R + Send + 'static) -> Self {
        let wait = Box::new(move || wait().into());
        Self { name, wait }
    }

    /// Waits once; whether it was interrupted.
    fn is_interrupted(&mut self) -> bool {
        if (self.wait)() >= 0 {
            return false;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => true,
            Some(libc::EAGAIN | libc::ETIMEDOUT) => false,
            _ => panic!("{}: {error}", self.name),
        }
    }
}

/// An error number as the other calls say it.
fn failed(errno: libc::c_int) -> i64 {
    if errno == 0 {
        return 0;
    }
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

fn timeval(time: Duration) -> libc::timeval {
    libc::timeval {
        tv_sec: time.as_secs() as i64,
        tv_usec: i64::from(time.subsec_micros()),
    }
}

fn now(clock: libc::clockid_t) -> Duration {
    let mut time = timespec(Duration::ZERO);
    // SAFETY: the time is written.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A pair of sockets, the first of which waits no longer than [`WAIT`].
fn sockets() -> [libc::c_int; 2] {
    let mut pair = [0; 2];
    // SAFETY: makes two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) };
    assert_eq!(made, 0);
    limit(pair[0]);
    pair
}

fn limit(socket: libc::c_int) {
    let time = timeval(WAIT);
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let size = size_of_val(&time) as libc::socklen_t;
        // SAFETY: the option's value is a time.
        let set = unsafe {
            libc::setsockopt(
                socket,
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                size,
            )
        };
        assert_eq!(set, 0);
    }
}

/// A socket that has no room to send more.
fn full_socket() -> libc::c_int {
    let [socket, _other] = sockets();
    let chunk = [0_u8; 4096];
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: sends what the chunk has.
    while unsafe { libc::send(socket, chunk.as_ptr().cast(), chunk.len(), flags) } > 0 {}
    socket
}

/// A socket that nobody connects to.
fn listening_socket() -> libc::c_int {
    let address = libc::sockaddr {
        sa_family: libc::AF_UNIX as libc::sa_family_t,
        sa_data: [0; 14],
    };
    let size = size_of::<libc::sa_family_t>() as libc::socklen_t;
    // SAFETY: makes a socket and binds it to a name that the kernel chooses.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        assert_eq!(libc::bind(socket, &address, size), 0);
        assert_eq!(libc::listen(socket, 1), 0);
        socket
    };
    limit(socket);
    socket
}

/// A set of System V's semaphores, which would stay without its process.
struct Semaphores(libc::c_int);

impl Drop for Semaphores {
    fn drop(&mut self) {
        // SAFETY: removes the set.
        unsafe { libc::semctl(self.0, 0, libc::IPC_RMID) };
    }
}

/// All kinds.
fn kinds() -> Vec<Kind> {
    let millis = WAIT.as_millis() as libc::c_int;
    let [socket, _other] = sockets();
    let (full, listens) = (full_socket(), listening_socket());
    // SAFETY: the calls read and write what lies on the stacks of their closures.
    unsafe {
        let epoll = libc::epoll_create1(0);
        let event = || libc::epoll_event { events: 0, u64: 0 };
        let semaphores = Semaphores(libc::semget(libc::IPC_PRIVATE, 1, 0o600));
        let mut usr2: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut usr2);
        libc::sigaddset(&mut usr2, libc::SIGUSR2);
        let word: &'static u32 = Box::leak(Box::new(0));
        vec![
            Kind::new("poll", move || libc::poll(null_mut(), 0, millis)),
            Kind::new("ppoll", || {
                libc::ppoll(null_mut(), 0, &timespec(WAIT), null())
            }),
            Kind::new("select", || {
                let none = null_mut;
                libc::select(0, none(), none(), none(), &mut timeval(WAIT))
            }),
            Kind::new("pselect", || {
                let none = null_mut;
                libc::pselect(0, none(), none(), none(), &timespec(WAIT), null())
            }),
            Kind::new("epoll_wait", move || {
                libc::epoll_wait(epoll, &mut event(), 1, millis)
            }),
            Kind::new("epoll_pwait", move || {
                libc::epoll_pwait(epoll, &mut event(), 1, millis, null())
            }),
            Kind::new("nanosleep", || libc::nanosleep(&timespec(WAIT), null_mut())),
            Kind::new("usleep", || libc::usleep(WAIT.as_micros() as u32)),
            Kind::new("clock_nanosleep", || {
                let clock = libc::CLOCK_MONOTONIC;
                failed(libc::clock_nanosleep(clock, 0, &timespec(WAIT), null_mut()))
            }),
            Kind::new("clock_nanosleep until", || {
                let clock = libc::CLOCK_MONOTONIC;
                let end = timespec(now(clock) + WAIT);
                failed(libc::clock_nanosleep(
                    clock,
                    libc::TIMER_ABSTIME,
                    &end,
                    null_mut(),
                ))
            }),
            Kind::new("recv", move || {
                libc::recv(socket, [0_u8].as_mut_ptr().cast(), 1, 0) as i64
            }),
            Kind::new("read of a socket", move || {
                libc::read(socket, [0_u8].as_mut_ptr().cast(), 1) as i64
            }),
            Kind::new("recvmsg", move || {
                let mut byte = 0_u8;
                let mut part = libc::iovec {
                    iov_base: (&raw mut byte).cast(),
                    iov_len: 1,
                };
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = &mut part;
                message.msg_iovlen = 1;
                libc::recvmsg(socket, &mut message, 0) as i64
            }),
            Kind::new("send", move || {
                let chunk = [0_u8; 4096];
                libc::send(full, chunk.as_ptr().cast(), chunk.len(), 0) as i64
            }),
            Kind::new("accept", move || {
                libc::accept(listens, null_mut(), null_mut())
            }),
            Kind::new("sem_timedwait", || {
                let mut semaphore: libc::sem_t = std::mem::zeroed();
                libc::sem_init(&mut semaphore, 0, 0);
                let end = timespec(now(libc::CLOCK_REALTIME) + WAIT);
                libc::sem_timedwait(&mut semaphore, &end)
            }),
            Kind::new("futex", move || {
                let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, word, operation, 0, &timespec(WAIT))
            }),
            Kind::new("semtimedop", move || {
                let mut take = libc::sembuf {
                    sem_num: 0,
                    sem_op: -1,
                    sem_flg: 0,
                };
                let (take, one) = (&raw mut take, 1_usize);
                let Semaphores(id) = &semaphores;
                libc::syscall(libc::SYS_semtimedop, *id, take, one, &timespec(WAIT))
            }),
            Kind::new("sigtimedwait", move || {
                libc::sigtimedwait(&usr2, null_mut(), &timespec(WAIT))
            }),
        ]
    }
}

/// What became of the waits of one kind.
#[derive(Debug)]
struct Waited {
    name: &'static str,
    /// Those that failed with `EINTR`.
    interrupted: u32,
}

/// Has each kind waited for `times` times, on a thread of its own that works as well.
fn wait(times: u32) -> Vec<Waited> {
    let threads: Vec<_> = kinds()
        .into_iter()
        .map(|mut kind| {
            thread::spawn(move || {
                let mut interrupted = 0;
                for _ in 0..times {
                    burn(Duration::from_micros(200));
                    interrupted += u32::from(kind.is_interrupted());
                }
                Waited {
                    name: kind.name,
                    interrupted,
                }
            })
        })
        .collect();
    let threads = threads.into_iter();
    threads.map(|thread| thread.join().unwrap()).collect()
}

/// By which a recording samples, and how often.
const CLOCKS: [(&str, Clock, Engine, u32); 6] = [
    ("wall", Clock::Wall, Engine::Auto, 100),
    ("wall", Clock::Wall, Engine::Auto, 1000),
    ("perf events", Clock::Cpu, Engine::PerfEvent, 1000),
    ("perf events", Clock::Cpu, Engine::PerfEvent, 10_000),
    ("timers", Clock::Cpu, Engine::ThreadTimer, 1000),
    (
        "timer of the process",
        Clock::Cpu,
        Engine::ProcessTimer,
        1000,
    ),
];

/// Kinds that return `EINTR` where the kernel wakes a thread for a signal that another one takes,
/// as it may for the timer of the process. The others go on waiting.
const FAIL_WITHOUT_SIGNAL: [&str; 9] = [
    "epoll_wait",
    "epoll_pwait",
    "recv",
    "read of a socket",
    "recvmsg",
    "send",
    "accept",
    "semtimedop",
    "sigtimedwait",
];

/// How often each kind waits under each of them.
const WAITS: f64 = 150.0;

#[test]
fn waits_go_on_while_they_are_sampled() {
    for i in 0..CLOCKS.len() {
        let mut child = child("child_that_waits");
        succeed_and_show(child.env("SIGPROF_CLOCKS_INDEX", i.to_string()));
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_waits() {
    let index = std::env::var("SIGPROF_CLOCKS_INDEX").unwrap();
    let (name, clock, engine, frequency_hz) = CLOCKS[index.parse::<usize>().unwrap()];
    let recording = match start(clock, engine, frequency_hz) {
        Ok(recording) => recording,
        Err(error) => return skip(&error.to_string()),
    };
    let waits = wait((WAITS * soak()) as u32);
    let stats = recording.stats();
    figure!(
        "{name} at {frequency_hz} Hz: {} calls of {} waits began again, {} did not",
        stats.calls_restarted,
        waits.len() as u32 * (WAITS * soak()) as u32,
        stats.calls_interrupted
    );
    for Waited { name, interrupted } in waits {
        if engine == Engine::ProcessTimer && FAIL_WITHOUT_SIGNAL.contains(&name) {
            figure!("{name} returned EINTR {interrupted} times");
            continue;
        }
        assert_eq!(interrupted, 0, "{name} returned EINTR\n{stats}");
    }
    if clock == Clock::Wall {
        assert!(stats.calls_restarted > 20, "{stats}");
    }
    recording.stop().unwrap();
}

/// A handler of the program's own, for signals that the tests send.
mod handler {
    use std::cell::Cell;
    use std::ptr::null_mut;
    use std::time::Duration;

    use super::burn;

    thread_local! {
        /// How often the handler has run on the thread where a system call was about to return
        /// `EINTR`.
        static INTERRUPTED: Cell<u32> = const { Cell::new(0) };
    }

    /// How many calls of the calling thread it has interrupted.
    pub fn interrupted() -> u32 {
        INTERRUPTED.get()
    }

    /// Works for long enough that ticks come meanwhile.
    extern "C" fn handle(_: libc::c_int, _: *const libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes a context; errno is the thread's own.
        let (registers, errno) = unsafe {
            let context = &*context.cast::<libc::ucontext_t>();
            (context.uc_mcontext.gregs, *libc::__errno_location())
        };
        burn(Duration::from_micros(300));
        let register = |index: libc::c_int| registers[index as usize];
        let before = (register(libc::REG_RIP) - 2) as *const [u8; 2];
        // SAFETY: code follows upon code.
        let is_call = register(libc::REG_RAX) == -i64::from(libc::EINTR)
            && unsafe { *before } == [0x0f, 0x05];
        INTERRUPTED.set(INTERRUPTED.get() + u32::from(is_call));
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }

    /// Handles a signal. All others are blocked meanwhile, so that those come when it returns.
    pub fn install(signal: libc::c_int, flags: libc::c_int) {
        // SAFETY: the handler touches what is the thread's own.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
            libc::sigfillset(&mut action.sa_mask);
            assert_eq!(libc::sigaction(signal, &action, null_mut()), 0);
        }
    }
}

/// Overwrites what lies below the caller's frame, as programs do between waits.
#[inline(never)]
fn work_on_the_stack() {
    std::hint::black_box([0_u8; 16 << 10]);
}

/// What became of waits that signals of the program's own interrupted as well.
#[derive(Debug)]
struct Raced {
    name: &'static str,
    /// Those that the program's handler interrupted.
    by_handler: u32,
    /// Of them, those that did not fail with `EINTR`.
    lost: u32,
    /// Those that failed with `EINTR` where no handler of the program's has run.
    added: u32,
}

/// Has each kind waited for until the program's handler has interrupted it `times` times.
fn race(times: u32) -> Vec<Raced> {
    let (send, threads) = mpsc::channel();
    let waiting: Vec<_> = kinds()
        .into_iter()
        .map(|mut kind| {
            let send = send.clone();
            thread::spawn(move || {
                // SAFETY: asks for the thread itself, which lives until it is joined.
                send.send(unsafe { libc::pthread_self() }).unwrap();
                let name = kind.name;
                let (mut by_handler, mut lost, mut added) = (0, 0, 0);
                while by_handler < times {
                    work_on_the_stack();
                    let before = handler::interrupted();
                    let is_interrupted = kind.is_interrupted();
                    let is_by_handler = handler::interrupted() != before;
                    by_handler += u32::from(is_by_handler);
                    lost += u32::from(is_by_handler && !is_interrupted);
                    added += u32::from(!is_by_handler && is_interrupted);
                }
                Raced {
                    name,
                    by_handler,
                    lost,
                    added,
                }
            })
        })
        .collect();
    let threads: Vec<_> = threads.iter().take(waiting.len()).collect();
    while !waiting.iter().all(|waiting| waiting.is_finished()) {
        for (&thread, waiting) in threads.iter().zip(&waiting) {
            thread::sleep(Duration::from_micros(200));
            if !waiting.is_finished() {
                // SAFETY: the thread has not been joined.
                unsafe { libc::pthread_kill(thread, libc::SIGALRM) };
            }
        }
        for signal in [libc::SIGTERM, libc::SIGCHLD] {
            // SAFETY: the program handles both.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
    }
    let waiting = waiting.into_iter();
    waiting.map(|waiting| waiting.join().unwrap()).collect()
}

/// How often each kind is to be interrupted by the program's own signals under each clock.
const RACES: f64 = 20.0;

/// A call that a handler of the program's has interrupted returns `EINTR` always.
#[test]
fn signals_of_the_programs_own_interrupt_its_waits() {
    for i in 0..CLOCKS.len() {
        let mut child = child("child_that_races");
        succeed_and_show(child.env("SIGPROF_CLOCKS_INDEX", i.to_string()));
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_races() {
    for signal in [libc::SIGALRM, libc::SIGTERM, libc::SIGCHLD] {
        handler::install(signal, 0);
    }
    let index = std::env::var("SIGPROF_CLOCKS_INDEX").unwrap();
    let (name, clock, engine, frequency_hz) = CLOCKS[index.parse::<usize>().unwrap()];
    let recording = match start(clock, engine, frequency_hz) {
        Ok(recording) => recording,
        Err(error) => return skip(&error.to_string()),
    };
    let raced = race((RACES * soak()) as u32);
    let stats = recording.stats();
    let sum = |count: fn(&Raced) -> u32| raced.iter().map(count).sum::<u32>();
    figure!(
        "{name} at {frequency_hz} Hz: the program's handler interrupted {} calls; {} others \
         returned EINTR, {} began again",
        sum(|raced| raced.by_handler),
        sum(|raced| raced.added),
        stats.calls_restarted
    );
    for raced in &raced {
        assert_eq!(raced.lost, 0, "{}: {raced:?}\n{stats}", raced.name);
    }
    if clock == Clock::Wall {
        assert!(stats.calls_restarted > 0, "{stats}");
    }
    recording.stop().unwrap();
}

/// Where the kernel leaves no trace of a handler of the program's that has run, since that may run
/// on the stack of sigprof's own, calls are left to it.
#[test]
fn calls_of_programs_with_handlers_on_alternate_stacks_are_left_alone() {
    succeed(&mut child("child_with_a_handler"));
}

#[test]
#[ignore = "a child process"]
fn child_with_a_handler() {
    handler::install(libc::SIGUSR1, libc::SA_ONSTACK);
    let recording = start(Clock::Wall, Engine::Auto, 1000).expect("nothing else records");
    wait((100.0 * soak()) as u32);
    let stats = recording.stats();
    assert_eq!(stats.calls_restarted, 0, "{stats}");
    assert!(stats.calls_interrupted > 0, "{stats}");

    // Threads that block the signal cannot take it.
    // SAFETY: a signal set is plain data; the calls fill and read it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut());
    }
    wait((100.0 * soak()) as u32);
    let stats = recording.stop().map(|_| recording.stats()).unwrap();
    assert!(stats.calls_restarted > 20, "{stats}");
}
