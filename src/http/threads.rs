//! `threadcreate` and `goroutine`: the threads that live now.
//!
//! A thread that waits in a system call is seen there by what the kernel says of it
//! (proc_pid_syscall(5)); no thread is disturbed.

use std::fmt::Write as _;
use std::time::Instant;

use http::StatusCode;

use super::form::Form;
use super::limits::{Limits, Room};
use super::query::Query;
use super::reply::{self, Reply};
use super::worker;
use crate::aggregate::{Layouts, NamedFrames, Places};
use crate::error::{Error, ErrorKind, Result};
use crate::profile::{Label, LabelValue, Profile, ValueType};
use crate::sys::clock::Clock;
use crate::sys::system_call::waiting_at;
use crate::sys::thread::{self, identity};
use crate::{Format, symbolize};

/// The endpoints' names, which are those of their sample types, too. Go has two of them, for two
/// kinds of threads; here there is one kind.
const KINDS: [&str; 2] = ["threadcreate", "goroutine"];

/// The endpoint of this name.
pub(super) fn kind(name: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| *kind == name)
}

/// A profile with a sample for each thread, or a text.
pub(super) async fn answer(
    limits: &Limits,
    kind: &'static str,
    query: &Query<'_>,
    mut room: Room,
) -> Reply {
    // Threads are as they are now, however long a client would wait.
    let asked = match query
        .seconds()
        .and_then(|_| Form::asked_of_another_kind(query, None))
    {
        Ok(asked) => asked,
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    let is_list = asked.is_none() && query.is_for_people();
    let form = asked.unwrap_or(Form::File(Format::Pprof));
    let body = worker::run(limits.work().await, move || {
        let profile = profile(kind)?;
        match is_list {
            true => Ok(list(profile).into_bytes()),
            false => form.of(profile),
        }
    });
    let body = match body.await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) | Err(error) => return reply::failed(&error),
    };
    if !room.take(body.len()) {
        return reply::busy("too much is being sent at once");
    }
    let reply = match is_list {
        true => reply::text(""),
        false => form.reply("threads"),
    };
    reply.map(|_| limits.body(body, room))
}

fn profile(kind: &'static str) -> Result<Profile> {
    let begin = Instant::now();
    let mut tids = Vec::new();
    thread::list(&mut tids).map_err(|error| {
        let message = "the threads cannot be listed in /proc/self/task";
        Error::with_source(ErrorKind::Os, message, error)
    })?;

    let count = ValueType::new(kind, "count");
    let mut profile = Profile::new(vec![count.clone()]);
    profile.period_type = count;
    profile.period = 1;
    profile.time_nanos = Clock::REALTIME.now_ns().unwrap_or(0) as i64;
    let layouts = Layouts::of_now();
    let mut places = Places::new(&mut profile, &layouts);
    let mut named = NamedFrames::default();
    let [thread, thread_id, state, unit] =
        ["thread", "thread_id", "state", "id"].map(|key| profile.intern(key));
    for tid in tids {
        let address = waiting_at(tid);
        let Some(seen) = identity(tid).filter(|seen| !seen.has_ended) else {
            continue;
        };
        let does = match seen.is_running {
            true => "running",
            false => "waiting",
        };
        let place = match (seen.worker, address) {
            (Some(worker), _) => named.of(&mut profile, worker.frame()),
            (None, Some(address)) => places.locate(&mut profile, 0, address),
            (None, None) if seen.is_running => named.of(&mut profile, "[running]"),
            (None, None) => named.of(&mut profile, "[waiting]"),
        };
        let labels = [
            (thread, LabelValue::Str(profile.intern(&seen.name))),
            (
                thread_id,
                LabelValue::Num {
                    value: tid.into(),
                    unit,
                },
            ),
            (state, LabelValue::Str(profile.intern(does))),
        ];
        let labels = labels.map(|(key, value)| Label { key, value });
        profile.push_sample(&[place], &[1], &labels);
    }
    // Scrapers refuse a profile that took no time.
    profile.duration_nanos = begin.elapsed().as_nanos().max(1) as i64;
    Ok(profile)
}

/// A line a thread: id, state, name, and the function that it waits in.
fn list(mut profile: Profile) -> String {
    symbolize::add_names(&mut profile);
    let mut text = format!("{} threads\n", profile.sample_count());
    for sample in profile.samples() {
        let of = |label: &Label| match label.value {
            LabelValue::Str(text) => profile.string(text).to_string(),
            LabelValue::Num { value, .. } => value.to_string(),
        };
        let [name, id, state] = [0, 1, 2].map(|i| sample.labels.get(i).map_or(String::new(), of));
        let location = profile.location(sample.stack[0]);
        let place = match location.lines.first() {
            Some(line) => profile
                .string(profile.function(line.function).name)
                .to_string(),
            None => format!("{:#x}", location.address),
        };
        // Into a string, which takes everything.
        let _ = writeln!(text, "{id:>8} {state} {name:<15} {place}");
    }
    text
}
