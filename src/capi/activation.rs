//! `CPUPROFILE` for any program that is linked with the library, or has it preloaded: recorded from
//! before `main` to the exit.

use super::{guarded, say_if_failed, session, toggle};
use crate::env::{self, Asked};
use crate::error::Result;
use crate::sys::modules::is_in_the_executable;
use crate::sys::process::{at_exit, has_one_thread};

/// Called by the loader before `main`, or within `dlopen`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    say_if_failed(guarded(start_if_asked));
}

/// Starts what the environment asks for; it ends at the exit.
fn start_if_asked() -> Result<()> {
    let Some(asked) = env::asked()? else {
        return Ok(());
    };
    // A program in Rust that has this crate inside asks for it by `from_env`.
    if is_in_the_executable(at_load as *const () as usize) {
        return Ok(());
    }
    give_children_files_of_their_own(&asked);
    match asked.toggle {
        Some(signal) => toggle::toggle_by(signal, asked)?,
        None => session::start(&asked.path, asked.profiler)?,
    }
    at_exit(write_at_exit);
    Ok(())
}

/// A child that executes a program inherits the environment, and would write to the same file.
fn give_children_files_of_their_own(asked: &Asked) {
    // A thread could be reading the environment: its children then have the same file.
    if asked.has_pid || !has_one_thread() {
        return;
    }
    // SAFETY: there is no other thread.
    unsafe { std::env::set_var("CPUPROFILE_USE_PID", "1") };
}

extern "C" fn write_at_exit() {
    // A forked child has no session.
    say_if_failed(guarded(|| {
        session::stop();
        Ok(())
    }));
}
