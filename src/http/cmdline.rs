//! `cmdline`: the program and its arguments.

use http::StatusCode;

use super::family::Family;
use super::reply::{self, Reply};
use crate::sys::brief_file;

/// The arguments, with what each family has between them.
pub(super) fn answer(family: Family) -> Reply {
    // Not of `self`, which has none once the thread that `main` ran on has ended.
    match brief_file::read("/proc/thread-self/cmdline") {
        Ok(arguments) => reply::text(separated(family, arguments)),
        Err(error) => reply::error(
            StatusCode::INTERNAL_SERVER_ERROR,
            format_args!("the command line cannot be read from /proc: {error}"),
        ),
    }
}

/// As gperftools has it, an argument a line. As Go has it, a NUL between two, and none at the end.
fn separated(family: Family, mut arguments: Vec<u8>) -> Vec<u8> {
    match family {
        Family::Gperftools => {
            for byte in arguments.iter_mut().filter(|byte| **byte == 0) {
                *byte = b'\n';
            }
        }
        Family::Go => drop(arguments.pop_if(|byte| *byte == 0)),
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_separated_as_each_family_has_it() {
        let arguments = || b"program\0an argument\0\0".to_vec();
        let lines = separated(Family::Gperftools, arguments());
        assert_eq!(lines, b"program\nan argument\n\n");
        let go = separated(Family::Go, arguments());
        assert_eq!(go, b"program\0an argument\0", "the last one is empty");
    }
}
