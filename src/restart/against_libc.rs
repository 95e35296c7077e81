//! The numbers of the C library's own calls.

use std::ffi::CStr;

use super::function::Function;
use super::number::number_in;
use super::numbers::{Number, Sought};
use crate::process;
use crate::restart::instruction::{Flow, MOST_BYTES, decode};
use crate::sys::maps::Maps;
use crate::sys::memory::copy_from;
use crate::sys::modules::loaded;
use crate::unwind::Snapshot;

/// The numbers of the system calls in a function of the C library's.
fn numbers_in(snapshot: &Snapshot, name: &CStr) -> Vec<Number> {
    // SAFETY: looks a name up.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as u64;
    let Some(range) = snapshot.function_of(address) else {
        return Vec::new();
    };
    let mut function = Function::new(range.clone(), &copy_from);
    let mut numbers = Vec::new();
    let mut place = range.start;
    while place < range.end {
        let mut code = [0; MOST_BYTES];
        let left = code.len().min((range.end - place) as usize);
        copy_from(place, &mut code[..left]).unwrap();
        let instruction = decode(&code[..left]).expect("an instruction");
        if instruction.flow == Flow::Syscall {
            let number = |function| number_in(function, Sought::at_call(place));
            numbers.push(function.as_mut().map_or(Number::Unknown, number));
        }
        place += instruction.length as u64;
    }
    numbers
}

#[test]
fn the_calls_of_the_c_library_have_their_numbers() {
    // Some versions make one by way of another.
    let waits = [
        (c"poll", [libc::SYS_poll, libc::SYS_ppoll]),
        (c"ppoll", [libc::SYS_ppoll; 2]),
        (c"select", [libc::SYS_select, libc::SYS_pselect6]),
        (c"pselect", [libc::SYS_pselect6; 2]),
        (c"epoll_wait", [libc::SYS_epoll_wait, libc::SYS_epoll_pwait]),
        (c"epoll_pwait", [libc::SYS_epoll_pwait; 2]),
        (c"clock_nanosleep", [libc::SYS_clock_nanosleep; 2]),
        (c"recv", [libc::SYS_recvfrom; 2]),
        (c"recvfrom", [libc::SYS_recvfrom; 2]),
        (c"recvmsg", [libc::SYS_recvmsg; 2]),
        (c"recvmmsg", [libc::SYS_recvmmsg; 2]),
        (c"send", [libc::SYS_sendto; 2]),
        (c"sendto", [libc::SYS_sendto; 2]),
        (c"sendmsg", [libc::SYS_sendmsg; 2]),
        (c"sendmmsg", [libc::SYS_sendmmsg; 2]),
        (c"accept", [libc::SYS_accept, libc::SYS_accept4]),
        (c"accept4", [libc::SYS_accept4; 2]),
        (c"read", [libc::SYS_read; 2]),
        (c"readv", [libc::SYS_readv; 2]),
        (c"write", [libc::SYS_write; 2]),
        (c"writev", [libc::SYS_writev; 2]),
        (c"semop", [libc::SYS_semop, libc::SYS_semtimedop]),
        (c"semtimedop", [libc::SYS_semtimedop; 2]),
        (c"msgrcv", [libc::SYS_msgrcv; 2]),
        (c"msgsnd", [libc::SYS_msgsnd; 2]),
        (c"pause", [libc::SYS_pause, libc::SYS_ppoll]),
        (c"sigsuspend", [libc::SYS_rt_sigsuspend; 2]),
        (c"sigtimedwait", [libc::SYS_rt_sigtimedwait; 2]),
    ];
    let maps = Maps::read().unwrap();
    let snapshot = Snapshot::new(1, loaded([].iter(), &maps), &maps, None, &[]);
    let mut found = 0;
    for (name, expected) in waits {
        let numbers = numbers_in(&snapshot, name);
        let is_expected = |number: &Number| match *number {
            Number::Known(number) => expected.contains(&libc::c_long::from(number)),
            _ => false,
        };
        assert!(numbers.iter().all(is_expected), "{name:?}: {numbers:?}");
        found += numbers.len();
    }
    process::figure!("{found} system calls of {} functions", waits.len());
    // Of libraries without unwind data, or with another function that they share, none is seen.
    assert!(found > 0);
}

#[test]
fn the_number_of_syscall_is_what_it_is_called_with() {
    use super::instruction::RDI;
    let maps = Maps::read().unwrap();
    let snapshot = Snapshot::new(1, loaded([].iter(), &maps), &maps, None, &[]);
    let numbers = numbers_in(&snapshot, c"syscall");
    let given = Number::Given(RDI);
    assert!(numbers.iter().all(|number| *number == given), "{numbers:?}");
}
