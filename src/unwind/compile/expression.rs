//! Expressions of unwind data (DWARF 5, 2.5), of which compilers and linkers write few kinds.
#![forbid(unsafe_code)]

use gimli::{EndianSlice, Expression, NativeEndian, Operation, OperationIter, UnwindExpression};

use super::Bytes;
use crate::sys::arch::REGISTERS;
use crate::unwind::rule::{Kind, Rule};

/// An expression that is a register and an offset: the register, and the offset in bytes.
pub(super) fn from_register(
    expression: UnwindExpression<usize>,
    section: &[u8],
) -> Option<(u16, i64)> {
    let (register, offset, mut rest) = register_and_offset(bytes(expression, section)?)?;
    matches!(rest.next(), Ok(None)).then_some((register, offset))
}

/// The CFA that an expression computes, for those that compilers and linkers write.
pub(super) fn cfa_of(expression: UnwindExpression<usize>, section: &[u8]) -> Option<Rule> {
    let bytes = bytes(expression, section)?;
    // What linkers write for the procedure linkage table: breg7 (rsp) 8, breg16 (rip) 0, lit15,
    // and, lit<n>, ge, lit3, shl, plus.
    if cfg!(target_arch = "x86_64")
        && let [
            0x77,
            0x08,
            0x80,
            0x00,
            0x3f,
            0x1a,
            place @ 0x30..=0x3f,
            0x2a,
            0x33,
            0x24,
            0x22,
        ] = *bytes
    {
        return Some(cfa(Kind::LinkageTable, place - 0x30, 8));
    }
    let (register, offset, mut rest) = register_and_offset(bytes)?;
    let register = u8::try_from(register).ok()?;
    let offset = i32::try_from(offset).ok()?;
    if usize::from(register) >= REGISTERS {
        return None;
    }
    match rest.next() {
        Ok(None) => Some(cfa(Kind::Register, register, offset)),
        Ok(Some(Operation::Deref { size: 8, .. })) => {
            // gcc saves the CFA itself, hand-written code (OpenSSL's) the stack pointer that it was
            // called with, below which the return address lies.
            let loaded_offset = match rest.next() {
                Ok(None) => 0,
                Ok(Some(Operation::PlusConstant { value })) => i16::try_from(value).ok()?,
                _ => return None,
            };
            matches!(rest.next(), Ok(None)).then_some(Rule {
                loaded_offset,
                ..cfa(Kind::Loaded, register, offset)
            })
        }
        _ => None,
    }
}

/// A rule of which the CFA alone is known.
fn cfa(kind: Kind, cfa_register: u8, cfa_offset: i32) -> Rule {
    Rule {
        cfa_register,
        cfa_offset,
        ..Rule::of(kind)
    }
}

fn bytes(expression: UnwindExpression<usize>, section: &[u8]) -> Option<&[u8]> {
    section.get(expression.offset..)?.get(..expression.length)
}

/// The register and the offset that an expression begins with, and its other operations.
fn register_and_offset(bytes: &[u8]) -> Option<(u16, i64, OperationIter<Bytes<'_>>)> {
    let encoding = gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    };
    let mut operations = Expression(EndianSlice::new(bytes, NativeEndian)).operations(encoding);
    match operations.next() {
        Ok(Some(Operation::RegisterOffset {
            register, offset, ..
        })) => Some((register.0, offset, operations)),
        _ => None,
    }
}
