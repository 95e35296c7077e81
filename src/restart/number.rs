//! The number of a system call, from the code before it.
#![forbid(unsafe_code)]

use super::function::{Function, Value};
use super::instruction::{RAX, RSP};
use super::numbers::{Number, Sought};

impl Sought {
    /// The number that the instruction of a system call takes.
    pub(crate) fn at_call(place: u64) -> Self {
        Self {
            place,
            register: RAX,
        }
    }
}

/// How many copies from register to register are followed.
const MOST_MOVES: usize = 4;

/// What is known of a number in the code of a function, whichever way its place is
/// reached. *Async-signal-safe* if the function's reading is.
pub(super) fn number_in(function: &mut Function<'_>, sought: Sought) -> Number {
    let Sought {
        mut place,
        mut register,
    } = sought;
    for _ in 0..MOST_MOVES {
        match function.value_before(place, register) {
            Some(Value::Constant(number)) => return Number::Known(number),
            Some(Value::Moved { from, offset }) => {
                place = function.address(offset);
                register = from;
            }
            // The stack pointer may have moved since a copy was made.
            Some(Value::Stack(offset)) if place == sought.place => {
                return u32::try_from(offset).map_or(Number::Unknown, Number::Stack);
            }
            Some(Value::Given) if register != RSP => return Number::Given(register),
            _ => break,
        }
    }
    Number::Unknown
}
