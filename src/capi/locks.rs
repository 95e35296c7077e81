//! `CONTENTIONPROFILE` for any program that is linked with the library, or has it preloaded: its
//! locks are watched from before `main` to the exit.
#![forbid(unsafe_code)]

use super::session::no_memory;
use super::stderr::Stderr;
use crate::contention::{self, Guard};
use crate::error::Result;
use crate::sync::Mutex;
use crate::sys::per_process::PerProcess;

/// What the environment has asked for. A forked child is not watched.
static WATCHED: PerProcess<Mutex<Option<Watched>>> = PerProcess::new();

#[derive(Debug)]
struct Watched {
    guard: Guard,
    stderr: Stderr,
}

/// Watches the process's locks if the environment asks for that.
///
/// # Errors
///
/// Those of [`contention::from_env`].
pub(super) fn start_if_asked() -> Result<()> {
    let Some(guard) = contention::from_env()? else {
        return Ok(());
    };
    let watched = WATCHED.get_or_make(Mutex::default).map_err(no_memory)?;
    *watched.lock() = Some(Watched {
        guard: guard.left_to_caller(),
        stderr: Stderr::now(),
    });
    Ok(())
}

/// Ends the watch, if there is one, and writes its files. What `remark` says of the process then is
/// said on stderr.
pub(super) fn finish(remark: Option<fn() -> Option<String>>) {
    let Some(Watched { guard, stderr }) = WATCHED.get().and_then(|watched| watched.lock().take())
    else {
        return;
    };
    let remark = remark.and_then(|remark| remark());
    if let Err(error) = guard.finish() {
        stderr.say(&format!(
            "sigprof: no contention profile was written: {error}"
        ));
    }
    if let Some(remark) = remark {
        stderr.say(&format!("sigprof: {remark}"));
    }
}
