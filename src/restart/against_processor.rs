//! What instructions do, by the processor itself.

use std::io::Write;

use super::instruction::{Effect, Flow, Instruction, MOST_BYTES, Operand, RSP, decode};
use crate::process;
use crate::sys::arch::Registers;
use crate::sys::memory::copy_from;
use crate::unwind::truth::tracer::{Stop, Tracee, refusal};

/// Where the registers lie that instructions number from 0, by DWARF's numbers (System V ABI, AMD64
/// supplement, figure 3.36).
const DWARF: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// Code of many kinds, of compilers and of assembly, that needs no lock.
extern "C" fn work() {
    let mut numbers: [u64; 64] = std::array::from_fn(|i| (i as u64 * 7919) % 257);
    numbers.sort_unstable();
    let mut text = [0_u8; 256];
    let mut left = &mut text[..];
    let mean = numbers.iter().map(|&n| n as f64).sum::<f64>() / 64.0;
    let _ = write!(
        left,
        "{mean:.3} {:?} {:x}",
        &numbers[..4],
        numbers[9].pow(3)
    );
    // SAFETY: the text is ended by a zero.
    let parsed = unsafe {
        let text = text.as_ptr().cast();
        libc::strtod(text, std::ptr::null_mut()) + libc::strlen(text) as f64
    };
    let words: Vec<u8> = text
        .iter()
        .copied()
        .filter(u8::is_ascii_digit)
        .rev()
        .collect();
    std::hint::black_box((parsed, words, u128::from(numbers[3]) / 77));
    // SAFETY: waits for nothing.
    unsafe { libc::poll(std::ptr::null_mut(), 0, 0) };
}

#[test]
fn instructions_do_what_they_are_said_to() {
    if let Some(error) = refusal() {
        process::skip(&format!("nothing can be traced: {error}"));
        return;
    }
    let tracee = Tracee::start(work).unwrap();
    let (mut known, mut unknown) = (0, 0);
    let mut before = tracee.registers().unwrap();
    for _ in 0..(20_000.0 * process::soak()) as usize {
        assert_eq!(tracee.step(0).unwrap(), Stop::Step);
        let after = tracee.registers().unwrap();
        let mut code = [0; MOST_BYTES];
        if copy_from(before.pc, &mut code).is_some() {
            match decode(&code) {
                Some(instruction) => {
                    known += 1;
                    check(&tracee, &before, instruction, &after, &code);
                }
                None => unknown += 1,
            }
        }
        before = after;
    }
    assert!(unknown * 1000 < known, "{unknown} of {known} are not known");
}

fn check(
    tracee: &Tracee,
    before: &Registers,
    instruction: Instruction,
    after: &Registers,
    code: &[u8],
) {
    let of = |registers: &Registers, number: u8| {
        registers.general[usize::from(DWARF[usize::from(number)])]
    };
    let context = || format!("{instruction:x?} at {:x}: {code:02x?}", before.pc);
    for register in 0..16 {
        let [old, new] = [before, after].map(|registers| of(registers, register));
        match instruction.effect {
            Effect::Sets {
                register: set,
                operand,
            } if set == register => {
                let value = match operand {
                    Operand::Constant(value) => value,
                    Operand::Register(from) => of(before, from) as u32,
                    Operand::Stack(offset) => {
                        let place = of(before, RSP).wrapping_add_signed(offset.into());
                        tracee.word(place).unwrap() as u32
                    }
                };
                assert_eq!(new as u32, value, "{}", context());
            }
            Effect::Changes(registers) if registers.has(register) => {}
            // Where a function is called and returns from, the stack is as it was when it has
            // returned.
            _ if register == RSP && matches!(instruction.flow, Flow::Call | Flow::End) => {}
            _ => assert_eq!(old, new, "{register}: {}", context()),
        }
    }
    let next = before.pc.wrapping_add(instruction.length as u64);
    let is_there = |distance: i32| after.pc == next.wrapping_add_signed(distance.into());
    let is_as_said = match instruction.flow {
        // Instructions that are repeated stop after each time.
        Flow::Next => after.pc == next || after.pc == before.pc,
        Flow::Syscall => after.pc == next,
        Flow::Jump(distance) => is_there(distance),
        Flow::Branch(distance) => after.pc == next || is_there(distance),
        Flow::Computed | Flow::Call | Flow::End => true,
    };
    assert!(is_as_said, "to {:x}: {}", after.pc, context());
}
