//! Builds the lock-free parts as models.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Not by `--cfg loom` among RUSTFLAGS, which would have all dependencies built anew.
    println!("cargo::rustc-cfg=loom");
}
