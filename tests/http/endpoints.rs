//! What the endpoints answer, and to whom.

use std::process::Command;
use std::time::Duration;

use sigprof::http::serve;
use sigprof::profile::{Function, Line, Location, ValueType};
use sigprof::{Format, Profile};

use crate::client::{ask, send};
use crate::long_symbol;
use crate::process::{output, succeed};
use crate::served::Served;
use crate::support::{run, tool};
use crate::work::{burn_sixty, process_cpu};

#[test]
fn the_command_line_has_an_argument_a_line() {
    let server = serve("127.0.0.1:0").unwrap();
    let answer = ask(server.local_addr(), "GET", "/pprof/cmdline", b"");
    let arguments: Vec<String> = std::env::args().collect();
    assert_eq!(answer.text(), arguments.join("\n") + "\n");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[test]
fn the_command_line_of_gos_path_has_nuls_between_arguments() {
    let server = serve("127.0.0.1:0").unwrap();
    let answer = ask(server.local_addr(), "GET", "/debug/pprof/cmdline", b"");
    let arguments: Vec<String> = std::env::args().collect();
    assert_eq!(answer.text(), arguments.join("\0"));
}

#[test]
fn the_index_lists_what_is_answered() {
    let served = Served::new();
    let address = served.address();
    for (path, place) in [("/", "debug/pprof/"), ("/debug/pprof", "pprof/")] {
        let answer = ask(address, "GET", path, b"");
        assert_eq!(
            (answer.status, answer.header("location")),
            (302, Some(place))
        );
    }
    let index = ask(address, "GET", "/debug/pprof/", b"");
    assert_eq!(
        index.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let links = index.text().split("href=\"").skip(1);
    let links: Vec<String> = links
        .map(|link| link.split('"').next().unwrap().replace("&amp;", "&"))
        .collect();
    assert!(links.len() > 5, "{}", index.text());
    // At once, so that the windows among them take the time of one.
    std::thread::scope(|scope| {
        for link in links {
            let path = match link.strip_prefix("../..") {
                Some(path) => path.to_string(),
                None => format!("/debug/pprof/{link}"),
            };
            // No longer than it takes.
            let path = path.replace("=30", "=1").replace("=5", "=1");
            scope.spawn(move || {
                let answer = ask(address, "GET", &path, b"");
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
                assert!(!answer.body.is_empty(), "{path}");
            });
        }
    });
}

#[test]
fn a_profile_of_gos_path_has_names_and_one_for_people_is_text() {
    let served = Served::new();
    let ask = |path| ask(served.address(), "GET", path, b"");
    let answer = ask("/debug/pprof/profile?seconds=1");
    let disposition = answer.header("content-disposition");
    assert_eq!(disposition, Some("attachment; filename=\"cpu.pb.gz\""));
    assert_eq!(answer.body[..2], [0x1f, 0x8b], "gzip");
    let profile = Profile::read(&answer.body).unwrap();
    let top = profile.top(0);
    for function in ["burn_sixty", "burn_twenty_five"] {
        let rows = top.rows();
        assert!(rows.iter().any(|row| row.name.contains(function)), "{top}");
    }
    let top = ask("/debug/pprof/profile?seconds=1&debug=1");
    assert!(top.text().contains("burn_sixty"), "{}", top.text());
    assert!(top.text().contains("flat%"), "{}", top.text());
}

#[test]
fn either_path_answers_in_the_form_that_is_asked_for() {
    let served = Served::new();
    let ask = |path: &str| ask(served.address(), "GET", path, b"");
    let paths = [
        "/pprof/profile?seconds=1&format=proto",
        "/debug/pprof/profile?seconds=1&format=legacy",
        "/pprof/profile?seconds=1&format=folded",
        "/pprof/profile?seconds=1&format=top",
        "/debug/pprof/profile?seconds=1&format=gmon",
    ];
    // At once, so that the windows take the time of one.
    let [proto, legacy, folded, top, gmon] = std::thread::scope(|scope| {
        let answers = paths.map(|path| scope.spawn(move || ask(path)));
        answers.map(|answer| answer.join().unwrap())
    });
    let files = [
        (&proto, "cpu.pb.gz"),
        (&legacy, "cpu.prof"),
        (&gmon, "cpu.gmon"),
    ];
    for (answer, name) in files {
        let disposition = format!("attachment; filename=\"{name}\"");
        assert_eq!(answer.header("content-disposition"), Some(&*disposition));
    }
    for answer in [&folded, &top] {
        let content_type = answer.header("content-type");
        assert_eq!(content_type, Some("text/plain; charset=utf-8"));
    }
    let functions = Profile::read(&proto.body).unwrap().top(0);
    let mut functions = functions.rows().iter();
    assert!(functions.any(|row| row.name.contains("burn_sixty")));
    let legacy = Profile::read(&legacy.body).unwrap();
    assert!(legacy.total(0) > 0);
    assert!(
        legacy
            .functions()
            .iter()
            .all(|f| legacy.string(f.name).starts_with('['))
    );
    assert!(gmon.body.starts_with(b"gmon"));
    let is_burning = |line: &&str| line.contains(";http::work::burn_sixty");
    let burning: Vec<_> = folded.text().lines().filter(is_burning).collect();
    assert!(!burning.is_empty(), "{}", folded.text());
    assert!(folded.text().lines().all(|line| value_of(line) > 0));
    assert!(top.text().contains("flat%"), "{}", top.text());

    let threads = ask("/debug/pprof/goroutine?format=folded");
    // The two that work, and the server's.
    let count: u64 = threads.text().lines().map(value_of).sum();
    assert!(count >= 3, "{}", threads.text());
    let top = ask("/debug/pprof/threadcreate?format=top&debug=1");
    assert!(top.text().contains("flat%"), "{}", top.text());
    for (path, sentence) in [
        (
            "profile?format=svg",
            "must be one of proto, folded, top, legacy, gmon",
        ),
        (
            "goroutine?format=legacy",
            "must be one of proto, folded, top here",
        ),
    ] {
        let answer = ask(&format!("/debug/pprof/{path}"));
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text().contains(sentence), "{}", answer.text());
    }
}

/// What a line of collapsed stacks ends with.
fn value_of(line: &str) -> u64 {
    let (_, value) = line.rsplit_once(' ').unwrap();
    value.parse().unwrap()
}

#[test]
fn scrapers_get_a_profile_of_what_is_not_recorded_and_people_a_sentence() {
    let server = serve("127.0.0.1:0").unwrap();
    let ask = |path: &str| ask(server.local_addr(), "GET", path, b"");
    for kind in ["allocs", "block", "mutex"] {
        let answer = ask(&format!("/debug/pprof/{kind}"));
        let profile = Profile::read(&answer.body).unwrap();
        assert_eq!(profile.sample_count(), 0);
        assert!(profile.duration_nanos > 0);
        assert!(profile.comments[0].contains(kind), "{:?}", profile.comments);
        let text = ask(&format!("/debug/pprof/{kind}?debug=1"));
        assert!(text.text().contains(kind), "{}", text.text());
        let folded = ask(&format!("/debug/pprof/{kind}?format=folded"));
        assert_eq!(
            (folded.status, folded.text()),
            (200, "# collapsed stacks\n")
        );
    }
    for family in ["/pprof", "/debug/pprof"] {
        for kind in ["heap", "growth", "contention"] {
            let answer = ask(&format!("{family}/{kind}"));
            assert_eq!(answer.status, 404);
            assert_eq!(answer.header("x-go-pprof"), Some("1"));
            let index = "/debug/pprof/ lists";
            assert!(answer.text().contains(kind), "{}", answer.text());
            assert!(answer.text().contains(index), "{}", answer.text());
        }
    }
}

#[test]
fn clients_say_why_a_program_has_no_heap_profile() {
    let server = serve("127.0.0.1:0").unwrap();
    let url = |path: &str| format!("http://{}{path}", server.local_addr());
    let reason = "the program's #[global_allocator] is no sigprof::heap::Allocator";
    let say = |mut command: Command| {
        let directory = tempfile::tempdir().unwrap();
        command.env("PPROF_TMPDIR", directory.path());
        command.env("HOME", directory.path());
        let output = output(&mut command).unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| {
            let text = String::from_utf8_lossy(&text);
            text.into_owned()
        });
        (output.status.success(), stdout + &stderr)
    };
    for path in ["/pprof/heap", "/pprof/growth", "/debug/pprof/heap"] {
        for (client, arguments, fails) in [
            ("go", &["tool", "pprof", "-top"][..], true),
            ("curl", &["-sS"], false),
        ] {
            let Some(client) = tool(client) else { return };
            let mut command = Command::new(client);
            command.args(arguments).arg(url(path));
            let (is_success, text) = say(command);
            assert_eq!(is_success, !fails, "{text}");
            assert!(text.contains(reason), "{path}: {text}");
        }
    }
    let Some(google_pprof) = tool("google-pprof") else {
        return;
    };
    let mut command = Command::new(google_pprof);
    command.arg("--text").arg(url("/pprof/heap"));
    let (is_success, text) = say(command);
    assert!(!is_success, "{text}");
}

#[test]
fn symbols_are_the_linkers() {
    let server = serve("127.0.0.1:0").unwrap();
    let ask = |method, body: &str| {
        let address = server.local_addr();
        ask(address, method, "/pprof/symbol", body.as_bytes())
    };
    assert_eq!(ask("GET", "").text(), "num_symbols: 1\n");
    let head = ask("HEAD", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some("15"));

    let address = burn_sixty as *const () as usize + 1;
    // With leading zeros, as the client in Perl sends it, and an address that nothing has.
    let answer = ask("POST", &format!("0x{address:016x}+0x1"));
    let answer = answer.text();
    let (key, symbol) = answer
        .split_once('\t')
        .unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(key, format!("{address:#x}"));
    assert!(symbol.contains("burn_sixty"), "{answer}");
    assert!(symbol.starts_with('_'), "{answer}: mangled");
    assert!(answer.ends_with('\n'));

    let wrong = ask("POST", "0x1000,0x2000");
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.header("x-go-pprof"), Some("1"));
}

#[test]
fn frames_without_code_are_named_by_their_addresses_in_a_file() {
    let mut profile = Profile::new(vec![ValueType::new("samples", "count")]);
    profile.period_type = ValueType::new("cpu", "nanoseconds");
    profile.period = 10_000_000;
    let names = [
        "[somebodys-own]",
        "[unsampled]",
        "[lost]",
        "[kernel]",
        "[kernel: io_uring worker]",
    ];
    for name in names {
        let name = profile.intern(name);
        let function = profile.push_function(Function {
            name,
            ..Function::default()
        });
        let lines = vec![Line {
            function,
            line: 0,
            column: 0,
        }];
        let location = profile.push_location(Location {
            lines,
            ..Location::default()
        });
        profile.push_sample(&[location], &[1], &[]);
    }
    let mut file = Vec::new();
    profile.write(Format::CpuProfile, &mut file).unwrap();
    let text = String::from_utf8_lossy(&file);
    let address_of = |name: &str| {
        let word = name.replace(' ', "_");
        let line = text.lines().find(|line| line.ends_with(&word)).unwrap();
        let (start, _) = line
            .trim_start_matches(|c| c != '1')
            .split_once('-')
            .unwrap();
        format!("0x{start:0>16}")
    };
    let addresses = names.map(address_of).join("+");
    let server = serve("127.0.0.1:0").unwrap();
    let answer = ask(
        server.local_addr(),
        "POST",
        "/pprof/symbol",
        addresses.as_bytes(),
    );
    let answer = answer.text();
    let named: Vec<&str> = (answer.lines())
        .map(|line| line.split_once('\t').unwrap().1)
        .collect();
    assert_eq!(
        named,
        [
            "[lost]",
            "[unsampled]",
            "[kernel]",
            "[kernel: io_uring worker]"
        ],
        "{addresses}: {answer}"
    );
}

#[test]
fn a_window_has_the_processs_time_and_no_more() {
    let served = Served::new();
    let before = process_cpu();
    let answer = ask(served.address(), "GET", "/pprof/profile?seconds=1", b"");
    let after = process_cpu();
    assert_eq!(answer.status, 200);
    let disposition = answer.header("content-disposition");
    assert_eq!(disposition, Some("attachment; filename=\"cpu.prof\""));
    let profile = Profile::read(&answer.body).unwrap();
    let time: i64 = profile.samples().map(|sample| sample.values[1]).sum();
    let time = Duration::from_nanos(time as u64);
    // Counts of periods, which a file of gperftools' has, are off by less than one.
    let period = Duration::from_nanos(profile.period as u64);
    assert!(time <= after - before + period, "{time:?}");
    // The window is a second of all that this process works; threads share what CPUs there are.
    assert!(time > Duration::ZERO);
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    let server = serve("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    for (method, path, status) in [
        ("GET", "/pprof/profile?seconds=-1", 400),
        ("GET", "/pprof/profile?seconds=0", 400),
        ("GET", "/pprof/profile?seconds=301", 400),
        ("GET", "/pprof/profile?seconds=NaN", 400),
        ("GET", "/pprof/nothing", 404),
        ("GET", "/debug/pprof/nothing", 404),
        ("GET", "/debug/pprof/profile?seconds=1e9", 400),
        ("GET", "/debug/pprof/profile?seconds=1&wall=no", 400),
        ("GET", "/debug/pprof/goroutine?seconds=0", 400),
        ("GET", "/debug/pprof/allocs?seconds=0", 400),
        ("GET", "/debug/pprof/allocs?format=svg", 400),
        ("GET", "/debug/pprof/mutex?format=gmon", 400),
        ("POST", "/debug/pprof/", 405),
        ("POST", "/pprof/profile", 405),
        ("DELETE", "/pprof/symbol", 405),
    ] {
        let answer = ask(address, method, path, b"");
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("x-go-pprof"), Some("1"), "{method} {path}");
        let content_type = answer.header("content-type");
        assert_eq!(content_type, Some("text/plain; charset=utf-8"));
        assert!(answer.text().ends_with('\n'), "{method} {path}");
    }
    // Nothing was recorded for it.
    let head = ask(address, "HEAD", "/pprof/profile", b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn clients_of_http_1_0_are_answered() {
    let server = serve("127.0.0.1:0").unwrap();
    let request = b"GET /pprof/symbol HTTP/1.0\r\n\r\n";
    let answer = send(server.local_addr(), request);
    assert_eq!(answer.text(), "num_symbols: 1\n");
}

#[test]
fn curl_gets_what_it_asks_for() {
    let Some(curl) = tool("curl") else {
        return;
    };
    let served = Served::new();
    let curl = |options: &[&str], path: &str| {
        let mut command = Command::new(&curl);
        command.args(["--silent", "--show-error", "--fail", "--noproxy", "*"]);
        command.args(options).arg(served.url(path));
        succeed(&mut command).stdout
    };
    assert_eq!(curl(&["--http1.0"], "/pprof/symbol"), b"num_symbols: 1\n");
    let head = String::from_utf8(curl(&["--head"], "/pprof/symbol")).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    // A body of this length has curl ask first whether it may send it.
    let addresses = (0..100_000).map(|nth| format!("{:#x}", long_symbol::begin() + nth));
    let body = addresses.collect::<Vec<String>>().join("+");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("addresses");
    std::fs::write(&file, body).unwrap();
    let data = format!("@{}", file.display());
    let lines = curl(&["--data-binary", &data], "/pprof/symbol");
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(lines.lines().count(), 100_000);
    assert!(lines.lines().all(|line| line.contains("\ta_long_function")));
    let profile = curl(&[], "/pprof/profile?seconds=1");
    assert!(Profile::read(&profile).unwrap().samples().len() > 0);
}

#[test]
fn google_pprof_names_what_a_host_and_port_do() {
    let Some(pprof) = tool("google-pprof") else {
        return;
    };
    if tool("curl").is_none() {
        return;
    }
    let served = Served::new();
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(pprof);
    command
        .args(["--text", "--seconds=2"])
        .arg(served.address().to_string())
        .env("PPROF_TMPDIR", directory.path())
        .env("HOME", directory.path());
    let said = run(&mut command);
    for function in ["burn_sixty", "burn_twenty_five"] {
        assert!(
            said.stdout.contains(function),
            "{}\n{}",
            said.stdout,
            said.stderr
        );
    }
}
