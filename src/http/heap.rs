//! `heap`, `allocs`, `peak` and `growth`: the memory of a program whose allocator is sigprof's.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, StatusCode};

use super::family::Family;
use super::form::Form;
use super::limits::Limits;
use super::query::Query;
use super::reply::{self, Reply};
use super::{absent, window, worker};
use crate::error::Result;
use crate::heap::{self, Mark};
use crate::{Format, Profile};

/// A heap profile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// All allocations and what is in use, which viewers show.
    Heap,
    /// The same, of which viewers show the allocations.
    Allocs,
    /// What was in use when it was the most.
    Peak,
    /// What made it that.
    Growth,
}

/// Names of kinds, and whether gperftools has such an endpoint, too.
const KINDS: [(&str, Kind, bool); 4] = [
    ("heap", Kind::Heap, true),
    ("allocs", Kind::Allocs, false),
    ("peak", Kind::Peak, false),
    ("growth", Kind::Growth, true),
];

impl Kind {
    /// That of this name.
    pub(super) fn of(family: Family, name: &str) -> Option<Self> {
        let is_it = |&(known, _, is_of_both): &(&str, Self, bool)| {
            known == name && (family == Family::Go || is_of_both)
        };
        KINDS.into_iter().find(is_it).map(|(_, kind, _)| kind)
    }

    fn name(self) -> &'static str {
        let mut kinds = KINDS.into_iter();
        kinds
            .find(|&(_, kind, _)| kind == self)
            .map_or("heap", |(name, ..)| name)
    }

    fn legacy(self) -> Format {
        match self {
            Self::Growth => Format::Growth,
            Self::Heap | Self::Allocs | Self::Peak => Format::Heap,
        }
    }

    /// The profile of what there was since a moment, or since the program began.
    fn profile(self, since: Option<&Mark>) -> Result<Profile> {
        match self {
            Self::Heap => since.map_or_else(heap::profile, Mark::profile),
            Self::Allocs => {
                let mut profile = since.map_or_else(heap::profile, Mark::profile)?;
                profile.default_sample_type = "alloc_space".into();
                Ok(profile)
            }
            Self::Peak => heap::peak(),
            Self::Growth => since.map_or_else(heap::growth, Mark::growth),
        }
    }
}

/// The profile as it is; or of the time that the query says, with the head at its beginning.
pub(super) async fn answer(
    limits: &Arc<Limits>,
    head: &Parts,
    family: Family,
    kind: Kind,
    query: &Query<'_>,
    index: &str,
) -> Reply {
    if !heap::is_installed() {
        let why = format!(
            "there is no {} profile: {}",
            kind.name(),
            heap::NOT_INSTALLED
        );
        return absent::answer(kind.name(), &why, query, index);
    }
    let asked = (query.seconds_asked()).and_then(|time| {
        Ok((
            time,
            Form::asked_of_another_kind(query, Some(kind.legacy()))?,
        ))
    });
    let (time, form) = match asked {
        Ok(asked) => asked,
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    if kind == Kind::Peak && time.is_some() {
        let sentence = "the peak is that since the program began: ask for it without seconds";
        return reply::error(StatusCode::BAD_REQUEST, sentence);
    }
    let form = form.unwrap_or(match family {
        Family::Gperftools => Form::File(kind.legacy()),
        Family::Go if query.is_for_people() => Form::Top,
        Family::Go => Form::File(Format::Pprof),
    });
    if head.method == Method::HEAD {
        return form.reply(kind.name());
    }
    let permit = match window::permit(limits) {
        Ok(permit) => permit,
        Err(refusal) => return *refusal,
    };
    let bytes = move |since: Option<Mark>| move || form.of_named(&kind.profile(since.as_ref())?);
    let Some(time) = time else {
        return match worker::run(limits.work().await, bytes(None)).await {
            Ok(Ok(bytes)) => form.reply(kind.name()).map(|_| limits.body(bytes, permit)),
            Ok(Err(error)) | Err(error) => reply::failed(&error),
        };
    };
    let begin = match worker::run(limits.work().await, Mark::now).await {
        Ok(Ok(begin)) => begin,
        Ok(Err(error)) | Err(error) => return reply::failed(&error),
    };
    let works = limits.clone();
    let bytes = async move {
        tokio::time::sleep(time).await;
        worker::run(works.work().await, bytes(Some(begin))).await?
    };
    window::answer(limits, head, form.reply(kind.name()), permit, bytes).await
}
