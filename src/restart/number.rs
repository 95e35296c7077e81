//! The number of a system call, from the code before it.
#![forbid(unsafe_code)]

use super::function::{Function, Value};
use super::instruction::RAX;

/// How many copies from register to register are followed.
const MOST_MOVES: usize = 4;

/// The number that a function has in `rax` for the system call at the address `call`, whichever way
/// the call is reached; `None` where that is not certain. *Async-signal-safe* if the function's
/// reading is.
pub(super) fn number_at(call: u64, function: &mut Function<'_>) -> Option<u32> {
    let (mut place, mut register) = (call, RAX);
    for _ in 0..MOST_MOVES {
        match function.value_before(place, register)? {
            Value::Constant(number) => return Some(number),
            Value::Moved { from, offset } => {
                place = function.address(offset);
                register = from;
            }
            Value::Given | Value::Unknown => return None,
        }
    }
    None
}
