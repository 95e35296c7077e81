//! What this program has no profiles of, and says so.
//!
//! Scrapers ask for `allocs`, `block` and `mutex` unless they are told not to, and take a target
//! that refuses one for broken. So these answer as Go's do where nothing is recorded: with a
//! profile without samples, whose comment says why. All others are asked for by people, who get
//! that sentence.

use http::StatusCode;

use super::body::Body;
use super::family::Family;
use super::form::Form;
use super::query::Query;
use super::reply::{self, Reply};
use crate::Format;
use crate::profile::{Profile, ValueType};
use crate::sys::clock::Clock;

/// Names of endpoints that gperftools has, too.
const OF_BOTH: [&str; 3] = ["heap", "growth", "contention"];
/// Names of endpoints that only Go has.
const OF_GO: [&str; 3] = ["allocs", "block", "mutex"];

/// The endpoint of this name.
pub(super) fn name(family: Family, name: &str) -> Option<&'static str> {
    let of_go = OF_GO.into_iter().filter(|_| family == Family::Go);
    OF_BOTH
        .into_iter()
        .chain(of_go)
        .find(|known| *known == name)
}

/// A sentence that says why, and where the index is; or where scrapers ask a profile without
/// samples.
pub(super) fn answer(name: &'static str, why: &str, query: &Query<'_>, index: &str) -> Reply {
    let sentence = format!("{why}; {index} lists what there is");
    if !OF_GO.contains(&name) {
        return reply::error(StatusCode::NOT_FOUND, sentence);
    }
    let form = match query
        .seconds()
        .and_then(|_| Form::asked_of_another_kind(query, None))
    {
        Ok(None) if query.is_for_people() => return reply::text(sentence + "\n"),
        Ok(asked) => asked.unwrap_or(Form::File(Format::Pprof)),
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    match form.of(empty(name, sentence)) {
        Ok(body) => form.reply(name).map(|_| Body::whole(body)),
        Err(error) => reply::failed(&error),
    }
}

/// A profile of this kind that nothing was recorded for.
fn empty(name: &str, comment: String) -> Profile {
    let types: &[(&'static str, &'static str)] = match name {
        "allocs" => &[
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ],
        _ => &[("contentions", "count"), ("delay", "nanoseconds")],
    };
    let value_type = |&(r#type, unit): &(&'static str, &'static str)| ValueType::new(r#type, unit);
    let mut profile = Profile::new(types.iter().map(value_type).collect());
    profile.period_type = match name {
        "allocs" => ValueType::new("space", "bytes"),
        _ => ValueType::new("contentions", "count"),
    };
    profile.period = 1;
    profile.time_nanos = Clock::REALTIME.now_ns().unwrap_or(0) as i64;
    // Scrapers refuse a profile that took no time.
    profile.duration_nanos = 1;
    profile.comments.push(comment);
    profile
}
