//! [`Records`] -> gmon.out.

use std::convert::Infallible;
use std::io::Write;

use super::dimension::Dimension;
use super::histogram::Histogram;
use super::records::{Arc, Arcs, Block, Records};
use super::{ARC, BLOCKS, HISTOGRAM, MAGIC, NAME, SPARE, VERSION};
use crate::format::WriteError;
use crate::format::chunks::Chunks;
use crate::format::cursor::Layout;

/// Bytes of an arc's record: its kind, two addresses, and a count.
fn arc_record(layout: Layout) -> usize {
    1 + 2 * layout.address_size + size_of::<u32>()
}

/// How many bytes the file has because values are larger than a bin or an arc holds, and so have
/// several records. A few values can make a file of any size.
pub(super) fn size_of_repeats(records: &Records<impl Arcs>) -> u128 {
    let histogram = |histogram: &Histogram| {
        let header = 1 + 2 * records.layout.address_size + 2 * size_of::<u32>() + NAME + 1;
        let layer = header + size_of::<u16>() * histogram.bins.len();
        u128::from(histogram.layer_count() - 1) * layer as u128
    };
    let histograms: u128 = records.histograms.iter().map(histogram).sum();
    histograms + repeats(&records.arcs) * arc_record(records.layout) as u128
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

/// Writes the file, in the records' words and order of bytes.
pub(super) fn write(records: &Records<impl Arcs>, out: &mut impl Write) -> Result<(), WriteError> {
    let layout = records.layout;
    let mut out = Chunks::new(out);
    out.buffer.extend_from_slice(MAGIC);
    layout.put_u32(VERSION, &mut out.buffer);
    out.buffer.extend_from_slice(&[0; SPARE]);
    for histogram in &records.histograms {
        put_histogram(&mut out, layout, histogram, &records.dimension)?;
    }
    let put = |arcs: &[Arc]| match layout == Layout::NATIVE {
        true => put_arcs(&mut out, arcs, put_native_arc),
        false => put_arcs(&mut out, arcs, |buffer, arc, count| {
            buffer.push(ARC);
            layout.put_address(arc.from, buffer);
            layout.put_address(arc.to, buffer);
            layout.put_u32(count, buffer);
        }),
    };
    records.arcs.try_for_each(put)?;
    if let Some(blocks) = &records.blocks {
        put_blocks(&mut out, layout, blocks)?;
    }
    out.flush()
}

fn put_histogram<W: Write>(
    out: &mut Chunks<W>,
    layout: Layout,
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
        layout.put_address(addresses.start, buffer);
        layout.put_address(addresses.end, buffer);
        layout.put_u32(histogram.bins.len() as u32, buffer);
        layout.put_u32(dimension.rate, buffer);
        buffer.extend_from_slice(&name);
        buffer.push(dimension.abbreviation);
        for bin in bins {
            layout.put_u16(bin, &mut out.buffer);
            out.drain()?;
        }
    }
    Ok(())
}

/// Arcs; several of one where the count is more than one holds, which gprof adds.
fn put_arcs<W: Write>(
    out: &mut Chunks<W>,
    arcs: &[Arc],
    put_arc: impl Fn(&mut Vec<u8>, &Arc, u32),
) -> Result<(), WriteError> {
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

/// In this machine's words: one of millions.
fn put_native_arc(buffer: &mut Vec<u8>, arc: &Arc, count: u32) {
    const RECORD: usize = 1 + 2 * size_of::<u64>() + size_of::<u32>();
    let begin = buffer.len();
    buffer.resize(begin + RECORD, ARC);
    let record = &mut buffer[begin..];
    record[1..9].copy_from_slice(&arc.from.to_ne_bytes());
    record[9..17].copy_from_slice(&arc.to.to_ne_bytes());
    record[17..].copy_from_slice(&count.to_ne_bytes());
}

/// Basic blocks; in several records where there are more than one holds.
fn put_blocks<W: Write>(
    out: &mut Chunks<W>,
    layout: Layout,
    blocks: &[Block],
) -> Result<(), WriteError> {
    let mut rest = blocks;
    loop {
        let part;
        (part, rest) = rest.split_at(rest.len().min(u32::MAX as usize));
        out.buffer.push(BLOCKS);
        layout.put_u32(part.len() as u32, &mut out.buffer);
        for block in part {
            layout.put_address(block.address, &mut out.buffer);
            layout.put_address(block.count, &mut out.buffer);
            out.drain()?;
        }
        if rest.is_empty() {
            return Ok(());
        }
    }
}
