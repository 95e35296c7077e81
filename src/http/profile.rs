//! `profile`: the CPU time of the next seconds.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};

use super::family::Family;
use super::form::Form;
use super::limits::Limits;
use super::query::Query;
use super::reply::{self, Reply};
use super::{window, worker};
use crate::cpu::{Clock, Window};
use crate::error::{Error, ErrorKind, Result};
use crate::{Format, Profile};

/// Records for as long as the query says, and answers with the profile: the head as soon as the
/// window is open, the body when the profile has its names. Naming takes its turn among what takes
/// a moment.
pub(super) async fn answer(
    limits: &Arc<Limits>,
    head: &Parts,
    family: Family,
    query: &Query<'_>,
) -> Reply {
    let asked =
        (query.seconds()).and_then(|time| Ok((time, query.profiler()?, Form::asked(query)?)));
    let (time, profiler, form) = match asked {
        Ok(asked) => asked,
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    let form = form.unwrap_or_else(|| usual_form(family, query));
    let name = match profiler.clock_asked() {
        Clock::Wall => "wall",
        _ => "cpu",
    };
    if head.method == Method::HEAD {
        return form.reply(name);
    }
    let permit = match window::permit(limits) {
        Ok(permit) => permit,
        Err(refusal) => return *refusal,
    };
    let begin = move |client: &_| Window::open(profiler, client);
    let finish = move |window| record(window, time);
    let window = match worker::run_in_two(permit.clone(), begin, finish).await {
        Ok(window) => window,
        Err(error) => return reply::failed(&error),
    };
    let works = limits.clone();
    let bytes = async move {
        let profile = window.await??;
        worker::run(works.work().await, move || form.of(profile)).await?
    };
    window::answer(limits, head, form.reply(name), permit, bytes).await
}

/// The profile of so much time of a window.
fn record(window: Window, time: Duration) -> Result<Profile> {
    if !window.waits_for(time) {
        let message = "the client has gone before the end of the time that it asked for";
        return Err(Error::new(ErrorKind::Os, message));
    }
    Ok(window.close())
}

/// What a request gets that does not say what it wants.
fn usual_form(family: Family, query: &Query<'_>) -> Form {
    match family {
        Family::Gperftools => Form::File(Format::CpuProfile),
        Family::Go if query.is_for_people() => Form::Top,
        Family::Go => Form::File(Format::Pprof),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use http_body::Body as _;

    use super::*;

    #[test]
    fn naming_takes_its_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let limits = Arc::new(Limits::new(1));
            let others = [limits.work().await, limits.work().await];
            let query = Query::of("seconds=1");
            let head = http::Request::new(()).into_parts().0;
            let reply = answer(&limits, &head, Family::Go, &query).await;
            assert_eq!(reply.status(), StatusCode::OK);
            let mut body = pin!(reply.into_body());
            let ended = std::time::Instant::now() + Duration::from_secs(2);
            while std::time::Instant::now() < ended {
                let polled = poll_fn(|context| Poll::Ready(body.as_mut().poll_frame(context)));
                assert!(polled.await.is_pending(), "named beside the work of others");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(limits.window().is_none(), "until it is named it is open");
            drop(others);
            let frame = poll_fn(|context| body.as_mut().poll_frame(context)).await;
            let bytes = frame.unwrap().unwrap().into_data().unwrap();
            assert!(Profile::read(&bytes[..]).unwrap().total(1) >= 0);
            while !limits.are_idle() {
                std::thread::yield_now();
            }
        });
    }
}
