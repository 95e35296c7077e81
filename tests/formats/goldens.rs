//! Files of other profilers, read as google/pprof reads them.

use std::path::Path;

use sigprof::Profile;

use crate::support::{go_pprof, tool};

fn testdata(name: &str) -> std::path::PathBuf {
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
fn what_pprof_shows_of_our_conversion_is_what_it_shows_of_the_original() {
    let Some(go) = tool("go") else { return };
    let directory = tempfile::tempdir().unwrap();
    let original = Profile::open(testdata("cppbench.cpu")).unwrap();
    for name in ["cppbench.pb.gz", "cppbench.pb"] {
        let converted = directory.path().join(name);
        original.save(&converted).unwrap();
        let theirs = go_pprof(&go, &["-raw", "-symbolize=none"], &testdata("cppbench.cpu")).stdout;
        assert_eq!(
            go_pprof(&go, &["-raw", "-symbolize=none"], &converted).stdout,
            theirs
        );
    }
}
