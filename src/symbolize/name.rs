//! A symbol and the name that people know it by.

use std::borrow::Cow;

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
    if let Ok(demangled) = rustc_demangle::try_demangle(symbol) {
        // The alternate form leaves the hash out.
        return (Cow::Owned(format!("{demangled:#}")), symbol);
    }
    if symbol.starts_with("_Z")
        && let Ok(parsed) = cpp_demangle::Symbol::new(symbol)
        && let Ok(demangled) = parsed.demangle()
    {
        return (Cow::Owned(demangled), symbol);
    }
    match symbol.contains("::") || symbol.contains(['<', '(', '[']) {
        true => (Cow::Borrowed(symbol), ""),
        false => (Cow::Borrowed(symbol), symbol),
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
    fn a_source_name_that_a_second_demangling_would_damage_stands_alone() {
        for name in ["<Vec<T> as Drop>::drop", "drop<T>", "a::b"] {
            assert_eq!(names(name), (Cow::Borrowed(name), ""));
        }
    }
}
