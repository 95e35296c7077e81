//! What a value is: its type and its unit.

use std::borrow::Cow;

/// A type and a unit, as profile.proto's `ValueType`: `cpu`/`nanoseconds`, `samples`/`count`.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ValueType {
    /// What is counted: `samples`, `cpu`, `inuse_space`, …
    pub r#type: Cow<'static, str>,
    /// The unit it is counted in: `count`, `nanoseconds`, `bytes`, …
    pub unit: Cow<'static, str>,
}

impl ValueType {
    /// A value type of the given type and unit.
    pub fn new(r#type: impl Into<Cow<'static, str>>, unit: impl Into<Cow<'static, str>>) -> Self {
        Self {
            r#type: r#type.into(),
            unit: unit.into(),
        }
    }

    /// A value type that is known when the program is compiled.
    pub(crate) const fn fixed(r#type: &'static str, unit: &'static str) -> Self {
        Self {
            r#type: Cow::Borrowed(r#type),
            unit: Cow::Borrowed(unit),
        }
    }
}
