//! Unwinding by framehop: the rules of `.eh_frame`, evaluated on the way and remembered by address.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::sync::Arc;

use framehop::{
    ExplicitModuleSectionInfo, FrameAddress, MustNotAllocateDuringUnwind, Unwinder as _,
};

use super::StopReason;
use super::memo::{Memo, Reads, State};
use crate::sys::arch::Registers;
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
    pub(super) steps: Steps,
    /// Through which stacks are seen that may go away.
    pub(super) window: Window,
}

/// Rules by address, room to evaluate new ones in, and the last steps.
pub(super) struct Steps {
    rules: NativeCache<MustNotAllocateDuringUnwind>,
    memo: Memo,
}

impl Cache {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            steps: Steps {
                rules: NativeCache::new_in(),
                memo: Memo::new()?,
            },
            window: Window::new(),
        })
    }

    /// Gives back the memory that can be given back while nothing is recorded.
    pub(crate) fn release_memory(&mut self) {
        self.steps.memo.release_memory();
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
    /// Only what changed is touched: framehop counts changes in 16 bits to tell stale cache entries, so the fewer the better.
    pub(super) fn changed(&self, old: &[Arc<Module>], new: &[Arc<Module>]) -> Self {
        let mut unwinder = self.0.clone();
        let is_in = |modules: &[Arc<Module>], module: &Arc<Module>| {
            modules.iter().any(|m| Arc::ptr_eq(m, module))
        };
        for module in old.iter().filter(|module| !is_in(new, module)) {
            unwinder.remove_module(module.range.start);
        }
        for module in new.iter().filter(|module| !is_in(old, module)) {
            unwinder.add_module(native_module(module));
        }
        Self(unwinder)
    }

    /// Writes a call chain into `frames`. `is_code` says whether an address lies in a module's code; `epoch` is that of the
    /// modules.
    ///
    /// *Async-signal-safe.*
    pub(super) fn unwind(
        &self,
        registers: Registers,
        steps: &mut Steps,
        epoch: u32,
        stack: &mut StackReader<'_>,
        mut is_code: impl FnMut(u64) -> bool,
        frames: &mut [u64],
    ) -> (usize, StopReason) {
        let Some((leaf, callers)) = frames.split_first_mut() else {
            return (0, StopReason::Depth);
        };
        *leaf = registers.pc;
        let mut depth = 1;
        let first = FrameAddress::InstructionPointer(registers.pc);
        let mut step = self.step(
            first,
            native(registers),
            steps,
            stack,
            &mut Reads::default(),
        );
        for frame in callers {
            let state = match step {
                Ok(Some(state)) => state,
                Ok(None) => return (depth, StopReason::Root),
                Err(reason) => return (depth, reason),
            };
            if !is_code(state.pc) {
                return (depth, StopReason::NoUnwindData);
            }
            *frame = state.pc;
            depth += 1;
            step = match steps.memo.recall(state, epoch, stack) {
                Some(next) => Ok(Some(next)),
                None => self.step_from_caller(state, steps, epoch, stack),
            };
        }
        // As deep as asked for; the step beyond tells whether that was the root.
        match step {
            Ok(None) => (depth, StopReason::Root),
            _ => (depth, StopReason::Depth),
        }
    }

    /// A step from a caller's frame, which is kept.
    fn step_from_caller(
        &self,
        from: State,
        steps: &mut Steps,
        epoch: u32,
        stack: &mut StackReader<'_>,
    ) -> Result<Option<State>, StopReason> {
        let address = FrameAddress::from_return_address(from.pc).ok_or(StopReason::Root)?;
        let mut reads = Reads::default();
        let to = self.step(address, native_caller(from), steps, stack, &mut reads)?;
        if let Some(to) = to {
            steps.memo.keep(from, to, &reads, epoch);
        }
        Ok(to)
    }

    /// A step by the rules; `None` at the root.
    fn step(
        &self,
        address: FrameAddress,
        mut registers: NativeRegisters,
        steps: &mut Steps,
        stack: &mut StackReader<'_>,
        reads: &mut Reads,
    ) -> Result<Option<State>, StopReason> {
        let sp = registers.sp();
        let mut read = |address| {
            let value = stack.read(address).ok_or(())?;
            reads.push(address, value);
            Ok(value)
        };
        let pc = self
            .0
            .unwind_frame(address, &mut registers, &mut steps.rules, &mut read)
            .map_err(stop_reason)?;
        let Some(pc) = pc.filter(|&pc| pc != 0) else {
            // The root says so, or it has no return address, as where a thread's start code says no more.
            return Ok(None);
        };
        let to = State {
            pc,
            sp: registers.sp(),
            fp: frame_pointer(&registers),
        };
        // A caller's frame lies above its callee's, and on the same stack. (A leaf that keeps its return address in a
        // register has no frame.)
        let is_above = match address {
            FrameAddress::InstructionPointer(_) => to.sp >= sp,
            FrameAddress::ReturnAddress(_) => to.sp > sp,
        };
        if !is_above || to.sp > stack.limit() {
            return Err(StopReason::NotAdvancing);
        }
        Ok(Some(to))
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
fn native(registers: Registers) -> NativeRegisters {
    NativeRegisters::new(registers.pc, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: Registers) -> NativeRegisters {
    NativeRegisters::new(registers.lr, registers.sp, registers.fp)
}

/// Both architectures' first register: the instruction pointer there, the link register here, which after a step both
/// hold the return address.
fn native_caller(state: State) -> NativeRegisters {
    NativeRegisters::new(state.pc, state.sp, state.fp)
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
