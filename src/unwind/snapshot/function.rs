//! Where a function begins and ends.

use std::ops::Range;

use super::Snapshot;
use crate::sys::modules::{Module, Section};

impl Snapshot {
    /// The code around a place that unwind data describes as one function; `None` where there is no
    /// such data, or no search table for it. *Async-signal-safe.*
    pub(crate) fn function_of(&self, place: u64) -> Option<Range<u64>> {
        let code = self.code_of(place)?;
        let module = self.modules.get(code.module?)?.module();
        let link_time = function_of(module, place.wrapping_sub(module.bias))?;
        let in_process = |address: u64| address.wrapping_add(module.bias);
        let function = in_process(link_time.start)..in_process(link_time.end);
        (function.contains(&place) && code.range.end >= function.end).then_some(function)
    }
}

/// The same by link-time addresses. The table has been [checked](crate::sys::eh_frame_hdr).
fn function_of(module: &Module, place: u64) -> Option<Range<u64>> {
    /// Before the table.
    const HEADER: usize = 12;
    let Section { address, bytes } = module.eh_frame_hdr.as_ref()?;
    let count = u32_at(bytes, HEADER - 4)? as usize;
    let (entries, _) = bytes.get(HEADER..)?.as_chunks::<8>();
    let entries = entries.get(..count)?;
    let pointers = |&[a, b, c, d, e, f, g, h]: &[u8; 8]| {
        [[a, b, c, d], [e, f, g, h]].map(|pointer| {
            let offset = i32::from_ne_bytes(pointer);
            address.wrapping_add_signed(offset.into())
        })
    };
    let after = entries.partition_point(|entry| pointers(entry)[0] <= place);
    let [start, description] = pointers(entries.get(after.checked_sub(1)?)?);
    let size = size_of_function(module.eh_frame.as_ref()?, description, start)?;
    Some(start..start.checked_add(size.into())?)
}

/// The bytes of code that a frame description entry is for. What the code begins with is known,
/// which tells whether the pointers are of the usual form: 4 bytes that count from their own place.
fn size_of_function(eh_frame: &Section, description: u64, start: u64) -> Option<u32> {
    let at = usize::try_from(description.checked_sub(eh_frame.address)?).ok()?;
    let begin = at.checked_add(8)?;
    let relative = u32_at(&eh_frame.bytes, begin)?.cast_signed();
    let place = eh_frame.address.wrapping_add(begin as u64);
    (place.wrapping_add_signed(relative.into()) == start).then_some(())?;
    u32_at(&eh_frame.bytes, begin.checked_add(4)?)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}
