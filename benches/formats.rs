//! What writing, reading and summing up a profile of 20,000 stacks of 30 frames costs.

use std::time::Duration;

use divan::Bencher;
use divan::counter::BytesCount;
use sigprof::{Format, Profile};

#[path = "../tests/support/large.rs"]
mod large;
mod support;
use support::{DEPTH, stacks};

const FORMATS: [Format; 3] = [Format::Pprof, Format::PprofUncompressed, Format::CpuProfile];

fn main() {
    divan::main();
}

fn profile() -> Profile {
    let stacks = stacks() as usize;
    large::large(stacks, stacks, DEPTH)
}

fn bytes(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write(format, &mut bytes).unwrap();
    bytes
}

#[divan::bench(args = FORMATS, max_time = Duration::from_secs(3))]
fn write(bencher: Bencher, format: Format) {
    let profile = profile();
    bencher
        .counter(BytesCount::new(bytes(&profile, format).len()))
        .bench_local(|| bytes(&profile, format));
}

#[divan::bench(args = FORMATS, max_time = Duration::from_secs(3))]
fn read(bencher: Bencher, format: Format) {
    let bytes = bytes(&profile(), format);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| Profile::read(&bytes).unwrap());
}

#[divan::bench(max_time = Duration::from_secs(3))]
fn top(bencher: Bencher) {
    let profile = profile();
    bencher.bench_local(|| profile.top(20).to_string());
}
