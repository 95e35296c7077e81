//! Where samples are: addresses of code to a profile's locations, and frames that have only a name.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Layouts;
#[cfg(any(feature = "contention", feature = "heap"))]
use crate::profile::SliceTable;
use crate::profile::{Function, Line, Location, LocationId, Mapping, MappingId, Profile};
use crate::sys::modules::{Object, Segment};
#[cfg(any(feature = "contention", feature = "heap"))]
use crate::unwind::StopReason;

/// Addresses to locations, each once.
#[derive(Debug)]
pub(crate) struct Places<'l> {
    layouts: &'l Layouts,
    locations: HashMap<(u32, u64), LocationId>,
    mappings: HashMap<(Segment, Arc<Object>), MappingId>,
    /// Locations by what the file will say of them: two layouts can agree on an address.
    by_mapping: HashMap<(Option<MappingId>, u64), LocationId>,
}

impl<'l> Places<'l> {
    /// Adds what is loaded now to the profile's mappings, the main executable first.
    pub(crate) fn new(profile: &mut Profile, layouts: &'l Layouts) -> Self {
        let mut places = Self {
            layouts,
            locations: HashMap::new(),
            mappings: HashMap::new(),
            by_mapping: HashMap::new(),
        };
        if let Some(current) = layouts.current() {
            // Readers take the first mapping for the main executable.
            let (main, others): (Vec<_>, Vec<_>) =
                current.segments().partition(|(_, object)| object.is_main);
            for (segment, object) in main.into_iter().chain(others) {
                places.map(profile, segment, object);
            }
        }
        places
    }

    fn map(&mut self, profile: &mut Profile, segment: &Segment, object: &Arc<Object>) -> MappingId {
        *self
            .mappings
            .entry((*segment, object.clone()))
            .or_insert_with(|| {
                profile.push_mapping(Mapping {
                    memory_start: segment.start,
                    memory_limit: segment.end,
                    file_offset: segment.file_offset,
                    filename: object.path.clone(),
                    build_id: object.build_id.iter().map(|b| format!("{b:02x}")).collect(),
                    ..Mapping::default()
                })
            })
    }

    /// The location of an address of a layout.
    pub(crate) fn locate(
        &mut self,
        profile: &mut Profile,
        layout: u32,
        address: u64,
    ) -> LocationId {
        if let Some(&known) = self.locations.get(&(layout, address)) {
            return known;
        }
        let mapping = self
            .layouts
            .get(layout)
            .and_then(|layout| layout.find(address))
            .map(|(segment, object)| self.map(profile, segment, object));
        let id = *self
            .by_mapping
            .entry((mapping, address))
            .or_insert_with(|| {
                profile.push_location(Location {
                    mapping,
                    address,
                    ..Location::default()
                })
            });
        self.locations.insert((layout, address), id);
        id
    }
}

/// Locations that no code lies behind, by name.
#[derive(Debug, Default)]
pub(crate) struct NamedFrames(HashMap<&'static str, LocationId>);

impl NamedFrames {
    /// The location of a name.
    pub(crate) fn of(&mut self, profile: &mut Profile, name: &'static str) -> LocationId {
        *self.0.entry(name).or_insert_with(|| {
            let name = profile.intern(name);
            let function = profile.push_function(Function {
                name,
                system_name: name,
                ..Function::default()
            });
            profile.push_location(Location {
                lines: vec![Line {
                    function,
                    line: 0,
                    column: 0,
                }],
                ..Location::default()
            })
        })
    }
}

/// The locations of stacks of callers, by their numbers. Each stack is a word with its layout and,
/// in the upper half, how it ended; and then return addresses.
#[cfg(any(feature = "contention", feature = "heap"))]
pub(crate) fn locate_callers(
    profile: &mut Profile,
    layouts: &Layouts,
    stacks: &SliceTable<u64>,
) -> Vec<Vec<LocationId>> {
    let mut places = Places::new(profile, layouts);
    let mut ends = NamedFrames::default();
    let mut of_stack = |words: &[u64]| {
        let (&first, addresses) = words.split_first().unwrap_or((&0, &[]));
        let (layout, ended) = (first as u32, StopReason::from_u8((first >> 32) as u8));
        // Return addresses all of them: one less is inside of the call.
        let mut stack: Vec<_> = (addresses.iter())
            .map(|address| places.locate(profile, layout, address.wrapping_sub(1)))
            .collect();
        // So that a part of a stack never looks like a whole one.
        stack.extend(super::build::why_truncated(ended).map(|why| ends.of(profile, why)));
        stack
    };
    stacks.iter().map(&mut of_stack).collect()
}
