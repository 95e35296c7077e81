//! Programs that are linked with the library, and call its functions.

use std::process::Command;

use crate::legacy::Legacy;
use crate::library::{include, plain, program};
use crate::process::succeed;
use crate::support::{go_pprof, tool};

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
