//! What one x86-64 instruction does to the general registers, and where it leads.
#![forbid(unsafe_code)]

/// An instruction, as far as the number of a system call depends on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Instruction {
    /// Bytes.
    pub(super) length: usize,
    pub(super) effect: Effect,
    pub(super) flow: Flow,
}

/// What happens to general registers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Effect {
    /// One register has a known value.
    Sets { register: u8, operand: Operand },
    /// These may have others than before, perhaps not all of them.
    Changes(Registers),
}

/// Where a value comes from. Of values the lower half is what counts here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operand {
    Constant(u32),
    Register(u8),
    /// What lies so many bytes above the stack pointer.
    Stack(i32),
}

/// Where the code goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flow {
    Next,
    /// There or at the next instruction; bytes from the end of this one.
    Branch(i32),
    /// There; bytes from the end of this one.
    Jump(i32),
    /// At an address that a register or memory holds.
    Computed,
    /// At the next instruction, after a function's code.
    Call,
    /// At the next instruction, after a system call.
    Syscall,
    /// Not here.
    End,
}

/// A set of general registers, by the numbers that instructions have for them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Registers(u16);

pub(super) const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RBX: u8 = 3;
pub(super) const RSP: u8 = 4;
const RBP: u8 = 5;
pub(super) const RSI: u8 = 6;
pub(super) const RDI: u8 = 7;
const R11: u8 = 11;

impl Registers {
    pub(super) const NONE: Self = Self(0);
    /// Those that a function need not preserve (System V ABI, AMD64 supplement, figure 3.4).
    pub(super) const CALLER_SAVED: Self = Self(0b0000_1111_1100_0111);

    fn of(registers: &[u8]) -> Self {
        registers.iter().fold(Self::NONE, |set, &register| {
            Self(set.0 | 1 << (register & 15))
        })
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn has(self, register: u8) -> bool {
        self.0 & 1 << (register & 15) != 0
    }
}

/// The longest that an instruction can be.
pub(super) const MOST_BYTES: usize = 15;

/// The instruction that `code` begins with; `None` where it is none that programs are compiled to,
/// or where `code` ends before it does. *Async-signal-safe.*
///
/// Follows the opcode maps of the Intel 64 and IA-32 Architectures Software Developer's Manual,
/// volume 2, appendix A.
pub(super) fn decode(code: &[u8]) -> Option<Instruction> {
    let mut bytes = Bytes {
        code: code.get(..MOST_BYTES).unwrap_or(code),
        at: 0,
    };
    let prefixes = Prefixes::read(&mut bytes)?;
    let mut decoder = Decoder { bytes, prefixes };
    let (effect, flow) = match decoder.bytes.next()? {
        0x0f => decoder.two_byte()?,
        opcode @ (0xc4 | 0xc5) => (decoder.vex(opcode)?, Flow::Next),
        0x62 => (decoder.evex()?, Flow::Next),
        opcode => decoder.one_byte(opcode)?,
    };
    Some(Instruction {
        length: decoder.bytes.at,
        effect,
        flow,
    })
}

struct Bytes<'c> {
    code: &'c [u8],
    at: usize,
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.at += count;
        (self.at <= self.code.len()).then_some(())
    }

    fn next_i8(&mut self) -> Option<i32> {
        Some(i32::from(self.next()? as i8))
    }

    fn next_i32(&mut self) -> Option<i32> {
        let bytes = self.code.get(self.at..)?.first_chunk()?;
        self.at += bytes.len();
        Some(i32::from_le_bytes(*bytes))
    }
}

/// What stands before the opcode.
#[derive(Default)]
struct Prefixes {
    /// 66: operands have 16 bits, or another instruction of the vector units.
    has_operand_size: bool,
    /// 67, or 64 or 65: an address has 32 bits, or counts from the base of a segment.
    changes_address: bool,
    /// F2 or F3, the last of them.
    repeat: Option<u8>,
    /// 40 to 4F: bits W, R, X, B.
    rex: Option<u8>,
}

impl Prefixes {
    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let mut prefixes = Self::default();
        loop {
            let byte = *bytes.code.get(bytes.at)?;
            match byte {
                0x66 => prefixes.has_operand_size = true,
                0x67 | 0x64 | 0x65 => prefixes.changes_address = true,
                0xf2 | 0xf3 => prefixes.repeat = Some(byte),
                0xf0 | 0x26 | 0x2e | 0x36 | 0x3e => {}
                0x40..=0x4f => {
                    prefixes.rex = Some(byte);
                    bytes.at += 1;
                    return Some(prefixes);
                }
                _ => return Some(prefixes),
            }
            bytes.at += 1;
        }
    }

    fn is_wide(&self) -> bool {
        self.rex.is_some_and(|rex| rex & 8 != 0)
    }

    /// What REX adds to the register number that this bit of it extends.
    fn extension(&self, bit: u8) -> u8 {
        match self.rex {
            Some(rex) if rex & bit != 0 => 8,
            _ => 0,
        }
    }

    /// Bytes of an operand that stands in the code, and has 32 bits at most.
    fn immediate_bytes(&self) -> usize {
        match self.has_operand_size && !self.is_wide() {
            true => 2,
            false => 4,
        }
    }
}

/// The byte after the opcode, and what it asks for.
#[derive(Clone, Copy)]
struct ModRm {
    /// The middle field, as it stands: a part of the opcode of some.
    field: u8,
    /// The same, extended: a register.
    register: u8,
    /// The register operand, where the other one is not memory.
    other: Option<u8>,
    is_relative_to_pc: bool,
    /// How far above the stack pointer the memory operand lies, where that is all that tells its
    /// place.
    above_sp: Option<i32>,
}

impl ModRm {
    /// All the general registers that it names as operands, which may be another unit's.
    fn named(self) -> Registers {
        Registers::of(&[self.register]).and(self.other_changes())
    }

    /// The other operand's register.
    fn other_changes(self) -> Registers {
        match self.other {
            Some(other) => Registers::of(&[other]),
            None => Registers::NONE,
        }
    }
}

struct Decoder<'c> {
    bytes: Bytes<'c>,
    prefixes: Prefixes,
}

const NOTHING: (Effect, Flow) = (Effect::Changes(Registers::NONE), Flow::Next);

fn changes(registers: Registers) -> Option<(Effect, Flow)> {
    Some((Effect::Changes(registers), Flow::Next))
}

fn leads(flow: Flow) -> Option<(Effect, Flow)> {
    Some((Effect::Changes(Registers::NONE), flow))
}

fn calls() -> Option<(Effect, Flow)> {
    Some((Effect::Changes(Registers::CALLER_SAVED), Flow::Call))
}

impl Decoder<'_> {
    fn modrm(&mut self) -> Option<ModRm> {
        let (r, b) = (
            self.prefixes.extension(REX_R),
            self.prefixes.extension(REX_B),
        );
        self.modrm_extended(r, b)
    }

    fn modrm_extended(&mut self, r: u8, b: u8) -> Option<ModRm> {
        let byte = self.bytes.next()?;
        let (mode, field, rm) = (byte >> 6, byte >> 3 & 7, byte & 7);
        let scaled = match mode != 3 && rm == 4 {
            true => Some(self.bytes.next()?),
            false => None,
        };
        let base = scaled.unwrap_or(rm) & 7;
        let displacement = match mode {
            0 if base == 5 => self.bytes.next_i32()?,
            1 => self.bytes.next_i8()?,
            2 => self.bytes.next_i32()?,
            _ => 0,
        };
        let has_index = scaled
            .is_none_or(|scaled| scaled >> 3 & 7 != RSP || self.prefixes.extension(REX_X) != 0);
        let is_above_sp = base | b == RSP && !has_index && !self.prefixes.changes_address;
        Some(ModRm {
            field,
            register: field | r,
            other: (mode == 3).then_some(rm | b),
            is_relative_to_pc: mode == 0 && rm == 5,
            above_sp: is_above_sp.then_some(displacement),
        })
    }

    /// An operand that stands in the code.
    fn skip_immediate(&mut self) -> Option<()> {
        self.bytes.skip(self.prefixes.immediate_bytes())
    }

    /// Of instructions on bytes: without REX, the numbers 4 to 7 stand for the second bytes of the
    /// registers 0 to 3.
    fn of_bytes(&self, registers: Registers) -> Registers {
        match self.prefixes.rex {
            Some(_) => registers,
            None => Registers(registers.0 | registers.0 >> 4 & 0xf),
        }
    }

    /// Like `of_bytes`, of an opcode whose lowest bit says that it is not on bytes.
    fn sized(&self, opcode: u8, registers: Registers) -> Registers {
        match opcode & 1 {
            0 => self.of_bytes(registers),
            _ => registers,
        }
    }

    /// A value for a register, which an instruction on 16 bits does not give in full.
    fn sets(&self, register: u8, operand: Operand) -> Option<(Effect, Flow)> {
        match self.prefixes.has_operand_size {
            true => changes(Registers::of(&[register])),
            false => Some((Effect::Sets { register, operand }, Flow::Next)),
        }
    }

    fn one_byte(&mut self, opcode: u8) -> Option<(Effect, Flow)> {
        let low = opcode & 7 | self.prefixes.extension(REX_B);
        match opcode {
            // add, or, adc, sbb, and, sub, xor, cmp.
            0x00..=0x3f => self.arithmetic(opcode),
            // push, pop.
            0x50..=0x57 => changes(Registers::of(&[RSP])),
            0x58..=0x5f => changes(Registers::of(&[low, RSP])),
            // movsxd.
            0x63 => {
                let modrm = self.modrm()?;
                changes(Registers::of(&[modrm.register]))
            }
            // push.
            0x68 | 0x6a => {
                match opcode {
                    0x68 => self.skip_immediate()?,
                    _ => self.bytes.skip(1)?,
                }
                changes(Registers::of(&[RSP]))
            }
            // imul.
            0x69 | 0x6b => {
                let modrm = self.modrm()?;
                match opcode {
                    0x69 => self.skip_immediate()?,
                    _ => self.bytes.skip(1)?,
                }
                changes(Registers::of(&[modrm.register]))
            }
            0x70..=0x7f => leads(Flow::Branch(self.bytes.next_i8()?)),
            0x80 | 0x81 | 0x83 => {
                let modrm = self.modrm()?;
                match opcode {
                    0x81 => self.skip_immediate()?,
                    _ => self.bytes.skip(1)?,
                }
                match modrm.field {
                    CMP => Some(NOTHING),
                    _ => changes(self.sized(opcode, modrm.other_changes())),
                }
            }
            // test.
            0x84 | 0x85 => self.modrm().map(|_| NOTHING),
            // xchg.
            0x86 | 0x87 => {
                let modrm = self.modrm()?;
                changes(self.sized(opcode, modrm.named()))
            }
            // mov.
            0x88 | 0x8a => {
                let modrm = self.modrm()?;
                let registers = match opcode {
                    0x88 => modrm.other_changes(),
                    _ => Registers::of(&[modrm.register]),
                };
                changes(self.of_bytes(registers))
            }
            0x89 | 0x8b => {
                let modrm = self.modrm()?;
                match (opcode, modrm.other) {
                    (0x89, Some(to)) => self.sets(to, Operand::Register(modrm.register)),
                    (0x89, None) => Some(NOTHING),
                    (_, Some(from)) => self.sets(modrm.register, Operand::Register(from)),
                    (_, None) => match modrm.above_sp {
                        Some(offset) => self.sets(modrm.register, Operand::Stack(offset)),
                        None => changes(Registers::of(&[modrm.register])),
                    },
                }
            }
            // mov from and to a segment register.
            0x8c => {
                let modrm = self.modrm()?;
                changes(modrm.other_changes())
            }
            0x8e => self.modrm().map(|_| NOTHING),
            // lea.
            0x8d => {
                let modrm = self.modrm()?;
                changes(Registers::of(&[modrm.register]))
            }
            // pop.
            0x8f => {
                let modrm = self.modrm()?;
                (modrm.field == 0).then_some(())?;
                changes(modrm.other_changes().and(Registers::of(&[RSP])))
            }
            // nop, or xchg with rax.
            0x90 if low == RAX => Some(NOTHING),
            0x90..=0x97 => changes(Registers::of(&[RAX, low])),
            // cbw and its kin, cwd and its kin.
            0x98 => changes(Registers::of(&[RAX])),
            0x99 => changes(Registers::of(&[RDX])),
            // fwait, sahf.
            0x9b | 0x9e => Some(NOTHING),
            // pushf, popf.
            0x9c | 0x9d => changes(Registers::of(&[RSP])),
            // lahf.
            0x9f => changes(Registers::of(&[RAX])),
            // movs, cmps, stos, lods, scas.
            0xa4..=0xa7 | 0xaa..=0xaf => changes(Registers::of(&[RAX, RCX, RSI, RDI])),
            // test.
            0xa8 => self.bytes.skip(1).map(|()| NOTHING),
            0xa9 => self.skip_immediate().map(|()| NOTHING),
            // mov.
            0xb0..=0xb7 => {
                self.bytes.skip(1)?;
                changes(self.of_bytes(Registers::of(&[low])))
            }
            0xb8..=0xbf => {
                if self.prefixes.has_operand_size && !self.prefixes.is_wide() {
                    self.bytes.skip(2)?;
                    return changes(Registers::of(&[low]));
                }
                let value = self.bytes.next_i32()?.cast_unsigned();
                if self.prefixes.is_wide() {
                    self.bytes.skip(4)?;
                }
                self.sets(low, Operand::Constant(value))
            }
            // Shifts.
            0xc0 | 0xc1 | 0xd0..=0xd3 => {
                let modrm = self.modrm()?;
                if matches!(opcode, 0xc0 | 0xc1) {
                    self.bytes.skip(1)?;
                }
                changes(self.sized(opcode, modrm.other_changes()))
            }
            // ret.
            0xc2 => self.bytes.skip(2).and_then(|()| leads(Flow::End)),
            0xc3 => leads(Flow::End),
            // mov.
            0xc6 | 0xc7 => {
                let modrm = self.modrm()?;
                match (modrm.field, modrm.other) {
                    (0, _) => {}
                    (7, Some(RAX)) => return self.transaction(opcode),
                    _ => return None,
                }
                if opcode == 0xc6 {
                    self.bytes.skip(1)?;
                    return changes(self.of_bytes(modrm.other_changes()));
                }
                if self.prefixes.immediate_bytes() == 2 {
                    self.bytes.skip(2)?;
                    return changes(modrm.other_changes());
                }
                let value = self.bytes.next_i32()?.cast_unsigned();
                match modrm.other {
                    Some(to) => self.sets(to, Operand::Constant(value)),
                    None => Some(NOTHING),
                }
            }
            // enter, leave.
            0xc8 => {
                self.bytes.skip(3)?;
                changes(Registers::of(&[RBP, RSP]))
            }
            0xc9 => changes(Registers::of(&[RBP, RSP])),
            // int3.
            0xcc => leads(Flow::End),
            // xlat.
            0xd7 => changes(Registers::of(&[RAX])),
            // The x87 unit, which has one instruction that writes to `ax`.
            0xd8..=0xdf => {
                let modrm = self.modrm()?;
                match modrm.other {
                    Some(_) => changes(Registers::of(&[RAX])),
                    None => Some(NOTHING),
                }
            }
            // loop, jrcxz.
            0xe0..=0xe3 => {
                let target = self.bytes.next_i8()?;
                let counter = Effect::Changes(Registers::of(&[RCX]));
                Some((counter, Flow::Branch(target)))
            }
            // Makers of CPUs differ in what they make of another operand size here.
            0xe8 if !self.prefixes.has_operand_size => {
                self.bytes.skip(4)?;
                calls()
            }
            0xe9 if !self.prefixes.has_operand_size => leads(Flow::Jump(self.bytes.next_i32()?)),
            0xeb => leads(Flow::Jump(self.bytes.next_i8()?)),
            // hlt, which stands after calls that do not return.
            0xf4 => leads(Flow::End),
            // Flags.
            0xf5 | 0xf8..=0xfd => Some(NOTHING),
            0xf6 | 0xf7 => {
                let modrm = self.modrm()?;
                match (modrm.field, opcode) {
                    // test.
                    (0 | 1, 0xf6) => self.bytes.skip(1).map(|()| NOTHING),
                    (0 | 1, _) => self.skip_immediate().map(|()| NOTHING),
                    // not, neg.
                    (2 | 3, _) => changes(self.sized(opcode, modrm.other_changes())),
                    // mul, imul, div, idiv.
                    _ => changes(Registers::of(&[RAX, RDX])),
                }
            }
            0xfe | 0xff => {
                let modrm = self.modrm()?;
                match (modrm.field, opcode) {
                    // inc, dec.
                    (0 | 1, _) => changes(self.sized(opcode, modrm.other_changes())),
                    (2, 0xff) => calls(),
                    // Through the linkage table: out of the function.
                    (4, 0xff) if modrm.is_relative_to_pc => leads(Flow::End),
                    (4, 0xff) => leads(Flow::Computed),
                    // push.
                    (6, 0xff) => changes(Registers::of(&[RSP])),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// xabort and xbegin, which say in `eax` why a transaction was given up.
    fn transaction(&mut self, opcode: u8) -> Option<(Effect, Flow)> {
        let flow = match opcode {
            0xc6 => {
                self.bytes.skip(1)?;
                Flow::Next
            }
            _ if self.prefixes.has_operand_size => return None,
            _ => Flow::Branch(self.bytes.next_i32()?),
        };
        Some((Effect::Changes(Registers::of(&[RAX])), flow))
    }

    fn arithmetic(&mut self, opcode: u8) -> Option<(Effect, Flow)> {
        let operation = opcode >> 3;
        let is_cmp = operation == CMP;
        match opcode & 7 {
            form @ 0..=3 => {
                let modrm = self.modrm()?;
                if is_cmp {
                    return Some(NOTHING);
                }
                let is_cleared = matches!(operation, SUB | XOR)
                    && form & 1 == 1
                    && modrm.other == Some(modrm.register);
                if is_cleared {
                    return self.sets(modrm.register, Operand::Constant(0));
                }
                let registers = match form {
                    0 | 1 => modrm.other_changes(),
                    _ => Registers::of(&[modrm.register]),
                };
                changes(self.sized(opcode, registers))
            }
            form @ (4 | 5) => {
                match form {
                    4 => self.bytes.skip(1)?,
                    _ => self.skip_immediate()?,
                }
                match is_cmp {
                    true => Some(NOTHING),
                    false => changes(Registers::of(&[RAX])),
                }
            }
            _ => None,
        }
    }

    fn two_byte(&mut self) -> Option<(Effect, Flow)> {
        let opcode = self.bytes.next()?;
        match opcode {
            // syscall.
            0x05 => Some((
                Effect::Changes(Registers::of(&[RAX, RCX, R11])),
                Flow::Syscall,
            )),
            // ud2.
            0x0b => leads(Flow::End),
            0x01 => {
                let modrm = self.modrm()?;
                match modrm.other {
                    // rdtscp, xgetbv and others, each with registers of its own.
                    Some(_) => changes(Registers::CALLER_SAVED.and(Registers::of(&[RBX]))),
                    None => Some(NOTHING),
                }
            }
            // Moves, prefetches, nop with an operand, endbr64; and rdssp, which has a register.
            0x0d | 0x10..=0x1d | 0x1f | 0x28..=0x2b | 0x2e | 0x2f => self.modrm().map(|_| NOTHING),
            0x1e => {
                let modrm = self.modrm()?;
                changes(modrm.other_changes())
            }
            // Conversions to a register; cmov.
            0x2c | 0x2d | 0x40..=0x4f => {
                let modrm = self.modrm()?;
                changes(Registers::of(&[modrm.register]))
            }
            // rdtsc.
            0x31 => changes(Registers::of(&[RAX, RDX])),
            0x38 => {
                let opcode = self.bytes.next()?;
                let modrm = self.modrm()?;
                match opcode {
                    0xf0.. => changes(modrm.named()),
                    _ => Some(NOTHING),
                }
            }
            0x3a => {
                let opcode = self.bytes.next()?;
                let modrm = self.modrm()?;
                self.bytes.skip(1)?;
                match opcode {
                    0x14..=0x17 => changes(modrm.other_changes()),
                    // pcmpestri, pcmpistri.
                    0x61 | 0x63 => changes(Registers::of(&[RCX])),
                    _ => Some(NOTHING),
                }
            }
            // movmskps, pmovmskb.
            0x50 | 0xd7 => {
                let modrm = self.modrm()?;
                changes(Registers::of(&[modrm.register]))
            }
            0x70..=0x73 | 0xc2 | 0xc4 | 0xc6 => {
                self.modrm()?;
                self.bytes.skip(1).map(|()| NOTHING)
            }
            // emms.
            0x77 => Some(NOTHING),
            // movd, movq.
            0x7e if self.prefixes.repeat.is_none() => {
                let modrm = self.modrm()?;
                changes(modrm.other_changes())
            }
            0x80..=0x8f => leads(Flow::Branch(self.bytes.next_i32()?)),
            // setcc.
            0x90..=0x9f => {
                let modrm = self.modrm()?;
                changes(self.of_bytes(modrm.other_changes()))
            }
            // push and pop of segment registers.
            0xa0 | 0xa1 | 0xa8 | 0xa9 => changes(Registers::of(&[RSP])),
            // cpuid.
            0xa2 => changes(Registers::of(&[RAX, RBX, RCX, RDX])),
            // bt.
            0xa3 => self.modrm().map(|_| NOTHING),
            // shld, shrd; bts, btr, btc.
            0xa4 | 0xac => {
                let modrm = self.modrm()?;
                self.bytes.skip(1)?;
                changes(modrm.other_changes())
            }
            0xa5 | 0xad | 0xab | 0xb3 | 0xbb => {
                let modrm = self.modrm()?;
                changes(modrm.other_changes())
            }
            // Fences, saved states; and rdfsbase, which has a register.
            0xae => {
                let modrm = self.modrm()?;
                changes(modrm.other_changes())
            }
            // imul; movzx, movsx; popcnt, bsf, bsr.
            0xaf | 0xb6..=0xb8 | 0xbc..=0xbf => {
                let modrm = self.modrm()?;
                changes(Registers::of(&[modrm.register]))
            }
            // cmpxchg.
            0xb0 | 0xb1 => {
                let modrm = self.modrm()?;
                let compared = Registers::of(&[RAX]);
                changes(self.sized(opcode, modrm.other_changes()).and(compared))
            }
            // bt and its kin.
            0xba => {
                let modrm = self.modrm()?;
                self.bytes.skip(1)?;
                changes(modrm.other_changes())
            }
            // xadd.
            0xc0 | 0xc1 => {
                let modrm = self.modrm()?;
                changes(self.sized(opcode, modrm.named()))
            }
            // movnti.
            0xc3 => self.modrm().map(|_| NOTHING),
            // pextrw.
            0xc5 => {
                let modrm = self.modrm()?;
                self.bytes.skip(1)?;
                changes(Registers::of(&[modrm.register]))
            }
            // cmpxchg16b; rdrand, rdpid.
            0xc7 => {
                let modrm = self.modrm()?;
                changes(modrm.other_changes().and(Registers::of(&[RAX, RDX])))
            }
            // bswap.
            0xc8..=0xcf => {
                let register = opcode & 7 | self.prefixes.extension(REX_B);
                changes(Registers::of(&[register]))
            }
            // The vector units' own, with registers of theirs.
            0x51..=0x6f | 0x74..=0x76 | 0x7c..=0x7f | 0xd0..=0xfe => self.modrm().map(|_| NOTHING),
            _ => None,
        }
    }

    /// Instructions of the vector units with a prefix of two or three bytes, and those on general
    /// registers that have such a prefix, too.
    fn vex(&mut self, prefix: u8) -> Option<Effect> {
        let first = self.bytes.next()?;
        let (map, last) = match prefix {
            0xc5 => (1, first),
            _ => (first & 0x1f, self.bytes.next()?),
        };
        // The bits are inverted.
        let r = !first >> 7 << 3;
        let b = match prefix {
            0xc5 => 0,
            _ => !first >> 5 << 3 & 8,
        };
        let third = !last >> 3 & 15;
        let opcode = self.bytes.next()?;
        if (map, opcode) == (1, 0x77) {
            // vzeroupper.
            return Some(Effect::Changes(Registers::NONE));
        }
        matches!(map, 1..=3).then_some(())?;
        self.vector(map, opcode, r, b, third)
    }

    /// The same with a prefix of four bytes.
    fn evex(&mut self) -> Option<Effect> {
        let (first, second, _third) = (self.bytes.next()?, self.bytes.next()?, self.bytes.next()?);
        let map = first & 7;
        matches!(map, 1..=3 | 5 | 6).then_some(())?;
        let r = !first >> 7 << 3;
        let b = !first >> 5 << 3 & 8;
        let opcode = self.bytes.next()?;
        self.vector(map, opcode, r, b, !second >> 3 & 15)
    }

    /// Nobody asks which registers of these are general ones: all whose numbers they name may be.
    fn vector(&mut self, map: u8, opcode: u8, r: u8, b: u8, third: u8) -> Option<Effect> {
        let modrm = self.modrm_extended(r, b)?;
        let has_immediate =
            map == 3 || map == 1 && matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6);
        if has_immediate {
            self.bytes.skip(1)?;
        }
        // vpcmpestri, vpcmpistri.
        let counter = match (map, opcode) {
            (3, 0x61 | 0x63) => Registers::of(&[RCX]),
            _ => Registers::NONE,
        };
        let named = modrm.named().and(Registers::of(&[third]));
        Some(Effect::Changes(named.and(counter)))
    }
}

const REX_R: u8 = 4;
const REX_X: u8 = 2;
const REX_B: u8 = 1;
/// Arithmetic operations, as opcodes have them in three bits.
const SUB: u8 = 5;
const XOR: u8 = 6;
const CMP: u8 = 7;
