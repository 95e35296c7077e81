//! What was collected to a [`Profile`].
#![forbid(unsafe_code)]

use super::collector::{Collector, Waits};
use super::sampling;
use crate::aggregate::{NamedFrames, locate_callers};
use crate::profile::{Profile, ValueType};
use crate::sys::clock::Clock;

/// The waits so far, by addresses.
pub(super) fn profile(collector: &Collector) -> Profile {
    let delay = ValueType::fixed("delay", "nanoseconds");
    let mut profile = Profile::new(vec![
        ValueType::fixed("contentions", "count"),
        delay.clone(),
    ]);
    profile.default_sample_type = delay.r#type.to_string();
    profile.period_type = delay;
    profile.period = sampling::mean_ns() as i64;
    profile.time_nanos = Clock::REALTIME.now_ns().unwrap_or(0) as i64;
    // Scrapers refuse a profile that took no time.
    profile.duration_nanos = collector.age_ns().max(1) as i64;
    let stacks = collector.stacks();
    let located = locate_callers(&mut profile, collector.publisher().layouts(), stacks);
    for (number, stack) in (0..).zip(&located) {
        profile.push_sample(stack, &values(collector.waits(number)), &[]);
    }
    let lost = collector.lost();
    if lost.ns > 0 {
        let frame = NamedFrames::default().of(&mut profile, "[lost]");
        profile.push_sample(&[frame], &values(lost), &[]);
    }
    profile
}

fn values(waits: Waits) -> [i64; 2] {
    [waits.count.round() as i64, waits.ns as i64]
}
