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

/// What `format` may be.
const FORMS: [(&str, Form); 5] = [
    ("proto", Form::File(Format::Pprof)),
    ("folded", Form::File(Format::Collapsed)),
    ("top", Form::Top),
    ("legacy", Form::File(Format::CpuProfile)),
    ("gmon", Form::File(Format::Gmon)),
];
/// How many of these hold profiles of all kinds; the others hold CPU profiles alone.
const OF_ALL_KINDS: usize = 3;

impl Form {
    /// The form that a query asks a CPU profile in by `format`, if it does.
    ///
    /// # Errors
    ///
    /// A sentence, where there is no such form.
    pub(super) fn asked(query: &Query<'_>) -> Result<Option<Self>, String> {
        Self::asked_among(query, &FORMS)
    }

    /// The same for a profile of another kind.
    pub(super) fn asked_of_another_kind(query: &Query<'_>) -> Result<Option<Self>, String> {
        Self::asked_among(query, &FORMS[..OF_ALL_KINDS])
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
            Self::File(Format::Collapsed) | Self::Top => reply::text(""),
            Self::File(format) => reply::download(format_args!("{name}{}", format.extension())),
        }
    }
}
