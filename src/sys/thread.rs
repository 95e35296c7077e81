//! This process's threads: ids, names, start times.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

use super::brief_file::{read, read_directory, read_to_string};
use super::clock::Clock;

/// The kernel's id of the calling thread. *Async-signal-safe.*
pub(crate) fn current_tid() -> i32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Whether a thread of this id is in this process.
pub(crate) fn is_thread(tid: i32) -> bool {
    // SAFETY: no signal is sent.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) == 0 }
}

/// The kernel's id of a thread, whether it has run yet or not.
pub(crate) fn tid_of<T>(thread: &JoinHandle<T>) -> io::Result<i32> {
    Clock::of_thread(thread.as_pthread_t()).map(Clock::tid)
}

/// Has the scheduler prefer the calling thread, where the process may ask for that: one that has
/// little to do, and must not wait for its turn among many that have much.
pub(crate) fn prefer_calling_thread() {
    const NICE: libc::c_int = -10;
    // SAFETY: no memory is touched. On Linux 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// The address of the calling thread's control block, which the C library keeps for itself; here it
/// only tells where the thread's stack ends. *Async-signal-safe.*
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the ABI's TLS supplement the first word that the segment register points to is its
    // own address.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Puts the ids of all threads into `tids`, in ascending order.
///
/// `/proc/self/task` is opened for each list: a descriptor that stays open would be handed down to
/// forked children.
pub(crate) fn list(tids: &mut Vec<i32>) -> io::Result<()> {
    let tid = |name: &[u8]| str::from_utf8(name).ok()?.parse().ok();
    read_directory("/proc/self/task", tids, tid)?;
    tids.sort_unstable();
    Ok(())
}

/// Tells without a walk through `/proc` that no thread can have begun: by the id that the kernel
/// gave out last.
#[derive(Debug, Default)]
pub(crate) struct NewestId(Option<u64>);

impl NewestId {
    /// Whether the kernel may have given out an id since the last call, to a thread or process of
    /// the same namespace.
    pub(crate) fn has_moved(&mut self) -> bool {
        // The newest id is the last field (proc_loadavg(5)).
        let newest = read_to_string("/proc/loadavg")
            .ok()
            .and_then(|text| text.trim_end().rsplit(' ').next()?.parse().ok());
        let moved = newest.is_none() || newest != self.0;
        self.0 = newest;
        moved
    }
}

/// What tells a thread from a later one of the same id, and what it is called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Identity {
    /// When it began, in clock ticks since boot.
    pub(crate) start_time: u64,
    /// Its name, 15 bytes at most by the kernel's rule.
    pub(crate) name: String,
    /// The signals that it blocks, of the first 64: signal n is bit n - 1.
    pub(crate) blocked: u64,
    /// It runs, or waits for a CPU to run on; it does not wait for anything else.
    pub(crate) is_running: bool,
    /// It has ended, and is listed for what is not over yet: the first thread of a process, until
    /// the others have ended, too.
    pub(crate) has_ended: bool,
    /// It is one of the kernel's own.
    pub(crate) worker: Option<Worker>,
}

/// A thread that works in the kernel for this process, and runs none of its code. It is in the
/// process's list of threads, and its CPU time is in the process's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Worker {
    /// Of io_uring: it does what would block a caller, or polls a submission queue.
    IoUring,
    /// Another: vhost's, which moves the packets of virtual machines.
    Other,
}

impl Worker {
    /// The frame that all of its time stands in.
    pub(crate) fn frame(self) -> &'static str {
        match self {
            Self::IoUring => "[kernel: io_uring worker]",
            Self::Other => "[kernel: worker]",
        }
    }

    /// By a thread's flags (`PF_` in the kernel's `include/linux/sched.h`), and the signals that it
    /// blocks.
    fn of(flags: u64, blocked: u64) -> Option<Self> {
        /// Since Linux 5.12; before, a CPU of a virtual machine had this flag.
        const PF_IO_WORKER: u64 = 0x10;
        /// Since Linux 6.4; before, a thread that loads modules had this flag.
        const PF_USER_WORKER: u64 = 0x4000;
        // `copy_process` has workers block all signals but these two. A program's thread that has
        // a flag by its older meaning does not block those of faults.
        let signals = [libc::SIGKILL, libc::SIGSTOP];
        let heard: u64 = signals.iter().map(|signal| 1 << (signal - 1)).sum();
        // The file has the first 31.
        let is_worker = blocked & 0x7fff_ffff == 0x7fff_ffff & !heard;
        match is_worker {
            true if flags & PF_IO_WORKER != 0 => Some(Self::IoUring),
            true if flags & PF_USER_WORKER != 0 => Some(Self::Other),
            _ => None,
        }
    }
}

impl Identity {
    /// Whether the thread blocks a signal.
    pub(crate) fn blocks(&self, signal: libc::c_int) -> bool {
        self.blocked >> (signal - 1) & 1 == 1
    }
}

/// The calling thread's name. *Async-signal-safe.*
pub(crate) fn current_name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: writes 16 bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// What the scheduler has done for a thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Scheduled {
    /// How often it got onto a CPU.
    pub(crate) slices: u64,
    /// How long it waited for one when it could have run, in nanoseconds.
    pub(crate) delay_ns: u64,
}

/// Reads what the scheduler has done for a thread; `None` where it is gone, or the kernel does not
/// count it (CONFIG_SCHED_INFO).
pub(crate) fn scheduled(tid: i32) -> Option<Scheduled> {
    let path = format!("/proc/self/task/{tid}/schedstat");
    let text = read_to_string(&path).ok()?;
    // Time on a CPU, time waiting for one, and then the number
    // (Documentation/scheduler/sched-stats.rst).
    let mut fields = text.split_ascii_whitespace().skip(1);
    let delay_ns = fields.next()?.parse().ok()?;
    let slices = fields.next()?.parse().ok()?;
    // A kernel that is built to count, and told not to, says 0 of a thread that has run.
    (slices > 0).then_some(Scheduled { slices, delay_ns })
}

/// Reads a thread's identity; `None` where it is gone.
pub(crate) fn identity(tid: i32) -> Option<Identity> {
    let stat = read(&format!("/proc/self/task/{tid}/stat")).ok()?;
    // `id (name) state …`: the name may hold spaces and parentheses itself, so it ends at the last
    // one.
    let name_start = stat.iter().position(|&b| b == b'(')? + 1;
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    // Fields are counted from 1; the one after the name is the third: the state. The flags are the
    // ninth, the start time is the 22nd, the signals that are blocked are the 32nd
    // (proc_pid_stat(5)).
    let mut fields = stat.get(name_end + 2..)?.split(|&b| b == b' ');
    let state = fields.next()?;
    let flags = fields.nth(9 - 4)?;
    let start_time = fields.nth(22 - 10)?;
    let blocked = fields.nth(32 - 23)?;
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u64>().ok();
    let blocked = number(blocked)?;
    Some(Identity {
        start_time: number(start_time)?,
        name: String::from_utf8_lossy(stat.get(name_start..name_end)?).into_owned(),
        blocked,
        is_running: state == b"R",
        has_ended: matches!(state, b"Z" | b"X"),
        worker: Worker::of(number(flags)?, blocked),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_threads_with_names_and_start_times() {
        let mut newest = NewestId::default();
        newest.has_moved();
        let (tell_tid, tid) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("a ) thread".into())
            .spawn(move || {
                tell_tid.send(current_tid()).unwrap();
                let _ = ended.recv();
            })
            .unwrap();
        let tid = tid.recv().unwrap();
        assert_eq!(tid_of(&thread).unwrap(), tid);
        assert!(newest.has_moved());
        let mut tids = Vec::new();
        list(&mut tids).unwrap();
        assert!(tids.contains(&tid) && tids.contains(&current_tid()));
        assert!(tids.is_sorted());
        let known = identity(tid).unwrap();
        assert_eq!(known.name, "a ) thread");
        assert!(known.start_time > 0);
        assert!(!known.blocks(libc::SIGPROF));
        assert_eq!(known.worker, None);
        drop(end);
        thread.join().unwrap();
        while tids.contains(&tid) {
            list(&mut tids).unwrap();
        }
        assert_eq!(identity(tid), None);
    }

    #[test]
    fn workers_of_the_kernels_are_told_by_their_flags_and_what_they_block() {
        // As Linux 6.18 shows them: of io_uring, and of vhost.
        let blocked = 0x7ffb_feff;
        assert_eq!(Worker::of(0x40_4050, blocked), Some(Worker::IoUring));
        assert_eq!(Worker::of(0x40_4040, blocked), Some(Worker::Other));
        // A program's thread that blocks all that it can, which leaves the C library's two.
        assert_eq!(Worker::of(0x40_0040, blocked), None);
        // A CPU of a virtual machine before Linux 5.12.
        assert_eq!(Worker::of(0x40_0050, 0), None);
        assert_eq!(Worker::of(0x40_0050, 0x7ffb_feff & !(1 << 10)), None);
    }
}
