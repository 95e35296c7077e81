//! The two families of paths.

/// Whose paths a request is by, and so what its client reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Family {
    /// `/pprof/…`: gperftools' own formats, addresses without names.
    Gperftools,
    /// `/debug/pprof/…`, as of Go's net/http/pprof: profile.proto with names, in gzip.
    Go,
}
