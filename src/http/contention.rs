//! `contention`, `block` and `mutex`: who waits for locks, and who keeps others waiting, in a program
//! that watches its locks.

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
use crate::Format;
use crate::contention::{self, Mark, Role, View};

/// A contention profile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Who waits, by gperftools' name.
    Contention,
    /// The same by Go's.
    Block,
    /// Who keeps others waiting.
    Mutex,
}

impl Kind {
    /// That of this name.
    pub(super) fn of(family: Family, name: &str) -> Option<Self> {
        match (name, family) {
            ("contention", _) => Some(Self::Contention),
            ("block", Family::Go) => Some(Self::Block),
            ("mutex", Family::Go) => Some(Self::Mutex),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Contention => "contention",
            Self::Block => "block",
            Self::Mutex => "mutex",
        }
    }

    fn role(self) -> Role {
        match self {
            Self::Contention | Self::Block => Role::Waiter,
            Self::Mutex => Role::Holder,
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
    if !contention::was_watched() {
        let why = format!(
            "there is no {} profile: {}",
            kind.name(),
            contention::NOT_WATCHED
        );
        return absent::answer(kind.name(), &why, query, index);
    }
    let asked = || -> Result<_, String> {
        let time = query.seconds_asked()?;
        let form = Form::asked_of_another_kind(query, Some(Format::Contention))?;
        let view = match query.shows_idle()? {
            true => View::All,
            false => View::Busy,
        };
        Ok((time, form, view))
    };
    let (time, form, view) = match asked() {
        Ok(asked) => asked,
        Err(sentence) => return reply::error(StatusCode::BAD_REQUEST, sentence),
    };
    let form = form.unwrap_or(match family {
        Family::Gperftools => Form::File(Format::Contention),
        Family::Go if query.is_for_people() => Form::Top,
        Family::Go => Form::File(Format::Pprof),
    });
    let asked = Asked {
        name: kind.name(),
        time,
        form,
    };
    let profile = move |since: Option<Mark>| contention::of(kind.role(), view, since.as_ref());
    cumulative::answer(limits, head, asked, Mark::now, profile).await
}
