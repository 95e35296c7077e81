//! Which object an address belonged to when it was sampled.
//!
//! Objects come and go while a recording runs, and an address can mean two things at two times.
//! Most recordings never see that, so all objects that do not overlap share one *layout*, the gone
//! ones included, and a new layout begins only where an object takes another's place.

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "http")]
use crate::sys::maps::Maps;
#[cfg(feature = "http")]
use crate::sys::modules;
use crate::sys::modules::{Object, Segment};

/// Objects that never overlapped: segments by their start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout(BTreeMap<u64, (Segment, Arc<Object>)>);

impl Layout {
    /// The object and segment that hold an address.
    pub(crate) fn find(&self, address: u64) -> Option<(&Segment, &Arc<Object>)> {
        let (_, (segment, object)) = self.0.range(..=address).next_back()?;
        (address < segment.end).then_some((segment, object))
    }

    /// All segments, by address.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (&Segment, &Arc<Object>)> {
        self.0.values().map(|(segment, object)| (segment, object))
    }

    fn conflicts(&self, object: &Object) -> bool {
        object.code.iter().any(|segment| {
            // The segments are disjoint, so of those that begin before its end the last reaches
            // farthest.
            self.0
                .range(..segment.end)
                .next_back()
                .is_some_and(|(_, (known, owner))| known.overlaps(segment) && **owner != *object)
        })
    }

    fn insert(&mut self, object: &Arc<Object>) {
        for segment in &object.code {
            self.0
                .entry(segment.start)
                .or_insert_with(|| (*segment, object.clone()));
        }
    }
}

/// All layouts of a recording, and which one each epoch of the module snapshots belongs to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layouts {
    layouts: Vec<Layout>,
    /// First epoch of each layout.
    since: Vec<u32>,
}

impl Layouts {
    /// What is loaded now, as layout 0.
    #[cfg(feature = "http")]
    pub(crate) fn of_now() -> Self {
        // Without a word of what is mapped, nothing is found.
        let objects = modules::objects(&Maps::read().unwrap_or_default());
        let objects: Vec<Arc<Object>> = objects.into_iter().map(Arc::new).collect();
        let mut layouts = Self::default();
        layouts.observe(0, objects.iter());
        layouts
    }

    /// Takes note of the objects that are loaded from `epoch` on.
    pub(crate) fn observe<'o>(
        &mut self,
        epoch: u32,
        objects: impl Iterator<Item = &'o Arc<Object>> + Clone,
    ) {
        let fits = self
            .layouts
            .last()
            .is_some_and(|last| !objects.clone().any(|object| last.conflicts(object)));
        if !fits {
            self.layouts.push(Layout::default());
            self.since.push(epoch);
        }
        if let Some(last) = self.layouts.last_mut() {
            objects.for_each(|object| last.insert(object));
        }
    }

    /// The number of the layout that an epoch's addresses are of.
    pub(crate) fn of_epoch(&self, epoch: u32) -> u32 {
        self.since
            .partition_point(|&since| since <= epoch)
            .saturating_sub(1) as u32
    }

    /// The layout of a number.
    pub(crate) fn get(&self, number: u32) -> Option<&Layout> {
        self.layouts.get(number as usize)
    }

    /// The layout that holds what is loaded now.
    pub(crate) fn current(&self) -> Option<&Layout> {
        self.layouts.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str, start: u64, end: u64) -> Arc<Object> {
        Arc::new(Object {
            path: path.into(),
            build_id: Vec::new(),
            is_main: false,
            code: vec![Segment {
                start,
                end,
                file_offset: 0,
            }],
        })
    }

    fn path_at(layouts: &Layouts, epoch: u32, address: u64) -> Option<&str> {
        let layout = layouts.get(layouts.of_epoch(epoch))?;
        Some(layout.find(address)?.1.path.as_str())
    }

    #[test]
    fn an_address_means_what_was_there_then() {
        let (main, first, second) = (
            object("main", 10, 20),
            object("first", 30, 40),
            object("second", 35, 50),
        );
        let mut layouts = Layouts::default();
        layouts.observe(1, [&main].into_iter());
        layouts.observe(2, [&main, &first].into_iter());
        layouts.observe(3, [&main].into_iter());
        layouts.observe(4, [&main, &second].into_iter());
        layouts.observe(5, [&main, &second].into_iter());
        assert_eq!(path_at(&layouts, 1, 15), Some("main"));
        assert_eq!(
            path_at(&layouts, 1, 36),
            Some("first"),
            "it was about to come"
        );
        assert_eq!(path_at(&layouts, 3, 36), Some("first"), "still remembered");
        assert_eq!(path_at(&layouts, 4, 36), Some("second"));
        assert_eq!(path_at(&layouts, 9, 15), Some("main"));
        assert_eq!(path_at(&layouts, 4, 31), None);
        assert_eq!(path_at(&layouts, 4, 50), None);
        assert_eq!(layouts.layouts.len(), 2);
    }

    #[test]
    fn the_same_object_at_the_same_place_is_no_conflict() {
        let mut layouts = Layouts::default();
        for epoch in 1..100 {
            let again = object("lib", 30, 40);
            layouts.observe(epoch, [&again].into_iter());
        }
        assert_eq!(layouts.layouts.len(), 1);
    }
}
