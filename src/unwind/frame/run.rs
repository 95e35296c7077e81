//! Many steps from frame to frame, by the rules that nearly all are.

use super::{Frame, KNOWS_FP};
use crate::sys::arch::{FP, SP, without_signature};
use crate::sys::memory::StackReader;
use crate::unwind::quick::Base;
use crate::unwind::recent::{Found, Recent};

impl Frame {
    /// Goes on to callers for as long as that is easy, and writes the return addresses that it goes
    /// by: how many. `find` finds rules that are not remembered. *Async-signal-safe* if `find` is.
    ///
    /// This is where nearly all frames are gone through, so all that it needs is kept at hand, and
    /// nothing waits for what can be checked later.
    pub(in crate::unwind) fn run(
        &mut self,
        recent: &mut Recent,
        stack: &StackReader<'_>,
        frames: &mut [u64],
        mut find: impl FnMut(u64) -> Option<Found>,
    ) -> usize {
        if self.is_exact || self.is_sp_least || self.wanted != KNOWS_FP {
            return 0;
        }
        let (mut pc, mut sp, mut fp) = (self.pc(), self.sp(), self.fp());
        let mut knows = self.known;
        let Some(lasting) = stack.words_from(sp) else {
            return 0;
        };
        let Some(mut known) = recent.know(pc.wrapping_sub(1), &mut find) else {
            return 0;
        };
        let mut depth = 0;
        for space in frames {
            let rule = recent.found(known).quick;
            let base = match rule.base {
                Base::StackPointer => sp,
                Base::FramePointer if knows & KNOWS_FP != 0 => fp,
                _ => break,
            };
            let cfa = base.wrapping_add_signed(i64::from(rule.cfa_words) * 8);
            let Some(frame) = lasting.between(sp, cfa) else {
                break;
            };
            let Some(caller) = frame.read_from_end(rule.return_address) else {
                break;
            };
            let caller = without_signature(caller);
            if caller == 0 {
                break;
            }
            let mut caller_knows = knows & !(rule.changed & !KNOWS_FP);
            if rule.frame_pointer < 0 {
                let Some(caller_fp) = frame.read_from_end(rule.frame_pointer) else {
                    break;
                };
                fp = caller_fp;
                caller_knows |= KNOWS_FP;
            }
            *space = pc;
            depth += 1;
            (pc, sp, knows) = (caller, cfa, caller_knows);
            match recent.know_caller(known, pc.wrapping_sub(1), &mut find) {
                Some(caller) => known = caller,
                None => break,
            }
        }
        self.registers.pc = pc;
        self.put(SP, sp);
        self.put(FP, fp);
        self.known = knows;
        depth
    }
}
