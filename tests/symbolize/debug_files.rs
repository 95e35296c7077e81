//! Debug information that lies in another file than the code.

use super::*;
use crate::built::Built;
use crate::process::{child, succeed};

/// A file that is gone with this, and so are the directories that were made for it.
pub(super) struct Placed {
    pub(super) file: PathBuf,
    made: Vec<PathBuf>,
}

impl Placed {
    /// A copy of `from`; `None`, with a word on stderr, where nobody may write.
    pub(super) fn new(from: &Path, to: PathBuf) -> Option<Self> {
        let is_new = |directory: &&Path| !directory.exists();
        let made = to.ancestors().skip(1).take_while(is_new);
        let made = made.map(Path::to_owned).collect();
        let placed = Self { file: to, made };
        let directory = placed.file.parent().expect("it lies in a directory");
        let copied =
            fs::create_dir_all(directory).and_then(|()| fs::copy(from, &placed.file).map(drop));
        if let Err(error) = copied {
            process::skip(&format!(
                "{} cannot be made: {error}",
                placed.file.display()
            ));
            return None;
        }
        Some(placed)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
        for directory in &self.made {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Moves all that the library needs not to run to a file, without a word where that is.
fn strip(built: &Built) -> PathBuf {
    built.run("objcopy --only-keep-debug library.so moved");
    built.run("objcopy --strip-all library.so");
    assert_without(built, "");
    built.directory().join("moved")
}

/// Without the debug file, the library has the names that it exports, and `reason` is said.
#[track_caller]
fn assert_without(built: &Built, reason: &str) {
    let left = built.assert_named(&["exported"]);
    let count = built.count("hidden");
    let path = built.path.display();
    let expected = format!("{path}: {count} addresses without a name: {reason}");
    assert!(left.starts_with(&expected), "{left}");
    assert_eq!(left.lines().count(), 1, "{left}");
}

/// The debug file at this place has all; a damaged one or another build's takes nothing away.
#[track_caller]
fn assert_found_at(built: &Built, debug_file: &Path) {
    built.assert_whole();
    let whole = fs::read(debug_file).expect("it can be read");
    let shown = debug_file.display();
    for len in [1, 16, 64, whole.len() / 2, whole.len() - 1] {
        fs::write(debug_file, &whole[..len]).expect("it can be written");
        assert_without(built, &format!("{shown} cannot be read: "));
    }
    // An empty one says that there is none.
    fs::write(debug_file, "").expect("it can be written");
    assert_without(built, "no symbol covers them");
    let other = Built::new(&["-g"]).expect("there is a compiler");
    fs::copy(&other.path, debug_file).expect("it can be copied");
    let reason = "the debug information of";
    assert_without(
        built,
        &format!("{reason} {shown} cannot be read: the debug file is of another build"),
    );
    fs::write(debug_file, whole).expect("it can be written");
}

/// A stripped object whose section of debug information is there, and holds nothing of use.
#[test]
fn an_empty_section_hides_no_debug_file() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    let moved = strip(&built);
    for content in ["", "damaged"] {
        fs::write(built.directory().join("content"), content).expect("it can be written");
        built.run("objcopy --add-section .debug_info=content library.so library.so");
        let debug_file = built.directory().join("library.so.debug");
        let placed = Placed::new(&moved, debug_file).expect("the directory is the test's own");
        let (found, left) = built.symbolize();
        assert!(found.iter().all(|frames| !frames.is_empty()), "{left}");
        assert!(found.iter().any(|frames| frames.len() > 1), "{left}");
        assert_eq!(left, "");
        drop(placed);
        built.run("objcopy --remove-section .debug_info library.so");
    }
}

#[test]
fn by_build_id_in_the_global_directory() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    let moved = strip(&built);
    let build_id = build_id(&built.path);
    let (first, rest) = build_id.split_at(2);
    let path = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug");
    if let Some(placed) = Placed::new(&moved, path.into()) {
        assert_found_at(&built, &placed.file);
    }
}

#[test]
fn by_the_files_own_name() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    let moved = strip(&built);
    let directory = built.directory().canonicalize().expect("it is there");
    let of_root = directory.strip_prefix("/").expect("it is below the root");
    let places = [
        directory.clone(),
        directory.join(".debug"),
        Path::new("/usr/lib/debug").join(of_root),
    ];
    for place in places {
        let path = place.join("library.so.debug");
        if let Some(placed) = Placed::new(&moved, path) {
            assert_found_at(&built, &placed.file);
        }
        assert_without(&built, "no symbol covers them");
    }
}

#[test]
fn by_the_name_in_the_debuglink() {
    // Without a build id, the checksum says what belongs to it.
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let Some(built) = Built::new(&["-g", build_id]) else {
            return;
        };
        let moved = strip(&built);
        built.run("objcopy --add-gnu-debuglink=moved library.so");
        let directory = built.directory().to_owned();
        assert_found_at(&built, &moved);
        fs::rename(&moved, directory.join("away")).expect("it can be renamed");
        let placed = Placed::new(&directory.join("away"), directory.join(".debug/moved"));
        assert_found_at(&built, &placed.expect("it is the test's own").file);
    }
}

#[test]
fn the_files_own_name_alone_proves_nothing() {
    let Some(built) = Built::new(&["-g", "-Wl,--build-id=none"]) else {
        return;
    };
    let moved = strip(&built);
    fs::rename(moved, built.directory().join("library.so.debug")).expect("it can be renamed");
    assert_without(&built, "no symbol covers them");
}

/// The directory of the library that a child is to symbolize.
const OF_CHILD: &str = "SIGPROF_TEST_BUILT";

#[test]
fn in_the_cache_of_debuginfods_clients() {
    let Some(built) = Built::new(&["-g"]) else {
        return;
    };
    let moved = strip(&built);
    let directory = built.directory();
    let caches = [
        ("DEBUGINFOD_CACHE_PATH", "cache", "cache"),
        ("XDG_CACHE_HOME", "caches", "caches/debuginfod_client"),
        ("HOME", "home", "home/.cache/debuginfod_client"),
        ("HOME", "old", "old/.debuginfod_client_cache"),
    ];
    for (variable, value, cache) in caches {
        let entry = directory.join(cache).join(build_id(&built.path));
        let placed = Placed::new(&moved, entry.join("debuginfo"));
        let _placed = placed.expect("it is the test's own");
        let mut command = child("debug_files::symbolizes_with_a_cache");
        for (variable, _, _) in caches {
            command.env_remove(variable);
        }
        command.env(OF_CHILD, directory);
        command.env(variable, directory.join(value));
        succeed(&mut command);
    }
}

#[test]
#[ignore = "a child process"]
fn symbolizes_with_a_cache() {
    let directory = PathBuf::from(std::env::var_os(OF_CHILD).expect("the test sets it"));
    let built = Built::at(&directory);
    let build_id = build_id(&built.path);
    let mut find = Command::new("find");
    let entry = run(find.arg(&directory).args(["-name", &build_id]));
    assert_found_at(&built, &Path::new(entry.trim_end()).join("debuginfo"));
}
