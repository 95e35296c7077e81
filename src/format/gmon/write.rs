//! [`Records`] -> gmon.out.

use std::convert::Infallible;
use std::io::Write;

use super::dimension::Dimension;
use super::histogram::Histogram;
use super::records::{Arc, Arcs, Block, Records};
use super::{ARC, BLOCKS, HISTOGRAM, MAGIC, NAME, SPARE, VERSION};
use crate::format::WriteError;
use crate::format::chunks::Chunks;

/// Bytes of an address.
const ADDRESS: u128 = 8;
/// Those of an arc's record: its kind, two addresses, and a count.
const ARC_RECORD: usize = 1 + 2 * ADDRESS as usize + size_of::<u32>();

/// How many bytes the file has because values are larger than a bin or an arc holds, and so have
/// several records. A few values can make a file of any size.
pub(super) fn size_of_repeats(records: &Records<impl Arcs>) -> u128 {
    let histogram = |histogram: &Histogram| {
        let header = 1 + 2 * ADDRESS + 2 * size_of::<u32>() as u128 + NAME as u128 + 1;
        let layer = header + (size_of::<u16>() * histogram.bins.len()) as u128;
        u128::from(histogram.layer_count() - 1) * layer
    };
    let histograms: u128 = records.histograms.iter().map(histogram).sum();
    histograms + repeats(&records.arcs) * ARC_RECORD as u128
}

/// How many records arcs have beside their first ones.
fn repeats(arcs: &impl Arcs) -> u128 {
    let mut repeats = 0;
    if arcs.most() > u64::from(u32::MAX) {
        let Ok(()) = arcs.try_for_each(|arcs| {
            let repeats_of = |arc: &Arc| arc.count.saturating_sub(1) / u64::from(u32::MAX);
            repeats += arcs.iter().map(repeats_of).map(u128::from).sum::<u128>();
            Ok::<_, Infallible>(())
        });
    }
    repeats
}

/// Writes the file, in this machine's words and order of bytes.
pub(super) fn write(records: &Records<impl Arcs>, out: &mut impl Write) -> Result<(), WriteError> {
    let mut out = Chunks::new(out);
    out.buffer.extend_from_slice(MAGIC);
    out.buffer.extend_from_slice(&VERSION.to_ne_bytes());
    out.buffer.extend_from_slice(&[0; SPARE]);
    for histogram in &records.histograms {
        put_histogram(&mut out, histogram, &records.dimension)?;
    }
    records.arcs.try_for_each(|arcs| put_arcs(&mut out, arcs))?;
    if let Some(blocks) = &records.blocks {
        put_blocks(&mut out, blocks)?;
    }
    out.flush()
}

fn put_histogram<W: Write>(
    out: &mut Chunks<W>,
    histogram: &Histogram,
    dimension: &Dimension,
) -> Result<(), WriteError> {
    let addresses = &histogram.addresses;
    let mut name = [0; NAME];
    for (byte, of_name) in name.iter_mut().zip(dimension.name.bytes()) {
        *byte = of_name;
    }
    for bins in histogram.layers() {
        let buffer = &mut out.buffer;
        buffer.push(HISTOGRAM);
        buffer.extend_from_slice(&addresses.start.to_ne_bytes());
        buffer.extend_from_slice(&addresses.end.to_ne_bytes());
        buffer.extend_from_slice(&(histogram.bins.len() as u32).to_ne_bytes());
        buffer.extend_from_slice(&dimension.rate.to_ne_bytes());
        buffer.extend_from_slice(&name);
        buffer.push(dimension.abbreviation);
        for bin in bins {
            out.buffer.extend_from_slice(&bin.to_ne_bytes());
            out.drain()?;
        }
    }
    Ok(())
}

/// Arcs; several of one where the count is more than one holds, which gprof adds.
fn put_arcs<W: Write>(out: &mut Chunks<W>, arcs: &[Arc]) -> Result<(), WriteError> {
    for arc in arcs {
        let mut count = arc.count;
        loop {
            let part = u32::try_from(count).unwrap_or(u32::MAX);
            put_arc(&mut out.buffer, arc, part);
            count -= u64::from(part);
            if count == 0 {
                break;
            }
            out.drain()?;
        }
    }
    out.drain()
}

fn put_arc(buffer: &mut Vec<u8>, arc: &Arc, count: u32) {
    let begin = buffer.len();
    buffer.resize(begin + ARC_RECORD, ARC);
    let record = &mut buffer[begin..];
    record[1..9].copy_from_slice(&arc.from.to_ne_bytes());
    record[9..17].copy_from_slice(&arc.to.to_ne_bytes());
    record[17..].copy_from_slice(&count.to_ne_bytes());
}

/// Basic blocks; in several records where there are more than one holds.
fn put_blocks<W: Write>(out: &mut Chunks<W>, blocks: &[Block]) -> Result<(), WriteError> {
    let mut rest = blocks;
    loop {
        let part;
        (part, rest) = rest.split_at(rest.len().min(u32::MAX as usize));
        out.buffer.push(BLOCKS);
        out.buffer
            .extend_from_slice(&(part.len() as u32).to_ne_bytes());
        for block in part {
            out.buffer.extend_from_slice(&block.address.to_ne_bytes());
            out.buffer.extend_from_slice(&block.count.to_ne_bytes());
            out.drain()?;
        }
        if rest.is_empty() {
            return Ok(());
        }
    }
}
