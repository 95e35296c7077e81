//! What a library knows of an address, as lines and functions of a profile.

use hashbrown::HashMap;

use super::debug_info::Frame;
use super::name;
use crate::Profile;
use crate::profile::{Function, FunctionId, Line, LocationId, StringId};

/// A function's symbol or, failing that, its name in the source; and a position in it.
pub(super) type Named<'f> = (&'f str, &'f Frame<'f>);

/// The frames at an address that was found, innermost first, as far as they have names.
pub(super) fn frames<'f>(
    found: &'f [Frame<'f>],
    symbol: Option<&'f str>,
) -> impl Iterator<Item = Named<'f>> {
    let last = found.len().saturating_sub(1);
    let frames = found.iter().enumerate().map(move |(index, frame)| {
        let name = match index == last {
            true => best_name(&frame.name, symbol),
            false => &frame.name,
        };
        (name, frame)
    });
    frames.filter(|(name, _)| !name.is_empty())
}

/// A function's symbol, of the one in debug information and the linker's.
///
/// Of a function that was compiled with line tables alone, debug information has the last part of
/// the name only.
fn best_name<'f>(in_debug_info: &'f str, symbol: Option<&'f str>) -> &'f str {
    match symbol {
        Some(symbol) if in_debug_info.is_empty() => symbol,
        Some(symbol) if is_mangled(symbol) && !is_mangled(in_debug_info) => symbol,
        _ => in_debug_info,
    }
}

fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_R") || symbol.starts_with("_Z")
}

/// The functions of a profile, each once. Two that share a name and all else that is known of them,
/// as static ones of two files do without debug information, are two: they begin at two addresses.
pub(super) struct Functions {
    ids: HashMap<Function, FunctionId>,
    /// Where those of `ids` begin that were met as such, not only inlined.
    begins: HashMap<FunctionId, u64>,
    /// Others of that name, by where they begin.
    others: HashMap<(Function, u64), FunctionId>,
    /// Name and system name of every symbol so far.
    names: HashMap<StringId, (StringId, StringId)>,
}

impl Functions {
    pub(super) fn of(profile: &Profile) -> Self {
        let functions = profile.functions().iter().enumerate();
        Self {
            ids: functions
                .map(|(index, &function)| (function, FunctionId(index as u32)))
                .collect(),
            begins: HashMap::new(),
            others: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// Gives a location its lines, and its mapping the marks that they earn. The last of the frames
    /// is of a function that begins at this address.
    pub(super) fn set_lines<'f>(
        &mut self,
        profile: &mut Profile,
        location: LocationId,
        frames: impl IntoIterator<Item = Named<'f>>,
        begin: u64,
    ) {
        let mut has_filenames = false;
        let mut frames = frames.into_iter().peekable();
        let lines: Vec<Line> =
            std::iter::from_fn(|| frames.next().map(|f| (f, frames.peek().is_none())))
                .map(|((symbol, frame), is_last)| {
                    has_filenames |= !frame.file.is_empty();
                    let begin = is_last.then_some(begin);
                    Line {
                        function: self.intern(profile, symbol, &frame.file, begin),
                        line: frame.line.into(),
                        column: frame.column.into(),
                    }
                })
                .collect();
        if let Some(mapping) = profile.location(location).mapping {
            let mapping = &mut profile.mappings_mut()[mapping.index()];
            mapping.has_functions |= !lines.is_empty();
            mapping.has_filenames |= has_filenames;
            mapping.has_line_numbers |= lines.iter().any(|line| line.line != 0);
            mapping.has_inline_frames |= lines.len() > 1;
        }
        profile.locations_mut()[location.index()].lines = lines;
    }

    fn intern(
        &mut self,
        profile: &mut Profile,
        symbol: &str,
        filename: &str,
        begin: Option<u64>,
    ) -> FunctionId {
        let symbol_id = profile.intern(symbol);
        let (name, system_name) = *self.names.entry(symbol_id).or_insert_with(|| {
            let (name, system_name) = name::names(symbol);
            (profile.intern(&name), profile.intern(system_name))
        });
        let function = Function {
            name,
            system_name,
            filename: profile.intern(filename),
            start_line: 0,
        };
        let id = *self
            .ids
            .entry(function)
            .or_insert_with(|| profile.push_function(function));
        match begin {
            Some(begin) if *self.begins.entry(id).or_insert(begin) != begin => *self
                .others
                .entry((function, begin))
                .or_insert_with(|| profile.push_function(function)),
            _ => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_name_wins() {
        let symbol = "_RNvNtCs1234_7mycrate3foo3new";
        assert_eq!(best_name("new", Some(symbol)), symbol);
        assert_eq!(best_name("", Some("start")), "start");
        assert_eq!(best_name("bsearch", Some("__GI_bsearch")), "bsearch");
        assert_eq!(best_name(symbol, Some("_ZN3foo3newE")), symbol);
        assert_eq!(best_name("new", None), "new");
    }
}
