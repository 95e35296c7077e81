//! What a profile is sent as.

use super::query::Query;
use super::reply::{self, Reply};
use crate::error::Result;
use crate::{Format, Profile, symbolize};

/// A file, or a text for people.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    File(Format),
    /// The functions that cost the most.
    Top,
}

/// What `format` may be for profiles of all kinds,
const OF_ALL_KINDS: [(&str, Form); 3] = [
    ("proto", Form::File(Format::Pprof)),
    ("folded", Form::File(Format::Collapsed)),
    ("top", Form::Top),
];
/// and for a CPU profile alone.
const OF_CPU: [(&str, Form); 2] = [
    (LEGACY, Form::File(Format::CpuProfile)),
    ("gmon", Form::File(Format::Gmon)),
];
const LEGACY: &str = "legacy";

impl Form {
    /// The form that a query asks a CPU profile in by `format`, if it does.
    ///
    /// # Errors
    ///
    /// A sentence, where there is no such form.
    pub(super) fn asked(query: &Query<'_>) -> Result<Option<Self>, String> {
        Self::asked_among(query, &[&OF_ALL_KINDS[..], &OF_CPU].concat())
    }

    /// The same for a profile of another kind, whose legacy text is this, if there is one.
    pub(super) fn asked_of_another_kind(
        query: &Query<'_>,
        legacy: Option<Format>,
    ) -> Result<Option<Self>, String> {
        let legacy = legacy.map(|legacy| (LEGACY, Self::File(legacy)));
        Self::asked_among(query, &[&OF_ALL_KINDS[..], legacy.as_slice()].concat())
    }

    fn asked_among(query: &Query<'_>, forms: &[(&str, Self)]) -> Result<Option<Self>, String> {
        let Some(asked) = query.format() else {
            return Ok(None);
        };
        let known = forms.iter().find(|(name, _)| *name == asked);
        known.map(|&(_, form)| Some(form)).ok_or_else(|| {
            let names: Vec<&str> = forms.iter().map(|&(name, _)| name).collect();
            format!("format must be one of {} here", names.join(", "))
        })
    }

    /// The profile in this form, with names where it has any.
    pub(super) fn of(self, mut profile: Profile) -> Result<Vec<u8>> {
        let has_names = match self {
            Self::File(format) => format.has_names(),
            Self::Top => true,
        };
        if has_names {
            symbolize::add_names(&mut profile);
        }
        self.of_named(&profile)
    }

    /// The same of a profile that has been given its names.
    pub(super) fn of_named(self, profile: &Profile) -> Result<Vec<u8>> {
        match self {
            Self::File(format) => {
                let mut file = Vec::new();
                profile.write(format, &mut file)?;
                Ok(file)
            }
            Self::Top => Ok(profile.top(0).to_string().into_bytes()),
        }
    }

    /// The head of an answer in this form; a file that is kept has this name and the form's
    /// extension.
    pub(super) fn reply(self, name: &str) -> Reply {
        match self {
            Self::File(Format::Collapsed | Format::Heap | Format::Growth | Format::Contention)
            | Self::Top => reply::text(""),
            Self::File(format) => reply::download(format_args!("{name}{}", format.extension())),
        }
    }
}
