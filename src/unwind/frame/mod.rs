//! One step from a frame to its caller's.
#![forbid(unsafe_code)]

mod run;

use crate::sys::arch::{
    self, CALLEE_SAVED, FP, FRAME_RECORD_ENDS_FRAME, REGISTERS, RETURN_ADDRESS, Registers, SP,
    without_signature,
};
use crate::sys::memory::StackReader;
use crate::unwind::StopReason;
use crate::unwind::rule::{Kind, Place, Rule};

/// Where unwinding stands: a place in the code, and the registers as they were there, as far as
/// they can be known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    registers: Registers,
    /// The callee-saved registers that are known, a bit each in the order of [`CALLEE_SAVED`]. The
    /// stack pointer always is; others are where the frame was interrupted.
    known: u16,
    /// Those that are looked for in callers, a bit each.
    wanted: u16,
    /// One was needed that was not looked for.
    pub(super) wants_more: bool,
    /// The pc is of an instruction that was interrupted, and not behind a call.
    pub(super) is_exact: bool,
    /// The stack pointer may be higher, as is not known on some machines behind a step by the frame
    /// pointer.
    is_sp_least: bool,
}

const ALL: u16 = (1 << CALLEE_SAVED.len()) - 1;
const NO_INDEX: u8 = 16;
/// The place of each register in [`CALLEE_SAVED`].
const INDEX: [u8; REGISTERS] = {
    let mut index_of = [NO_INDEX; REGISTERS];
    let mut index = 0;
    while index < CALLEE_SAVED.len() {
        index_of[CALLEE_SAVED[index] as usize] = index as u8;
        index += 1;
    }
    index_of
};
const KNOWS_FP: u16 = 1 << INDEX[FP as usize];

/// Which callee-saved registers are looked for in callers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wanted {
    /// The frame pointer, which with the stack pointer is all that nearly all rules count from.
    FramePointer,
    All,
}

impl Frame {
    /// The frame that was interrupted.
    pub(super) fn interrupted(registers: Registers, wanted: Wanted) -> Self {
        Self {
            registers,
            known: ALL,
            wanted: match wanted {
                Wanted::FramePointer => KNOWS_FP,
                Wanted::All => ALL,
            },
            wants_more: false,
            is_exact: true,
            is_sp_least: false,
        }
    }

    pub(super) fn pc(&self) -> u64 {
        self.registers.pc
    }

    pub(super) fn sp(&self) -> u64 {
        self.registers.sp()
    }

    pub(super) fn fp(&self) -> u64 {
        self.registers.fp()
    }

    /// What the link register holds, which is the return address that was followed here, but where
    /// the frame was interrupted.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn link(&self) -> u64 {
        match self.is_exact {
            true => self.registers.general[usize::from(RETURN_ADDRESS)],
            false => self.registers.pc,
        }
    }

    /// An address inside of the instruction that this frame is at: a return address can be that of
    /// the next function.
    pub(super) fn place(&self) -> u64 {
        match self.is_exact {
            true => self.registers.pc,
            false => self.registers.pc.wrapping_sub(1),
        }
    }

    #[inline]
    fn register(&mut self, number: u8) -> Option<u64> {
        let value = self.registers.general.get(usize::from(number)).copied()?;
        let index = INDEX.get(usize::from(number)).copied()?;
        // Registers that calls do not preserve are what they were at the leaf: a caller's frame
        // counts from one only in hand-written code, whose callees leave it alone (OpenSSL's
        // AES-GCM). Other unwinders do the same.
        let is_left_alone = index == NO_INDEX && u16::from(number) != RETURN_ADDRESS;
        let is_known = self.is_exact
            || number == SP
            || is_left_alone
            || (u32::from(self.known) >> index) & 1 == 1;
        if !is_known {
            self.wants_more |= self.wanted != ALL;
            return None;
        }
        Some(value)
    }

    #[inline(always)]
    fn put(&mut self, number: u8, value: u64) {
        if let Some(register) = self.registers.general.get_mut(usize::from(number)) {
            *register = value;
        }
    }

    /// Changes a register that a call preserves, by its place among them.
    #[inline]
    fn set(&mut self, index: usize, value: Option<u64>) {
        let number = CALLEE_SAVED.get(index).copied();
        match (value, number) {
            (Some(value), Some(number)) => {
                self.put(number, value);
                self.known |= 1 << index;
            }
            _ => self.known &= !(1 << index),
        }
    }

    /// Goes to the caller's frame by a rule: whether there is one. *Async-signal-safe.*
    pub(super) fn step(
        &mut self,
        rule: &Rule,
        stack: &mut StackReader<'_>,
    ) -> Result<bool, StopReason> {
        if !FRAME_RECORD_ENDS_FRAME
            && self.is_sp_least
            && rule.kind == Kind::Register
            && rule.cfa_register == SP
        {
            // Machines that hide it have conventions by which such a function keeps a frame
            // pointer, too.
            return self.step_by_frame_pointer(stack);
        }
        let offset = i64::from(rule.cfa_offset);
        let mut base = || {
            self.register(rule.cfa_register)
                .ok_or(StopReason::NoUnwindData)
        };
        let cfa = match rule.kind {
            Kind::Register => base()?.wrapping_add_signed(offset),
            Kind::Loaded => stack
                .read(base()?.wrapping_add_signed(offset))
                .ok_or(StopReason::Unreadable)?
                .wrapping_add_signed(rule.loaded_offset.into()),
            Kind::LinkageTable => {
                let has_pushed = self.registers.pc & 15 >= u64::from(rule.cfa_register);
                let pushed = if has_pushed { 8 } else { 0 };
                self.sp().wrapping_add_signed(offset).wrapping_add(pushed)
            }
            Kind::Root => return Ok(false),
            Kind::Signal => return self.step_over_signal(stack),
            Kind::Nothing | Kind::Complex | Kind::NoTable | Kind::Leaving => {
                return Err(StopReason::NoUnwindData);
            }
        };
        let mut read = |from: u64, place: Place| {
            let offset = place.offset()?;
            stack.read(from.wrapping_add_signed(offset))
        };
        let place = rule.return_address;
        let pc = match place.offset() {
            Some(_) => read(cfa, place).ok_or(StopReason::Unreadable)?,
            // In the link register, where a machine has one and the code has not changed it.
            None => {
                let number = match place {
                    Place::SAME => RETURN_ADDRESS as u8,
                    place => place.register().ok_or(StopReason::NoUnwindData)?,
                };
                self.register(number).ok_or(StopReason::NoUnwindData)?
            }
        };
        let fp = self.fp();
        // Compilers do not say that the epilogue of a realigned frame has taken the caller's frame
        // pointer back, and with it all that lies beside it. (A frame pointer of this frame's own
        // lies within the frame.)
        let has_own_fp = (self.sp()..cfa).contains(&fp);
        let moved = match has_own_fp {
            true => rule.changed,
            false => rule.changed & !rule.from_frame_pointer,
        };
        let mut changed = moved & self.wanted;
        self.known &= !moved;
        while changed != 0 {
            let index = changed.trailing_zeros() as usize;
            changed &= changed - 1;
            let place = rule.saved.get(index).copied().unwrap_or(Place::UNDEFINED);
            let is_from_fp = rule.from_frame_pointer >> index & 1 == 1;
            let from = if is_from_fp { fp } else { cfa };
            self.set(index, read(from, place));
        }
        self.arrive(pc, cfa, stack)
    }

    /// Whether this frame is of the code that a handler returns to, by its instructions: not all C
    /// libraries have unwind data for it (musl has none, nor has Go's
    /// runtime). *Async-signal-safe.*
    #[cold]
    pub(super) fn returns_from_handler(&self, stack: &mut StackReader<'_>) -> bool {
        /// At least as long as the first of its two instructions; with the second that is less than
        /// two lines.
        const BEFORE: u64 = 8;
        let begin = self.pc().wrapping_sub(BEFORE) & !15;
        let mut lines = [[0; 16]; 2];
        for (line, address) in lines.iter_mut().zip([begin, begin.wrapping_add(16)]) {
            // Code may end, or begin, between the two.
            *line = stack.line(address).unwrap_or_default();
        }
        let place = self.pc().wrapping_sub(begin) as usize;
        let Some((before, here)) = lines.as_flattened().split_at_checked(place) else {
            return false;
        };
        // A handler returns to the first one.
        let before = if self.is_exact { before } else { &[] };
        arch::returns_from_handler(before, here)
    }

    /// Goes to the caller's frame from code of a module that has no unwind data: an entry of the
    /// procedure linkage table, for which not all linkers write any (LLVM's does not), or else what
    /// may keep a frame pointer.
    #[cold]
    pub(super) fn step_by_code(&mut self, stack: &mut StackReader<'_>) -> Result<bool, StopReason> {
        let entry = self.is_exact.then(|| stack.line(self.pc() & !15)).flatten();
        match entry.and_then(|entry| arch::linkage_frame_offset(self.pc(), entry)) {
            Some(offset) => self.step(&Rule::of_leaf(offset), stack),
            None => self.step_by_frame_pointer(stack),
        }
    }

    /// Goes to the caller's frame by the frame pointer, which code that has no unwind data may
    /// keep.
    pub(super) fn step_by_frame_pointer(
        &mut self,
        stack: &mut StackReader<'_>,
    ) -> Result<bool, StopReason> {
        let fp = self.register(FP).filter(|&fp| fp >= self.sp());
        let fp = fp.ok_or(StopReason::NoUnwindData)?;
        let read = |stack: &mut StackReader<'_>, address| {
            // Until both lead somewhere the register can hold any number.
            stack
                .read_with_care(address)
                .ok_or(StopReason::NoUnwindData)
        };
        let caller_fp = read(stack, fp)?;
        let pc = read(stack, fp.wrapping_add(8))?;
        if without_signature(pc) == 0 {
            // No proof of a caller, and none of a root either: the register may lead to any zeros.
            return Err(StopReason::NoUnwindData);
        }
        self.put(FP, caller_fp);
        self.known = KNOWS_FP;
        let is_there = self.arrive(pc, fp.wrapping_add(16), stack)?;
        self.is_sp_least = !FRAME_RECORD_ENDS_FRAME;
        Ok(is_there)
    }

    /// The return address of code that was interrupted and has no frame, on machines where a call
    /// leaves it in a register.
    pub(super) fn return_address_of_leaf(&mut self) -> Option<u64> {
        let number = u8::try_from(RETURN_ADDRESS).ok()?;
        let link = self.is_exact.then(|| self.register(number))??;
        Some(without_signature(link))
    }

    /// Goes to the caller's frame from code that has none.
    pub(super) fn step_from_leaf(
        &mut self,
        return_address: u64,
        stack: &StackReader<'_>,
    ) -> Result<bool, StopReason> {
        self.arrive(return_address, self.sp(), stack)
    }

    /// Takes what another unwinder has found: nothing is known of the other registers.
    pub(super) fn step_to(
        &mut self,
        pc: u64,
        sp: u64,
        fp: u64,
        stack: &StackReader<'_>,
    ) -> Result<bool, StopReason> {
        self.put(FP, fp);
        self.known = KNOWS_FP;
        self.arrive(pc, sp, stack)
    }

    /// A caller's frame lies above its callee's, and on the same stack. (A leaf that keeps its
    /// return address in a register has no frame.)
    #[inline(always)]
    fn arrive(&mut self, pc: u64, sp: u64, stack: &StackReader<'_>) -> Result<bool, StopReason> {
        let pc = without_signature(pc);
        if pc == 0 {
            // As where a thread's start code says no more.
            return Ok(false);
        }
        let is_above = sp > self.sp() || self.is_exact && sp == self.sp();
        if !is_above || sp > stack.limit() {
            return Err(StopReason::NotAdvancing);
        }
        self.registers.pc = pc;
        self.put(SP, sp);
        self.is_exact = false;
        if !FRAME_RECORD_ENDS_FRAME {
            self.is_sp_least = false;
        }
        Ok(true)
    }

    /// Goes to the frame that a signal interrupted, which can be on any stack.
    fn step_over_signal(&mut self, stack: &mut StackReader<'_>) -> Result<bool, StopReason> {
        if self.is_sp_least {
            return Err(StopReason::NoUnwindData);
        }
        let sp = self.sp();
        let interrupted = arch::interrupted_by_signal(sp, |address| stack.read(address));
        self.registers = interrupted.ok_or(StopReason::Unreadable)?;
        self.known = ALL;
        self.is_exact = true;
        Ok(self.pc() != 0)
    }
}

#[cfg(test)]
mod tests;
