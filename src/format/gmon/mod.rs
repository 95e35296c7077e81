//! gmon.out: the profile data of GNU gprof.
//!
//! A header of 20 bytes (`gmon`, version 1, 12 spare bytes), then records in this machine's byte
//! order and word size, each begun by one byte that says its kind: histograms, arcs of the call
//! graph, counts of basic blocks. gprof knows one executable, by the addresses that its linker gave
//! out.
//!
//! Source: GNU binutils, `gprof/gmon_out.h`, `gprof/gmon_io.c`, `gprof/hist.c`.

mod arcs;
mod dimension;
mod executable;
mod histogram;
mod kept;
mod radix;
mod read;
mod records;
mod sums;
mod write;

use std::io::Write;
use std::path::Path;

use super::{MAX_UNCOMPRESSED, WriteError, invalid};
use crate::error::Result;
use crate::profile::Profile;
use executable::Executable;

pub(super) use read::sniff;

/// What each file begins with.
const MAGIC: &[u8; 4] = b"gmon";
const VERSION: u32 = 1;
const SPARE: usize = 12;
/// The length of a dimension's name in a histogram, filled up with zeros.
const NAME: usize = 15;

/// The most bytes of a file that there are only because one bin does not hold a value.
const MOST_REPEATS: u128 = 64 << 20;

/// Kinds of records.
const HISTOGRAM: u8 = 0;
const ARC: u8 = 1;
const BLOCKS: u8 = 2;

/// How a `gmon.out` file is written, and what of the profile is in it.
///
/// gprof knows one executable. A histogram has what was spent in functions of the main executable
/// itself, by the [default sample type](Profile::default_sample_index): what was spent in libraries
/// is left out. An arc of the call graph is counted once for each sample in which the call was
/// seen: gprof prints that number as "calls", which a sampler does not count.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> sigprof::Result<()> {
/// use sigprof::format::{Gmon, OutputFile};
/// let profile = sigprof::Profile::open("cpu.pb.gz")?;
/// let mut file = OutputFile::create("gmon.out")?;
/// let remark = Gmon::new().basic_blocks(true).write(&profile, &mut file)?;
/// file.commit()?;
/// eprintln!("{remark}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Gmon {
    has_blocks: bool,
}

impl Gmon {
    /// Histograms and arcs, as [`Format::Gmon`](super::Format::Gmon) has them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are counts of basic blocks, too: how many samples were taken at each address.
    /// `gprof -l -A` annotates lines of source with them.
    pub fn basic_blocks(mut self, has_blocks: bool) -> Self {
        self.has_blocks = has_blocks;
        self
    }

    /// Writes a profile, and returns a sentence that says how much of it is in the file. A profile
    /// that was read from a `gmon.out` file is written as the records that it was read from.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the profile has no sample
    /// types or negative values, or values so large that bins of 16 bits would need more than 64 MiB
    /// to add up to them, [`ErrorKind::Io`](crate::ErrorKind::Io) if `out` fails.
    pub fn write(self, profile: &Profile, out: &mut impl Write) -> Result<String> {
        write(profile, self, out)
            .and_then(|remark| {
                out.flush()?;
                Ok(remark)
            })
            .map_err(|error| error.into_error("the output"))
    }

    /// Reads a `gmon.out` file of the executable at `path`, whose symbols name its addresses:
    /// [`symbolize`](crate::symbolize::symbolize) looks them up. [`Profile::read`] reads one without
    /// its executable.
    ///
    /// A bin of a histogram becomes a sample of one frame, at the bin's first address; an arc one of
    /// two frames, of the sample type `calls`; a basic block one of one frame, of the sample type
    /// `blocks`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidData`](crate::ErrorKind::InvalidData) if the bytes are no `gmon.out` file
    /// or the executable is none of this machine's kind, [`ErrorKind::Io`](crate::ErrorKind::Io) if
    /// the executable cannot be read.
    pub fn read(bytes: &[u8], path: impl AsRef<Path>) -> Result<Profile> {
        let path = path.as_ref();
        // Names are looked up in files of whole paths.
        let whole = std::path::absolute(path);
        let path = whole.as_deref().unwrap_or(path).to_string_lossy();
        let mut memory = MAX_UNCOMPRESSED;
        let records = match sniff(bytes) {
            true => Some(read::read(bytes, &mut memory)?),
            false => read::read_bsd(bytes, &mut memory)?,
        };
        let records = records.ok_or_else(|| {
            invalid("this is no gmon.out file: neither one of version 1 nor one of BSD's form")
        })?;
        kept::profile(&records, Some(&path), &mut memory)
    }
}

/// Writes the file, and returns a sentence that says how much of the profile is in it.
pub(super) fn write(
    profile: &Profile,
    options: Gmon,
    out: &mut impl Write,
) -> std::result::Result<String, WriteError> {
    let executable = Executable::of(profile);
    if let Some(records) = kept::records(profile, &executable) {
        check_repeats(&records)?;
        write::write(&records, out)?;
        return Ok("the file holds all that the profile was read from".into());
    }
    let (records, remark) = sums::records(profile, &executable, options.has_blocks)?;
    check_repeats(&records)?;
    write::write(&records, out)?;
    Ok(remark)
}

fn check_repeats(records: &records::Records<impl records::Arcs>) -> Result<(), WriteError> {
    let repeats = write::size_of_repeats(records);
    match repeats <= MOST_REPEATS {
        true => Ok(()),
        false => Err(WriteError::unfit(format!(
            "a gmon.out file has bins of 16 bits and arcs of 32, and would need {repeats} bytes of \
             them to add up to the values of this profile: write it as .pb.gz"
        ))),
    }
}

/// Reads a file of version 1.
pub(super) fn read(bytes: &[u8], mut memory: u64) -> Result<Profile> {
    let records = read::read(bytes, &mut memory)?;
    kept::profile(&records, None, &mut memory)
}

/// Reads a file of BSD's form, where the bytes can hardly be anything else.
pub(super) fn read_bsd(bytes: &[u8], mut memory: u64) -> Result<Option<Profile>> {
    let records = read::read_bsd(bytes, &mut memory)?;
    let profile = |records| kept::profile(&records, None, &mut memory);
    records.map(profile).transpose()
}
