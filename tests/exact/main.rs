//! Exact time: what a recording says of CPU time, against clocks that the profiler does not own.
//!
//! Each recording runs in a process of its own. Threads work until their own CPU clock says so, so
//! how loaded the machine is makes a test longer and not wrong. `SIGPROF_SOAK=10` makes the work
//! ten times as long, and does what is left out of a short run. `--nocapture` shows the figures.

#[path = "../support/measured.rs"]
mod measured;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/sandbox.rs"]
mod sandbox;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/work.rs"]
mod work;

mod common;
mod hook;
mod labels;
mod threads;
mod totals;
mod witness;
mod worst;
mod yields;
