//! Files in mappings made by hand: marks, stripped, foreign and damaged ones.

use super::*;

#[test]
fn inlined_calls_come_innermost_first_and_marks_are_set() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let mapping = mapping_of(&path, &build_id(&path));
    let (profile, locations, left) = symbolize_function(&path, mapping, "exported");
    assert_eq!(reasons(&left), "");
    let deepest = locations
        .iter()
        .map(|&location| frames(&profile, location))
        .max_by_key(Vec::len)
        .expect("there are locations");
    let names: Vec<_> = deepest.iter().map(|frame| frame.name.as_str()).collect();
    assert!(
        names.ends_with(&["inner", "exported"]) || names == ["exported"],
        "{names:?}"
    );
    let function = deepest.last().expect("it has frames");
    assert_eq!(function.system_name, "exported");
    assert!((7..=12).contains(&function.line), "{function:?}");
    assert!(Path::new(&function.file).ends_with("code.c"));

    let mapping = &profile.mappings()[0];
    assert!(mapping.has_functions && mapping.has_filenames && mapping.has_line_numbers);
    let functions: HashSet<_> = profile.functions().iter().collect();
    assert_eq!(
        functions.len(),
        profile.functions().len(),
        "each is there once"
    );
}

#[test]
fn lines_that_are_there_stay() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let mapping = mapping_of(&path, &build_id(&path));
    let (mut profile, _, _) = symbolize_function(&path, mapping, "exported");
    let once = profile.clone();
    assert!(symbolize(&mut profile).is_empty());
    assert_eq!(profile, once);
}

#[test]
fn a_stripped_library_gives_the_names_it_exports() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let Some(strip) = tool("strip") else { return };
    let exported = file_offset(&path, symbol(&path, "exported", &[]));
    let hidden = file_offset(&path, symbol(&path, "hidden", &[]));
    run(Command::new(strip).arg("--strip-all").arg(&path));

    let mapping = mapping_of(&path, &build_id(&path));
    let (mut profile, locations) = profile_of(mapping, &[BASE + exported, BASE + hidden]);
    let left = symbolize(&mut profile);
    let [frame] = &frames(&profile, locations[0])[..] else {
        panic!("one frame");
    };
    assert_eq!((frame.name.as_str(), frame.line), ("exported", 0));
    assert_eq!(frames(&profile, locations[1]), []);
    assert!(reasons(&left).contains("1 address without a name: no symbol covers"));

    let mapping = &profile.mappings()[0];
    assert!(mapping.has_functions);
    assert!(!mapping.has_filenames && !mapping.has_line_numbers && !mapping.has_inline_frames);
}

#[test]
fn a_stripped_library_gets_all_from_its_compressed_debug_file() {
    let flags = ["-g", "-gz=zlib", "-shared", "-fPIC"];
    let Some((_directory, path)) = compile("library.so", &flags) else {
        return;
    };
    let Some(objcopy) = tool("objcopy") else {
        return;
    };
    let hidden = file_offset(&path, symbol(&path, "hidden", &[]));
    let debug = path.with_extension("debug");
    let objcopy = |arguments: &[&str], files: &[&Path]| {
        run(Command::new(&objcopy).args(arguments).args(files));
    };
    objcopy(&["--only-keep-debug"], &[&path, &debug]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], &[&path]);

    let mapping = mapping_of(&path, &build_id(&path));
    let (mut profile, locations) = profile_of(mapping.clone(), &[BASE + hidden]);
    assert_eq!(reasons(&symbolize(&mut profile)), "");
    let frames = frames(&profile, locations[0]);
    assert_eq!(
        frames.last().map(|f| (f.name.as_str(), f.line)),
        Some(("hidden", 6))
    );

    // Of another build: what the library itself has is used.
    fs::write(&debug, "no debug file").expect("it can be written");
    let (profile, locations, left) = {
        let exported = file_offset(&path, symbol(&path, "exported", &["-D"]));
        let (mut profile, locations) = profile_of(mapping, &[BASE + exported]);
        let left = symbolize(&mut profile);
        (profile, locations, left)
    };
    let reasons = reasons(&left);
    let expected = format!("{}: {} cannot be read: ", path.display(), debug.display());
    assert!(reasons.starts_with(&expected), "{reasons}");
    assert_eq!(self::frames(&profile, locations[0])[0].name, "exported");
}

#[test]
fn a_program_without_any_symbols_stays_as_it_is() {
    let Some((_directory, path)) = compile("bare", &["-no-pie", "-static"]) else {
        return;
    };
    let Some(strip) = tool("strip") else { return };
    let main = file_offset(&path, symbol(&path, "main", &[]));
    run(Command::new(strip).arg("--strip-all").arg(&path));
    let (mut profile, locations) = profile_of(mapping_of(&path, &build_id(&path)), &[BASE + main]);
    let left = symbolize(&mut profile);
    assert_eq!(frames(&profile, locations[0]), []);
    assert!(reasons(&left).contains("the file was stripped"));
    assert!(!profile.mappings()[0].has_functions);
}

#[test]
fn another_build_is_refused_and_says_so() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let mapping = mapping_of(&path, "00112233445566778899aabbccddeeff00112233");
    let (profile, locations, left) = symbolize_function(&path, mapping, "exported");
    assert!(locations.iter().all(|&l| frames(&profile, l).is_empty()));
    let reasons = reasons(&left);
    assert!(reasons.contains("another build"), "{reasons}");
    assert!(reasons.contains(&build_id(&path)), "{reasons}");
    assert!(!profile.mappings()[0].has_functions);
}

#[test]
fn one_bad_module_leaves_the_others_alone() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let garbage = path.with_file_name("garbage.so");
    fs::write(&garbage, b"\x7fELF, but not really").expect("it can be written");
    // The headers are whole and the debug information is not.
    let torn = path.with_file_name("torn.so");
    let mut bytes = fs::read(&path).expect("it can be read");
    let (_, _, offset, size) = sections(&path)
        .into_iter()
        .find(|section| section.0 == ".debug_info")
        .expect("there is debug information");
    bytes[offset as usize..(offset + size) as usize].fill(0xa5);
    fs::write(&torn, bytes).expect("it can be written");

    let offset = file_offset(&path, symbol(&path, "exported", &[]));
    let mut profile = Profile::new(Vec::new());
    let mut locations = Vec::new();
    let missing = path.with_file_name("missing.so");
    for path in [
        &garbage,
        &missing,
        Path::new("[heap]"),
        Path::new(""),
        &torn,
        &path,
    ] {
        let mapping = profile.push_mapping(mapping_of(path, ""));
        locations.push(profile.push_location(Location {
            mapping: Some(mapping),
            address: BASE + offset,
            ..Location::default()
        }));
    }
    let left = symbolize(&mut profile);
    assert_eq!(left.len(), 5, "{}", reasons(&left));
    assert_eq!(left[4].locations, 0, "the symbol table names it");
    assert!(left[4].to_string().contains(".debug_info of "));
    for &location in &locations[..4] {
        assert_eq!(frames(&profile, location), []);
    }
    assert_eq!(frames(&profile, locations[4])[0].name, "exported");
    assert_eq!(frames(&profile, locations[5])[0].line, 9);
}

#[test]
fn damaged_files_do_no_harm() {
    let Some((_directory, path)) = compile("library.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let offset = file_offset(&path, symbol(&path, "exported", &[]));
    let addresses: Vec<u64> = (0..32).map(|into| BASE + offset + into).collect();
    let whole = fs::read(&path).expect("it can be read");
    let damaged = path.with_file_name("damaged.so");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 40 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let position = state as usize % bytes.len();
            bytes[position] = (state >> 32) as u8;
        }
        if round % 4 == 0 {
            bytes.truncate(state as usize % bytes.len());
        }
        fs::write(&damaged, bytes).expect("it can be written");
        let (mut profile, _) = profile_of(mapping_of(&damaged, ""), &addresses);
        symbolize(&mut profile);
    }
}
