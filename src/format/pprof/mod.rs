//! google/pprof's profile.proto, bare or in gzip.
//!
//! Source: <https://github.com/google/pprof/blob/main/proto/profile.proto>, and what its reader
//! insists on (`profile/proto.go`, `encode.go`, `profile.go`).

mod decode;
mod encode;
mod ids;
mod messages;
mod samples;
mod strings;
mod wire;

use std::io::{BufRead, Read, Write};

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::{WriteError, invalid};
use crate::{Profile, Result};

/// The gzip level: `docs/decisions.md` has the measurements.
const LEVEL: u32 = 1;

pub(super) fn write_gzip(profile: &Profile, out: &mut impl Write) -> Result<(), WriteError> {
    let mut gzip = GzEncoder::new(out, flate2::Compression::new(LEVEL));
    encode::write(profile, &mut gzip)?;
    gzip.finish()?;
    Ok(())
}

pub(super) fn write_uncompressed(
    profile: &Profile,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    encode::write(profile, out)
}

pub(super) fn read_gzip(bytes: &[u8], limit: u64) -> Result<Profile> {
    let mut rest = bytes;
    let offset = |rest: &[u8]| bytes.len() - rest.len();
    let gzip = GzDecoder::new(&mut rest);
    let mut reader = std::io::BufReader::with_capacity(1 << 16, gzip);
    let profile = decode::read(&mut reader, limit);
    let is_at_end = reader.fill_buf().is_ok_and(<[u8]>::is_empty);
    drop(reader);
    // The first member alone is often no profile, so this comes before what is wrong with it.
    if is_at_end && rest.starts_with(&[0x1f, 0x8b]) {
        return Err(invalid(format!(
            "the profile is a gzip of several members, the second at byte {}, as when compressed files are put one \
             after the other: a profile is one gzip stream; uncompress it and read that, or read profiles one by one",
            offset(rest)
        )));
    }
    let profile = profile?;
    // decode::read went to the end of the stream, so that its checksum has been compared.
    debug_assert!(is_at_end);
    if !rest.is_empty() {
        return Err(invalid(format!(
            "{} bytes follow the gzip stream of the profile, which ends at byte {}: a profile is one gzip stream and \
             nothing else",
            rest.len(),
            offset(rest)
        )));
    }
    Ok(profile)
}

pub(super) fn read_uncompressed(bytes: &[u8], limit: u64) -> Result<Profile> {
    decode::read(&mut Read::take(bytes, u64::MAX), limit)
}
