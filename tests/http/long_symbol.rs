//! A function whose symbol is long, with more addresses than a request can name.

use std::arch::global_asm;

/// How many bytes the function has.
pub const BYTES: usize = 400_000;

macro_rules! ten {
    ($text:expr) => {
        concat!(
            $text, $text, $text, $text, $text, $text, $text, $text, $text, $text
        )
    };
}

/// 1,006 bytes.
macro_rules! symbol {
    () => {
        concat!("a_long", ten!(ten!("_function__")))
    };
}

global_asm!(
    concat!(".pushsection .text.long_symbol, \"ax\", %progbits\n", symbol!(), ":"),
    ".fill {bytes}, 1, 0",
    concat!(".type ", symbol!(), ", %function"),
    concat!(".size ", symbol!(), ", {bytes}"),
    ".popsection",
    ".pushsection .data.rel.ro.long_symbol, \"aw\", %progbits",
    ".balign 8",
    ".globl sigprof_long_symbol",
    concat!("sigprof_long_symbol: .8byte ", symbol!()),
    ".popsection",
    bytes = const BYTES,
);

unsafe extern "C" {
    static sigprof_long_symbol: usize;
}

/// Where the function begins.
pub fn begin() -> usize {
    // SAFETY: the linker has set it, and nothing writes it.
    unsafe { sigprof_long_symbol }
}
