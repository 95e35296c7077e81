//! Unwinding from registers and stacks that no program has: it must end, in bounded time, and touch
//! nothing that is not there.

use super::*;
use crate::process;
use crate::sys::arch::{REGISTERS, Registers};
use crate::sys::maps::Maps;
use crate::sys::memory::{PAGE, Pages};
use crate::sys::modules::loaded;

/// How many unwinds, unless the environment says otherwise.
const UNWINDS: u64 = 300_000;
const STACK_WORDS: usize = 2048;
const DEPTH: usize = 64;

/// Numbers that look random and are the same in every run (xorshift64*).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// A snapshot of this process with all tables.
pub(super) fn compiled() -> Snapshot {
    let maps = Maps::read().unwrap();
    let snapshot = Snapshot::new(1, loaded([].iter(), &maps), &maps, None, &[]);
    snapshot.modules().iter().for_each(|rules| rules.compile());
    snapshot
}

/// In a process of its own: other tests map and unmap memory and libraries, and two unwinds of the
/// same registers would not see the same.
#[test]
fn random_registers_and_stacks_do_no_harm() {
    let child = "unwind::hostile::child_of_random_registers_and_stacks";
    process::succeed_and_show(&mut process::child(child));
}

#[test]
#[ignore = "a child process"]
fn child_of_random_registers_and_stacks() {
    let unwinds = std::env::var("SIGPROF_UNWINDS").ok();
    let unwinds = unwinds.map_or(UNWINDS, |n| n.parse().unwrap());
    // A page that nobody can read lies before the stack, and one behind it: the kernel joins
    // neighbouring mappings to one, and other memory would be part of the stack.
    let guard = PAGE as usize;
    let len = STACK_WORDS * 8;
    let pages = Pages::map(guard + len + guard).unwrap();
    // SAFETY: both pages, and the stack between them, are this test's own.
    let stack: &mut [u64] = unsafe {
        for offset in [0, guard + len] {
            let page = pages.as_ptr().add(offset);
            assert_eq!(libc::mprotect(page.cast(), guard, libc::PROT_NONE), 0);
        }
        std::slice::from_raw_parts_mut(pages.as_ptr().add(guard).cast(), STACK_WORDS)
    };
    let low = stack.as_ptr() as u64;
    let bytes = size_of_val(stack) as u64;
    // Taken with the stack in place, so that its bounds are known.
    let snapshot = compiled();
    // Where the stack is known to stay, frames are gone through in another way.
    let knowing = compiled().with_main_stack(low..low + bytes);
    let code: Vec<_> = snapshot
        .modules()
        .iter()
        .flat_map(|rules| rules.module().object.code.clone())
        .collect();
    let mut random = Random(0xdead_beef);
    let any = |random: &mut Random| match random.below(16) {
        0..10 => {
            let segment = code[random.below(code.len() as u64) as usize];
            segment.start + random.below(segment.end - segment.start)
        }
        10..13 => low + random.below(bytes) / 8 * 8,
        13 => low + random.below(bytes),
        14 => random.below(512).wrapping_sub(256),
        _ => random.next(),
    };
    let (mut cache, mut knowing_cache) = (Cache::new(), Cache::new());
    let subject = Subject {
        pid: std::process::id() as i32,
        bounds: None,
    };
    let (mut frames, mut same_frames) = ([0; DEPTH], [0; DEPTH]);
    let mut ends = [0_u64; StopReason::ALL.len()];
    let mut deepest = 0;
    for round in 0..unwinds {
        if round % 64 == 0 {
            stack.iter_mut().for_each(|word| *word = any(&mut random));
        }
        let mut registers = Registers {
            pc: any(&mut random),
            general: [0; REGISTERS],
        };
        registers
            .general
            .iter_mut()
            .for_each(|register| *register = any(&mut random));
        // Mostly the stack is one.
        if round % 8 != 0 {
            registers.general[usize::from(crate::sys::arch::SP)] =
                low + random.below(bytes) / 16 * 16;
        }
        let unwound = snapshot.unwind(registers, subject, &mut cache, &mut frames);
        assert!((1..=DEPTH).contains(&unwound.depth), "{registers:x?}");
        assert_eq!(frames[0], registers.pc);
        let same = knowing.unwind(registers, subject, &mut knowing_cache, &mut same_frames);
        assert_eq!(unwound, same, "{registers:x?}");
        let depth = unwound.depth;
        assert_eq!(frames[..depth], same_frames[..depth], "{registers:x?}");
        ends[unwound.reason as usize] += 1;
        deepest = deepest.max(unwound.depth);
    }
    process::figure!("{unwinds} unwinds, up to {deepest} frames deep; by how they ended: {ends:?}");
    assert!(deepest > 3, "some go on for a while");
}
