//! Programs that are linked with the library, and call its functions.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::legacy::Legacy;
use crate::library::{compiled, include, library, plain, program};
use crate::process::{skip, succeed};
use crate::support::{go_pprof, run, tool};

#[test]
fn a_programs_profile_shows_where_its_time_went() {
    let directory = tempfile::tempdir().unwrap();
    for compiler in ["cc", "c++"] {
        let file = directory.path().join("cpu.prof");
        let hot = program(compiler, "hot.c", directory.path());
        let output = succeed(plain(&hot).arg(&file));
        let said = String::from_utf8(output.stderr).unwrap();
        let figures = said.strip_prefix("PROFILE: interrupts/evictions/bytes = ");
        let figures: Vec<&str> = figures.unwrap_or(&said).trim_end().split('/').collect();
        let legacy = Legacy::read(&file);
        assert_eq!(figures[1..], ["0", &legacy.bytes.to_string()], "{said}");
        // The file counts time without a stack as well.
        let samples: u64 = figures[0].parse().unwrap();
        let counted = legacy.counted();
        assert!((50..=counted).contains(&samples), "{said}: {counted}");

        let Some(go) = tool("go") else { return };
        let top = go_pprof(&go, &["-top"], &file);
        let rows = top.stdout.lines();
        let first = rows.skip_while(|line| !line.contains("flat%")).nth(1);
        let is_hot = first.is_some_and(|row| row.ends_with(" hot"));
        assert!(is_hot, "{compiler}: {}{}", top.stdout, top.stderr);
    }
}

#[test]
fn both_functions_show_with_any_number_of_threads() {
    let (go, google_pprof) = (tool("go"), tool("google-pprof"));
    let directory = tempfile::tempdir().unwrap();
    let threads = program("cc", "threads.c", directory.path());
    let functions = ["first_function", "second_function"];
    for n in 1..=4 {
        let file = directory.path().join(format!("{n}.prof"));
        let mut command = plain(&threads);
        command.arg(&file).arg(n.to_string());
        command.env("CPUPROFILE_FREQUENCY", "1000");
        succeed(&mut command);
        // 50 periods each of two functions.
        let counted = Legacy::read(&file).counted();
        assert!(counted >= n * 100 * 95 / 100, "{n}: {counted}");
        let mut tops = Vec::new();
        tops.extend(go.as_ref().map(|go| go_pprof(go, &["-top"], &file).stdout));
        // Which takes some seconds to read the library's names.
        let google_pprof = google_pprof.as_ref().filter(|_| n == 4);
        tops.extend(google_pprof.map(|google_pprof| {
            let mut command = Command::new(google_pprof);
            run(command.arg("--text").args([&threads, &file])).stdout
        }));
        for top in tops {
            let shows = |function: &str| top.lines().any(|row| row.ends_with(function));
            assert!(functions.into_iter().all(shows), "{n}: {top}");
        }
    }
}

/// A program that is linked with gperftools' library, run with ours in its place.
#[test]
fn a_program_that_was_linked_with_gperftools_runs_with_this_library() {
    let find = succeed(Command::new("cc").arg("-print-file-name=libprofiler.so.0"));
    let theirs = String::from_utf8(find.stdout)
        .unwrap()
        .trim_end()
        .to_owned();
    if !theirs.starts_with('/') {
        return skip("gperftools' libprofiler.so.0 is not there to link with");
    }
    let directory = tempfile::tempdir().unwrap();
    let hot = compiled("cc", "hot.c", directory.path(), &[theirs]);
    symlink(library(), directory.path().join("libprofiler.so.0")).unwrap();
    let file = directory.path().join("cpu.prof");
    let mut command = plain(&hot);
    command.arg(&file).env("LD_LIBRARY_PATH", directory.path());
    succeed(&mut command);
    let legacy = Legacy::read(&file);
    assert!(legacy.counted() >= 50);
    assert!(legacy.text.contains("libsigprof.so"), "{}", legacy.text);
    assert!(!legacy.text.contains("libprofiler.so"), "{}", legacy.text);
}

#[test]
fn the_example_is_made_by_its_makefile() {
    let (Some(make), Some(go)) = (tool("make"), tool("go")) else {
        return;
    };
    // What the Makefile makes lies beside it.
    let directory = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/c");
    let example = directory.path().join("examples/c");
    std::fs::create_dir_all(&example).unwrap();
    for file in ["Makefile", "profiled.c"] {
        std::fs::copy(sources.join(file), example.join(file)).unwrap();
    }
    symlink(include(), directory.path().join("include")).unwrap();
    let beside = library().parent().unwrap();
    let mut command = plain(&make);
    command.arg(format!("LIB={}", beside.display()));
    succeed(command.current_dir(&example));
    succeed(plain(&example.join("profiled")).current_dir(&example));
    let top = go_pprof(&go, &["-top"], &example.join("profiled.pb.gz"));
    assert!(top.stdout.contains(" compare\n"), "{}", top.stdout);
}

#[test]
fn the_header_compiles_in_old_c_and_cpp() {
    for (compiler, language, standard) in [
        ("cc", "c", "-std=c90"),
        ("cc", "c", "-std=c17"),
        ("c++", "c++", "-std=c++98"),
        ("c++", "c++", "-std=c++20"),
    ] {
        let mut compile = Command::new(compiler);
        compile
            .args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror"])
            .args([standard, "-x", language])
            .arg(include().join("gperftools/profiler.h"));
        succeed(&mut compile);
    }
}
