//! Files of other profilers, read as google/pprof reads them.

use std::path::Path;

use sigprof::Profile;

use crate::support::{go_pprof, tool};

pub fn testdata(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/testdata/pprof")
        .join(name)
}

fn assert_reads_as_google_pprof_reads_it(name: &str) {
    let profile = Profile::open(testdata(name)).unwrap();
    let golden = std::fs::read_to_string(testdata(&format!("{name}.string"))).unwrap();
    let text = profile.to_string();
    for (i, (ours, theirs)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {} of {name}.string", i + 1);
    }
    assert_eq!(text, golden);
}

#[test]
fn a_cpp_program_whose_stacks_have_a_trampoline() {
    assert_reads_as_google_pprof_reads_it("cppbench.cpu");
}

#[test]
fn a_go_program_without_mappings() {
    assert_reads_as_google_pprof_reads_it("gobench.cpu");
}

#[test]
fn heap_profiles_of_a_cpp_and_of_a_go_program() {
    assert_reads_as_google_pprof_reads_it("cppbench.heap");
    assert_reads_as_google_pprof_reads_it("gobench.heap");
}

#[test]
fn growth_and_contention_of_a_cpp_program() {
    assert_reads_as_google_pprof_reads_it("cppbench.growth");
    assert_reads_as_google_pprof_reads_it("cppbench.contention");
}

#[test]
fn what_pprof_shows_of_our_conversion_is_what_it_shows_of_the_original() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "cppbench.cpu",
        "cppbench.heap",
        "cppbench.growth",
        "cppbench.contention",
        "gobench.cpu",
        "gobench.heap",
    ] {
        let original = Profile::open(testdata(name)).unwrap();
        let raw = |path: &Path| go_pprof(&go, &["-raw", "-symbolize=none"], path).stdout;
        let theirs = raw(&testdata(name));
        for extension in ["pb.gz", "pb"] {
            let converted = directory.path().join(format!("{name}.{extension}"));
            original.save(&converted).unwrap();
            assert_eq!(raw(&converted), theirs, "{name}");
        }
    }
}
