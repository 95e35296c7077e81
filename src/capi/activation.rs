//! `CPUPROFILE` and `CONTENTIONPROFILE` for any program that is linked with the library, or has it
//! preloaded: recorded from before `main` to the exit.

#[cfg(feature = "contention")]
use super::locks;
use super::{guarded, say_if_failed, session, toggle};
use crate::env::{self, Asked};
use crate::error::Result;
use crate::sys::modules::is_in_the_executable;
use crate::sys::process::{at_exit, forked_children, tell_children};

/// Called by the loader before `main`, or within `dlopen`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    // Also of what a program starts by itself and does not stop. Asked for now, so that it comes
    // when all that the program has asked for is over.
    at_exit(write_at_exit);
    // A program in Rust that has this crate inside asks for it by `from_env`.
    if is_in_the_executable(at_load as *const () as usize) {
        return;
    }
    say_if_failed(guarded(start_if_asked));
    #[cfg(feature = "contention")]
    say_if_failed(guarded(locks::start_if_asked));
}

/// Starts the CPU profile that the environment asks for; it ends at the exit.
fn start_if_asked() -> Result<()> {
    let Some(asked) = env::asked()? else {
        return Ok(());
    };
    give_children_files_of_their_own(&asked);
    match asked.toggle {
        Some(signal) => toggle::toggle_by(signal, asked)?,
        None => session::start(&asked.path, asked.profiler)?,
    }
    Ok(())
}

/// A child that executes a program inherits the environment, and would write to the same file.
fn give_children_files_of_their_own(asked: &Asked) {
    // Where another thread could be changing the environment, its children have the same file.
    if !asked.has_pid {
        tell_children(c"CPUPROFILE_USE_PID=1");
    }
}

extern "C" fn write_at_exit() {
    // A forked child has no session, and is not watched.
    say_if_failed(guarded(|| {
        let was_recorded = session::stop(Some(unprofiled_children));
        #[cfg(feature = "contention")]
        locks::finish((!was_recorded).then_some(unprofiled_children));
        #[cfg(not(feature = "contention"))]
        let _ = was_recorded;
        Ok(())
    }));
}

/// A sentence on the children that go on where this process ends, as those of servers that go on in
/// the background: what they do is in no profile.
fn unprofiled_children() -> Option<String> {
    /// More would be a long line.
    const MOST: usize = 8;
    let children = forked_children();
    let ids: Vec<String> = children.iter().take(MOST).map(u32::to_string).collect();
    match children.len() {
        0 => None,
        1 => Some(format!(
            "process {}, forked from this one, goes on without a profile",
            ids[0]
        )),
        n => Some(format!(
            "{n} processes forked from this one go on without a profile: {}{}",
            ids.join(", "),
            if n > MOST { ", …" } else { "" }
        )),
    }
}
