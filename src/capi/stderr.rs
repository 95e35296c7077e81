//! What a profile says to whoever runs the program.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use crate::error::Error;

/// The file that stands behind stderr, if one does. A program may close the descriptor and open
/// another file by that number: a database, say, which a line of ours would damage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stderr {
    /// Device and inode.
    file: Option<(u64, u64)>,
}

impl Stderr {
    pub(super) fn now() -> Self {
        let descriptor = io::stderr().as_fd().try_clone_to_owned();
        let metadata = descriptor.and_then(|descriptor| File::from(descriptor).metadata());
        Self {
            file: metadata.ok().map(|file| (file.dev(), file.ino())),
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
