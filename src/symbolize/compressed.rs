//! Compressed sections (gABI, "Section Compression"; `.zdebug_…` before there was a flag for it),
//! and what they may become.

use std::borrow::Cow;

use flate2::{Decompress, FlushDecompress, Status};
use object::read::ReadRef as _;
use object::read::elf::{CompressionHeader as _, FileHeader, SectionHeader as _};
use object::{CompressedData, CompressionFormat, LittleEndian, elf};
use ruzstd::decoding::FrameDecoder;

/// What the sections of one file may be uncompressed to: a file of more is not for a process that
/// has other work to do.
const MOST_BYTES: u64 = 1 << 30;
/// What a section may be uncompressed to, as a multiple of what it takes in the file. Real ones
/// have up to 20, as a rule.
const USUAL_RATIO: u64 = 64;
/// What the sections of one file may be uncompressed to beyond that. The lines of a long table in
/// the source are all alike: 3 MB of them take 451 bytes.
const MOST_UNUSUAL_BYTES: u64 = 16 << 20;
/// A window that every decoder of zstd should have (RFC 8878, 3.1.1.1.2), whatever the size of what
/// was compressed.
const USUAL_WINDOW_BYTES: u64 = 8 << 20;

/// What may still be uncompressed.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: u64,
    unusual_bytes: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            bytes: MOST_BYTES,
            unusual_bytes: MOST_UNUSUAL_BYTES,
        }
    }

    /// What `stored` bytes may be uncompressed to.
    pub(super) fn most_bytes(&self, stored: usize) -> u64 {
        let usual = USUAL_RATIO.saturating_mul(stored as u64);
        self.bytes.min(self.unusual_bytes.saturating_add(usual))
    }

    /// Takes what bytes become in another place.
    pub(super) fn copy(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.bytes.checked_sub(bytes as u64);
        self.bytes = left.ok_or_else(|| format!("it has {bytes} bytes more than is read"))?;
        Ok(())
    }

    /// Takes what `stored` bytes are said to become.
    pub(super) fn take(&mut self, bytes: u64, stored: usize) -> Result<(), String> {
        if bytes > self.most_bytes(stored) {
            return Err(format!(
                "{stored} compressed bytes are said to be {bytes}, more than is read"
            ));
        }
        let usual = USUAL_RATIO.saturating_mul(stored as u64);
        self.bytes -= bytes;
        self.unusual_bytes -= bytes.saturating_sub(usual);
        Ok(())
    }
}

/// The bytes of a section as they are in the file, and what its header says of them.
pub(super) fn stored<'d, Elf: FileHeader<Endian = LittleEndian>>(
    data: &'d [u8],
    name: &[u8],
    section: &'d Elf::SectionHeader,
) -> Result<CompressedData<'d>, String> {
    let text = |error: object::Error| error.to_string();
    if let Some((header, offset, size)) = section.compression(LittleEndian, data).map_err(text)? {
        let format = match header.ch_type(LittleEndian) {
            elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
            elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
            other => return Err(format!("it is compressed in an unknown way ({})", other.0)),
        };
        let data = data.read_bytes_at(offset, size);
        return Ok(CompressedData {
            format,
            data: data.map_err(|()| "it is not whole")?,
            uncompressed_size: header.ch_size(LittleEndian).into(),
        });
    }
    let data = section.data(LittleEndian, data).map_err(text)?;
    if !name.starts_with(b".zdebug_") {
        return Ok(CompressedData::none(data));
    }
    let rest = data.strip_prefix(b"ZLIB").ok_or("it has no header")?;
    let (size, data) = rest.split_first_chunk().ok_or("it has no header")?;
    Ok(CompressedData {
        format: CompressionFormat::Zlib,
        data,
        uncompressed_size: u64::from_be_bytes(*size),
    })
}

/// What the section was before it was compressed.
///
/// # Errors
///
/// Where it is not whole, is of another size than its header says, or would take too much.
pub(super) fn uncompressed<'d>(
    section: &CompressedData<'d>,
    budget: &mut Budget,
) -> Result<Cow<'d, [u8]>, String> {
    if section.format == CompressionFormat::None {
        return Ok(Cow::Borrowed(section.data));
    }
    budget.take(section.uncompressed_size, section.data.len())?;
    let size = section.uncompressed_size as usize;
    let mut bytes = Vec::new();
    (bytes.try_reserve_exact(size)).map_err(|_| format!("there is no memory for {size} bytes"))?;
    match section.format {
        CompressionFormat::Zlib => of_zlib(section.data, size, &mut bytes)?,
        CompressionFormat::Zstandard => of_zstd(section.data, size, &mut bytes)?,
        _ => return Err("it is compressed in an unknown way".to_owned()),
    }
    match bytes.len() == size {
        true => Ok(Cow::Owned(bytes)),
        false => Err(format!("it becomes {} bytes, not {size}", bytes.len())),
    }
}

/// Fills `bytes`, which has room for `size`. The checksum at the end must be right.
fn of_zlib(stored: &[u8], size: usize, bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut stream = Decompress::new(true);
    let damaged = |error| format!("it is not what zlib writes ({error})");
    let status = stream.decompress_vec(stored, bytes, FlushDecompress::Finish);
    if status.map_err(damaged)? == Status::StreamEnd {
        return Ok(());
    }
    // The end can be seen only where one more byte would have room.
    let rest = &stored[stream.total_in() as usize..];
    let status = stream.decompress(rest, &mut [0], FlushDecompress::Finish);
    match (status.map_err(damaged)?, stream.total_out() > size as u64) {
        (_, true) => Err(format!("it becomes more than {size} bytes")),
        (Status::StreamEnd, false) => Ok(()),
        (_, false) => Err("it is not whole".to_owned()),
    }
}

/// Fills `bytes`, which has room for `size`.
fn of_zstd(stored: &[u8], size: usize, bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut decoder = FrameDecoder::new();
    // Compressors that know the size take a window of less than twice as much.
    let window = USUAL_WINDOW_BYTES.max((size as u64).saturating_mul(2));
    decoder.set_max_window_size(window.min(decoder.max_window_size()));
    (decoder.decode_all_to_vec(stored, bytes))
        .map_err(|error| format!("it is not what zstd writes ({error})"))
}
