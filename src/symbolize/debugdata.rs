//! The symbols in `.gnu_debugdata`: the whole symbol table of a stripped object but for what
//! `.dynsym` has, as an object of its own, compressed by xz. Distributions such as Fedora put it
//! into all of their executables and libraries ("MiniDebugInfo" in GDB's manual).

use xz4rust::{XzDecoder, XzNextBlockResult};

use super::compressed::Budget;
use super::object_file::{Bytes, ObjectFile};
use crate::Error;

const SECTION: &str = ".gnu_debugdata";
/// What `xz` asks for at its highest level. Only what is filled takes memory.
const MOST_DICTIONARY: usize = 64 << 20;

/// The object in `.gnu_debugdata`, where there is one.
///
/// # Errors
///
/// Where what is there is damaged.
pub(super) fn read(object: &ObjectFile) -> Result<Option<Bytes>, Error> {
    let Some(compressed) = object.stored(SECTION)? else {
        return Ok(None);
    };
    match uncompressed(compressed) {
        Ok(bytes) => {
            let path = format!("{SECTION} of {}", object.path().display());
            Ok(Some(Bytes::of_copy(path.as_ref(), bytes)))
        }
        Err(error) => Err(object.damaged(SECTION, error)),
    }
}

fn uncompressed(mut compressed: &[u8]) -> Result<Vec<u8>, String> {
    const STEP: usize = 64 << 10;
    let most = Budget::new().most_bytes(compressed.len()) as usize;
    let mut decoder = XzDecoder::in_heap_with_alloc_dict_size(0, MOST_DICTIONARY);
    let mut bytes = Vec::new();
    loop {
        let filled = bytes.len();
        if filled > most {
            return Err(format!("it becomes more than {most} bytes"));
        }
        bytes.resize(filled + STEP, 0);
        let step = decoder.decode(compressed, &mut bytes[filled..]);
        match step.map_err(|error| format!("it is not what xz writes ({error})"))? {
            XzNextBlockResult::NeedMoreData(0, 0) => return Err("it is not whole".to_owned()),
            XzNextBlockResult::NeedMoreData(read, written) => {
                compressed = &compressed[read..];
                bytes.truncate(filled + written);
            }
            XzNextBlockResult::EndOfStream(_, written) => {
                bytes.truncate(filled + written);
                return Ok(bytes);
            }
        }
    }
}
