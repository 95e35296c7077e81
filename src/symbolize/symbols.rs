//! Addresses of this process to symbols, which are kept for whoever asks again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hashbrown::{HashMap, HashSet};

use super::find::{Finder, Place, file_offset};
use super::opened::{Opened, Problems};
use super::{ObjectLocations, caught, in_turn, objects};
use crate::Error;
use crate::aggregate::{Layouts, Places};
use crate::profile::{LocationId, Profile};
use crate::sync::Mutex;

/// The most bytes that symbols are kept in: those of some 50,000 addresses.
const KEPT_BYTES: usize = 4 << 20;
/// How many addresses are looked up in symbol tables at once: each takes some hundred bytes
/// meanwhile.
const AT_ONCE: usize = 1 << 14;
/// What an address takes, and what a symbol takes beside its text, in tables that are half full.
const ENTRY_BYTES: usize = 64;
/// What an object takes beside its path.
const OBJECT_BYTES: usize = 512;
/// How long they are kept, so that a debug file that is installed later counts then.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The symbols of the functions that addresses lie in, as the linker has them: mangled.
#[derive(Debug, Default)]
pub(crate) struct Symbols(Mutex<Kept>);

/// What was found, or that there is nothing to be found.
#[derive(Debug, Default)]
struct Kept {
    since: Option<Instant>,
    bytes: usize,
    objects: HashMap<Object, HashMap<u64, Option<Arc<str>>>>,
    symbols: HashSet<Arc<str>>,
}

/// A file, as it is on disk now: with another content it is another object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Object {
    place: PlaceKey,
    build_id: String,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum PlaceKey {
    Vdso,
    File {
        path: PathBuf,
        device: u64,
        inode: u64,
        bytes: u64,
        modified: Option<SystemTime>,
        /// When the content or what else is known of the file changed, which no program can set.
        changed: (i64, i64),
    },
}

/// What one object has at addresses.
struct Found {
    /// `None` where the object may be another the next time.
    object: Option<Object>,
    kept: Vec<(u64, Option<Arc<str>>)>,
    /// Address, position in the object, and symbol.
    new: Vec<(u64, u64, Option<Arc<str>>)>,
    /// Whether there is no symbol where none was found.
    is_certain: bool,
}

impl Symbols {
    /// The symbols of these addresses, in the addresses' order. Those that no symbol covers are
    /// left out.
    pub(crate) fn at(&self, addresses: &[u64]) -> Vec<(u64, Arc<str>)> {
        in_turn(|| self.look_up(addresses))
    }

    fn look_up(&self, addresses: &[u64]) -> Vec<(u64, Arc<str>)> {
        let found = self.find(addresses);
        let mut symbols = Vec::with_capacity(addresses.len());
        let mut kept = self.0.lock();
        for found in found {
            let new = found.new.into_iter().map(|(address, position, symbol)| {
                // What was not found this time may be found the next time.
                let object = found.object.as_ref();
                let object = object.filter(|_| found.is_certain || symbol.is_some());
                (address, kept.keep(object, position, symbol))
            });
            let all = found.kept.into_iter().chain(new);
            symbols.extend(all.filter_map(|(address, symbol)| Some((address, symbol?))));
        }
        symbols.sort_unstable_by_key(|(address, _)| *address);
        symbols.shrink_to_fit();
        symbols
    }

    fn find(&self, addresses: &[u64]) -> Vec<Found> {
        let finder = Finder::of_this_process();
        let profile = locations_of(addresses);
        let objects = objects(&profile);
        let found = objects
            .into_iter()
            .filter_map(|object| self.find_in_object(&finder, &profile, object));
        found.collect()
    }

    fn find_in_object(
        &self,
        finder: &Finder,
        profile: &Profile,
        object: ObjectLocations,
    ) -> Option<Found> {
        let ObjectLocations { mapping, locations } = object;
        let mapping = profile.mapping(mapping);
        let place = finder.place(mapping).ok()?;
        let object = PlaceKey::of(&place).map(|place| Object {
            place,
            build_id: mapping.build_id.clone(),
        });
        let at = |&id: &LocationId| {
            let position = file_offset(profile, id).unwrap_or(u64::MAX);
            (profile.location(id).address, position)
        };
        let (mut kept, mut new) = (Vec::new(), Vec::new());
        let all = self.0.lock();
        let known = object.as_ref().and_then(|object| all.of(object));
        for (address, position) in locations.iter().map(at) {
            match known.and_then(|known| known.get(&position)) {
                Some(symbol) => kept.push((address, symbol.clone())),
                None => new.push((address, position, None)),
            }
        }
        drop(all);
        let is_certain = find_symbols(&place, mapping.filename.as_ref(), &mut new);
        Some(Found {
            object,
            kept,
            new,
            is_certain,
        })
    }
}

impl Kept {
    fn of(&self, object: &Object) -> Option<&HashMap<u64, Option<Arc<str>>>> {
        let is_young = self.since.is_some_and(|since| since.elapsed() < KEPT_FOR);
        self.objects.get(object).filter(|_| is_young)
    }

    /// Keeps what is at a position, as long as there is room, and gives it back.
    fn keep(
        &mut self,
        object: Option<&Object>,
        position: u64,
        symbol: Option<Arc<str>>,
    ) -> Option<Arc<str>> {
        let known = symbol.as_ref().and_then(|symbol| self.symbols.get(symbol));
        let shared = known.cloned().or(symbol);
        let Some(object) = object else {
            return shared;
        };
        let of_object = object.place.path().as_os_str().len() + OBJECT_BYTES;
        let of_symbol = shared
            .as_ref()
            .map_or(0, |symbol| symbol.len() + ENTRY_BYTES);
        let is_old = self.since.is_none_or(|since| since.elapsed() >= KEPT_FOR);
        if is_old || self.bytes + of_object + of_symbol + ENTRY_BYTES > KEPT_BYTES {
            // Rather than what has not been asked for the longest, all: it is found again soon.
            *self = Self {
                since: Some(Instant::now()),
                ..Self::default()
            };
        }
        self.bytes += ENTRY_BYTES;
        if !self.objects.contains_key(object) {
            self.bytes += of_object;
        }
        if (shared.as_ref()).is_some_and(|symbol| !self.symbols.contains(symbol)) {
            self.bytes += of_symbol;
        }
        self.symbols.extend(shared.clone());
        let positions = match self.objects.get_mut(object) {
            Some(positions) => positions,
            None => self.objects.entry(object.clone()).or_default(),
        };
        positions.insert(position, shared.clone());
        shared
    }
}

impl PlaceKey {
    fn path(&self) -> &Path {
        match self {
            Self::Vdso => Path::new(""),
            Self::File { path, .. } => path,
        }
    }

    fn of(place: &Place) -> Option<Self> {
        let path = match place {
            Place::Vdso { .. } => return Some(Self::Vdso),
            Place::File(path) => path,
        };
        let metadata = fs::metadata(path).ok()?;
        Some(Self::File {
            path: path.clone(),
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// A profile that holds the addresses, each once, in what is loaded now.
fn locations_of(addresses: &[u64]) -> Profile {
    let mut profile = Profile::default();
    let layouts = Layouts::of_now();
    let mut places = Places::new(&mut profile, &layouts);
    for &address in addresses {
        places.locate(&mut profile, 0, address);
    }
    profile
}

/// Fills in the symbols at positions in one object, where there are some, and says whether there
/// are none elsewhere: an object that cannot be read now has some perhaps.
fn find_symbols(
    place: &Place,
    filename: &Path,
    positions: &mut [(u64, u64, Option<Arc<str>>)],
) -> bool {
    // Many addresses may have one symbol.
    let mut shared = HashSet::<Arc<str>>::new();
    let mut share = |name: &str| {
        (!name.is_empty()).then(|| shared.get_or_insert_with(name, |name| name.into()).clone())
    };
    let look_up = || {
        let mut problems = Problems::default();
        let opened = Opened::open(place, filename, &mut problems)?;
        let sources = opened.sources(&mut problems)?;
        for positions in positions.chunks_mut(AT_ONCE) {
            let wanted = sources.wanted(positions.iter().map(|&(_, position, _)| Some(position)));
            let symbols = sources.symbols(&wanted, positions.len(), &mut problems);
            for ((.., found), symbol) in positions.iter_mut().zip(&symbols) {
                *found = symbol.as_ref().and_then(|symbol| share(&symbol.name()));
            }
        }
        // What the symbol tables do not know, debug information may.
        let missing = positions
            .iter()
            .map(|(_, position, symbol)| symbol.is_none().then_some(*position));
        let wanted = sources.wanted(missing);
        let places = positions.len();
        sources.frames(&wanted, places, &mut problems, &mut |index, frames| {
            positions[index].2 = frames.last().and_then(|frame| share(&frame.name));
        });
        Ok::<_, Error>(problems.is_empty())
    };
    // Why some have none is nothing that a client asks for.
    caught(look_up).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_linkers_symbols() {
        let here = addresses_get_the_linkers_symbols as *const () as u64;
        let symbols = Symbols::default();
        // Once looked up, once kept.
        for _ in 0..2 {
            let found = symbols.at(&[here + 1, 1, here]);
            let name = &found[0].1;
            assert!(name.starts_with("_R") || name.starts_with("_ZN"), "{name}");
            assert!(name.contains("addresses_get_the_linkers_symbols"), "{name}");
            assert_eq!(found, [(here, name.clone()), (here + 1, name.clone())]);
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::default();
        let object = Object {
            place: PlaceKey::Vdso,
            build_id: String::new(),
        };
        let long = "x".repeat(KEPT_BYTES / 3);
        for position in 0..100 {
            let symbol = format!("{position}{long}");
            let shared = kept.keep(Some(&object), position, Some(symbol.as_str().into()));
            assert_eq!(shared.as_deref(), Some(symbol.as_str()));
            let held: usize = kept.symbols.iter().map(|symbol| symbol.len()).sum();
            assert!(held <= KEPT_BYTES, "{held} bytes");
            assert!(kept.of(&object).unwrap().contains_key(&position));
        }
        assert_eq!(kept.objects[&object].len(), 2);
        // As long as it is young.
        kept.since = Some(Instant::now().checked_sub(KEPT_FOR).unwrap());
        assert!(kept.of(&object).is_none());
        kept.keep(Some(&object), 0, None);
        assert_eq!(kept.of(&object).unwrap().len(), 1);
    }

    #[test]
    fn what_an_unreadable_file_lacks_is_not_certain() {
        let executable = std::env::current_exe().unwrap();
        let unreadable = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(unreadable.path(), "no object").unwrap();
        let is_certain = |path: &Path| {
            // Behind the end of each file.
            let mut wanted = [(0, 1 << 40, None)];
            let is_certain = find_symbols(&Place::File(path.into()), path, &mut wanted);
            assert_eq!(wanted[0].2, None);
            is_certain
        };
        assert!(is_certain(&executable));
        assert!(!is_certain(unreadable.path()));
        assert!(!is_certain(Path::new("/nowhere")));
    }

    #[test]
    fn a_file_with_other_content_is_another_object() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "before").unwrap();
        let place = Place::File(file.path().into());
        let (before, modified) = (
            PlaceKey::of(&place),
            file.as_file().metadata().unwrap().modified().unwrap(),
        );
        assert_eq!(PlaceKey::of(&place), before);
        // As long, and of the same age as far as programs can say. The clock that the kernel dates
        // changes by goes on in steps.
        while PlaceKey::of(&place) == before {
            std::fs::write(file.path(), "behind").unwrap();
            file.as_file().set_modified(modified).unwrap();
        }
    }

    #[test]
    fn a_symbol_is_kept_once() {
        let mut kept = Kept::default();
        let object = Object {
            place: PlaceKey::Vdso,
            build_id: String::new(),
        };
        let first = kept.keep(Some(&object), 1, Some("main".into())).unwrap();
        let second = kept.keep(Some(&object), 2, Some("main".into())).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(kept.bytes, OBJECT_BYTES + 3 * ENTRY_BYTES + "main".len());
    }
}
