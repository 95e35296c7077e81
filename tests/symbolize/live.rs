//! Mappings of the test's own process: generics, the vDSO, and files that go away while they are
//! mapped.

use super::*;

/// The mappings of this process that hold code, without build ids.
fn live_mappings() -> Vec<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").expect("it can be read");
    maps.lines()
        .filter_map(|line| {
            let mut words = line.splitn(6, ' ');
            let (start, limit) = words.next()?.split_once('-')?;
            let permissions = words.next()?;
            let offset = words.next()?;
            let path = words.nth(2)?.trim_start();
            let hex = |word| u64::from_str_radix(word, 16).expect("maps are in hex");
            permissions.contains('x').then(|| Mapping {
                memory_start: hex(start),
                memory_limit: hex(limit),
                file_offset: hex(offset),
                filename: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
                ..Mapping::default()
            })
        })
        .collect()
}

fn symbolize_live(address: u64, build_id: &str) -> (Vec<Frame>, String) {
    let mut mapping = live_mappings()
        .into_iter()
        .find(|mapping| (mapping.memory_start..mapping.memory_limit).contains(&address))
        .expect("the address is mapped");
    mapping.build_id = build_id.to_owned();
    let (mut profile, locations) = profile_of(mapping, &[address]);
    let left = symbolize(&mut profile);
    (frames(&profile, locations[0]), reasons(&left))
}

struct Held<T>(T);

const BEFORE_DEREF: i64 = line!() as i64;

impl<T> std::ops::Deref for Held<T> {
    type Target = T;

    #[inline(never)]
    fn deref(&self) -> &T {
        std::hint::black_box(&self.0)
    }
}

#[test]
fn names_of_generics_are_whole() {
    let address = <Held<u64> as std::ops::Deref>::deref as *const () as u64;
    let (frames, left) = symbolize_live(address, "");
    assert_eq!(left, "");
    let frame = frames.last().expect("it has frames");
    assert!(
        frame.name.starts_with("<symbolize::live::Held<"),
        "{frame:?}"
    );
    assert!(
        frame.name.ends_with("> as core::ops::deref::Deref>::deref"),
        "{frame:?}"
    );
    assert!(frame.system_name.starts_with("_"), "{frame:?}");
    assert!(Path::new(&frame.file).ends_with("tests/symbolize/live.rs"));
    assert!(
        (BEFORE_DEREF..BEFORE_DEREF + 9).contains(&frame.line),
        "{frame:?}"
    );
}

#[test]
fn the_vdso_is_read_from_memory() {
    let Some(vdso) = live_mappings().into_iter().find(|m| m.filename == "[vdso]") else {
        crate::process::skip("this kernel maps no vDSO");
        return;
    };
    let addresses: Vec<u64> = (vdso.memory_start..vdso.memory_limit).step_by(16).collect();
    let (mut profile, locations) = profile_of(vdso, &addresses);
    symbolize(&mut profile);
    let names: HashSet<_> = locations
        .iter()
        .flat_map(|&location| frames(&profile, location))
        .map(|frame| frame.name)
        .collect();
    assert!(
        names.iter().any(|n| n.contains("clock_gettime")),
        "{names:?}"
    );
}

#[test]
fn libc_has_names_whatever_it_was_stripped_of() {
    let (frames, left) = symbolize_live(libc::qsort as *const () as usize as u64, "");
    assert_eq!(left, "");
    let frame = frames.last().expect("it has frames");
    assert!(frame.name.contains("qsort"), "{frame:?}");
}

fn open_library(path: &Path) -> u64 {
    let path = std::ffi::CString::new(path.to_str().expect("it is UTF-8")).expect("it has no NUL");
    // SAFETY: the library is this test's own; its only code is what `C_SOURCE` says.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "the library opens");
    // SAFETY: the handle is a live one and the name ends in NUL.
    let function = unsafe { libc::dlsym(library, c"exported".as_ptr()) };
    assert!(!function.is_null(), "it exports the function");
    function as u64
}

/// Names from the file that was mapped, or none and a reason; never from the file that took its
/// place.
fn assert_true_or_refused(frames: &[Frame], left: &str) {
    match frames {
        [] => assert!(
            left.contains("deleted or replaced while it was mapped"),
            "{left}"
        ),
        frames => {
            let function = frames.last().expect("it has frames");
            assert_eq!(function.name, "exported");
            assert!((7..=12).contains(&function.line), "{function:?}");
        }
    }
}

#[test]
fn a_library_that_was_deleted_while_it_was_mapped() {
    let Some((_directory, path)) = compile("deleted.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let build_id = build_id(&path);
    let address = open_library(&path);
    let (frames, _) = symbolize_live(address, &build_id);
    assert_ne!(frames, []);
    assert_true_or_refused(&frames, "");

    fs::remove_file(&path).expect("it can be removed");
    for build_id in [build_id.as_str(), ""] {
        let (frames, left) = symbolize_live(address, build_id);
        assert_true_or_refused(&frames, &left);
    }
}

#[test]
fn a_library_that_was_deleted_beside_its_debug_file() {
    let flags = ["-g", "-shared", "-fPIC"];
    let Some((directory, path)) = compile("deleted.so", &flags) else {
        return;
    };
    let Some(objcopy) = tool("objcopy") else {
        return;
    };
    let build_id = build_id(&path);
    let debug_file = directory.path().join("deleted.so.debug");
    let objcopy = |flag: &str, files: &[&Path]| run(Command::new(&objcopy).arg(flag).args(files));
    objcopy("--only-keep-debug", &[&path, &debug_file]);
    objcopy("--strip-all", &[&path]);
    let address = open_library(&path);
    fs::remove_file(&path).expect("it can be removed");
    let (frames, left) = symbolize_live(address, &build_id);
    assert_true_or_refused(&frames, &left);
}

#[test]
fn a_library_that_was_replaced_while_it_was_mapped() {
    let Some((directory, path)) = compile("replaced.so", &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let build_id = build_id(&path);
    let address = open_library(&path);
    let source = directory.path().join("code.c");
    fs::write(&source, format!("{}{C_SOURCE}", "\n".repeat(20))).expect("it can be written");
    fs::remove_file(&path).expect("it can be removed");
    run(Command::new("gcc")
        .current_dir(directory.path())
        .args(["-O0", "-g", "-shared", "-fPIC", "-Wl,--build-id", "-o"])
        .args(["replaced.so", "code.c"]));
    for build_id in [build_id.as_str(), ""] {
        let (frames, left) = symbolize_live(address, build_id);
        assert_true_or_refused(&frames, &left);
    }
}

const CHILD: &str = "SIGPROF_TEST_DELETES_ITSELF";

#[test]
fn a_program_that_was_deleted_while_it_runs() {
    if std::env::var_os(CHILD).is_some() {
        fs::remove_file(std::env::current_exe().expect("it has a path")).expect("it goes");
        let (frames, left) = symbolize_live(names_of_generics_are_whole as *const () as u64, "");
        assert_eq!(left, "");
        assert_eq!(
            frames.last().expect("it has frames").name,
            "symbolize::live::names_of_generics_are_whole"
        );
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let copy = directory.path().join("symbolize");
    fs::copy(std::env::current_exe().expect("this is a program"), &copy).expect("it can be copied");
    run(Command::new(&copy)
        .args(["--exact", "live::a_program_that_was_deleted_while_it_runs"])
        .env(CHILD, "1"));
    assert!(!copy.exists(), "the copy deleted itself");
}
