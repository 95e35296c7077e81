//! gmon.out -> [`Records`].

use std::fmt;

use hashbrown::HashMap;

use super::dimension::Dimension;
use super::histogram::{Histogram, overlap};
use super::records::{Arc, Block, Records};
use super::{ARC, BLOCKS, HISTOGRAM, MAGIC, NAME, SPARE, VERSION};
use crate::error::Result;
use crate::format::cursor::{Cursor, Layout};
use crate::format::{charge, invalid};

/// What is read takes at most so many times the memory of its bytes.
const GROWTH: usize = 4;
/// gprof's rate for files that do not say theirs.
const USUAL_RATE: u32 = 100;
/// What the header of 4.4BSD has behind its addresses and its length.
const BSD_VERSION: u32 = 0x5_1879;
const BSD_SPARE: usize = 12;

/// Whether this is a file with a version, as GNU's C library writes it, and no text: collapsed
/// stacks may begin with a function of that name.
pub(in crate::format) fn sniff(bytes: &[u8]) -> bool {
    let is_control = |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace();
    let rest = bytes.strip_prefix(MAGIC);
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.iter().take(size_of_val(&VERSION)).any(is_control)
    })
}

/// Reads a file of version 1. The size of its addresses stands nowhere: the one that its records
/// have is the one by which all of the file is records. Where that are several, as can happen
/// without a histogram, this machine's is taken.
pub(super) fn read(bytes: &[u8], memory: &mut u64) -> Result<Records> {
    charge(memory, bytes.len().saturating_mul(GROWTH))?;
    let mut furthest: Option<Damage> = None;
    for layout in Layout::ALL {
        match records(Cursor::new(bytes, layout)) {
            Ok(records) => return Ok(records),
            Err(damage) if furthest.as_ref().is_none_or(|f| f.offset < damage.offset) => {
                furthest = Some(damage);
            }
            Err(_) => {}
        }
    }
    let damage = furthest.map_or(String::new(), |damage| damage.to_string());
    Err(invalid(format!(
        "the gmon.out file is damaged or was cut off: {damage}"
    )))
}

/// Reads a file of BSD's form, which has no mark to know it by, where the bytes can hardly be
/// anything else.
pub(super) fn read_bsd(bytes: &[u8], memory: &mut u64) -> Result<Option<Records>> {
    let records = Layout::ALL.iter().find_map(|layout| {
        let has_rate = |&has_rate: &bool| BsdHeader::read(bytes, *layout, has_rate).is_some();
        [true, false]
            .iter()
            .copied()
            .find(has_rate)
            .map(|has_rate| (*layout, has_rate))
    });
    let Some((layout, has_rate)) = records else {
        return Ok(None);
    };
    charge(memory, bytes.len().saturating_mul(GROWTH))?;
    Ok(BsdHeader::read(bytes, layout, has_rate).and_then(BsdHeader::records))
}

/// What is wrong, and where.
#[derive(Debug)]
struct Damage {
    offset: usize,
    reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {} {}", self.offset, self.reason)
    }
}

impl Damage {
    fn new(offset: usize, reason: impl Into<String>) -> Self {
        Self {
            offset,
            reason: reason.into(),
        }
    }
}

fn records(mut file: Cursor) -> std::result::Result<Records, Damage> {
    header(&mut file)?;
    let mut records = Records {
        layout: file.layout(),
        dimension: Dimension::time(USUAL_RATE),
        histograms: Vec::new(),
        arcs: Vec::new(),
        blocks: None,
    };
    let mut dimension: Option<Dimension> = None;
    let mut by_range = HashMap::new();
    loop {
        let begin = file.offset();
        let Some(kind) = file.u8() else { break };
        let cut_off = |what: &str| Damage::new(begin, format!("begins {what} that is not whole"));
        match kind {
            HISTOGRAM => {
                let header = HistogramHeader::read(&mut file);
                let header = header.ok_or_else(|| cut_off("a histogram"))?;
                header.check(dimension.as_ref(), begin)?;
                let bins = file
                    .u16s(header.bins)
                    .ok_or_else(|| cut_off("a histogram"))?;
                let range = (header.low, header.high, header.bins);
                dimension.get_or_insert(header.dimension);
                match by_range.get(&range) {
                    Some(&index) => {
                        let histogram: &mut Histogram = &mut records.histograms[index];
                        for (sum, bin) in histogram.bins.iter_mut().zip(bins) {
                            *sum += u64::from(bin);
                        }
                    }
                    None => {
                        by_range.insert(range, records.histograms.len());
                        records.histograms.push(Histogram {
                            addresses: header.low..header.high,
                            bins: bins.map(u64::from).collect(),
                        });
                    }
                }
            }
            ARC => {
                let arc = arc(&mut file, |file| Some(file.u32()?.into()));
                records.arcs.push(arc.ok_or_else(|| cut_off("an arc"))?);
            }
            BLOCKS => {
                let cut_off = || cut_off("a record of basic blocks");
                let count = file.u32().ok_or_else(cut_off)?;
                let blocks = records.blocks.get_or_insert_default();
                for _ in 0..count {
                    let block = file.address().zip(file.address());
                    let (address, count) = block.ok_or_else(cut_off)?;
                    if i64::try_from(count).is_err() {
                        let reason = "stands the count of a basic block that 64 bits with a sign \
                                      do not hold";
                        return Err(Damage::new(
                            file.offset() - file.layout().address_size,
                            reason,
                        ));
                    }
                    blocks.push(Block { address, count });
                }
            }
            _ => {
                let reason = format!("a record of the unknown kind {kind} begins");
                return Err(Damage::new(begin, reason));
            }
        }
    }
    check_ranges(&records.histograms)?;
    if let Some(dimension) = dimension {
        records.dimension = dimension;
    }
    Ok(records)
}

fn header(file: &mut Cursor) -> std::result::Result<(), Damage> {
    let _magic = file.bytes(MAGIC.len());
    let at = file.offset();
    // gprof takes 0, too.
    match file.u32() {
        Some(0 | VERSION) => {}
        Some(version) => {
            return Err(Damage::new(
                at,
                format!("stands the unknown version {version}"),
            ));
        }
        None => return Err(Damage::new(at, "the header ends")),
    }
    let spare = file.bytes(SPARE).map(drop);
    spare.ok_or_else(|| Damage::new(at, "the header ends"))
}

/// What a histogram has before its bins.
struct HistogramHeader {
    low: u64,
    high: u64,
    bins: usize,
    dimension: Dimension,
}

impl HistogramHeader {
    fn read(file: &mut Cursor) -> Option<Self> {
        let low = file.address()?;
        let high = file.address()?;
        let bins = usize::try_from(file.u32()?).ok()?;
        let rate = file.u32()?;
        let name = file.bytes(NAME)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Self {
            low,
            high,
            bins,
            dimension: Dimension {
                // What is no text is refused by `check`.
                name: String::from_utf8_lossy(name).into_owned(),
                abbreviation: file.u8()?,
                rate,
            },
        })
    }

    /// Whether the records that follow can be trusted to be such: gprof itself refuses what is
    /// refused here, or takes it for something else.
    fn check(&self, first: Option<&Dimension>, begin: usize) -> std::result::Result<(), Damage> {
        let Dimension {
            name, abbreviation, ..
        } = &self.dimension;
        let is_text = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let is_named = !name.is_empty() && name.bytes().all(is_text) && is_text(*abbreviation);
        let damage =
            |reason: String| Err(Damage::new(begin, format!("begins a histogram {reason}")));
        if !is_named {
            return damage("whose dimension is no text".into());
        }
        if self.high < self.low || self.high - self.low < self.bins as u64 {
            let Self {
                low, high, bins, ..
            } = self;
            return damage(format!(
                "of {bins} bins for the addresses {low:#x} to {high:#x}"
            ));
        }
        match first {
            Some(first) if first.name != *name || first.abbreviation != *abbreviation => {
                damage(format!("in {name}, after one in {}", first.name))
            }
            _ => Ok(()),
        }
    }
}

/// Ranges that are not equal must not overlap.
fn check_ranges(histograms: &[Histogram]) -> std::result::Result<(), Damage> {
    match overlap(histograms) {
        Some(ranges) => {
            let [a, b] = ranges.map(|r| format!("{:#x} to {:#x}", r.start, r.end));
            let offset = MAGIC.len() + size_of_val(&VERSION) + SPARE;
            let reason = format!("and later are histograms that overlap: {a}, and {b}");
            Err(Damage::new(offset, reason))
        }
        None => Ok(()),
    }
}

fn arc<'b>(
    file: &mut Cursor<'b>,
    count: impl FnOnce(&mut Cursor<'b>) -> Option<u64>,
) -> Option<Arc> {
    Some(Arc {
        from: file.address()?,
        to: file.address()?,
        count: count(file)?,
    })
}

/// The header of BSD's form, and the file behind it.
struct BsdHeader<'b> {
    low: u64,
    high: u64,
    bins: usize,
    rate: u32,
    rest: Cursor<'b>,
}

impl<'b> BsdHeader<'b> {
    /// 4.4BSD's form has a version and a rate; the older one has only the addresses and the length
    /// of header and bins.
    fn read(bytes: &'b [u8], layout: Layout, has_rate: bool) -> Option<Self> {
        let mut file = Cursor::new(bytes, layout);
        let low = file.address()?;
        let high = file.address()?;
        let len = usize::try_from(file.u32()?).ok()?;
        let mut rate = USUAL_RATE;
        if has_rate {
            if file.u32()? != BSD_VERSION {
                return None;
            }
            rate = file.u32()?;
            file.bytes(BSD_SPARE)?;
        }
        let bins = len.checked_sub(file.offset())?;
        // Bins are counts of two bytes. A bin has a few bytes of code; behind them are whole arcs.
        let bins = bins.is_multiple_of(2).then_some(bins / 2)?;
        let bytes_of_code = high.checked_sub(low)?.checked_div(bins as u64)?;
        let behind = file.rest().len().checked_sub(2 * bins)?;
        let are_arcs = behind.is_multiple_of(3 * layout.address_size);
        let is_it = (2..=64).contains(&bytes_of_code) && are_arcs;
        is_it.then_some(Self {
            low,
            high,
            bins,
            rate,
            rest: file,
        })
    }

    fn records(mut self) -> Option<Records> {
        let bins = self.rest.u16s(self.bins)?.map(u64::from).collect();
        let mut arcs = Vec::new();
        while !self.rest.rest().is_empty() {
            // A count is a long.
            arcs.push(arc(&mut self.rest, Cursor::address)?);
        }
        Some(Records {
            layout: self.rest.layout(),
            dimension: Dimension::time(self.rate),
            histograms: vec![Histogram {
                addresses: self.low..self.high,
                bins,
            }],
            arcs,
            blocks: None,
        })
    }
}
