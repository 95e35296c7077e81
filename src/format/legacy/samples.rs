//! The samples of a text profile, as they are read.

use super::scan::Scan;
use super::{Lines, is_before_mappings};
use crate::Result;
use crate::format::address_table::AddressTable;
use crate::format::{charge, mapped_objects};
use crate::profile::{Label, LocationId, Profile};

/// Bytes of memory that a sample takes, with a label.
const SAMPLE_MEMORY: usize = 128;
/// Bytes of memory that each address of a sample takes, as read and in its stack.
const ADDRESS_MEMORY: usize = 12;

/// Samples of a profile whose locations are known by their addresses until all have been read.
pub(super) struct Samples {
    pub(super) profile: Profile,
    addresses: AddressTable,
    /// Of the sample being read.
    pub(super) stack: Vec<LocationId>,
    memory: u64,
}

impl Samples {
    pub(super) fn new(profile: Profile, memory: u64) -> Self {
        Self {
            profile,
            addresses: AddressTable::default(),
            stack: Vec::new(),
            memory,
        }
    }

    /// Adds an address to the stack, which is that of a return unless it is a thread's own.
    pub(super) fn push_address(&mut self, address: u64, is_return: bool) -> Result<()> {
        charge(&mut self.memory, ADDRESS_MEMORY)?;
        let address = address.wrapping_sub(u64::from(is_return));
        let location = self.addresses.intern(address, &mut self.memory)?;
        self.stack.push(location);
        Ok(())
    }

    /// Adds the addresses that are left of a line, all of returns.
    pub(super) fn push_addresses(&mut self, mut scan: Scan<'_>) -> Result<()> {
        if !scan.is_all_addresses() {
            return Err(scan.refuse("has something else than addresses at its end"));
        }
        while let Some(address) = scan.address()? {
            self.push_address(address, true)?;
        }
        Ok(())
    }

    /// Adds a sample of the stack, which begins anew.
    pub(super) fn push(&mut self, values: &[i64], labels: &[Label]) -> Result<()> {
        charge(&mut self.memory, SAMPLE_MEMORY)?;
        self.profile.push_sample(&self.stack, values, labels);
        self.stack.clear();
        Ok(())
    }

    /// The profile, with the mappings that the text has after the line that it ended with. In a
    /// file of others, frames are dropped as google/pprof drops them.
    pub(super) fn finish(
        mut self,
        last: &[u8],
        mut lines: Lines<'_>,
        (drop_frames, keep_frames): (&str, &str),
    ) -> Result<Profile> {
        if !is_before_mappings(last) {
            // Other sections have nothing that is known here.
            lines.find(|line| is_before_mappings(line.bytes));
        }
        let objects = mapped_objects::parse(lines.rest(), &mut self.memory)?;
        if !objects.is_exact {
            self.profile.drop_frames = drop_frames.to_owned();
            self.profile.keep_frames = keep_frames.to_owned();
        }
        self.addresses.locate(objects, &mut self.profile);
        Ok(self.profile)
    }
}
