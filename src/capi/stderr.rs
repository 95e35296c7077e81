//! What a profile says to whoever runs the program.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use crate::error::Error;
use crate::sys::brief_file::FileId;
use crate::sys::process::file_of_stderr;

/// The file that stands behind stderr, if one does. A program may close the descriptor and open
/// another file by that number: a database, say, which a line of ours would damage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stderr {
    file: Option<FileId>,
}

impl Stderr {
    pub(super) fn now() -> Self {
        Self {
            file: file_of_stderr(),
        }
    }

    /// Writes a line, where stderr is still this file.
    pub(super) fn say(self, line: &str) {
        if self == Self::now() {
            // Where stderr takes nothing, there is nowhere to say so.
            let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The line that says why there is no profile.
pub(super) fn no_profile(error: &Error) -> String {
    format!("sigprof: no profile was written: {error}")
}
