//! `heap`, `allocs`, `peak`, `growth` and `lifetimes`: the memory of a program whose allocator is
//! sigprof's.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use super::cumulative::Asked;
use super::family::Family;
use super::form::Form;
use super::limits::Limits;
use super::query::Query;
use super::reply::{self, Reply};
use super::{absent, cumulative};
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
    /// How long what is freed has lived.
    Lifetimes,
}

/// Names of kinds, and whether gperftools has such an endpoint, too.
const KINDS: [(&str, Kind, bool); 5] = [
    ("heap", Kind::Heap, true),
    ("allocs", Kind::Allocs, false),
    ("peak", Kind::Peak, false),
    ("growth", Kind::Growth, true),
    ("lifetimes", Kind::Lifetimes, false),
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

    /// gperftools' text of the profile, if there is one.
    fn legacy(self) -> Option<Format> {
        match self {
            Self::Growth => Some(Format::Growth),
            Self::Heap | Self::Allocs | Self::Peak => Some(Format::Heap),
            Self::Lifetimes => None,
        }
    }

    /// The form that is sent to whoever asks for none.
    fn form(self, family: Family, query: &Query<'_>) -> Form {
        match (family, self.legacy()) {
            (Family::Gperftools, Some(legacy)) => Form::File(legacy),
            (Family::Go, _) if query.is_for_people() => Form::Top,
            _ => Form::File(Format::Pprof),
        }
    }

    /// Why there is no profile of a window of time, where there is none.
    fn why_never_of_a_window(self) -> Option<&'static str> {
        match self {
            Self::Peak => {
                Some("the peak is that since the program began: ask for it without seconds")
            }
            Self::Lifetimes => Some(
                "the lifetimes are those since the program began: ask for them without seconds",
            ),
            Self::Heap | Self::Allocs | Self::Growth => None,
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
            Self::Lifetimes => heap::lifetimes(),
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
    let asked = (query.seconds_asked())
        .and_then(|time| Ok((time, Form::asked_of_another_kind(query, kind.legacy())?)));
    let (time, form) = match asked {
        Ok(asked) => asked,
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    if let (Some(_), Some(sentence)) = (time, kind.why_never_of_a_window()) {
        return reply::error(StatusCode::BAD_REQUEST, sentence);
    }
    let form = form.unwrap_or_else(|| kind.form(family, query));
    let asked = Asked {
        name: kind.name(),
        time,
        form,
    };
    let profile = move |since: Option<Mark>| kind.profile(since.as_ref());
    cumulative::answer(limits, head, asked, Mark::now, profile).await
}
