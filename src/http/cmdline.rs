//! `cmdline`: the program and its arguments.

use std::fs;

use http::StatusCode;

use super::reply::{self, Reply};

/// The arguments, a line each.
pub(super) fn answer() -> Reply {
    // Not of `self`, which has none once the thread that `main` ran on has ended.
    match fs::read("/proc/thread-self/cmdline") {
        Ok(arguments) => {
            let lines = arguments.iter().map(|&byte| match byte {
                0 => b'\n',
                byte => byte,
            });
            reply::text(lines.collect::<Vec<u8>>())
        }
        Err(error) => reply::error(
            StatusCode::INTERNAL_SERVER_ERROR,
            format_args!("the command line cannot be read from /proc: {error}"),
        ),
    }
}
