//! How `libsigprof.so` is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CARGO_C_CARGO");
    if std::env::var_os("CARGO_FEATURE_CAPI").is_none() {
        return;
    }
    // For all targets, since there is no cdylib among those of Cargo.toml: whoever wants one says
    // so (`--crate-type cdylib`). In an executable neither means anything.
    //
    // A program looks for the library by this name when it starts. cargo-c, which sets the variable,
    // chooses a name with a version.
    if std::env::var_os("CARGO_C_CARGO").is_none() {
        println!("cargo::rustc-link-arg=-Wl,-soname,libsigprof.so");
    }
    // A handler may run, and new threads may begin in a function of ours, after a `dlclose`.
    println!("cargo::rustc-link-arg=-Wl,-z,nodelete");
}
