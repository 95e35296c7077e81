//! What a library knows of an address, as lines and functions of a profile.

use blazesym::symbolize::{CodeInfo, Sym};
use hashbrown::HashMap;

use super::name;
use crate::Profile;
use crate::profile::{Function, FunctionId, Line, LocationId, StringId};

/// A function's symbol or, failing that, its name in the source; and a position in it.
pub(super) type Frame<'f> = (&'f str, Option<&'f CodeInfo<'f>>);

/// The frames at an address that was found, innermost first.
pub(super) fn frames<'f>(
    found: &'f Sym<'f>,
    symbol: Option<&'f str>,
) -> impl Iterator<Item = Frame<'f>> {
    let name = best_name(&found.name, symbol);
    let inlined = found.inlined.iter().rev();
    inlined
        .map(|frame| (frame.name.as_ref(), frame.code_info.as_ref()))
        .chain([(name, found.code_info.as_deref())])
        .filter(|(name, _)| !name.is_empty())
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

/// The functions of a profile, each once.
pub(super) struct Functions {
    ids: HashMap<Function, FunctionId>,
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
            names: HashMap::new(),
        }
    }

    /// Gives a location its lines, and its mapping the marks that they earn.
    pub(super) fn set_lines<'f>(
        &mut self,
        profile: &mut Profile,
        location: LocationId,
        frames: impl IntoIterator<Item = Frame<'f>>,
    ) {
        let mut has_filenames = false;
        let lines: Vec<Line> = frames
            .into_iter()
            .map(|(symbol, position)| {
                has_filenames |= position.is_some();
                Line {
                    function: self.intern(profile, symbol, position),
                    line: position.and_then(|at| at.line).unwrap_or(0).into(),
                    column: position.and_then(|at| at.column).unwrap_or(0).into(),
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
        position: Option<&CodeInfo>,
    ) -> FunctionId {
        let symbol_id = profile.intern(symbol);
        let (name, system_name) = *self.names.entry(symbol_id).or_insert_with(|| {
            let (name, system_name) = name::names(symbol);
            (profile.intern(&name), profile.intern(system_name))
        });
        let path = position.map(CodeInfo::to_path);
        let function = Function {
            name,
            system_name,
            filename: path.map_or_else(StringId::default, |path| {
                profile.intern(&path.to_string_lossy())
            }),
            start_line: 0,
        };
        *self
            .ids
            .entry(function)
            .or_insert_with(|| profile.push_function(function))
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
