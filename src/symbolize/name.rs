//! A symbol and the name that people know it by.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::DemangleOptions;

/// What any symbol may demangle to.
const ALWAYS_BYTES: usize = 4 << 10;
/// What a symbol may demangle to beyond that, as a multiple of its own length. Of the 111,000 C++
/// symbols that LLVM's and GCC's libraries export, the worst one needs 29.
const MOST_RATIO: usize = 128;

/// The name and the system name of a function with this symbol.
///
/// The system name is the symbol, the name is what it demangles to. Where debug information has no
/// symbol at all, only the name in the source, that one stands for both, unless it has `::` or
/// brackets in it: `pprof` demangles a function whose two names are equal, and what it makes of
/// `<Vec<T> as Drop>::drop` is `::drop`. It leaves alone what has two different names, so such a
/// name gets no system name.
pub(super) fn names(symbol: &str) -> (Cow<'_, str>, &str) {
    // The version of a symbol (`memcpy@@GLIBC_2.14`) is no part of its name.
    let symbol = symbol.split('@').next().unwrap_or(symbol);
    let mut name = Bounded::of(symbol);
    if let Ok(demangled) = rustc_demangle::try_demangle(symbol) {
        // The alternate form leaves the hash out.
        return match write!(name, "{demangled:#}") {
            Ok(()) => (Cow::Owned(name.text), symbol),
            Err(fmt::Error) => (Cow::Borrowed(symbol), symbol),
        };
    }
    if symbol.starts_with("_Z")
        && let Ok(parsed) = cpp_demangle::Symbol::new(symbol)
        && let Ok(()) = parsed.structured_demangle(&mut name, &DemangleOptions::new())
    {
        return (Cow::Owned(name.text), symbol);
    }
    match symbol.contains("::") || symbol.contains(['<', '(', '[']) {
        true => (Cow::Borrowed(symbol), ""),
        false => (Cow::Borrowed(symbol), symbol),
    }
}

/// A name that is being written, and what may still be written.
///
/// A symbol says by reference what was in it before, and a reference may be to others: what 270
/// bytes demangle to can be 279 MB, and take seconds.
struct Bounded {
    text: String,
    left: usize,
}

impl Bounded {
    fn of(symbol: &str) -> Self {
        Self {
            text: String::new(),
            left: MOST_RATIO.saturating_mul(symbol.len()) + ALWAYS_BYTES,
        }
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // What writes nothing takes time, too.
        let cost = text.len().max(1);
        self.left = self.left.checked_sub(cost).ok_or(fmt::Error)?;
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_symbols_lose_their_hash_and_nothing_else() {
        let symbol = "_ZN66_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE";
        let (name, system_name) = names(symbol);
        assert_eq!(name, "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop");
        assert_eq!(system_name, symbol);

        let symbol = "_RNvNtCs1234_7mycrate3foo3bar";
        assert_eq!(names(symbol), (Cow::Borrowed("mycrate::foo::bar"), symbol));
    }

    #[test]
    fn a_compiler_suffix_does_not_hide_a_rust_symbol() {
        let symbol = "_ZN4core3fmt5write17h0123456789abcdefE.llvm.1234567890";
        assert_eq!(names(symbol), (Cow::Borrowed("core::fmt::write"), symbol));
    }

    #[test]
    fn other_languages() {
        let symbol = "_ZNSt6vectorIiSaIiEE9push_backEOi";
        let (name, system_name) = names(symbol);
        assert_eq!(
            name,
            "std::vector<int, std::allocator<int> >::push_back(int&&)"
        );
        assert_eq!(system_name, symbol);
        assert_eq!(names("malloc"), (Cow::Borrowed("malloc"), "malloc"));
        assert_eq!(
            names("memcpy@@GLIBC_2.14"),
            (Cow::Borrowed("memcpy"), "memcpy")
        );
        assert_eq!(names("_Zzz"), (Cow::Borrowed("_Zzz"), "_Zzz"));
    }

    #[test]
    fn a_symbol_that_becomes_far_too_much_stands_for_itself() {
        // Each type is a pair of the one before: 2 to the power of 25 pairs in all.
        let digits: Vec<char> = ('0'..='9').chain('A'..='Z').collect();
        let pairs = digits.windows(2).take(25);
        let pairs: String = pairs
            .map(|pair| format!("S_IS{0}_S{0}_E", pair[0]))
            .collect();
        let symbol = format!("_Z1fSt4pairIiiE{pairs}");
        assert_eq!(names(&symbol), (Cow::Borrowed(&*symbol), &*symbol));
        let few = "_Z1fSt4pairIiiES_IS0_S0_E";
        let pair = "std::pair<int, int>";
        let expected = format!("f({pair}, std::pair<{pair}, {pair} >)");
        assert_eq!(names(few).0, expected);
    }

    #[test]
    fn a_source_name_that_a_second_demangling_would_damage_stands_alone() {
        for name in ["<Vec<T> as Drop>::drop", "drop<T>", "a::b"] {
            assert_eq!(names(name), (Cow::Borrowed(name), ""));
        }
    }
}
