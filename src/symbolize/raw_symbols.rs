//! Symbol tables of ELF files, as they stand there (gABI, "Symbol Table").

use object::LittleEndian;
use object::elf::{self, SectionType, Sym32, Sym64, SymbolInfo, SymbolSection};
use object::pod::{Pod, slice_from_bytes};
use object::read::elf::Sym;

/// The byte order of all supported machines.
pub(super) const ENDIAN: LittleEndian = LittleEndian;

/// How wide addresses are (gABI, `EI_CLASS`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    Elf32,
    Elf64,
}

/// Which symbol table of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Table {
    /// All symbols, which `strip` removes.
    Symtab,
    /// Those that other objects see.
    Dynsym,
}

impl Table {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Symtab => ".symtab",
            Self::Dynsym => ".dynsym",
        }
    }

    /// What the section's header says (gABI, `sh_type`).
    pub(super) fn kind(self) -> SectionType {
        match self {
            Self::Symtab => elf::SHT_SYMTAB,
            Self::Dynsym => elf::SHT_DYNSYM,
        }
    }
}

/// A symbol, of either class.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSymbol {
    name: u32,
    info: SymbolInfo,
    pub(super) section: SymbolSection,
    pub(super) value: u64,
    pub(super) size: u64,
}

/// A symbol table, and its strings.
pub(super) struct RawSymbols<'d> {
    pub(super) class: Class,
    pub(super) bytes: &'d [u8],
    pub(super) strings: &'d [u8],
}

impl<'d> RawSymbols<'d> {
    /// Calls `each` with each whole one.
    pub(super) fn for_each(&self, mut each: impl FnMut(RawSymbol)) {
        fn all<S: Pod + Sym<Endian = LittleEndian>>(bytes: &[u8], each: impl FnMut(&S)) {
            let count = bytes.len() / size_of::<S>();
            if let Ok((symbols, _)) = slice_from_bytes::<S>(bytes, count) {
                symbols.iter().for_each(each);
            }
        }
        match self.class {
            Class::Elf32 => all::<Sym32<_>>(self.bytes, |symbol| each(RawSymbol::of(symbol))),
            Class::Elf64 => all::<Sym64<_>>(self.bytes, |symbol| each(RawSymbol::of(symbol))),
        }
    }

    /// How many bytes all names have, those that share bytes once.
    pub(super) fn strings_len(&self) -> usize {
        self.strings.len()
    }

    /// A symbol's name.
    ///
    /// # Errors
    ///
    /// Where it is outside of the strings.
    pub(super) fn name(&self, symbol: RawSymbol) -> Result<&'d [u8], &'static str> {
        let rest = self.strings.get(symbol.name as usize..);
        let name = rest.and_then(|rest| rest.split(|&byte| byte == 0).next());
        name.ok_or("a name is outside of its strings")
    }
}

impl RawSymbol {
    fn of<S: Sym<Endian = LittleEndian>>(symbol: &S) -> Self {
        Self {
            name: symbol.st_name(ENDIAN),
            info: symbol.st_info(),
            section: symbol.st_shndx(ENDIAN),
            value: symbol.st_value(ENDIAN).into(),
            size: symbol.st_size(ENDIAN).into(),
        }
    }

    /// Whether it is said to be that of a function that is in the object.
    pub(super) fn is_function(self) -> bool {
        let is_kind = match self.info.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
            elf::STT_NOTYPE => self.size > 0,
            _ => false,
        };
        is_kind && self.section != elf::SHN_UNDEF
    }

    /// Whether it says where something begins, and neither what that is nor how long: assemblers
    /// know no more of a label.
    pub(super) fn is_label(self) -> bool {
        self.info.st_type() == elf::STT_NOTYPE && self.size == 0
    }

    pub(super) fn is_local(self) -> bool {
        self.info.st_bind() == elf::STB_LOCAL
    }

    pub(super) fn is_weak(self) -> bool {
        self.info.st_bind() == elf::STB_WEAK
    }
}
