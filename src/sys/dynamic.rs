//! The dynamic section of an ELF object in memory: which symbols it defines, and which words the
//! loader fills with their addresses.
//!
//! Formats: System V ABI, chapter 5; the GNU hash table as glibc's `do_lookup_x` reads it. What a
//! module says of itself is taken as far as it stays within the module's own readable segments, and
//! no further.
#![forbid(unsafe_code)]

use std::ffi::CStr;

use super::image::Image;

const DT_NULL: u64 = 0;
const DT_PLTRELSZ: u64 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_PLTREL: u64 = 20;
const DT_JMPREL: u64 = 23;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_RELACOUNT: u64 = 0x6fff_fff9;
const DT_VERNEED: u64 = 0x6fff_fffe;

/// `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT` (System V ABI, AMD64 supplement, 4.4).
#[cfg(target_arch = "x86_64")]
const RELOCATIONS: (u32, u32) = (6, 7);
/// `R_AARCH64_GLOB_DAT` and `R_AARCH64_JUMP_SLOT` (ELF for the Arm 64-bit Architecture, 5.7.11).
#[cfg(target_arch = "aarch64")]
const RELOCATIONS: (u32, u32) = (1025, 1026);

const RELOCATION_BYTES: usize = 24;
const SYMBOL_BYTES: usize = 24;

/// In a symbol's version: it is not the one that is meant where none is named (Linux Standard Base,
/// 10.7).
const HIDDEN: u16 = 0x8000;

/// A word that the loader fills with a function's address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Slot<'l> {
    /// Where it is, as a link-time address.
    pub(super) address: u64,
    /// Whether it may be filled at the first call only, and lead to the module's own resolver stub
    /// until then.
    pub(super) may_be_lazy: bool,
    /// The version of the function that the module needs, where it names one.
    pub(super) version: Option<&'l [u8]>,
}

/// Symbols and relocations of a module.
#[derive(Debug)]
pub(super) struct Dynamic<'l> {
    symbols: &'l [u8],
    names: &'l [u8],
    /// By symbol, where there are any.
    versions: Option<&'l [u8]>,
    /// The versions that it needs of other modules.
    needed: Option<&'l [u8]>,
    gnu_hash: Option<&'l [u8]>,
    hash: Option<&'l [u8]>,
    /// Of data, and of calls.
    relocations: [&'l [u8]; 2],
}

impl<'l> Dynamic<'l> {
    /// `None` for a module without a dynamic section, or with one that cannot be.
    pub(super) fn new(image: &Image<'l>) -> Option<Self> {
        let section = image.dynamic_section()?;
        let value = |tag: u64| {
            section
                .chunks_exact(16)
                .map_while(|entry| Some((word(entry, 0)?, word(entry, 8)?)))
                .take_while(|(tag, _)| *tag != DT_NULL)
                .find(|(found, _)| *found == tag)
                .map(|(_, value)| value)
        };
        let table = |tag: u64| image.table(value(tag)?);
        let sized = |tag: u64, size: u64| {
            let len = usize::try_from(value(size)?).ok()?;
            table(tag)?.get(..len)
        };
        // The first so many have no symbol: a large program has millions of them.
        let relative = value(DT_RELACOUNT).and_then(|n| usize::try_from(n).ok());
        let relative = relative.unwrap_or(0).checked_mul(RELOCATION_BYTES)?;
        let data = sized(DT_RELA, DT_RELASZ).and_then(|all| all.get(relative..));
        let calls =
            sized(DT_JMPREL, DT_PLTRELSZ).filter(|_| value(DT_PLTREL).is_none_or(|t| t == DT_RELA));
        Some(Self {
            symbols: table(DT_SYMTAB)?,
            names: table(DT_STRTAB)?,
            versions: table(DT_VERSYM),
            needed: table(DT_VERNEED),
            gnu_hash: table(DT_GNU_HASH),
            hash: table(DT_HASH),
            relocations: [data.unwrap_or_default(), calls.unwrap_or_default()],
        })
    }

    /// The words that hold the addresses of functions for the module's own code: of those whose
    /// names `find` knows, with what it has for them.
    pub(super) fn slots<T>(
        &self,
        find: impl Fn(&[u8]) -> Option<T>,
    ) -> impl Iterator<Item = (T, Slot<'l>)> {
        let (data, call) = RELOCATIONS;
        let all = self
            .relocations
            .into_iter()
            .flat_map(|r| r.chunks_exact(RELOCATION_BYTES));
        all.filter_map(move |relocation| {
            let info = word(relocation, 8)?;
            let (symbol, kind) = ((info >> 32) as usize, info as u32);
            if kind != data && kind != call {
                return None;
            }
            let found = find(self.name(symbol)?)?;
            let slot = Slot {
                address: word(relocation, 0)?,
                may_be_lazy: kind == call,
                version: self.needed_version(symbol),
            };
            Some((found, slot))
        })
    }

    /// The link-time address of the function `name`, if this module defines it for others.
    pub(super) fn definition(&self, name: &[u8]) -> Option<u64> {
        let found = match self.gnu_hash {
            Some(table) => self.in_gnu_hash(table, name),
            None => self.in_hash(self.hash?, name),
        };
        word(self.symbol(found?)?, 8)
    }

    fn in_gnu_hash(&self, table: &[u8], name: &[u8]) -> Option<usize> {
        let hash = gnu_hash(name);
        let [buckets, first, filter_words] = [half(table, 0)?, half(table, 4)?, half(table, 8)?];
        let bucket_at = filter_words.checked_mul(8)?.checked_add(16)?;
        let chain_at = buckets.checked_mul(4)?.checked_add(bucket_at)?;
        let bucket = (hash as usize).checked_rem(buckets)?;
        let mut symbol = half(table, bucket_at.checked_add(bucket.checked_mul(4)?)?)?;
        // A chain ends with a hash whose lowest bit is set, or with the table.
        loop {
            let place = symbol.checked_sub(first)?.checked_mul(4)?;
            let entry = half(table, chain_at.checked_add(place)?)? as u32;
            if entry | 1 == hash | 1 && self.defines(symbol, name) {
                return Some(symbol);
            }
            if entry & 1 == 1 {
                return None;
            }
            symbol = symbol.checked_add(1)?;
        }
    }

    fn in_hash(&self, table: &[u8], name: &[u8]) -> Option<usize> {
        let [buckets, chains] = [half(table, 0)?, half(table, 4)?];
        let bucket = (hash(name) as usize).checked_rem(buckets)?;
        let mut symbol = half(table, 8 + bucket.checked_mul(4)?)?;
        let chain_at = buckets.checked_mul(4)?.checked_add(8)?;
        // A chain that is longer than the table has a loop.
        for _ in 0..chains {
            if symbol == 0 {
                return None;
            }
            if self.defines(symbol, name) {
                return Some(symbol);
            }
            symbol = half(table, chain_at.checked_add(symbol.checked_mul(4)?)?)?;
        }
        None
    }

    /// Whether this is a function of that name which is here and can be bound to from elsewhere, by
    /// those that name no version of it.
    fn defines(&self, symbol: usize, name: &[u8]) -> bool {
        const FUNCTION: u8 = 2;
        const GLOBAL_OR_WEAK: std::ops::RangeInclusive<u8> = 1..=2;
        const UNDEFINED: [u8; 2] = [0, 0];
        let bytes = self.symbol(symbol).unwrap_or_default();
        let [_, _, _, _, info, _, section @ ..] = bytes else {
            return false;
        };
        info & 0xf == FUNCTION
            && GLOBAL_OR_WEAK.contains(&(info >> 4))
            && !section.starts_with(&UNDEFINED)
            && self.name(symbol) == Some(name)
            && !self.is_hidden(symbol)
    }

    fn is_hidden(&self, symbol: usize) -> bool {
        self.version(symbol)
            .is_some_and(|version| version & HIDDEN != 0)
    }

    fn version(&self, symbol: usize) -> Option<u16> {
        quarter(self.versions?, symbol.checked_mul(2)?)
    }

    /// The version of a symbol that another module defines (Linux Standard Base, 10.7.4: entries of
    /// files, each with entries of versions; all name the next one by its distance).
    fn needed_version(&self, symbol: usize) -> Option<&'l [u8]> {
        let version = self.version(symbol)? & !HIDDEN;
        let needed = self.needed?;
        let mut file_at = 0_usize;
        loop {
            let versions = quarter(needed, file_at.checked_add(2)?)?;
            let mut version_at = file_at.checked_add(half(needed, file_at.checked_add(8)?)?)?;
            for _ in 0..versions {
                if quarter(needed, version_at.checked_add(6)?)? == version {
                    return self.text(half(needed, version_at.checked_add(8)?)?);
                }
                version_at = version_at.checked_add(half(needed, version_at.checked_add(12)?)?)?;
            }
            match half(needed, file_at.checked_add(12)?)? {
                0 => return None,
                next => file_at = file_at.checked_add(next)?,
            }
        }
    }

    fn name(&self, symbol: usize) -> Option<&'l [u8]> {
        self.text(half(self.symbol(symbol)?, 0)?)
    }

    fn text(&self, at: usize) -> Option<&'l [u8]> {
        let text = self.names.get(at..)?;
        Some(CStr::from_bytes_until_nul(text).ok()?.to_bytes())
    }

    fn symbol(&self, index: usize) -> Option<&'l [u8]> {
        let start = index.checked_mul(SYMBOL_BYTES)?;
        self.symbols.get(start..start.checked_add(SYMBOL_BYTES)?)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?) as usize)
}

fn quarter(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter()
        .fold(5381, |h: u32, &b| h.wrapping_mul(33).wrapping_add(b.into()))
}

/// The hash of the System V ABI (chapter 5, "Hash Table").
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |h: u32, &b| {
        let h = (h << 4).wrapping_add(b.into());
        let top = h & 0xf000_0000;
        (h ^ (top >> 24)) & !top
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_formats() {
        // As `readelf` and the ABI's text have them.
        assert_eq!(gnu_hash(b"printf"), 0x156b_2bb8);
        assert_eq!(hash(b"printf"), 0x077905a6);
    }

    #[test]
    fn both_kinds_of_hash_tables_lead_to_the_same_symbols() {
        let names = b"\0one\0two\0three\0";
        let mut symbols = vec![0; SYMBOL_BYTES];
        let entry = |name: u32, section: u8, value: u64| {
            let mut bytes = name.to_ne_bytes().to_vec();
            bytes.extend([0x12, 0, section, 0]);
            bytes.extend(value.to_ne_bytes());
            bytes.extend([0; 8]);
            bytes
        };
        symbols.extend(entry(1, 7, 0x100));
        symbols.extend(entry(5, 0, 0x200));
        symbols.extend(entry(9, 7, 0x300));
        // One bucket, in which all of them are chained.
        let words = |w: &[u32]| w.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        let [one, two, three] = [&b"one"[..], b"two", b"three"].map(gnu_hash);
        let gnu = words(&[1, 1, 1, 0, !0, !0, 1, one & !1, two & !1, three | 1]);
        let old = words(&[1, 4, 3, 0, 0, 1, 2]);
        let looping = words(&[1, 4, 3, 0, 0, 3, 2]);
        let dynamic = |gnu_hash, hash| Dynamic {
            symbols: &symbols,
            names,
            versions: None,
            needed: None,
            gnu_hash,
            hash,
            relocations: [&[], &[]],
        };
        for dynamic in [dynamic(Some(&gnu[..]), None), dynamic(None, Some(&old[..]))] {
            assert_eq!(dynamic.definition(b"one"), Some(0x100));
            assert_eq!(dynamic.definition(b"two"), None, "it is only referred to");
            assert_eq!(dynamic.definition(b"three"), Some(0x300));
            assert_eq!(dynamic.definition(b"thre"), None);
            let versions: Vec<u8> = [0, 2, 0, HIDDEN | 2].map(u16::to_ne_bytes).concat();
            let versioned = Dynamic {
                versions: Some(&versions),
                ..dynamic
            };
            assert_eq!(versioned.definition(b"one"), Some(0x100));
            assert_eq!(versioned.definition(b"three"), None, "an old version");
        }
        assert_eq!(dynamic(None, Some(&looping[..])).definition(b"one"), None);
        for len in 0..gnu.len() {
            dynamic(Some(&gnu[..len]), None).definition(b"three");
        }
        for len in 0..old.len() {
            dynamic(None, Some(&old[..len])).definition(b"one");
        }
        assert_eq!(dynamic(Some(&[0xff; 64]), None).definition(b"one"), None);
    }
}
