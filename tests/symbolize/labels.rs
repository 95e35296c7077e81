//! Symbols of assembly, of which nothing says how long they are or that they are functions.

use super::*;

/// Code of assembly: labels, functions with and without a size, and gaps.
const SOURCE: &str = "
        .text
        .globl first
first:  .zero 16
second: .zero 16
        .type sizeless, %function
sizeless:
        .zero 16
behind: .zero 16
        .type whole, %function
whole:  .zero 8
inside: .zero 8
        .size whole, . - whole
        .zero 16
        .type other, %function
other:  .zero 16
        .size other, . - other
        .zero 16
last:   .zero 8
.annobin_last.end:
        .zero 8
end:
        .data
data:   .zero 16
        .section .note.GNU-stack, \"\", %progbits
";

/// The symbol at each address, as GDB has it.
fn gdb(path: &Path, addresses: &[u64]) -> Option<Vec<String>> {
    let mut gdb = Command::new(tool("gdb")?);
    gdb.args(["-nx", "-batch"]);
    for address in addresses {
        gdb.args(["-ex", &format!("info symbol {address:#x}")]);
    }
    let answers = run(gdb.arg(path));
    let names = answers.lines().map(|line| {
        let is_none = line.starts_with("No symbol matches");
        let name = line.split([' ', '+']).next().filter(|_| !is_none);
        name.unwrap_or_default().to_owned()
    });
    Some(names.collect())
}

#[test]
fn labels_name_the_code_behind_them_as_gdb_has_it() {
    let (Some(gcc), Some(_), Some(_)) = (tool("gcc"), tool("readelf"), tool("nm")) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    fs::write(directory.path().join("code.s"), SOURCE).expect("it can be written");
    let mut gcc = Command::new(gcc);
    gcc.args(["-shared", "-nostdlib", "-Wl,--build-id", "-o", "library.so"])
        .arg("code.s");
    run(gcc.current_dir(directory.path()));
    let path = directory.path().join("library.so");
    let begin = symbol(&path, "first", &[]);
    let linked: Vec<_> = (begin..symbol(&path, "end", &[])).step_by(4).collect();
    let Some(mut expected) = gdb(&path, &linked) else {
        return;
    };
    // Of no use to anyone, and the code behind it belongs to what was before.
    let notes = expected.iter_mut().filter(|name| name.contains("annobin"));
    notes.for_each(|name| "last".clone_into(name));
    assert!(expected.contains(&"second".to_owned()), "{expected:?}");
    let offset = file_offset(&path, begin);
    let addresses: Vec<_> =
        (linked.iter().map(|address| BASE + offset + address - begin)).collect();
    let (mut profile, locations) = profile_of(mapping_of(&path, &build_id(&path)), &addresses);
    let left = reasons(&symbolize(&mut profile));
    let found = locations.iter().map(|&location| {
        let frames = frames(&profile, location);
        frames
            .first()
            .map(|frame| frame.name.clone())
            .unwrap_or_default()
    });
    let found: Vec<_> = found.collect();
    assert_eq!(found, expected, "{left}");
}
