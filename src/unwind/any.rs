//! Unwind data, registers and stacks made of any bytes, for the fuzzer and the tests: whatever they
//! are, the answer is a table or a stack.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::compile::compile;
use super::rule::{Kind, Rule};
use super::table::Table;
use super::{Cache, Snapshot, Subject};
use crate::sys::arch::{REGISTERS, Registers};
use crate::sys::eh_frame_hdr::is_searchable;
use crate::sys::maps::Maps;
use crate::sys::modules::{Module, Object, Section, Segment};

/// Where the module lies: link-time addresses count from 0.
const BIAS: u64 = 1 << 32;
/// Of the module's code, which all of the rest surrounds. Small, as each place of the module is
/// looked up.
const CODE: std::ops::Range<u64> = 0x1000..0x1800;
const LEN: u64 = 0x2000;
const STACK_WORDS: usize = 64;
const DEPTH: usize = 64;

/// What is left of the bytes.
struct Input<'d>(&'d [u8]);

impl<'d> Input<'d> {
    fn bytes(&mut self, len: usize) -> &'d [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// 0 behind the end.
    fn half(&mut self) -> u16 {
        let bytes = self.bytes(2).first_chunk();
        bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
    }

    fn word(&mut self) -> u64 {
        let bytes = self.bytes(8).first_chunk();
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// A section: its address, its length, and as many bytes.
    fn section(&mut self) -> Option<Section> {
        let (address, len) = (self.half().into(), self.half().into());
        let bytes = self.bytes(len);
        (len > 0).then(|| Section {
            address,
            bytes: bytes.into(),
        })
    }
}

fn module(eh_frame: Option<Section>, eh_frame_hdr: Option<Section>) -> Module {
    let code = Segment {
        start: BIAS + CODE.start,
        end: BIAS + CODE.end,
        file_offset: 0,
    };
    // As where modules are copied.
    let eh_frame_hdr = eh_frame_hdr
        .zip(eh_frame.as_ref())
        .filter(|(hdr, eh_frame)| {
            is_searchable(
                (hdr.address, &hdr.bytes),
                (eh_frame.address, &eh_frame.bytes),
            )
        });
    Module {
        object: Arc::new(Object {
            path: "any".into(),
            build_id: Vec::new(),
            is_main: true,
            code: vec![code],
        }),
        bias: BIAS,
        range: BIAS..BIAS + LEN,
        eh_frame_hdr: eh_frame_hdr.map(|(hdr, _)| hdr),
        eh_frame,
        signal_return: None,
        file: None,
    }
}

fn rule(table: &Table, place: u64) -> Option<&Rule> {
    table
        .rule_at(place)
        .filter(|rule| rule.kind != Kind::Nothing)
}

/// `.eh_frame_hdr`, and `.eh_frame`.
pub(crate) fn eh_frame(data: &[u8]) {
    let mut input = Input(data);
    let hdr = input.section();
    let table = compile(&module(input.section(), hdr), &[], &mut || ());
    for place in 0..LEN {
        table.rule_at(place);
    }
    assert!(table.rule_at(u64::MAX).is_none());
    // A row takes a byte of the section at least, and a rule of its own some more.
    assert!(table.size_bytes() <= 1024 + 64 * data.len());
}

/// `.eh_frame`, and the rest for `.debug_frame`: the first holds wherever it says anything.
pub(crate) fn debug_frame(data: &[u8]) {
    let mut input = Input(data);
    let module = module(input.section(), None);
    let (eh_frame, both) = (
        compile(&module, &[], &mut || ()),
        compile(&module, input.0, &mut || ()),
    );
    for place in 0..LEN {
        match (rule(&eh_frame, place), rule(&both, place)) {
            (None, Some(_)) => assert!(CODE.contains(&place), "{place:#x}"),
            (before, after) => assert_eq!(before, after, "{place:#x}"),
        }
    }
}

/// Registers, the words of a stack, `.eh_frame`, and the rest for its compiler.
pub(crate) fn unwind(data: &[u8]) {
    let mut input = Input(data);
    let mut stack = Box::new([0_u64; STACK_WORDS]);
    let low = stack.as_ptr() as u64;
    // The upper bits say what a word is: an address of the stack, one of the code, or any number.
    let mut word = || {
        let word = input.word();
        match word >> 56 {
            1 => low + word % (STACK_WORDS as u64 * 8),
            2 => BIAS + word % LEN,
            _ => word,
        }
    };
    let mut registers = Registers {
        pc: word(),
        general: [0; REGISTERS],
    };
    registers.general.fill_with(&mut word);
    stack.fill_with(&mut word);
    let hdr = input.section();
    let module = Arc::new(module(input.section(), hdr));
    let end = low + size_of_val(&*stack) as u64;
    let maps = Maps::of(format!("{low:x}-{end:x} rw-p 0 00:00 0 [stack]\n"));
    let snapshot = Snapshot::new(1, vec![module], &maps, None, &[]);
    snapshot.modules().iter().for_each(|rules| rules.compile());
    let subject = Subject {
        pid: std::process::id() as i32,
        bounds: None,
    };
    let mut frames = [0; DEPTH];
    let unwound = snapshot.unwind(registers, subject, &mut Cache::new(), &mut frames);
    assert!((1..=DEPTH).contains(&unwound.depth));
    assert_eq!(frames.first(), Some(&registers.pc));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::hostile::Random;

    /// At 0x4000: a common entry, and a function from 0x1000 on that pushes the frame pointer and
    /// takes 64 bytes.
    const EH_FRAME: &[u8] = &[
        20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
        28, 0, 0, 0, 28, 0, 0, 0, 0xe0, 0xcf, 0xff, 0xff, 0, 1, 0, 0, 0, 0x41, 0x0e, 16, 0x86, 2,
        0x44, 0x0a, 0x0e, 80, 0x48, 0x0b, 0x41, 0xc6, 0x0e, 8,
    ];

    fn section(bytes: &[u8]) -> Vec<u8> {
        let len = u16::try_from(bytes.len()).unwrap();
        [&0x4000_u16.to_le_bytes(), &len.to_le_bytes(), bytes].concat()
    }

    #[test]
    #[cfg(target_arch = "x86_64")] // By the numbers of its registers.
    fn the_section_says_something() {
        let bytes = section(EH_FRAME);
        let module = module(Input(&bytes).section(), None);
        let table = compile(&module, &[], &mut || ());
        let offset = |place| rule(&table, place).map(|rule| rule.cfa_offset);
        let places = [0xfff, 0x1000, 0x1001, 0x1005, 0x100d, 0x100e, 0x1100];
        let offsets = [None, Some(8), Some(16), Some(80), Some(16), Some(8), None];
        assert_eq!(places.map(offset), offsets);
    }

    #[test]
    fn random_sections_registers_and_stacks_do_no_harm() {
        let mut random = Random(4);
        for round in 0..2000 {
            let mut bytes = EH_FRAME.to_vec();
            for _ in 0..round % 8 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            let sections = [&[0; 4], &*section(&bytes)].concat();
            eh_frame(&sections);
            let mut all = Vec::new();
            for _ in 0..1 + REGISTERS + STACK_WORDS {
                let word = random.below(1 << 16) | random.below(3) << 56;
                all.extend(word.to_le_bytes());
            }
            all.extend(sections);
            unwind(&all);
        }
    }
}
