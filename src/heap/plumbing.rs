//! The frames between a function that asks for memory and the allocator: leaf frames that say no
//! more than that something was allocated.
#![forbid(unsafe_code)]

/// What the names of such functions begin with, with or without a `<` in front.
///
/// No more of the program than the way to the allocator: `__rust_try`, for one, is below all that a
/// thread does.
const BEGINNINGS: [&str; 8] = [
    "__rust_alloc",
    "__rust_realloc",
    "__rustc::__rg_",
    "__rustc::__rust_alloc",
    "__rustc::__rust_realloc",
    "alloc::alloc::",
    "alloc::raw_vec::",
    "sigprof::heap::allocator::",
];

/// The same for readers of the file, which drop the frames that match it and those that are called
/// by them (profile.proto's `drop_frames`).
pub(super) fn drop_frames() -> String {
    format!("<?({}).*", BEGINNINGS.join("|"))
}

/// Functions of the crate `alloc` that do nothing but give out room, or a value in it.
const CONSTRUCTORS: [&str; 10] = [
    "from_elem",
    "new",
    "new_in",
    "new_uninit",
    "new_uninit_in",
    "reserve",
    "to_vec",
    "to_vec_in",
    "with_capacity",
    "with_capacity_in",
];

/// Whether a function of this name is one of them. The constructors are so at the leaf alone: some
/// call functions of the program's, which may allocate, too.
pub(super) fn is_plumbing(name: &str) -> bool {
    let bare = name.strip_prefix('<').unwrap_or(name);
    let is_of_alloc = bare.starts_with("alloc::") || bare.contains(" as alloc::");
    let is_constructor = |last: &str| is_of_alloc && CONSTRUCTORS.contains(&last);
    let mut beginnings = BEGINNINGS.iter();
    beginnings.any(|beginning| bare.starts_with(beginning))
        || bare.rsplit("::").next().is_some_and(is_constructor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_allocates_for_others_is_told_from_them() {
        for name in [
            "__rustc::__rust_alloc",
            "__rust_realloc",
            "__rustc::__rg_alloc",
            "<sigprof::heap::allocator::Allocator<A> as core::alloc::global::GlobalAlloc>::alloc",
            "<alloc::raw_vec::RawVecInner>::try_allocate_in",
            "alloc::raw_vec::RawVecInner<A>::with_capacity_in",
            "alloc::vec::Vec<T>::with_capacity",
            "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "alloc::vec::from_elem",
            "alloc::boxed::Box<T>::new",
        ] {
            assert!(is_plumbing(name), "{name}");
        }
        for name in [
            "alloc::vec::Vec<T,A>::push",
            "__rust_try",
            "__rustc::__rust_begin_short_backtrace",
            "program::new",
            "program::with_capacity",
            "core::iter::traits::iterator::Iterator::collect",
            "sigprof::heap::profile",
            "sigprof::symbolize::add_names",
            "",
        ] {
            assert!(!is_plumbing(name), "{name}");
        }
    }
}
