//! Programs of known cost, judged by the field's own readers.
//!
//! A gperftools file has no names, so a reader finds them itself. `google-pprof` does; the
//! `go tool pprof` of go 1.19 takes the executable's load address for that of its first
//! instruction, and is off by part of a page where the linker (lld) does not begin the segment on
//! one. So names of such a file are google-pprof's here, and sums and mappings are Go's.

#[path = "support/process.rs"]
mod process;
mod support;
#[path = "support/work.rs"]
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use process::{child, succeed};
use sigprof::cpu::Profiler;
use support::{go_pprof, run, tool};
use work::{
    burn_five, burn_on_first, burn_on_second, burn_on_third, burn_sixty, burn_ten, burn_twenty_five,
};

const SHARES: [(&str, f64); 4] = [
    ("burn_sixty", 60.0),
    ("burn_twenty_five", 25.0),
    ("burn_ten", 10.0),
    ("burn_five", 5.0),
];

const THREAD_SHARES: [(&str, f64); 3] = [
    ("burn_on_first", 500.0 / 9.0),
    ("burn_on_second", 300.0 / 9.0),
    ("burn_on_third", 100.0 / 9.0),
];

/// How far a share may be off, in percentage points.
const TOLERANCE: f64 = 3.0;

/// Records `work` and writes both files into the directory that the parent test named.
fn record_both(frequency_hz: u32, work: impl FnOnce()) {
    let directory = PathBuf::from(std::env::var_os("SIGPROF_TEST_DIRECTORY").unwrap());
    let recording = Profiler::new().frequency_hz(frequency_hz).start().unwrap();
    work();
    let profile = recording.stop().unwrap();
    profile.save(directory.join("cpu.pb.gz")).unwrap();
    profile.save(directory.join("cpu.prof")).unwrap();
}

/// Both files of a child test.
struct Recorded {
    directory: tempfile::TempDir,
}

impl Recorded {
    fn by(test: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        succeed(child(test).env("SIGPROF_TEST_DIRECTORY", directory.path()));
        Self { directory }
    }

    fn proto(&self) -> PathBuf {
        self.directory.path().join("cpu.pb.gz")
    }

    fn legacy(&self) -> PathBuf {
        self.directory.path().join("cpu.prof")
    }
}

/// Flat share, in percent, of the function whose name ends in each of `names`, from a table whose
/// lines hold percentages in the second column and the name in the sixth.
fn flat_shares<'n>(
    table: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> BTreeMap<&'n str, f64> {
    let mut shares = BTreeMap::new();
    for line in table.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [_, flat, _, _, _, function, ..] = columns[..] else {
            continue;
        };
        let function = function.trim_end_matches("(inline)");
        // A mangled name keeps its hash in some readers: `truth::work::burn_ten::h0123…`.
        let is = |name: &str| function.split("::").any(|part| part == name);
        let Some(name) = names.clone().find(|name| is(name)) else {
            continue;
        };
        if let Ok(share) = flat.trim_end_matches('%').parse::<f64>() {
            *shares.entry(name).or_default() += share;
        }
    }
    shares
}

fn assert_shares(table: &str, expected: &[(&str, f64)]) {
    let shares = flat_shares(table, expected.iter().map(|(name, _)| *name));
    for (name, share) in expected {
        let seen = shares.get(name).copied().unwrap_or_default();
        assert!(
            (seen - share).abs() <= TOLERANCE,
            "{name} has {seen} % instead of {share} %:\n{table}"
        );
    }
}

fn go_top(go: &Path, file: &Path) -> String {
    go_pprof(go, &["-top", "-nodecount=1000", "-nodefraction=0"], file).stdout
}

/// `go`, where its names can be judged. Without names in the profile it finds its own, and for a
/// program whose code begins within a page, as LLD links it, Go 1.19 finds the wrong ones
/// (`docs/formats.md`).
fn go_for_names() -> Option<PathBuf> {
    tool("go").filter(|_| cfg!(feature = "symbolize"))
}

/// `google-pprof --text` of a file that the running test binary recorded.
fn google_text(google_pprof: &Path, file: &Path) -> String {
    let mut command = Command::new(google_pprof);
    command
        .arg("--text")
        .arg(std::env::current_exe().unwrap())
        .arg(file);
    run(&mut command).stdout
}

#[test]
#[ignore = "a child process"]
fn child_of_known_shares() {
    record_both(1000, || {
        // A hundredth that is no part of the scheduler's tick, for the reason that `spin` gives.
        let hundredth = Duration::from_micros(1037);
        for _ in 0..30 {
            burn_sixty(hundredth * 60);
            burn_twenty_five(hundredth * 25);
            burn_ten(hundredth * 10);
            burn_five(hundredth * 5);
        }
    });
}

#[test]
fn functions_of_known_shares() {
    let (go, google_pprof) = (go_for_names(), tool("google-pprof"));
    let recorded = Recorded::by("child_of_known_shares");
    if let Some(go) = go {
        assert_shares(&go_top(&go, &recorded.proto()), &SHARES);
    }
    if let Some(google_pprof) = google_pprof {
        assert_shares(&google_text(&google_pprof, &recorded.legacy()), &SHARES);
    }
}

#[test]
#[ignore = "a child process"]
fn child_of_known_threads() {
    record_both(1000, || {
        let threads: [(fn(Duration), u64); 3] =
            [(burn_on_first, 5), (burn_on_second, 3), (burn_on_third, 1)];
        thread::scope(|scope| {
            for (burn, parts) in threads {
                scope.spawn(move || burn(Duration::from_millis(parts * 400)));
            }
        });
    });
}

#[test]
fn threads_of_known_shares() {
    let (go, google_pprof) = (go_for_names(), tool("google-pprof"));
    let recorded = Recorded::by("child_of_known_threads");
    if let Some(go) = go {
        assert_shares(&go_top(&go, &recorded.proto()), &THREAD_SHARES);
    }
    if let Some(google_pprof) = google_pprof {
        assert_shares(
            &google_text(&google_pprof, &recorded.legacy()),
            &THREAD_SHARES,
        );
    }
}

#[cfg(target_arch = "x86_64")]
mod frameless {
    // A function that touches neither the stack nor the frame pointer, called by one that has a
    // frame of its own: a profiler that takes the return address from the frame pointer loses it,
    // or its caller.
    std::arch::global_asm!(
        ".globl frameless_leaf",
        ".type frameless_leaf, @function",
        "frameless_leaf:",
        ".cfi_startproc",
        "2:",
        "dec rdi",
        "jnz 2b",
        "ret",
        ".cfi_endproc",
        ".size frameless_leaf, . - frameless_leaf",
    );

    unsafe extern "C" {
        pub fn frameless_leaf(turns: u64);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn calls_the_frameless_leaf(time: Duration) {
    let end = work::thread_cpu() + time;
    while work::thread_cpu() < end {
        // SAFETY: counts down and returns.
        unsafe { frameless::frameless_leaf(100_000) };
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "a child process"]
fn child_with_a_frameless_leaf() {
    record_both(1000, || {
        calls_the_frameless_leaf(Duration::from_millis(600))
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn flat_time_of_a_leaf_without_a_frame_is_the_leafs() {
    let (go, google_pprof) = (go_for_names(), tool("google-pprof"));
    let recorded = Recorded::by("child_with_a_frameless_leaf");
    let names = ["frameless_leaf", "calls_the_frameless_leaf"];
    let assert_leaf = |table: &str| {
        let flat = flat_shares(table, names.into_iter());
        assert!(flat["frameless_leaf"] > 90.0, "{table}");
        let caller = flat.get("calls_the_frameless_leaf").copied();
        assert!(caller.unwrap_or_default() < 5.0, "{table}");
    };
    if let Some(google_pprof) = google_pprof {
        assert_leaf(&google_text(&google_pprof, &recorded.legacy()));
    }
    if let Some(go) = go {
        assert_leaf(&go_top(&go, &recorded.proto()));
        let traces = go_pprof(&go, &["-traces"], &recorded.proto()).stdout;
        let mut lines = traces.lines();
        let leaf = lines.find(|line| line.split_whitespace().last() == Some("frameless_leaf"));
        assert!(leaf.is_some(), "{traces}");
        let caller = lines.next().unwrap_or_default();
        assert!(caller.contains("calls_the_frameless_leaf"), "{traces}");
    }
}

const RAISED: u32 = 12_345;

#[inline(never)]
fn raising_function() {
    for _ in 0..RAISED {
        // SAFETY: a signal to the calling thread.
        unsafe { libc::raise(libc::SIGPROF) };
    }
}

#[test]
#[ignore = "a child process"]
fn child_that_raises() {
    record_both(1, raising_function);
}

#[test]
fn signals_that_a_program_raises_are_counted_exactly() {
    let (go, google_pprof) = (tool("go"), tool("google-pprof"));
    let recorded = Recorded::by("child_that_raises");
    // One more where the thread's own clock, at 1 Hz, ticked within the function.
    let is_exact = |count: f64| (f64::from(RAISED)..=f64::from(RAISED) + 1.0).contains(&count);
    let cumulative = |table: &str, column: usize| {
        table
            .lines()
            .find(|line| line.contains("raising_function"))
            .and_then(|line| line.split_whitespace().nth(column)?.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("no raising_function in\n{table}"))
    };
    if let Some(go) = go {
        let options = ["-top", "-cum", "-sample_index=samples", "-nodefraction=0"];
        if cfg!(feature = "symbolize") {
            let top = go_pprof(&go, &options, &recorded.proto()).stdout;
            assert!(is_exact(cumulative(&top, 3)), "{top}");
        }
        let top = go_pprof(&go, &options, &recorded.legacy()).stdout;
        let total = top.lines().find_map(|line| {
            let (_, total) = line.split_once("% of ")?;
            total.strip_suffix(" total")?.parse::<f64>().ok()
        });
        assert!(total.is_some_and(is_exact), "{top}");
    }
    if let Some(google_pprof) = google_pprof {
        // It leaves out frames that all stacks share, so the total is what it shows of them.
        let text = google_text(&google_pprof, &recorded.legacy());
        let total = text.lines().find_map(|line| {
            line.strip_prefix("Total: ")?
                .strip_suffix(" samples")?
                .parse()
                .ok()
        });
        assert!(total.is_some_and(is_exact), "{text}");
    }
}

struct Noisy<T>(Vec<T>);

impl<T> Drop for Noisy<T> {
    #[inline(never)]
    fn drop(&mut self) {
        for _ in 0..10 {
            // SAFETY: a signal to the calling thread.
            unsafe { libc::raise(libc::SIGPROF) };
        }
        std::hint::black_box(&mut self.0);
    }
}

#[test]
#[ignore = "a child process"]
fn child_with_generics() {
    record_both(100, || {
        drop(Noisy(vec![1_u8]));
        let mut words: Vec<String> = (0..200_000_u64)
            .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_string())
            .collect();
        words.sort();
        std::hint::black_box(words);
    });
}

/// The sections of what `pprof -raw` prints.
fn section<'r>(raw: &'r str, name: &str) -> impl Iterator<Item = &'r str> {
    raw.lines()
        .skip_while(move |line| *line != name)
        .skip(1)
        .take_while(|line| !matches!(*line, "Locations" | "Mappings"))
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16)
        .unwrap_or_else(|e| panic!("{text:?} is no address: {e}"))
}

#[test]
fn readers_find_the_executable_its_build_id_and_every_address() {
    let Some(go) = tool("go") else { return };
    let recorded = Recorded::by("child_with_generics");
    let exe = std::env::current_exe().unwrap();
    let build_id = tool("readelf").map(|readelf| {
        let notes = run(Command::new(readelf).arg("-n").arg(&exe)).stdout;
        let (_, id) = notes.split_once("Build ID: ").expect("cc adds a build id");
        id.split_whitespace().next().unwrap().to_owned()
    });
    for file in [recorded.proto(), recorded.legacy()] {
        let output = go_pprof(&go, &["-raw"], &file);
        let complaints = output.stderr.to_lowercase();
        for word in ["warn", "error", "fail", "unrecognized", "could not"] {
            assert!(!complaints.contains(word), "{}", output.stderr);
        }
        // `1: 0x…/0x…/0x… path build-id [FN]…`
        let mappings: BTreeMap<u64, (u64, u64)> = section(&output.stdout, "Mappings")
            .filter_map(|line| {
                let (id, rest) = line.split_once(": ")?;
                let mut range = rest.split(['/', ' ']);
                Some((id.parse().ok()?, (hex(range.next()?), hex(range.next()?))))
            })
            .collect();
        let first = section(&output.stdout, "Mappings").next().unwrap();
        let columns: Vec<&str> = first.split_whitespace().collect();
        assert_eq!(columns[0], "1:");
        assert_eq!(Path::new(columns[2]), exe);
        if let Some(build_id) = &build_id {
            assert_eq!(columns[3], build_id, "{first}");
        }
        let mut locations = 0;
        for line in section(&output.stdout, "Locations") {
            // `     7: 0x… M=1 function file:line s=0`; further lines of a location have no number.
            let columns: Vec<&str> = line.split_whitespace().collect();
            let [number, address, mapping, ..] = columns[..] else {
                continue;
            };
            if !number.ends_with(':') || !address.starts_with("0x") {
                continue;
            }
            // A frame that says why time is in no stack has no code behind it.
            if hex(address) == 0 {
                continue;
            }
            let mapping = mapping
                .strip_prefix("M=")
                .expect("every address has a mapping");
            let (start, limit) = mappings[&mapping.parse().unwrap()];
            assert!((start..limit).contains(&hex(address)), "{line}");
            locations += 1;
        }
        assert!(locations > 5, "{}", output.stdout);
    }
}

#[test]
#[cfg(feature = "symbolize")]
fn names_of_generics_are_whole_and_inlined_frames_are_there() {
    let Some(go) = tool("go") else { return };
    let recorded = Recorded::by("child_with_generics");
    for options in [&["-raw"][..], &["-traces"]] {
        let output = go_pprof(&go, options, &recorded.proto()).stdout;
        assert!(
            output.contains("<truth::Noisy<T> as core::ops::drop::Drop>::drop"),
            "{output}"
        );
    }
    let raw = go_pprof(&go, &["-raw"], &recorded.proto()).stdout;
    let inlined = section(&raw, "Locations")
        .filter(|line| !line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .filter(|line| line.contains(" s=0"))
        .count();
    assert!(inlined > 0, "{raw}");
    let top = go_pprof(&go, &["-top"], &recorded.proto()).stderr;
    assert!(
        !top.contains("Local symbolization"),
        "pprof takes our names: {top}"
    );
}
