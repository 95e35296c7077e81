//! `profile`: the CPU time of the next seconds.

use std::time::Duration;

use http::{Method, StatusCode};

use super::query::Query;
use super::reply::{self, Reply};
use super::worker::{self, Client};
use crate::cpu::Profiler;
use crate::{Error, Format, Result};

/// Records for as long as the query says, and answers with gperftools' CPU profile.
pub(super) async fn answer(method: &Method, query: &Query<'_>) -> Reply {
    let time = match query.seconds() {
        Ok(time) => time,
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    if method == Method::HEAD {
        return reply::download("cpu.prof", "");
    }
    match worker::run(move |client| record(time, &client)).await {
        Ok(Ok(Some(file))) => reply::download("cpu.prof", file),
        // Nobody reads it.
        Ok(Ok(None)) => reply::text(""),
        Ok(Err(error)) | Err(error) => reply::error(reply::status_of(&error), error),
    }
}

/// The file of the next seconds; none where the client goes away before.
fn record(time: Duration, client: &Client) -> Result<Option<Vec<u8>>, Error> {
    let recording = Profiler::new().symbolize(false).start()?;
    if !client.waits_for(time) {
        return Ok(None);
    }
    let mut file = Vec::new();
    recording.stop()?.write(Format::CpuProfile, &mut file)?;
    Ok(Some(file))
}
