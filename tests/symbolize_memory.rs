//! What symbolizing costs in memory, and that it is given back. A program of its own: nothing else
//! allocates here.
#![cfg(feature = "symbolize")]

use std::fs;
use std::time::{Duration, Instant};

use sigprof::Profile;
use sigprof::profile::{Location, Mapping};

fn status_kib(key: &str) -> i64 {
    let status = fs::read_to_string("/proc/self/status").expect("it can be read");
    status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or_else(|| panic!("the kernel reports {key}"))
}

/// 3000 addresses all over the code of this program, which has the debug information of the
/// standard library's.
const CODE_BYTES: u64 = 3_100_000;

fn profile() -> Profile {
    let maps = fs::read_to_string("/proc/self/maps").expect("it can be read");
    let program = std::env::current_exe().expect("this is a program");
    let program = program.to_str().expect("its path is UTF-8");
    let line = maps
        .lines()
        .find(|line| line.ends_with(program) && line.contains(" r-xp "))
        .expect("the program's code is mapped");
    let words: Vec<_> = line.split(' ').collect();
    let hex = |word| u64::from_str_radix(word, 16).expect("maps are in hex");
    let (start, limit) = words[0].split_once('-').expect("a range has two ends");
    let (start, limit) = (hex(start), hex(limit));
    let mut profile = Profile::new(Vec::new());
    let mapping = profile.push_mapping(Mapping {
        memory_start: start,
        memory_limit: limit,
        file_offset: hex(words[2]),
        filename: program.to_owned(),
        ..Mapping::default()
    });
    // As much code as the bar was set for: what symbolizing takes grows with the debug information
    // that the addresses touch, and this program grows with the library.
    let limit = limit.min(start + CODE_BYTES);
    for address in (start..limit).step_by((limit - start) as usize / 3000) {
        profile.push_location(Location {
            mapping: Some(mapping),
            address,
            ..Location::default()
        });
    }
    profile
}

#[test]
fn memory_is_given_back() {
    let mut profile = profile();
    // Sets the high-water mark back to now; kernels that refuse leave the higher one standing.
    fs::write("/proc/self/clear_refs", "5").ok();
    let before = status_kib("VmRSS");
    let threads_before = threads();
    sigprof::symbolize::symbolize(&mut profile);
    let peak = status_kib("VmHWM") - before;
    let named = profile.locations().iter().filter(|l| !l.lines.is_empty());
    assert!(named.count() > 2000);
    drop(profile);
    let after = status_kib("VmRSS") - before;
    eprintln!("peak {peak} KiB, after {after} KiB");
    // It grows with the debug information, which is most of the file and grows with the library:
    // the bar of 60 MiB was set for one of 35 MiB. (`benches/peers` has that of a whole report.)
    let file = fs::metadata("/proc/self/exe").expect("it can be read");
    let most = (60 << 10) * (file.len() as i64 >> 10) / (35 << 10);
    assert!(peak <= most, "{peak} KiB at the peak, and not {most}");
    assert!(after <= 2 << 10, "{after} KiB are not given back");
    // A thread that was joined may take a moment to go from the kernel's list.
    let deadline = Instant::now() + Duration::from_secs(60);
    while threads() != threads_before {
        assert!(Instant::now() < deadline, "a thread stays");
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task")
        .expect("it can be read")
        .count()
}
