//! One measurement in a process of its own.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub type Fields = BTreeMap<String, f64>;

/// No measurement takes a quarter of this. Profilers that take locks in their handler can hang.
const DEADLINE: Duration = Duration::from_secs(180);

/// Runs a subject and reads the figures it prints; else says in a few words what became of it.
pub fn measure(
    program: &Path,
    args: &[String],
    environment: &[(&str, String)],
) -> Result<Fields, String> {
    let mut child = Command::new(program)
        .args(args)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start {}: {e}", program.display()))?;
    let start = Instant::now();
    // What a subject prints fits into its pipes, so it can be read after its end.
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < DEADLINE => thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                // It may end by itself in between; then there is nothing to kill.
                let _ = child.kill();
                let _ = child.wait();
                return Err("hung".to_owned());
            }
            Err(e) => return Err(format!("cannot wait for it: {e}")),
        }
    };
    let read = |pipe: Option<&mut dyn std::io::Read>| {
        let mut text = String::new();
        if let Some(pipe) = pipe {
            // Words that are not UTF-8 are no figures, and lead to an error below.
            let _ = pipe.take(1 << 20).read_to_string(&mut text);
        }
        text
    };
    let output = read(child.stdout.as_mut().map(|p| p as _));
    let errors = read(child.stderr.as_mut().map(|p| p as _));
    if let Some(signal) = status.signal() {
        return Err(format!("killed by signal {signal}"));
    }
    if !status.success() {
        let said = errors.lines().find_map(|line| line.strip_prefix("error: "));
        return Err(said.unwrap_or("failed").to_owned());
    }
    parse(&output).ok_or_else(|| format!("printed no figures but \"{}\"", output.trim()))
}

fn parse(output: &str) -> Option<Fields> {
    let line = output.lines().last()?;
    line.split_whitespace()
        .map(|field| {
            let (key, value) = field.split_once('=')?;
            Some((key.to_owned(), value.parse().ok()?))
        })
        .collect()
}
