//! Where the code of an entry of debug information lies (DWARF 5, 2.17).

use gimli::{DwAt, Range};

use super::dwarf::{AttributeValue, Dwarf, Result, Unit};
use super::effort::Effort;

/// The attributes of an entry that say where its code lies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ranges<'d> {
    low: Option<AttributeValue<'d>>,
    high: Option<AttributeValue<'d>>,
    list: Option<AttributeValue<'d>>,
}

impl<'d> Ranges<'d> {
    /// Keeps an attribute, if it is one of them.
    pub(super) fn add(&mut self, name: DwAt, value: AttributeValue<'d>) {
        match name {
            gimli::DW_AT_low_pc => self.low = Some(value),
            gimli::DW_AT_high_pc => self.high = Some(value),
            gimli::DW_AT_ranges => self.list = Some(value),
            _ => {}
        }
    }

    /// Calls `each` with each range that is not empty, whether the linker kept the code or not.
    ///
    /// # Errors
    ///
    /// Where what the attributes refer to is damaged.
    pub(super) fn for_each(
        &self,
        dwarf: &Dwarf<'d>,
        unit: &Unit<'d>,
        effort: &Effort,
        mut each: impl FnMut(Range),
    ) -> Result<()> {
        if let Some(list) = self.list {
            if let Some(mut ranges) = dwarf.attr_ranges(unit, list)? {
                while let Some(raw) = ranges.next_raw()? {
                    effort.take(1)?;
                    ranges.convert_raw(raw)?.map(&mut each);
                }
            }
            return Ok(());
        }
        let (Some(low), Some(high)) = (self.low, self.high) else {
            return Ok(());
        };
        let Some(begin) = dwarf.attr_address(unit, low)? else {
            return Ok(());
        };
        let end = match high.udata_value() {
            Some(size) => Some(begin.wrapping_add(size)),
            None => dwarf.attr_address(unit, high)?,
        };
        if let Some(end) = end.filter(|&end| begin < end) {
            each(Range { begin, end });
        }
        Ok(())
    }
}
