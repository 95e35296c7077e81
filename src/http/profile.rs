//! `profile`: the CPU time of the next seconds.

use std::time::Duration;

use http::{Method, StatusCode};

use super::body::Body;
use super::family::Family;
use super::limits::Limits;
use super::query::Query;
use super::reply::{self, Reply};
use super::worker;
use crate::cpu::Window;
use crate::error::{Error, ErrorKind, Result};
use crate::{Format, symbolize};

/// Records for as long as the query says, and answers with the profile: the head as soon as the
/// window is open, the body when the profile has its names.
pub(super) async fn answer(
    limits: &Limits,
    method: &Method,
    family: Family,
    query: &Query<'_>,
) -> Reply {
    let asked = (query.seconds()).and_then(|time| Ok((time, query.profiler()?)));
    let (time, profiler) = match asked {
        Ok(asked) => asked,
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    let form = Form::of(family, query);
    if method == Method::HEAD {
        return form.reply(Vec::new());
    }
    let Some(permit) = limits.window() else {
        return reply::busy("as many windows are open as may be at once");
    };
    let begin = move |client: &_| Window::open(profiler, client);
    let finish = move |window| record(window, time, form);
    match worker::run_in_two(permit, begin, finish).await {
        Ok(body) => form.reply(Vec::new()).map(|_| Body::later(body)),
        Err(error) => reply::error(reply::status_of(&error), error),
    }
}

/// What a profile is sent as.
#[derive(Clone, Copy, Debug)]
enum Form {
    File(Format),
    /// The functions that cost the most.
    Top,
}

impl Form {
    fn of(family: Family, query: &Query<'_>) -> Self {
        match family {
            Family::Gperftools => Self::File(Format::CpuProfile),
            Family::Go if query.is_for_people() => Self::Top,
            Family::Go => Self::File(Format::Pprof),
        }
    }

    /// A file that keeps no names needs none.
    fn has_names(self) -> bool {
        !matches!(self, Self::File(Format::CpuProfile))
    }

    fn reply(self, body: Vec<u8>) -> Reply {
        match self {
            Self::File(Format::CpuProfile) => reply::download("cpu.prof", body),
            Self::File(_) => reply::download("cpu.pb.gz", body),
            Self::Top => reply::text(body),
        }
    }
}

/// The profile of so much time of a window.
fn record(window: Window, time: Duration, form: Form) -> Result<Vec<u8>> {
    if !window.waits_for(time) {
        let message = "the client has gone before the end of the time that it asked for";
        return Err(Error::new(ErrorKind::Os, message));
    }
    let mut profile = window.close();
    if form.has_names() {
        symbolize::add_names(&mut profile);
    }
    match form {
        Form::File(format) => {
            let mut file = Vec::new();
            profile.write(format, &mut file)?;
            Ok(file)
        }
        Form::Top => Ok(profile.top(0).to_string().into_bytes()),
    }
}
