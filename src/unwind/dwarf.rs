//! Unwinding by framehop, for what no table has: its rules are evaluated on the way.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use framehop::{
    ExplicitModuleSectionInfo, FrameAddress, MustNotAllocateDuringUnwind, Unwinder as _,
};

use super::StopReason;
use super::frame::Frame;
use super::recent::Recent;
use crate::sys::memory::{StackReader, Window};
use crate::sys::modules::{Module, Section};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as NativeCache, UnwindRegsAarch64 as NativeRegisters,
    UnwinderAarch64 as NativeUnwinder,
};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{
    CacheX86_64 as NativeCache, UnwindRegsX86_64 as NativeRegisters,
    UnwinderX86_64 as NativeUnwinder,
};

/// What one handler at a time needs to unwind.
pub(crate) struct Cache {
    pub(super) evaluation: Evaluation,
    pub(super) recent: Recent,
    /// The number of the range of code that was looked up last.
    pub(super) last_code: usize,
    /// Through which stacks are seen that may go away.
    pub(super) window: Window,
}

/// Room for framehop to evaluate rules in, and those it knows by address.
pub(super) struct Evaluation(NativeCache<MustNotAllocateDuringUnwind>);

impl Cache {
    pub(crate) fn new() -> Self {
        Self {
            evaluation: Evaluation(NativeCache::new_in()),
            recent: Recent::new(),
            last_code: 0,
            window: Window::new(),
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

/// The rules of all modules.
#[derive(Clone, Default)]
pub(super) struct Dwarf(NativeUnwinder<Arc<[u8]>, MustNotAllocateDuringUnwind>);

impl fmt::Debug for Dwarf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dwarf").finish_non_exhaustive()
    }
}

impl Dwarf {
    /// These rules with the modules of `new` instead of those of `old`.
    ///
    /// Only what changed is touched: framehop counts changes in 16 bits to tell stale cache
    /// entries, so the fewer the better.
    pub(super) fn changed<'m>(
        &self,
        old: impl Iterator<Item = &'m Arc<Module>> + Clone,
        new: impl Iterator<Item = &'m Arc<Module>> + Clone,
    ) -> Self {
        let mut unwinder = self.0.clone();
        for module in old.clone() {
            if !new.clone().any(|m| Arc::ptr_eq(m, module)) {
                unwinder.remove_module(module.range.start);
            }
        }
        for module in new {
            if !old.clone().any(|m| Arc::ptr_eq(m, module)) {
                unwinder.add_module(native_module(module));
            }
        }
        Self(unwinder)
    }

    /// Goes to the caller's frame: whether there is one. *Async-signal-safe.*
    pub(super) fn step(
        &self,
        frame: &mut Frame,
        evaluation: &mut Evaluation,
        stack: &mut StackReader<'_>,
    ) -> Result<bool, StopReason> {
        let address = match frame.is_exact {
            true => FrameAddress::InstructionPointer(frame.pc()),
            false => match FrameAddress::from_return_address(frame.pc()) {
                Some(address) => address,
                None => return Ok(false),
            },
        };
        let mut registers = native(frame);
        let mut read = |address| stack.read(address).ok_or(());
        let pc = self
            .0
            .unwind_frame(address, &mut registers, &mut evaluation.0, &mut read)
            .map_err(stop_reason)?;
        let Some(pc) = pc else {
            // The root says so.
            return Ok(false);
        };
        frame.step_to(pc, registers.sp(), frame_pointer(&registers), stack)
    }
}

fn stop_reason(error: framehop::Error) -> StopReason {
    use framehop::Error;
    match error {
        Error::CouldNotReadStack(_) | Error::IntegerOverflow => StopReason::Unreadable,
        Error::FramepointerUnwindingMovedBackwards | Error::DidNotAdvance => {
            StopReason::NotAdvancing
        }
        Error::ReturnAddressIsNull => StopReason::Root,
    }
}

#[cfg(target_arch = "x86_64")]
fn native(frame: &Frame) -> NativeRegisters {
    NativeRegisters::new(frame.pc(), frame.sp(), frame.fp())
}

/// The link register holds the return address, of a caller's frame the one that was followed.
#[cfg(target_arch = "aarch64")]
fn native(frame: &Frame) -> NativeRegisters {
    NativeRegisters::new(frame.link(), frame.sp(), frame.fp())
}

#[cfg(target_arch = "x86_64")]
fn frame_pointer(registers: &NativeRegisters) -> u64 {
    registers.bp()
}

#[cfg(target_arch = "aarch64")]
fn frame_pointer(registers: &NativeRegisters) -> u64 {
    registers.fp()
}

fn native_module(module: &Module) -> framehop::Module<Arc<[u8]>> {
    let range = |section: &Option<Section>| {
        section
            .as_ref()
            .map(|s| s.address..s.address + s.bytes.len() as u64)
    };
    let bytes = |section: &Option<Section>| section.as_ref().map(|s| s.bytes.clone());
    framehop::Module::new(
        module.object.path.clone(),
        module.range.clone(),
        module.range.start,
        ExplicitModuleSectionInfo {
            base_svma: module.range.start.wrapping_sub(module.bias),
            eh_frame_svma: range(&module.eh_frame),
            eh_frame: bytes(&module.eh_frame),
            eh_frame_hdr_svma: range(&module.eh_frame_hdr),
            eh_frame_hdr: bytes(&module.eh_frame_hdr),
            ..Default::default()
        },
    )
}
