//! `profile`: the CPU time of the next seconds.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

use super::family::Family;
use super::limits::Limits;
use super::query::Query;
use super::reply::{self, Reply};
use super::worker;
use crate::cpu::{Profiler, Waiter, Window};
use crate::{Format, Result, symbolize};

/// Records for as long as the query says, and answers with the profile.
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
    match worker::run(permit, move |client| record(profiler, time, form, client)).await {
        Ok(Ok(Some(body))) => form.reply(body),
        // Nobody reads it.
        Ok(Ok(None)) => reply::text(""),
        Ok(Err(error)) | Err(error) => reply::error(reply::status_of(&error), error),
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

/// The profile of the next seconds; none where the client goes away before.
fn record(
    profiler: Profiler,
    time: Duration,
    form: Form,
    client: &Arc<Waiter>,
) -> Result<Option<Vec<u8>>> {
    let window = Window::open(profiler, client)?;
    if !window.waits_for(time) {
        return Ok(None);
    }
    let mut profile = window.close();
    if form.has_names() {
        symbolize::add_names(&mut profile);
    }
    let body = match form {
        Form::File(format) => {
            let mut file = Vec::new();
            profile.write(format, &mut file)?;
            file
        }
        Form::Top => profile.top(0).to_string().into_bytes(),
    };
    Ok(Some(body))
}
