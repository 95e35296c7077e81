//! One error type for the whole crate: a kind to match on and a sentence to act on.
#![forbid(unsafe_code)]

use std::fmt;

/// A specialized `Result`, as the whole crate returns it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, coarsely enough to decide what to do about it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is outside its documented range.
    InvalidInput,
    /// Bytes that were read are not a profile of the format they were taken for.
    InvalidData,
    /// A recording is already running; it was left untouched.
    AlreadyRunning,
    /// Somebody else owns the sampling signal.
    SignalInUse,
    /// The recording is not this process's own (it was made before a `fork`).
    ForeignProcess,
    /// The machine, the kernel or the build cannot do what was asked for.
    Unsupported,
    /// The operating system refused a file operation.
    Io,
    /// The operating system refused something else: a timer, a thread, memory.
    Os,
}

/// An error of this crate: a [kind](ErrorKind), a sentence that says what was tried, on what, what
/// the system answered and what to do; and the system's own error where there is one.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<std::io::Error>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: std::io::Error,
    ) -> Self {
        Self {
            kind,
            message: message.into(),
            source: Some(source),
        }
    }

    /// The kind of error, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    // What `fn main() -> Result<(), sigprof::Error>` prints: the sentence, not the struct.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_ref()
            .map(|e| e as &(dyn std::error::Error + 'static))
    }
}
