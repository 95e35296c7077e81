//! Profiles of what is recorded all the time: as they are, or what comes in the time that a client
//! asked for.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;

use super::form::Form;
use super::limits::Limits;
use super::reply::{self, Reply};
use super::{window, worker};
use crate::Profile;
use crate::error::Result;

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) name: &'static str,
    /// The window, if it is to be of one.
    pub(super) time: Option<Duration>,
    pub(super) form: Form,
}

/// The profile as it is; or of a window, whose beginning `begin` notes, with the head at its
/// beginning.
pub(super) async fn answer<M: Send + 'static>(
    limits: &Arc<Limits>,
    head: &Parts,
    Asked { name, time, form }: Asked,
    begin: fn() -> Result<M>,
    profile: impl FnOnce(Option<M>) -> Result<Profile> + Send + 'static,
) -> Reply {
    if head.method == Method::HEAD {
        return form.reply(name);
    }
    let permit = match window::permit(limits) {
        Ok(permit) => permit,
        Err(refusal) => return *refusal,
    };
    let bytes = move |since: Option<M>| move || form.of_named(&profile(since)?);
    let Some(time) = time else {
        return match worker::run(limits.work().await, bytes(None)).await {
            Ok(Ok(bytes)) => form.reply(name).map(|_| limits.body(bytes, permit)),
            Ok(Err(error)) | Err(error) => reply::failed(&error),
        };
    };
    let begin = match worker::run(limits.work().await, begin).await {
        Ok(Ok(begin)) => begin,
        Ok(Err(error)) | Err(error) => return reply::failed(&error),
    };
    let works = limits.clone();
    let bytes = async move {
        tokio::time::sleep(time).await;
        worker::run(works.work().await, bytes(Some(begin))).await?
    };
    window::answer(limits, head, form.reply(name), permit, bytes).await
}
