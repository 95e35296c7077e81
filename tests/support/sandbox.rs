//! What the kernel refuses the program that asks for it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

/// Where a filter finds a system call's number, and its arguments' lower halves.
const NUMBER: u32 = 0;
const ARGUMENTS: [u32; 3] = [16, 24, 32];

const REFUSAL: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

const ON_ALL_THREADS: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_TSYNC;

/// Lets the kernel answer these system calls with `EPERM`, on all threads and for good.
pub fn refuse(calls: &[libc::c_long]) {
    filter(
        &numbers(calls),
        REFUSAL,
        libc::SECCOMP_RET_ALLOW,
        ON_ALL_THREADS,
    );
}

/// Lets the kernel refuse, on all threads, to have one page of memory made writable: what a module
/// that is sealed does.
pub fn refuse_to_unprotect_pages() {
    // SAFETY: asks for a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u32;
    let rule = vec![
        (NUMBER, libc::SYS_mprotect as u32),
        (ARGUMENTS[1], page),
        (ARGUMENTS[2], (libc::PROT_READ | libc::PROT_WRITE) as u32),
    ];
    filter(&[rule], REFUSAL, libc::SECCOMP_RET_ALLOW, ON_ALL_THREADS);
}

/// Lets the kernel answer `call`, on all threads, with a SIGSYS.
pub fn trap(call: libc::c_long) {
    let other = libc::SECCOMP_RET_ALLOW;
    filter(
        &numbers(&[call]),
        libc::SECCOMP_RET_TRAP,
        other,
        ON_ALL_THREADS,
    );
}

/// Lets the kernel kill the process where the calling thread makes any other system call.
pub fn allow(calls: &[libc::c_long]) {
    let other = libc::SECCOMP_RET_KILL_PROCESS;
    filter(&numbers(calls), libc::SECCOMP_RET_ALLOW, other, 0);
}

/// What all of these words are, by where they are.
type Rule = Vec<(u32, u32)>;

fn numbers(calls: &[libc::c_long]) -> Vec<Rule> {
    let rule = |&call: &libc::c_long| vec![(NUMBER, call as u32)];
    calls.iter().map(rule).collect()
}

/// The answer to system calls that a rule is about, and to all others.
fn filter(rules: &[Rule], answer: u32, other: u32, flags: libc::c_ulong) {
    let (load_word, jump_if_equal, give) = (0x20, 0x15, 0x06);
    let statement = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut filter = Vec::new();
    for rule in rules {
        for (nth, &(place, value)) in rule.iter().enumerate() {
            let to_next_rule = 2 * (rule.len() - nth) - 1;
            filter.push(statement(load_word, 0, place));
            filter.push(statement(jump_if_equal, to_next_rule as u8, value));
        }
        filter.push(statement(give, 0, answer));
    }
    filter.push(statement(give, 0, other));
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the program outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program),
            0
        );
    }
}
