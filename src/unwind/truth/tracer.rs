//! A forked child that runs a function over and over, an instruction at a time.

use std::io;
use std::ops::Range;

use crate::sys::arch::Registers;

/// The child, stopped between two instructions; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Tracee {
    pid: libc::pid_t,
}

/// Why it has stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// After an instruction, or before the first one of a signal's handler.
    Step,
    /// Before a signal of this number is delivered.
    Signal(i32),
    /// It is gone, with this status.
    Gone(i32),
}

impl Tracee {
    /// Forks a child that stops, and then calls `function` for ever. What the child runs must not
    /// need a lock that another thread may hold.
    pub(crate) fn start(function: extern "C" fn()) -> io::Result<Self> {
        // SAFETY: the child makes system calls and calls the function, and never returns into this
        // code.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => run_for_ever(function),
            _ => {
                let tracee = Self { pid };
                match tracee.wait() {
                    Stop::Signal(libc::SIGSTOP) => {}
                    other => {
                        return Err(io::Error::other(format!(
                            "the child did not stop: {other:?}"
                        )));
                    }
                }
                tracee.request(libc::PTRACE_SETOPTIONS, 0, libc::PTRACE_O_EXITKILL as usize)?;
                Ok(tracee)
            }
        }
    }

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Runs one instruction, or delivers a signal that is not 0.
    pub(crate) fn step(&self, signal: i32) -> io::Result<Stop> {
        self.request(libc::PTRACE_SINGLESTEP, 0, signal as usize)?;
        Ok(self.wait())
    }

    /// Sends it a signal, which it meets at the next step.
    pub(crate) fn send(&self, signal: i32) {
        // SAFETY: its only thread has the id of the process, which is not waited for yet.
        unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.pid, signal) };
    }

    pub(crate) fn registers(&self) -> io::Result<Registers> {
        let mut user = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
        self.request(libc::PTRACE_GETREGS, 0, user.as_mut_ptr() as usize)?;
        // SAFETY: the kernel has filled it in.
        let user = unsafe { user.assume_init() };
        Ok(Registers {
            pc: user.rip,
            general: [
                user.rax, user.rdx, user.rcx, user.rbx, user.rsi, user.rdi, user.rbp, user.rsp,
                user.r8, user.r9, user.r10, user.r11, user.r12, user.r13, user.r14, user.r15,
            ],
        })
    }

    /// The word at an address of the child's.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut word = 0_u64;
        let local = libc::iovec {
            iov_base: (&raw mut word).cast(),
            iov_len: size_of::<u64>(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: size_of::<u64>(),
        };
        // SAFETY: the kernel writes one word, and checks the other address itself.
        let copied = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        (copied == 8).then_some(word)
    }

    /// The mapping that holds an address.
    pub(crate) fn mapping(&self, address: u64) -> Option<Range<u64>> {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        text.lines().find_map(|line| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let start = u64::from_str_radix(start, 16).ok()?;
            let end = u64::from_str_radix(end, 16).ok()?;
            (start..end).contains(&address).then_some(start..end)
        })
    }

    fn request(&self, request: libc::c_uint, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: the requests made here take numbers, or a pointer to memory of the right kind.
        match unsafe { libc::ptrace(request, self.pid, address, data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn wait(&self) -> Stop {
        let mut status = 0;
        // SAFETY: waits for a child of our own.
        let waited = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) };
        if waited != self.pid || !libc::WIFSTOPPED(status) {
            return Stop::Gone(status);
        }
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Stop::Step,
            signal => Stop::Signal(signal),
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // SAFETY: a child of our own that nobody has waited for to its end.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL);
        }
    }
}

/// What the child does.
#[inline(never)]
fn run_for_ever(function: extern "C" fn()) -> ! {
    // SAFETY: system calls with numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == -1 {
            libc::_exit(127);
        }
        libc::raise(libc::SIGSTOP);
    }
    loop {
        function();
    }
}

/// Whether a child may be traced here: a sandbox can refuse it.
pub(crate) fn refusal() -> Option<io::Error> {
    extern "C" fn nothing() {}
    let tried = Tracee::start(nothing).and_then(|tracee| tracee.step(0));
    match tried {
        Ok(Stop::Step) => None,
        Ok(other) => Some(io::Error::other(format!("{other:?} instead of a step"))),
        Err(error) => Some(error),
    }
}
