//! Registers of an interrupted thread, one file an architecture.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "sigprof supports Linux on x86_64 and aarch64; this target's registers and unwind rules are not known to it"
);

/// What unwinding begins with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Registers {
    /// Program counter: the instruction that was about to run.
    pub(crate) pc: u64,
    /// Stack pointer.
    pub(crate) sp: u64,
    /// Frame pointer: `rbp` or `x29`, whatever the code uses it for.
    pub(crate) fp: u64,
    /// Link register; only on machines that have one.
    #[cfg(target_arch = "aarch64")]
    pub(crate) lr: u64,
}
