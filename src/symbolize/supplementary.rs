//! The file that holds what the debug information of several objects has in common, as `dwz` moves
//! it there: Debian and Fedora do so with their debug packages.
//!
//! `.gnu_debugaltlink` has the name of the file and its build id; `.debug_sup` of DWARF 5 (7.3.6)
//! has the name of the file and a checksum that the file repeats. Looked for as GDB does: by the
//! name, relative to the file that has the link; and then by the id, where debug files lie.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::debug_file;
use super::object_file::{Bytes, ObjectFile, hex};
use crate::{Error, ErrorKind};

const ALT_LINK: &str = ".gnu_debugaltlink";
const SUP: &str = ".debug_sup";

/// What an object says of its supplementary file.
struct Link {
    name: PathBuf,
    /// In hexadecimal digits.
    id: String,
    kind: Kind,
}

/// What a supplementary file is told by.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    BuildId,
    Checksum,
}

/// The supplementary file of an object that has debug information, if there is one.
///
/// # Errors
///
/// Where there should be one: what is said of it is damaged, or no such file can be found or read.
pub(super) fn find(object: &ObjectFile) -> Result<Option<Bytes>, Error> {
    let Some(link) = link(object)? else {
        return Ok(None);
    };
    // Relative to the file itself, not to a link to it.
    let path = object.path().canonicalize();
    let directory = path.as_deref().ok().and_then(Path::parent);
    let by_name = directory.unwrap_or(Path::new("")).join(&link.name);
    let mut outcome = None;
    for path in [by_name]
        .into_iter()
        .chain(debug_file::by_build_id(&link.id))
    {
        if !path.is_absolute() || !debug_file::is_there(&path) {
            continue;
        }
        match Bytes::of_file(&path).and_then(|file| link.check(&file).map(|()| file)) {
            Ok(file) => return Ok(Some(file)),
            Err(error) => drop(outcome.get_or_insert(error)),
        }
    }
    Err(outcome.unwrap_or_else(|| {
        let message = format!(
            "the supplementary file of {} cannot be found: {}",
            object.path().display(),
            link.name.display()
        );
        Error::new(ErrorKind::Io, message)
    }))
}

impl Link {
    /// Refuses a file that is not the one that is meant.
    fn check(&self, file: &Bytes) -> Result<(), Error> {
        let file = ObjectFile::parse(file)?;
        let (what, found) = match self.kind {
            Kind::BuildId => ("build id", file.build_id()?),
            Kind::Checksum => {
                let sup = file.stored(SUP)?.unwrap_or_default();
                let sup = parse_sup(sup).filter(|sup| sup.is_supplementary);
                (
                    "checksum",
                    sup.map(|sup| hex(sup.checksum)).unwrap_or_default(),
                )
            }
        };
        if found == self.id {
            return Ok(());
        }
        let found = match found.as_str() {
            "" => "none",
            found => found,
        };
        let message = format!(
            "the supplementary file is of another build: its {what} is {found}, not {}",
            self.id
        );
        Err(file.damaged("the debug information", message))
    }
}

fn link(object: &ObjectFile) -> Result<Option<Link>, Error> {
    let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
    if let Some(bytes) = object.stored(ALT_LINK)? {
        // A name, a zero byte, a build id.
        let end = bytes.iter().position(|&byte| byte == 0);
        let parsed = end.map(|end| (&bytes[..end], &bytes[end + 1..]));
        let Some((name, id)) = parsed.filter(|(name, id)| !name.is_empty() && !id.is_empty())
        else {
            return Err(object.damaged(ALT_LINK, "it holds no name and build id"));
        };
        return Ok(Some(Link {
            name: path(name),
            id: hex(id),
            kind: Kind::BuildId,
        }));
    }
    let Some(bytes) = object.stored(SUP)? else {
        return Ok(None);
    };
    let sup = parse_sup(bytes).ok_or_else(|| object.damaged(SUP, "it is not whole"))?;
    Ok((!sup.is_supplementary).then(|| Link {
        name: path(sup.name),
        id: hex(sup.checksum),
        kind: Kind::Checksum,
    }))
}

struct Sup<'d> {
    is_supplementary: bool,
    name: &'d [u8],
    checksum: &'d [u8],
}

/// A version of two bytes, whether the file is the supplementary one, the name of the other file
/// with a zero byte, the length of the checksum (LEB128), and the checksum.
fn parse_sup(bytes: &[u8]) -> Option<Sup<'_>> {
    let (&[5, 0, is_supplementary], rest) = bytes.split_first_chunk()? else {
        return None;
    };
    let end = rest.iter().position(|&byte| byte == 0)?;
    // No checksum takes more than 127 bytes.
    let (&len, checksum) = rest[end + 1..].split_first()?;
    Some(Sup {
        is_supplementary: is_supplementary != 0,
        name: &rest[..end],
        checksum: checksum.get(..usize::from(len)).filter(|_| len < 128)?,
    })
}
