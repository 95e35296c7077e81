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
    /// The recording was stopped before; its profile went to whoever stopped it.
    AlreadyStopped,
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
    /// The number that the system has for a refusal of ours, where there is no source.
    #[cfg(feature = "capi")]
    code: Option<i32>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
            #[cfg(feature = "capi")]
            code: None,
        }
    }

    /// A refusal of ours, which the system has a number for (`errno`): for callers in C, whom the
    /// sentence does not reach.
    pub(crate) fn with_code(kind: ErrorKind, message: impl Into<String>, code: i32) -> Self {
        // Programs in Rust have the sentence.
        #[cfg(not(feature = "capi"))]
        let _ = code;
        Self {
            #[cfg(feature = "capi")]
            code: Some(code),
            ..Self::new(kind, message)
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
            #[cfg(feature = "capi")]
            code: None,
        }
    }

    /// The same error, which says at which byte of the uncompressed bytes it was found.
    pub(crate) fn at_byte(mut self, offset: u64) -> Self {
        self.message += &format!(" (at byte {offset}, uncompressed)");
        self
    }

    /// The system's number for the error (`errno`), where it has one.
    #[cfg(feature = "capi")]
    pub(crate) fn os_error(&self) -> Option<i32> {
        let source = self.source.as_ref();
        self.code.or_else(|| source?.raw_os_error())
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
