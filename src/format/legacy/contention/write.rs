//! `Profile` -> contention profile.

use std::io::Write;

use super::{
    CONTENTIONS, CYCLES_PER_SECOND, DELAY, HEADS, MS_SINCE_RESET, SAMPLING_PERIOD, WHAT,
    nanoseconds,
};
use crate::format::WriteError;
use crate::format::legacy::output::{Output, column};
use crate::profile::Profile;

const NANOSECONDS: i64 = 1_000_000_000;

pub(in crate::format) fn write(profile: &Profile, out: &mut impl Write) -> Result<(), WriteError> {
    let columns = [CONTENTIONS, DELAY].map(|wanted| column(profile, &wanted));
    let [Some(contentions), Some(delay)] = columns else {
        return Err(WriteError::lacks(
            profile,
            "a contention profile holds contentions and their delays",
            "contentions/count and delay/nanoseconds",
        ));
    };
    // google-pprof divides delays by contentions: it reads no file in which a sample has none.
    let rows = || {
        profile
            .samples()
            .map(|s| (s.values[contentions], s.values[delay], s.stack))
            .filter(|&(contentions, delay, _)| (contentions, delay) != (0, 0))
            .map(|(contentions, delay, stack)| match contentions {
                0 => (1, delay, stack),
                _ => (contentions, delay, stack),
            })
    };
    if rows().any(|(contentions, delay, _)| contentions < 0 || delay < 0) {
        return Err(WriteError::unfit(
            "a contention profile holds values that are not negative, and this profile has negative ones: \
             write it as .pb.gz",
        ));
    }
    // With as many cycles in a nanosecond as contentions in a period, cycles are the nanoseconds
    // that their period stands for.
    let cycles_per_second = profile.period.saturating_mul(NANOSECONDS);
    let is_sampled = profile.period > 1
        && profile.period_type == CONTENTIONS
        && rows().all(|(contentions, delay, _)| {
            contentions % profile.period == 0
                && nanoseconds(delay, profile.period, cycles_per_second) == delay
        });
    let (period, cycles_per_second) = match is_sampled {
        true => (profile.period, cycles_per_second),
        false => (1, NANOSECONDS),
    };
    let mut out = Output::new(profile, WHAT, out);
    out.line(format_args!("{}", HEADS[0]))?;
    out.line(format_args!("{CYCLES_PER_SECOND} = {cycles_per_second}"))?;
    out.line(format_args!("{SAMPLING_PERIOD} = {period}"))?;
    if profile.duration_nanos > 0 {
        let ms = profile.duration_nanos / 1_000_000;
        out.line(format_args!("{MS_SINCE_RESET} = {ms}"))?;
    }
    for (contentions, delay, stack) in rows() {
        let contentions = contentions / period;
        out.sample(format_args!("{delay:10} {contentions:8} @"), stack)?;
    }
    out.finish("--- Memory map: ---")
}
