//! How `libsigprof.so` is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_CAPI").is_none() {
        return;
    }
    // For all targets, since there is no cdylib among those of Cargo.toml: whoever wants one says
    // so (`--crate-type cdylib`). In an executable neither means anything.
    //
    // What a program is linked with is found by this name, wherever the library was built.
    println!("cargo::rustc-link-arg=-Wl,-soname,libsigprof.so");
    // A handler may run, and new threads may begin in a function of ours, after a `dlclose`.
    println!("cargo::rustc-link-arg=-Wl,-z,nodelete");
}
