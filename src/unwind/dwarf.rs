//! Unwinding by framehop: the rules of `.eh_frame`, evaluated on the way and remembered by address.

use std::fmt;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, MustNotAllocateDuringUnwind, Unwinder as _};

use super::StopReason;
use crate::sys::arch::Registers;
use crate::sys::memory::StackReader;
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

/// What one handler at a time needs to unwind: rules by address, and room to evaluate new ones in.
pub(crate) struct Cache(NativeCache<MustNotAllocateDuringUnwind>);

impl Cache {
    pub(crate) fn new() -> Self {
        Self(NativeCache::new_in())
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

    /// Writes a call chain into `frames`. `is_code` says whether an address lies in a module's code.
    ///
    /// *Async-signal-safe.*
    pub(super) fn unwind(
        &self,
        registers: Registers,
        cache: &mut Cache,
        stack: &mut StackReader,
        mut is_code: impl FnMut(u64) -> bool,
        frames: &mut [u64],
    ) -> (usize, StopReason) {
        let Some((leaf, callers)) = frames.split_first_mut() else {
            return (0, StopReason::Depth);
        };
        *leaf = registers.pc;
        let mut read = |address| stack.read(address).ok_or(());
        let mut walk = self
            .0
            .iter_frames(registers.pc, native(registers), &mut cache.0, &mut read);
        // The first answer is the pc itself.
        let _ = walk.next();
        let mut depth = 1;
        for frame in callers {
            match walk.next() {
                Ok(None) => return (depth, StopReason::Root),
                Ok(Some(address)) => {
                    let address = address.address();
                    if !is_code(address) {
                        return (depth, StopReason::NoUnwindData);
                    }
                    *frame = address;
                    depth += 1;
                }
                Err(error) => return (depth, stop_reason(error)),
            }
        }
        // As deep as asked for. One step more tells whether that was the root.
        match walk.next() {
            Ok(None) => (depth, StopReason::Root),
            _ => (depth, StopReason::Depth),
        }
    }
}

fn stop_reason(error: framehop::Error) -> StopReason {
    use framehop::Error;
    match error {
        Error::CouldNotReadStack(_) | Error::IntegerOverflow => StopReason::Unreadable,
        Error::FramepointerUnwindingMovedBackwards | Error::DidNotAdvance => {
            StopReason::NotAdvancing
        }
        // A null return address is what the outermost frame of a thread finds where its start code says no more.
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
