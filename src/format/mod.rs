//! Profiles as bytes: one file a format, each with its reader beside its writer.
//!
//! [`Profile::save`] and [`Profile::open`] are the short way; [`Profile::write`] and
//! [`Profile::read`] do the same with bytes. What each format can hold, and what is lost in it,
//! stands in `docs/formats.md`.
#![forbid(unsafe_code)]

mod address_table;
#[cfg(any(test, fuzzing))]
pub(crate) mod any;
mod attribution;
mod chunks;
mod collapsed;
mod cpuprofile;
mod cursor;
mod file;
mod gmon;
mod held;
mod legacy;
mod lines;
mod mapped_objects;
mod pprof;
mod written_addresses;

#[cfg(feature = "heap")]
pub(crate) use legacy::{unsampled, unsampled_in_sum};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

pub use file::OutputFile;
pub use gmon::Gmon;
pub(crate) use held::HeldFile;
#[cfg(feature = "http")]
pub(crate) use written_addresses::well_known_at;

use crate::{Error, ErrorKind, Profile, Result};

/// Compressed profiles that unfold to more than this many bytes are refused when read.
pub const MAX_UNCOMPRESSED: u64 = 1 << 30;

/// A file format for profiles.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Format {
    /// google/pprof's profile.proto, compressed with gzip: `.pb.gz`, `.pprof`. It holds everything
    /// that a [`Profile`] holds.
    Pprof,
    /// The same without compression: `.pb`.
    PprofUncompressed,
    /// gperftools' CPU profile: `.prof`. It holds counts of stacks and the mappings, but no names
    /// and no labels.
    CpuProfile,
    /// Collapsed stacks, from which flame graphs are drawn: `.collapsed`, `.folded`. They hold names
    /// and the values of the default sample type, as text.
    Collapsed,
    /// GNU gprof's profile data: `gmon.out`, `.gmon`. It holds the main executable alone: what was
    /// spent at its addresses, and the calls within it. [`Gmon`] says how much of a profile is in it,
    /// and reads one with its executable.
    Gmon,
    /// Objects and bytes of memory, as gperftools and Go write them: `.heap`. It holds addresses, the
    /// values and the mappings, as text. What was sampled is written as it was sampled
    /// (`heap_v2/period`), where readers find the profile's very values in that, else as it is.
    Heap,
    /// gperftools' growth of the heap: `.growth`. It holds what [`Heap`](Self::Heap) does, but no
    /// period.
    Growth,
    /// Contentions at locks and their delays: `.contention`. It holds addresses, the values and the
    /// mappings, as text.
    Contention,
}

/// The name that stands for the stack of a sample that has none, in formats where each has one.
const NO_STACK: &str = "[no-stack]";

/// What a file name ends in, and the format that stands for; the first that fits counts.
const EXTENSIONS: [(&str, Format); 10] = [
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".pb", Format::PprofUncompressed),
    (".prof", Format::CpuProfile),
    (".collapsed", Format::Collapsed),
    (".folded", Format::Collapsed),
    (".gmon", Format::Gmon),
    (".heap", Format::Heap),
    (".growth", Format::Growth),
    (".contention", Format::Contention),
];
/// What gprof's own files are named like: `gmon.out`, and `gmon_4711.out` for one of several
/// processes.
const GMON: (&str, &str) = ("gmon", ".out");

impl Format {
    /// The format that a file's name asks for: `.pb.gz` and `.pprof` for [`Pprof`](Self::Pprof),
    /// `.pb` for [`PprofUncompressed`](Self::PprofUncompressed), `.prof` for
    /// [`CpuProfile`](Self::CpuProfile), `.collapsed` and `.folded` for
    /// [`Collapsed`](Self::Collapsed), `.gmon` and the name `gmon.out` for [`Gmon`](Self::Gmon),
    /// `.heap`, `.growth` and `.contention` for [`Heap`](Self::Heap), [`Growth`](Self::Growth) and
    /// [`Contention`](Self::Contention).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the name ends in none of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use sigprof::Format;
    /// assert_eq!(Format::from_path("cpu.pb.gz").unwrap(), Format::Pprof);
    /// assert!(Format::from_path("cpu.txt").is_err());
    /// ```
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let known = Self::extension_of(path.as_os_str());
        known.map(|(_, format)| format).ok_or_else(|| {
            let list = EXTENSIONS.map(|(extension, _)| extension).join(", ");
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "cannot tell the profile format from the name `{}`: end it in one of {list}, or name it gmon.out",
                    path.display()
                ),
            )
        })
    }

    /// Whether the format's files hold what a recording of CPU time has.
    pub(crate) fn holds_cpu_time(self) -> bool {
        !matches!(self, Self::Heap | Self::Growth | Self::Contention)
    }

    /// Whether the format's files hold who has waited for locks.
    #[cfg(feature = "contention")]
    pub(crate) fn holds_waits(self) -> bool {
        matches!(
            self,
            Self::Pprof | Self::PprofUncompressed | Self::Collapsed | Self::Contention
        )
    }

    /// The extension of a file's name that asks for a format, and the format.
    pub(crate) fn extension_of(name: &OsStr) -> Option<(&'static str, Self)> {
        let (begin, end) = GMON;
        let file = Path::new(name).file_name().unwrap_or_default();
        let file = file.as_encoded_bytes();
        if file.starts_with(begin.as_bytes()) && file.ends_with(end.as_bytes()) {
            return Some((end, Self::Gmon));
        }
        let name = name.as_encoded_bytes();
        let fits = |(extension, _): &(&str, Self)| name.ends_with(extension.as_bytes());
        EXTENSIONS.into_iter().find(fits)
    }

    /// What the names of the format's files end in.
    #[cfg(feature = "http")]
    pub(crate) fn extension(self) -> &'static str {
        let known = EXTENSIONS.into_iter().find(|(_, format)| *format == self);
        known.map_or("", |(extension, _)| extension)
    }

    /// Whether the format's files hold names, so that it is worth looking them up.
    #[cfg(feature = "symbolize")]
    pub(crate) fn has_names(self) -> bool {
        matches!(
            self,
            Self::Pprof | Self::PprofUncompressed | Self::Collapsed | Self::Gmon
        )
    }
}

/// Why a profile could not be written: it does not fit the format, or the output failed.
#[derive(Debug)]
enum WriteError {
    Profile(Error),
    Output(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl WriteError {
    fn unfit(message: impl Into<String>) -> Self {
        Self::Profile(Error::new(ErrorKind::InvalidInput, message))
    }

    /// The profile has not the types that `holds` speaks of.
    fn lacks(profile: &Profile, holds: &str, types: &str) -> Self {
        let present = profile.sample_types().iter();
        let present: Vec<String> = present
            .map(|t| format!("{}/{}", t.r#type, t.unit))
            .collect();
        let present = match present.is_empty() {
            true => "no sample types".to_owned(),
            false => present.join(", "),
        };
        Self::unfit(format!(
            "{holds}, and this profile has no {types} (it has {present}): write it as .pb.gz"
        ))
    }

    fn into_error(self, target: impl fmt::Display) -> Error {
        match self {
            Self::Profile(error) => error,
            Self::Output(error) => Error::with_source(
                ErrorKind::Io,
                format!("cannot write the profile to {target}"),
                error,
            ),
        }
    }
}

fn write_to(profile: &Profile, format: Format, out: &mut impl Write) -> Result<(), WriteError> {
    match format {
        Format::Pprof => pprof::write_gzip(profile, out),
        Format::PprofUncompressed => pprof::write_uncompressed(profile, out),
        Format::CpuProfile => cpuprofile::write(profile, out),
        Format::Collapsed => collapsed::write(profile, out),
        Format::Gmon => gmon::write(profile, Gmon::new(), out).map(drop),
        Format::Heap => legacy::write_heap(profile, out),
        Format::Growth => legacy::write_growth(profile, out),
        Format::Contention => legacy::write_contention(profile, out),
    }
}

impl Profile {
    /// Writes the profile to a file, in the format that its name asks for ([`Format::from_path`]).
    ///
    /// The file appears whole or not at all: it is written under another name, synced and then
    /// renamed, so that an old file of this name stays as it is until then, and for good if
    /// anything fails. See [`OutputFile`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the name's extension is unknown or the format cannot hold the
    /// profile, [`ErrorKind::Io`] if the system refuses to write the file.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn main() -> sigprof::Result<()> {
    /// let profile = sigprof::Profile::open("cpu.pb.gz")?;
    /// profile.save("cpu.prof")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.save_as(path, Format::from_path(path)?)
    }

    /// Writes the profile to a file in this format, whatever its name; else like
    /// [`save`](Self::save).
    pub(crate) fn save_as(&self, path: &Path, format: Format) -> Result<()> {
        self.save_to(OutputFile::create(path)?, path, format)
    }

    fn save_to(&self, mut file: OutputFile, path: &Path, format: Format) -> Result<()> {
        write_to(self, format, &mut file)
            .map_err(|e| e.into_error(format_args!("`{}`", path.display())))?;
        file.commit()
    }

    /// The bytes of the profile's gperftools file before the text at its end.
    #[cfg(feature = "capi")]
    pub(crate) fn cpu_profile_size_before_text(&self) -> Result<usize> {
        cpuprofile::size_before_text(self).map_err(|e| e.into_error("the file"))
    }

    /// A sentence about what a file of this format leaves out of the profile, where that depends on
    /// the profile.
    #[cfg(feature = "capi")]
    pub(crate) fn left_out(&self, format: Format) -> Option<String> {
        match format {
            Format::Gmon => gmon::write(self, Gmon::new(), &mut std::io::sink()).ok(),
            _ => None,
        }
    }

    /// Writes the profile in a format, to anything.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the format cannot hold the profile, [`ErrorKind::Io`] if
    /// `out` fails.
    pub fn write(&self, format: Format, out: &mut impl Write) -> Result<()> {
        write_to(self, format, out)
            .and_then(|()| Ok(out.flush()?))
            .map_err(|e| e.into_error("the output"))
    }

    /// Reads a profile from a file, whatever its name: the format is told from the bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::InvalidData`] if it is no profile
    /// of a known format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|e| {
            let message = format!("cannot read the profile `{}`", path.display());
            Error::with_source(ErrorKind::Io, message, e)
        })?;
        Self::read(&bytes).map_err(|e| {
            let message = format!("cannot read the profile `{}`: {e}", path.display());
            Error::new(e.kind(), message)
        })
    }

    /// Reads a profile from bytes. The format is told from them: gzip's magic number means a
    /// compressed profile.proto, a gperftools header a CPU profile, `gmon` or a header of BSD's a
    /// gmon.out file, a first line of text with such a title a heap, growth, contention, thread or
    /// count profile, one that ends in a number collapsed stacks; anything else has to be a bare
    /// profile.proto.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidData`] if the bytes are no profile of a known format, or unfold to more
    /// than [`MAX_UNCOMPRESSED`] bytes; the message says what is wrong with them.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        Self::read_limited(bytes, MAX_UNCOMPRESSED)
    }

    /// Reads a profile from bytes that are not trusted: like [`read`](Self::read), with a limit of
    /// one's own (in bytes, at most [`MAX_UNCOMPRESSED`]) on what they unfold to and on the memory
    /// that takes.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_limited(bytes: &[u8], limit: u64) -> Result<Self> {
        if bytes.is_empty() {
            return Err(invalid("the profile is empty: there are no bytes to read"));
        }
        let limit = limit.min(MAX_UNCOMPRESSED);
        if bytes.starts_with(&[0x1f, 0x8b]) {
            return pprof::read_gzip(bytes, limit);
        }
        if let Some(slots) = cpuprofile::sniff(bytes) {
            return cpuprofile::read(slots, limit);
        }
        if gmon::sniff(bytes) {
            return gmon::read(bytes, limit);
        }
        if let Some(profile) = gmon::read_bsd(bytes, limit)? {
            return Ok(profile);
        }
        if collapsed::is_marked(bytes) {
            return collapsed::read(bytes, limit);
        }
        let collapsed = collapsed::sniff(bytes);
        // A function may be called as a text profile begins, whose first line has no `;`.
        let may_be_head = collapsed.is_none_or(|frames| !frames.contains(&b';'));
        match legacy::sniff(bytes) {
            Some(kind) if may_be_head => legacy::read(bytes, kind, limit),
            _ if collapsed.is_some() => collapsed::read(bytes, limit),
            _ => pprof::read_uncompressed(bytes, limit).map_err(|error| match is_text(bytes) {
                true => text_of_another_kind(bytes),
                false => error,
            }),
        }
    }
}

/// Whether bytes begin with a line of text.
fn is_text(bytes: &[u8]) -> bool {
    let is_text = |&byte: &u8| byte >= b' ' || byte.is_ascii_whitespace();
    first_line(bytes).len() >= 8 && first_line(bytes).iter().all(is_text)
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
}

/// The error of a text that is no profile we know.
fn text_of_another_kind(bytes: &[u8]) -> Error {
    let line = String::from_utf8_lossy(first_line(bytes));
    let what = match line.starts_with("heap_v2/") {
        true => "jemalloc's heap profile, which jeprof reads",
        false => "a text, and no profile of a known format",
    };
    let shown: String = line.trim().chars().take(80).collect();
    invalid(format!("the bytes are {what}: at byte 0 stands `{shown}`"))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

/// Takes `size` bytes of the memory that reading a profile may cost.
fn charge(memory: &mut u64, size: usize) -> Result<()> {
    match memory.checked_sub(size as u64) {
        Some(left) => *memory = left,
        None => return Err(too_large()),
    }
    Ok(())
}

fn too_large() -> Error {
    invalid("the profile would take more memory than the limit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_names_its_format_and_an_unknown_one_lists_them() {
        let cases = [
            ("cpu.pb.gz", Format::Pprof),
            ("/tmp/x.y/cpu.pprof", Format::Pprof),
            ("cpu.pb", Format::PprofUncompressed),
            ("cpu.prof", Format::CpuProfile),
            ("cpu.collapsed", Format::Collapsed),
            ("cpu.folded", Format::Collapsed),
            ("cpu.gmon", Format::Gmon),
            ("/tmp/gmon.out", Format::Gmon),
            ("gmon_4711.out", Format::Gmon),
            ("server.0001.heap", Format::Heap),
            ("cpp.growth", Format::Growth),
            ("cpp.contention", Format::Contention),
        ];
        for (path, format) in cases {
            assert_eq!(Format::from_path(path).unwrap(), format, "{path}");
        }
        for path in [
            "cpu",
            "cpu.gz",
            "cpu.PROF",
            "cpu.prof/x",
            "gmon.out/x",
            "cpu.out",
            "",
        ] {
            let error = Format::from_path(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let message = error.to_string();
            assert!(message.contains(&format!("`{path}`")), "{message}");
            assert!(message.contains(".pb.gz, .pprof, .pb, .prof"), "{message}");
        }
    }
}
