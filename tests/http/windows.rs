//! Windows that overlap, with each other and with recordings of the program's own.

use std::time::{Duration, SystemTime};

use sigprof::Profile;
use sigprof::cpu::{Clock, Profiler};
use sigprof::http::Options;

use crate::client::ask;
use crate::clock::CpuClock;
use crate::process::{child, succeed};
use crate::served::Served;
use crate::work::burn;

/// A window's profile.
fn window(served: &Served, query: &str) -> Profile {
    let path = format!("/debug/pprof/profile?{query}");
    let answer = ask(served.address(), "GET", &path, b"");
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    Profile::read(&answer.body).unwrap()
}

/// Opens a window, and does this while it is open.
fn meanwhile<T>(served: &Served, query: &str, work: impl FnOnce() -> T) -> (Profile, T) {
    std::thread::scope(|scope| {
        let window = scope.spawn(|| window(served, query));
        // The window is to begin first.
        burn(Duration::from_millis(300));
        let result = work();
        (window.join().unwrap(), result)
    })
}

/// Checks that the time is in functions, with that of the application's among them, and not in
/// what nobody sampled.
///
/// # Panics
///
/// If it is not.
fn check_places(profile: &Profile, what: &str) {
    let top = profile.top(0);
    let flat_of = |is_it: fn(&str) -> bool| -> i64 {
        let rows = top.rows().iter().filter(|row| is_it(&row.name));
        rows.map(|row| row.flat).sum()
    };
    // A few samples can all be of threads that look names up, or answer; and what each thread has
    // left of a period is as much as they are.
    if profile.total(0) < 50 {
        return;
    }
    assert!(flat_of(|name| name.contains("burn_")) > 0, "{what}: {top}");
    // On a crowded machine the change from one recording to the next takes a while: the threads of
    // the process are armed by one that has to wait for a CPU.
    let unsampled = flat_of(|name| name == "[unsampled]");
    assert!(unsampled < profile.total(1) / 2, "{what}: {top}");
}

#[test]
fn ten_windows_have_each_its_own_time_at_its_own_rate() {
    let served = Served::with(Options::new().max_windows(10));
    let clock = CpuClock::start();
    let asked = [
        (1, 100),
        (2, 150),
        (3, 140),
        (3, 1000),
        (1, 700),
        (2, 50),
        (3, 201),
        (2, 10),
        (3, 500),
        (3, 25),
    ];
    let profiles = std::thread::scope(|scope| {
        let windows = asked.map(|(seconds, hz)| {
            // So that they begin one after the other.
            burn(Duration::from_millis(50));
            let query = format!("seconds={seconds}&hz={hz}");
            let served = &served;
            scope.spawn(move || window(served, &query))
        });
        windows.map(|window| window.join().unwrap())
    });
    let readings = clock.stop();
    for (profile, (seconds, hz)) in profiles.iter().zip(asked) {
        let what = format!("{seconds} s at {hz} Hz");
        readings.check(profile, &what);
        assert_eq!(profile.period, 1_000_000_000 / hz, "{what}");
        assert!(profile.duration_nanos >= seconds * 1_000_000_000, "{what}");
        check_ticks(profile, profile.total(1), &what);
        check_places(profile, &what);
    }
}

/// Checks that ticks by their period are the time that a profile with the clock's time has.
///
/// # Panics
///
/// If they are not.
fn check_ticks(profile: &Profile, cpu_ns: i64, what: &str) {
    let ns = profile.total(0) * profile.period;
    // Each thread has up to a period more or less.
    let most = cpu_ns / 20 + 10 * profile.period;
    let off = (ns - cpu_ns).abs();
    assert!(off <= most, "{what}: {ns} ns of {cpu_ns}:\n{profile}");
}

#[test]
fn a_gperftools_file_has_the_windows_time_beside_a_faster_window() {
    let served = Served::new();
    let clock = CpuClock::start();
    let (profile, answer) = std::thread::scope(|scope| {
        let path = "/pprof/profile?seconds=2&hz=700";
        let legacy = scope.spawn(|| ask(served.address(), "GET", path, b""));
        let profile = scope.spawn(|| window(&served, "seconds=2&hz=700"));
        burn(Duration::from_millis(300));
        window(&served, "seconds=1&hz=1000");
        (profile.join().unwrap(), legacy.join().unwrap())
    });
    let ended = SystemTime::now();
    let readings = clock.stop();
    assert_eq!(profile.period, 1_428_571);
    check_ticks(&profile, profile.total(1), "profile.proto");
    let legacy = Profile::read(&answer.body).unwrap();
    // It has whole microseconds.
    assert_eq!(legacy.period, 1_428_000);
    // The window opens before the answer's head is sent, and is open for 2 s.
    let (low, _) = readings.between(answer.begun, answer.asked + Duration::from_secs(2));
    let (_, high) = readings.between(answer.asked, ended);
    let ticks_ns = legacy.total(0) * legacy.period;
    let nearest = ticks_ns.clamp(low.as_nanos() as i64, high.as_nanos() as i64);
    check_ticks(&legacy, nearest, "gperftools");
}

#[test]
fn ticks_have_the_windows_time_where_the_programs_own_rate_is_lower() {
    let served = Served::new();
    let (window, ()) = meanwhile(&served, "seconds=3&hz=1000", || {
        let recording = Profiler::new().frequency_hz(70).start().unwrap();
        burn(Duration::from_millis(1000));
        recording.stop().unwrap();
    });
    assert_eq!(window.period, 1_000_000);
    check_ticks(&window, window.total(1), "window");
}

#[test]
fn a_recording_of_the_programs_own_is_shared() {
    let served = Served::new();
    let clock = CpuClock::start();
    let recording = Profiler::new().frequency_hz(1000).start().unwrap();
    let [thinned, as_it_is, nearest] = std::thread::scope(|scope| {
        // The recording cannot be any faster.
        let windows = ["seconds=2&hz=100", "seconds=1&hz=1000", "seconds=1&hz=3000"];
        let windows = windows.map(|query| scope.spawn(|| window(&served, query)));
        windows.map(|window| window.join().unwrap())
    });
    let own = recording.stop().unwrap();
    let readings = clock.stop();
    for (profile, period, what) in [
        (thinned, 10_000_000, "thinned"),
        (as_it_is, 1_000_000, "as it is"),
        (nearest, 1_000_000, "nearest"),
        (own, 1_000_000, "own"),
    ] {
        assert_eq!(profile.period, period, "{what}");
        readings.check(&profile, what);
    }
}

#[test]
fn a_recording_that_the_environment_started_is_shared() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = child("windows::recorded_by_the_environment");
    program.env("CPUPROFILE", directory.path().join("cpu.pb.gz"));
    succeed(program.env("CPUPROFILE_FREQUENCY", "1000"));
}

#[test]
#[ignore = "a child process"]
fn recorded_by_the_environment() {
    let path = std::env::var_os("CPUPROFILE").unwrap();
    let clock = CpuClock::start();
    let profiling = sigprof::from_env().unwrap().expect("a path is set");
    let served = Served::new();
    let profile = window(&served, "seconds=1&hz=3000");
    drop(profiling);
    let readings = clock.stop();
    // The rate is that of the environment's recording, which a window does not change.
    assert_eq!(profile.period, 1_000_000);
    readings.check(&profile, "window");
    let own = Profile::read(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(own.period, 1_000_000);
    readings.check(&own, "the environment's own");
}

#[test]
fn the_program_can_start_and_stop_while_windows_are_open() {
    let served = Served::new();
    let clock = CpuClock::start();
    let (window, owns) = meanwhile(&served, "seconds=4&hz=250", || {
        [(); 5].map(|()| {
            let recording = Profiler::new().frequency_hz(200).start().unwrap();
            burn(Duration::from_millis(100));
            // No recording runs while names are looked up, until the window's own begins.
            recording.stop().unwrap()
        })
    });
    let readings = clock.stop();
    readings.check(&window, "window");
    check_places(&window, "window");
    for own in owns {
        readings.check(&own, "own");
    }
}

#[test]
fn a_window_goes_on_when_the_program_stops() {
    let served = Served::new();
    let clock = CpuClock::start();
    let recording = Profiler::new().start().unwrap();
    let (window, own) = meanwhile(&served, "seconds=2", || recording.stop().unwrap());
    let readings = clock.stop();
    readings.check(&window, "window");
    readings.check(&own, "own");
    check_places(&window, "window");
}

#[test]
fn elapsed_time_is_not_recorded_beside_cpu_time() {
    let served = Served::new();
    let ask = |query: &str| {
        let path = format!("/debug/pprof/profile?{query}");
        ask(served.address(), "GET", &path, b"")
    };
    let wall = window(&served, "seconds=1&wall=1");
    assert_eq!(wall.period_type.r#type, "wall");
    let recording = Profiler::new().clock(Clock::Wall).start().unwrap();
    let refused = ask("seconds=1");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("10"));
    assert!(
        refused.text().contains("elapsed time"),
        "{}",
        refused.text()
    );
    let wall = window(&served, "seconds=1&wall=1");
    assert!(wall.total(1) > 0);
    drop(recording);
    let wrong = ask("seconds=1&hz=10001");
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("1 to 10000"), "{}", wrong.text());
}
