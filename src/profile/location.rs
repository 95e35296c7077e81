//! Where code is: mappings, locations, functions and lines.

use super::{FunctionId, MappingId, StringId};

/// One executable range of the address space and the object it was mapped from (profile.proto's
/// `Mapping`).
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Mapping {
    /// First address.
    pub memory_start: u64,
    /// One past the last address.
    pub memory_limit: u64,
    /// Where in the object the range begins, in bytes.
    pub file_offset: u64,
    /// The object's path as the kernel names it, without ` (deleted)`; `[vdso]` for the vDSO.
    pub filename: String,
    /// Lowercase hex of `.note.gnu.build-id`; empty where there is none.
    pub build_id: String,
    /// Functions are known: a location without any has none that could be found.
    pub has_functions: bool,
    /// File names are known, where the object has them.
    pub has_filenames: bool,
    /// Line numbers are known, where the object has them.
    pub has_line_numbers: bool,
    /// Inlined frames are among the lines, where the object has them.
    pub has_inline_frames: bool,
}

/// One code address (profile.proto's `Location`).
///
/// The address of a leaf frame is the interrupted program counter; that of any other frame is the
/// return address minus one, which lies inside the call instruction.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Location {
    /// The mapping that holds the address, if any does.
    pub mapping: Option<MappingId>,
    /// The address in the profiled process.
    pub address: u64,
    /// Source positions, innermost inlined function first; empty until symbolized.
    pub lines: Vec<Line>,
    /// Several functions share this code (identical code folding).
    pub is_folded: bool,
}

/// A position in the source (profile.proto's `Line`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Line number from 1; 0 where unknown.
    pub line: i64,
    /// Column number from 1; 0 where unknown.
    pub column: i64,
}

/// A function (profile.proto's `Function`).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Function {
    /// The name for people, demangled.
    pub name: StringId,
    /// The symbol as the linker sees it, mangled.
    pub system_name: StringId,
    /// The source file.
    pub filename: StringId,
    /// The line the function begins at; 0 where unknown.
    pub start_line: i64,
}
