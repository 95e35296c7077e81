//! The addresses of a profile in a format that has nothing but addresses.
//!
//! A location without one gets that of a [placeholder](super::mapped_objects).

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::NO_STACK;
use super::mapped_objects::{
    FIRST_PLACEHOLDER, PLACEHOLDER_LIMIT, Placeholder, is_placeholder_name,
};
use crate::profile::{Location, LocationId, Profile};

/// The name that stands for frames without an address whose name the format cannot hold.
const NO_ADDRESS: &str = "[no-address]";

/// Names of frames that recordings have. Each has an address of its own in all files, so that
/// `/pprof/symbol` can name it for a client that has a file of this process. The order is that of
/// the addresses.
const WELL_KNOWN: [&str; 11] = [
    "[lost]",
    "[unsampled]",
    "[kernel]",
    NO_ADDRESS,
    NO_STACK,
    "[kernel: io_uring worker]",
    "[kernel: worker]",
    "[truncated: depth]",
    "[truncated: no unwind data]",
    "[truncated: unreadable]",
    "[truncated: not advancing]",
];

/// The name that this address stands for in all files.
#[cfg(feature = "http")]
pub(crate) fn well_known_at(address: u64) -> Option<&'static str> {
    let mut names = WELL_KNOWN.into_iter().enumerate();
    names.find_map(|(i, name)| (place(i) == address).then_some(name))
}

/// A name as it is written, where names are words. [`as_it_was`] undoes that for the names of
/// recordings.
fn as_written(name: &str) -> Cow<'_, str> {
    match name.contains(' ') {
        true => Cow::Owned(name.replace(' ', "_")),
        false => Cow::Borrowed(name),
    }
}

/// The name that was written so.
pub(super) fn as_it_was(written: &str) -> &str {
    let mut names = WELL_KNOWN.into_iter();
    names
        .find(|name| as_written(name) == written)
        .unwrap_or(written)
}

/// The address of a placeholder by its number.
fn place(number: usize) -> u64 {
    FIRST_PLACEHOLDER + 2 * number as u64
}

/// The addresses that locations are written with.
pub(super) struct WrittenAddresses {
    /// By location; behind the profile's own come those of placeholders.
    of_location: Vec<u64>,
    /// The first location with the same address, which stands for all of them.
    canonical: Vec<LocationId>,
    placeholders: Vec<Placeholder>,
    location_of_placeholder: HashMap<String, LocationId>,
    taken: HashSet<u64>,
    next_free: u64,
}

impl WrittenAddresses {
    pub(super) fn new(profile: &Profile) -> Self {
        let locations = profile.locations();
        let reserved = FIRST_PLACEHOLDER..=PLACEHOLDER_LIMIT;
        let own = locations.iter().map(|l| l.address);
        let mut addresses = Self {
            of_location: locations.iter().map(|l| l.address).collect(),
            canonical: Vec::with_capacity(locations.len()),
            placeholders: Vec::new(),
            location_of_placeholder: HashMap::new(),
            taken: own.filter(|a| reserved.contains(a)).collect(),
            next_free: place(WELL_KNOWN.len()),
        };
        let mut first: HashMap<u64, LocationId> = HashMap::with_capacity(locations.len());
        for (i, location) in locations.iter().enumerate() {
            let id = LocationId(i as u32);
            let canonical = match location.address {
                0 => {
                    let placeholder = addresses.placeholder(name_of(profile, location));
                    addresses.of_location[i] = addresses.of(placeholder);
                    placeholder
                }
                address => *first.entry(address).or_insert(id),
            };
            addresses.canonical.push(canonical);
        }
        addresses
    }

    /// Whether stacks of these locations are written as chains of addresses that differ, because no
    /// two locations are written alike, wherever they are in a stack.
    pub(super) fn tell_stacks_apart(&self) -> bool {
        let mut canonical = self.canonical.clone();
        canonical.sort_unstable();
        let is_once = canonical.windows(2).all(|pair| pair[0] != pair[1]);
        is_once && !self.of_location.contains(&u64::MAX)
    }

    /// The address that a location is written as.
    pub(super) fn of(&self, id: LocationId) -> u64 {
        self.of_location[id.index()]
    }

    /// The location that stands for this one and for all others that are written alike.
    pub(super) fn canonical(&self, id: LocationId) -> LocationId {
        self.canonical[id.index()]
    }

    pub(super) fn placeholders(&self) -> &[Placeholder] {
        &self.placeholders
    }

    /// The location that stands for a caller: the last address of all has no return address after
    /// it.
    pub(super) fn as_caller(&mut self, id: LocationId) -> LocationId {
        match self.of_location[id.index()] {
            u64::MAX => self.placeholder(NO_ADDRESS),
            _ => self.canonical[id.index()],
        }
    }

    pub(super) fn no_stack(&mut self) -> LocationId {
        self.placeholder(NO_STACK)
    }

    /// The location that stands for a name.
    fn placeholder(&mut self, name: &str) -> LocationId {
        if let Some(&id) = self.location_of_placeholder.get(name) {
            return id;
        }
        let own = WELL_KNOWN
            .iter()
            .position(|known| *known == name)
            .map(place);
        let Some(address) = own
            .filter(|own| !self.taken.contains(own))
            .or_else(|| self.next_free(name))
        else {
            return self.placeholder(NO_ADDRESS);
        };
        let id = LocationId(self.of_location.len() as u32);
        self.of_location.push(address);
        self.placeholders.push(Placeholder {
            address,
            name: as_written(name).into_owned(),
        });
        self.location_of_placeholder.insert(name.to_owned(), id);
        id
    }

    /// An address that nothing has yet. The last one is kept for all names that there is no room
    /// for.
    fn next_free(&mut self, name: &str) -> Option<u64> {
        while self.taken.contains(&self.next_free) {
            self.next_free += 2;
        }
        let is_last = self.next_free + 2 >= PLACEHOLDER_LIMIT;
        if is_last && name != NO_ADDRESS {
            return None;
        }
        let address = self.next_free;
        self.next_free += 2;
        Some(address)
    }
}

/// The name to write for a location without an address.
fn name_of<'p>(profile: &'p Profile, location: &Location) -> &'p str {
    let function = location.lines.last().map(|l| profile.function(l.function));
    match function.map(|f| profile.string(f.name)) {
        Some(name) if is_placeholder_name(&as_written(name)) => name,
        _ => NO_ADDRESS,
    }
}
