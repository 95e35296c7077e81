//! The waist of the house: a profile as pure data, in profile.proto's own words.
//!
//! Recordings are turned into a [`Profile`], formats are read into one and written from one, and
//! nothing else passes between the two halves. There is no I/O here and no unsafe code.
//!
//! Tables hold each thing once and hand out typed handles; a handle is made only by the table that
//! holds its thing, so a profile never refers to what is not there. Samples are stored by columns:
//! a sample is a stack, a set of labels and one value for each sample type.
#![forbid(unsafe_code)]

mod graph;
mod location;
#[cfg(feature = "http")]
mod merge;
#[cfg(any(feature = "contention", feature = "heap"))]
mod plumbing;
mod slice_table;
mod stack_table;
mod string_table;
mod text;
mod top;
mod unit;
mod value_type;

pub use location::{Function, Line, Location, Mapping};
pub(crate) use slice_table::SliceTable;
pub use stack_table::StackTable;
pub use string_table::StringTable;
pub use top::{Top, TopRow};
pub use value_type::ValueType;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// The position in its table, from 0.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

handles! {
    /// A string of a [`StringTable`]; the default is the empty string.
    StringId;
    /// A [`Mapping`] of a profile.
    MappingId;
    /// A [`Function`] of a profile.
    FunctionId;
    /// A [`Location`] of a profile.
    LocationId;
    /// A chain of locations in a [`StackTable`].
    StackId;
}

/// A set of labels of a profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelSetId(u32);

/// A tag on a sample (profile.proto's `Label`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Label {
    /// The tag's name.
    pub key: StringId,
    /// Its value.
    pub value: LabelValue,
}

/// The value of a [`Label`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LabelValue {
    /// A text.
    Str(StringId),
    /// A number and its unit.
    Num {
        /// The number.
        value: i64,
        /// What it counts; profile readers drop a 0 without a unit.
        unit: StringId,
    },
}

/// One sample of a profile, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'p> {
    /// The call chain, leaf first.
    pub stack: &'p [LocationId],
    /// The chain's handle: samples of equal chains share it.
    pub stack_id: StackId,
    /// One value for each of [`Profile::sample_types`].
    pub values: &'p [i64],
    /// The tags.
    pub labels: &'p [Label],
}

/// A profile: samples of call chains with values and labels, and the tables they refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    sample_types: Vec<ValueType>,
    /// What one sample of [`period`](Self::period) stands for: `cpu`/`nanoseconds` for a CPU
    /// profile.
    pub period_type: ValueType,
    /// Units of `period_type` between samples.
    pub period: i64,
    /// Start of the recording: nanoseconds since the Unix epoch; 0 where unknown.
    pub time_nanos: i64,
    /// Length of the recording, in nanoseconds.
    pub duration_nanos: i64,
    /// Remarks for people.
    pub comments: Vec<String>,
    /// The sample type that viewers show first; empty for the last one.
    pub default_sample_type: String,
    /// Regular expression: frames whose function matches it fully are dropped by viewers, with what
    /// they call.
    pub drop_frames: String,
    /// Regular expression: frames that are kept although `drop_frames` matches.
    pub keep_frames: String,
    /// A page about this kind of profile; http or https, or empty.
    pub doc_url: String,
    strings: StringTable,
    mappings: Vec<Mapping>,
    functions: Vec<Function>,
    locations: Vec<Location>,
    stacks: StackTable,
    label_sets: LabelSets,
    samples: Samples,
}

/// The columns of the samples.
#[derive(Clone, Debug, Default, PartialEq)]
struct Samples {
    stacks: Vec<StackId>,
    label_sets: Vec<u32>,
    /// `sample_types.len()` values a sample.
    values: Vec<i64>,
}

/// Every distinct set of labels once; set 0 is the empty one.
#[derive(Clone, Debug, PartialEq)]
struct LabelSets {
    sets: Vec<Box<[Label]>>,
    index: hashbrown::HashMap<Box<[Label]>, u32>,
}

impl Default for LabelSets {
    fn default() -> Self {
        Self {
            sets: vec![Box::default()],
            index: std::iter::once((Box::default(), 0)).collect(),
        }
    }
}

impl LabelSets {
    fn intern(&mut self, labels: &[Label]) -> u32 {
        if let Some(&id) = self.index.get(labels) {
            return id;
        }
        let id = self.sets.len() as u32;
        self.sets.push(labels.into());
        self.index.insert(labels.into(), id);
        id
    }
}

impl Profile {
    /// A profile without samples, whose samples will have one value for each of these types.
    pub fn new(sample_types: Vec<ValueType>) -> Self {
        Self {
            sample_types,
            ..Self::default()
        }
    }

    /// The types of a sample's values.
    pub fn sample_types(&self) -> &[ValueType] {
        &self.sample_types
    }

    /// All texts that functions and labels refer to.
    pub fn strings(&self) -> &StringTable {
        &self.strings
    }

    /// The text behind a handle.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(id)
    }

    /// The handle of a text, which is added if it is new.
    pub fn intern(&mut self, string: &str) -> StringId {
        self.strings.intern(string)
    }

    /// The mappings; the first is the main executable.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The mappings, to be changed.
    pub fn mappings_mut(&mut self) -> &mut [Mapping] {
        &mut self.mappings
    }

    /// The mapping behind a handle.
    pub fn mapping(&self, id: MappingId) -> &Mapping {
        &self.mappings[id.index()]
    }

    /// Adds a mapping.
    pub fn push_mapping(&mut self, mapping: Mapping) -> MappingId {
        self.mappings.push(mapping);
        MappingId(self.mappings.len() as u32 - 1)
    }

    /// The functions.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function behind a handle.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// Adds a function. Equal functions are not united here: whoever adds them keeps each once.
    pub fn push_function(&mut self, function: Function) -> FunctionId {
        self.functions.push(function);
        FunctionId(self.functions.len() as u32 - 1)
    }

    /// The locations.
    pub fn locations(&self) -> &[Location] {
        &self.locations
    }

    /// The locations, to be changed.
    pub fn locations_mut(&mut self) -> &mut [Location] {
        &mut self.locations
    }

    /// The location behind a handle.
    pub fn location(&self, id: LocationId) -> &Location {
        &self.locations[id.index()]
    }

    /// Adds a location. Equal locations are not united here: whoever adds them keeps each once.
    pub fn push_location(&mut self, location: Location) -> LocationId {
        self.locations.push(location);
        LocationId(self.locations.len() as u32 - 1)
    }

    /// The distinct stacks of the samples.
    pub fn stacks(&self) -> &StackTable {
        &self.stacks
    }

    /// How many samples there are.
    pub fn sample_count(&self) -> usize {
        self.samples.stacks.len()
    }

    /// The samples in the order in which they were added.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Sample<'_>> {
        (0..self.sample_count()).map(|i| self.sample(i))
    }

    /// Each sample's stack and values, for whoever adds them up by stacks.
    pub(crate) fn stack_values(&self) -> impl Iterator<Item = (StackId, &[i64])> {
        // Without sample types there are no values, and no chunks.
        let values = self
            .samples
            .values
            .chunks_exact(self.sample_types.len().max(1));
        self.samples.stacks.iter().copied().zip(values)
    }

    /// The sample at a position.
    ///
    /// # Panics
    ///
    /// If there are not that many samples.
    pub fn sample(&self, index: usize) -> Sample<'_> {
        let width = self.sample_types.len();
        let stack_id = self.samples.stacks[index];
        Sample {
            stack: self.stacks.get(stack_id),
            stack_id,
            values: &self.samples.values[index * width..(index + 1) * width],
            labels: &self.label_sets.sets[self.samples.label_sets[index] as usize],
        }
    }

    /// Adds a sample: a call chain (leaf first), a value for each sample type, and labels.
    ///
    /// # Panics
    ///
    /// If the number of values is not the number of sample types.
    pub fn push_sample(&mut self, stack: &[LocationId], values: &[i64], labels: &[Label]) {
        assert_eq!(
            values.len(),
            self.sample_types.len(),
            "a sample has one value for each sample type"
        );
        self.samples.stacks.push(self.stacks.intern(stack));
        self.samples.label_sets.push(self.label_sets.intern(labels));
        self.samples.values.extend_from_slice(values);
    }

    /// A profile whose samples will refer to stacks that are interned already, for a reader that
    /// met the samples before the rest.
    pub(crate) fn with_stacks(sample_types: Vec<ValueType>, stacks: StackTable) -> Self {
        Self {
            sample_types,
            stacks,
            ..Self::default()
        }
    }

    /// The handle of a set of labels, for [`push_interned`](Self::push_interned).
    pub(crate) fn intern_labels(&mut self, labels: &[Label]) -> LabelSetId {
        LabelSetId(self.label_sets.intern(labels))
    }

    /// Adds a sample whose stack and labels are interned already.
    ///
    /// # Panics
    ///
    /// If the number of values is not the number of sample types.
    pub(crate) fn push_interned(&mut self, stack: StackId, values: &[i64], labels: LabelSetId) {
        assert_eq!(
            values.len(),
            self.sample_types.len(),
            "a sample has one value for each sample type"
        );
        self.samples.stacks.push(stack);
        self.samples.label_sets.push(labels.0);
        self.samples.values.extend_from_slice(values);
    }

    /// Makes room for this many more stacks, which have so many locations together.
    pub(crate) fn reserve_stacks(&mut self, stacks: usize, locations: usize) {
        self.stacks.reserve(stacks, locations);
    }

    /// Makes room for this many more samples.
    pub(crate) fn reserve_samples(&mut self, additional: usize) {
        self.samples.stacks.reserve_exact(additional);
        self.samples.label_sets.reserve_exact(additional);
        self.samples
            .values
            .reserve_exact(additional * self.sample_types.len());
    }

    /// The position of the sample type that viewers show first: the default one, else the last.
    pub fn default_sample_index(&self) -> usize {
        self.sample_types
            .iter()
            .position(|t| t.r#type == self.default_sample_type)
            .unwrap_or(self.sample_types.len().saturating_sub(1))
    }

    /// The sum over all samples of the value at `index` of [`sample_types`](Self::sample_types); it
    /// stops at the limits of its type.
    pub fn total(&self, index: usize) -> i64 {
        self.stack_values()
            .fold(0, |sum, (_, values)| sum.saturating_add(values[index]))
    }
}
