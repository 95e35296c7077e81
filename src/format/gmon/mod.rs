//! gmon.out: the profile data of GNU gprof.
//!
//! A header of 20 bytes (`gmon`, version 1, 12 spare bytes), then records in this machine's byte
//! order and word size, each begun by one byte that says its kind: histograms, arcs of the call
//! graph, counts of basic blocks. gprof knows one executable, by the addresses that its linker gave
//! out.
//!
//! Source: GNU binutils, `gprof/gmon_out.h`, `gprof/gmon_io.c`, `gprof/hist.c`.

mod dimension;
mod executable;
mod histogram;
mod write;

use std::io::Write;

use crate::error::Result;
use crate::profile::Profile;

pub(super) use write::write;

/// What each file begins with.
const MAGIC: &[u8; 4] = b"gmon";
const VERSION: u32 = 1;
const SPARE: usize = 12;

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

    /// Writes a profile, and returns a sentence that says how much of it is in the file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the profile has no sample
    /// types or negative values, [`ErrorKind::Io`](crate::ErrorKind::Io) if `out` fails.
    pub fn write(self, profile: &Profile, out: &mut impl Write) -> Result<String> {
        write(profile, self, out)
            .and_then(|remark| {
                out.flush()?;
                Ok(remark)
            })
            .map_err(|error| error.into_error("the output"))
    }
}
