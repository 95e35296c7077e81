//! From registers to a call chain, in signal context.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{Code, Snapshot};
use crate::sys::arch::{RED_ZONE, Registers};
use crate::sys::memory::{PAGE, StackReader, Window};
use crate::sys::thread_stack::BoundsPlace;
use crate::unwind::StopReason;
use crate::unwind::dwarf::{Cache, Evaluation};
use crate::unwind::frame::{Frame, Wanted};
use crate::unwind::quick::Quick;
use crate::unwind::recent::{At, Found};
use crate::unwind::rule::{Kind, Rule};

/// How far above the stack pointer is read where the mapping that holds it is not known: the first
/// samples of a thread that began after the snapshot was made.
const UNKNOWN_STACK: u64 = 256 * 1024;

/// Whose stack is unwound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    /// This process.
    pub(crate) pid: i32,
    /// Where threads keep the bounds of their stacks, if that is known.
    pub(crate) bounds: Option<BoundsPlace>,
}

/// What an unwind came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unwound {
    /// How many frames were written.
    pub(crate) depth: usize,
    pub(crate) reason: StopReason,
    /// The mapping that holds the stack pointer was not known: a newer snapshot would do better.
    pub(crate) unknown_stack: bool,
}

/// Where a function has been called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Caller {
    pub(crate) return_address: u64,
    /// The stack pointer at the call, above the return address.
    pub(crate) sp: u64,
}

impl Snapshot {
    /// Writes the call chain of a thread with these registers into `frames`, leaf first: the pc,
    /// then return addresses as they are. (A frame that a signal has interrupted has no return
    /// address: there it is one more than the pc, so that one less is inside of the instruction, as
    /// it is of a call.) The pc is always there, if there is room for one frame.
    ///
    /// *Async-signal-safe.*
    pub(crate) fn unwind(
        &self,
        registers: Registers,
        subject: Subject,
        cache: &mut Cache,
        frames: &mut [u64],
    ) -> Unwound {
        let (unwound, wants_more) =
            self.unwind_with(registers, Wanted::FramePointer, subject, cache, frames);
        match wants_more {
            false => unwound,
            // Rare enough that looking for all of them from the beginning is the cheaper way.
            true => {
                self.unwind_with(registers, Wanted::All, subject, cache, frames)
                    .0
            }
        }
    }

    /// The callers of the interrupted function, as far as unwind data leads: that of the function,
    /// the caller's own, and so on. *Async-signal-safe.*
    pub(crate) fn callers<const COUNT: usize>(
        &self,
        registers: Registers,
        subject: Subject,
        cache: &mut Cache,
    ) -> [Option<Caller>; COUNT] {
        let Cache {
            evaluation,
            last_code,
            window,
            ..
        } = cache;
        let mut frame = Frame::interrupted(registers, Wanted::FramePointer);
        // SAFETY: the frame's registers are those of the interrupted thread.
        let (mut stack, _) = unsafe { self.stack_of(frame.sp(), subject, window) };
        let mut next = || {
            let found = self.described(frame.place(), last_code)?;
            let rule = self.rule(found.at);
            let is_described = !matches!(rule.kind, Kind::Nothing | Kind::Signal);
            is_described.then_some(())?;
            let has_caller = self.step(&mut frame, rule, evaluation, &mut stack);
            matches!(has_caller, Ok(true)).then(|| Caller {
                return_address: frame.pc(),
                sp: frame.sp(),
            })
        };
        let mut callers = [None; COUNT];
        for caller in &mut callers {
            *caller = next();
            if caller.is_none() {
                break;
            }
        }
        callers
    }

    /// Unwinds, looking for some registers of callers; whether others would have been needed.
    fn unwind_with(
        &self,
        registers: Registers,
        wanted: Wanted,
        subject: Subject,
        cache: &mut Cache,
        frames: &mut [u64],
    ) -> (Unwound, bool) {
        let Cache {
            evaluation,
            recent,
            last_code,
            window,
        } = cache;
        recent.begin((self.epoch, self.compiled.load(Ordering::Relaxed)));
        let mut frame = Frame::interrupted(registers, wanted);
        // SAFETY: the frame's registers are those of the interrupted thread.
        let (mut stack, unknown_stack) = unsafe { self.stack_of(frame.sp(), subject, window) };
        let ended = |depth, reason, frame: &Frame| {
            let unwound = Unwound {
                depth,
                reason,
                unknown_stack,
            };
            (unwound, frame.wants_more)
        };
        let mut depth = 0;
        loop {
            let left = frames.get_mut(depth..).unwrap_or_default();
            depth += frame.run(recent, &stack, left, |place| {
                // Others may be a handler's return, which `find` looks for.
                self.described(place, last_code)
                    .filter(|found| matches!(found.at, At::Table { .. }))
            });
            let Some(space) = frames.get_mut(depth) else {
                break;
            };
            let known = recent.know(frame.place(), |place| {
                self.find(place, last_code, &frame, &mut stack)
            });
            if known.is_none() && depth > 0 {
                return ended(depth, StopReason::NoUnwindData, &frame);
            }
            let rule = known.map_or(&Rule::NOTHING, |known| self.rule(recent.found(known).at));
            *space = match frame.is_exact && depth > 0 {
                true => frame.pc().wrapping_add(1),
                false => frame.pc(),
            };
            depth += 1;
            match self.step(&mut frame, rule, evaluation, &mut stack) {
                Ok(true) => {}
                Ok(false) => {
                    // One less is to be inside of its code, as it is of a call.
                    if self.coroutine_return == Some(frame.pc()) && !frame.is_exact {
                        *space = frame.pc().wrapping_add(1);
                    }
                    return ended(depth, StopReason::Root, &frame);
                }
                Err(reason) => return ended(depth, reason, &frame),
            }
            // A step to a caller never is: this one led over a signal, and maybe to another stack.
            if frame.is_exact {
                // SAFETY: the thread that was interrupted is the same.
                stack = unsafe { self.stack_of(frame.sp(), subject, stack.into_window()) }.0;
            }
        }
        // As deep as asked for; the step beyond tells whether that was the root.
        let known = recent.know(frame.place(), |place| {
            self.find(place, last_code, &frame, &mut stack)
        });
        let rule = known.map(|known| self.rule(recent.found(known).at));
        match rule.map(|rule| self.step(&mut frame, rule, evaluation, &mut stack)) {
            Some(Ok(false)) if depth > 0 => ended(depth, StopReason::Root, &frame),
            _ => ended(depth, StopReason::Depth, &frame),
        }
    }

    /// Goes to the caller's frame: whether there is one.
    #[inline]
    fn step(
        &self,
        frame: &mut Frame,
        rule: &Rule,
        evaluation: &mut Evaluation,
        stack: &mut StackReader<'_>,
    ) -> Result<bool, StopReason> {
        match rule.kind {
            Kind::Nothing => self.step_without_rule(frame, stack),
            Kind::NoTable => self.dwarf.step(frame, evaluation, stack),
            // Roots have a rule of their own: what looks like one here is where a guess has led.
            Kind::Complex => match self.dwarf.step(frame, evaluation, stack) {
                Ok(false) | Err(StopReason::Root) => Err(StopReason::NoUnwindData),
                other => other,
            },
            _ => frame.step(rule, stack),
        }
    }

    /// Goes to the caller's frame out of code without unwind data. What a module's leaves out is no
    /// compiled code, but what a linker makes to get to another module, which has no frame; a
    /// just-in-time compiler's code has one.
    fn step_without_rule(
        &self,
        frame: &mut Frame,
        stack: &mut StackReader<'_>,
    ) -> Result<bool, StopReason> {
        let is_linkers = |place| {
            self.code_of(place)
                .is_some_and(|code| code.module.is_some())
        };
        match frame.return_address_of_leaf() {
            Some(address)
                if is_linkers(frame.pc()) && self.code_of(address.wrapping_sub(1)).is_some() =>
            {
                frame.step_from_leaf(address, stack)
            }
            _ => frame.step_by_code(stack),
        }
    }

    /// The rule for the place where a frame is; `None` where no code is known to
    /// be. *Async-signal-safe.*
    fn find(
        &self,
        place: u64,
        last: &mut usize,
        frame: &Frame,
        stack: &mut StackReader<'_>,
    ) -> Option<Found> {
        let found = self.described(place, last)?;
        // framehop refuses to go from a handler's stack of its own to another. Looked at here and
        // not at each step, so that the answer is remembered.
        let may_be_signal = matches!(found.at, At::Nowhere | At::NoTable);
        match may_be_signal && frame.returns_from_handler(stack) {
            true => Some(Found::only(At::Signal)),
            false => Some(found),
        }
    }

    /// The rule that unwind data has for a place; `None` where no code is known to be. `last` is
    /// the number of the code's range, which will be that of the next place,
    /// too. *Async-signal-safe.*
    #[cold]
    fn described(&self, place: u64, last: &mut usize) -> Option<Found> {
        if self.coroutine_return == Some(place.wrapping_add(1)) {
            // No call lies there, and what does is another function's, or nobody's.
            return Some(Found::only(At::Root));
        }
        let holds = |code: &&Code| code.range.contains(&place);
        let code = match self.code.get(*last).filter(holds) {
            Some(code) => code,
            None => {
                *last = self.code_before(place)?;
                self.code.get(*last).filter(holds)?
            }
        };
        let Some((module, rules)) = code.module.and_then(|m| Some((m, self.modules.get(m)?)))
        else {
            return Some(Found::only(At::Nowhere));
        };
        // Where there is no table yet, framehop serves until then.
        let Some(table) = rules.table() else {
            return Some(Found::only(At::NoTable));
        };
        let rule = table.find(place.wrapping_sub(rules.module().range.start));
        let Some((rule, quick)) = rule.map(|rule| (rule, table.quick(rule))) else {
            return Some(Found::only(At::Nowhere));
        };
        let says_something = || {
            table
                .rule(rule)
                .is_some_and(|rule| rule.kind != Kind::Nothing)
        };
        let at = match quick != Quick::NONE || says_something() {
            true => At::Table {
                module: module as u32,
                rule,
            },
            false => At::Nowhere,
        };
        Some(Found { at, quick })
    }

    /// A rule, whole. *Async-signal-safe.*
    fn rule(&self, at: At) -> &Rule {
        let rule = match at {
            At::Nowhere => None,
            At::Root => Some(&Rule::ROOT),
            At::Signal => Some(&Rule::SIGNAL),
            At::NoTable => Some(&Rule::NO_TABLE),
            At::Table { module, rule } => self
                .modules
                .get(module as usize)
                .and_then(|rules| rules.table()?.rule(rule)),
        };
        rule.unwrap_or(&Rule::NOTHING)
    }

    /// The range of code that holds an address. *Async-signal-safe.*
    pub(super) fn code_of(&self, address: u64) -> Option<&Code> {
        self.code
            .get(self.code_before(address)?)
            .filter(|code| code.range.contains(&address))
    }

    /// The number of the last range of code that begins at an address or before
    /// it. *Async-signal-safe.*
    fn code_before(&self, address: u64) -> Option<usize> {
        let after = self
            .code
            .partition_point(|code| code.range.start <= address);
        after.checked_sub(1)
    }

    /// What can be read of the stack that `sp` is on, and whether it is one that this snapshot does
    /// not know.
    ///
    /// # Safety
    ///
    /// `sp` is a stack pointer of the interrupted thread.
    unsafe fn stack_of<'w>(
        &self,
        sp: u64,
        subject: Subject,
        window: &'w mut Window,
    ) -> (StackReader<'w>, bool) {
        let lasting = match self.main_stack.contains(&sp) {
            true => Some(self.main_stack.clone()),
            false => subject.bounds.and_then(|bounds| bounds.stack_of(sp)),
        };
        let (lasting, limit, is_unknown) = match lasting {
            Some(lasting) => (lasting.clone(), lasting.end, false),
            None => match holding(&self.stacks, sp) {
                Some(range) => (0..0, range.end, false),
                // The main thread's stack has grown down to there, or it is another's stack that
                // was mapped since: what is below the known part is copied, not loaded.
                None if self.below_main_stack.contains(&sp) => {
                    (self.main_stack.clone(), self.main_stack.end, true)
                }
                None => (0..0, sp.saturating_add(UNKNOWN_STACK), true),
            },
        };
        // What an epilogue has popped is still there, and unwind data goes on to say so. Of the red
        // zone only what lies in the stack pointer's own page is known to stay: below could be the
        // guard.
        let low = sp.saturating_sub(RED_ZONE);
        let lasting = lasting.start.max(low).max(sp & !(PAGE - 1))..lasting.end;
        // SAFETY: the main thread's stack, or the one that the interrupted thread was born with,
        // from the page of its stack pointer up: both stay while its handler runs.
        let reader = unsafe { StackReader::new(low, limit, lasting, subject.pid, window) };
        (reader, is_unknown)
    }
}

/// The range that holds `address` in an ascending list of disjoint ones. *Async-signal-safe.*
fn holding(ranges: &[Range<u64>], address: u64) -> Option<&Range<u64>> {
    let after = ranges.partition_point(|range| range.start <= address);
    ranges
        .get(after.checked_sub(1)?)
        .filter(|range| address < range.end)
}
