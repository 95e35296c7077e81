//! Addresses to functions, files, lines and inlined frames, by debug information.
//!
//! gimli parses. What it parses is looked at and not kept: of a unit at a wanted address each entry
//! and each row of its table of lines, of any other unit the first entry.

use std::borrow::Cow;
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;

use gimli::{DebugInfoOffset, DwarfSections, DwoId};
use hashbrown::HashMap;

use super::compressed::Budget;
use super::damage::{Damage, damaged};
use super::dwarf::{is_needed, reader};
use super::effort::{BYTES_PER_STEP, Effort};
use super::entries::{Call, Calls, Site};
use super::lines::Lines;
use super::object_file::ObjectFile;
use super::opened::Problems;
use super::split::{self, Skeleton};
use super::supplementary;
use super::units::{Code, Root, Units};
use super::wanted::Wanted;

/// A call that is going on at an address, as debug information has it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Frame<'d> {
    /// The symbol of the function or, failing that, its name in the source; empty if unknown.
    pub(super) name: Cow<'d, str>,
    /// Where in the source; empty if unknown.
    pub(super) file: Cow<'d, str>,
    /// 0 if unknown.
    pub(super) line: u32,
    /// 0 if unknown.
    pub(super) column: u32,
}

/// What is found at the wanted addresses.
struct Findings<'f> {
    wanted: &'f Wanted,
    found: &'f mut dyn FnMut(usize, &[Frame]),
    /// By place: whether a function was found there.
    is_found: Vec<bool>,
    /// By place: where in the source it is, for want of a function.
    lines: HashMap<usize, Frame<'static>>,
}

/// Calls `found` with the frames, innermost first, of each address that debug information knows.
/// The object was mapped by `filename`, or is the debug file of the one that was. What is damaged
/// is among the problems, and what can be read beside it is found.
pub(super) fn look_up(
    object: &ObjectFile,
    filename: &Path,
    wanted: &Wanted,
    problems: &mut Problems,
    found: &mut dyn FnMut(usize, &[Frame]),
) {
    if wanted.is_empty() || !object.has_section(".debug_info") {
        return;
    }
    let mut damage = Damage::default();
    let mut budget = Budget::new();
    let effort = Rc::new(Effort::new());
    let supplementary = damage.check(supplementary::find(object)).flatten();
    let supplementary = supplementary.as_ref().and_then(|bytes| {
        let object = damage.check(ObjectFile::parse(bytes))?;
        damage.check(object.check_names());
        let sections = sections(&object, &mut budget, &effort, &mut damage);
        Some((object.path(), sections))
    });
    let sections = sections(object, &mut budget, &effort, &mut damage);
    let supplementary_sections = supplementary.as_ref().map(|(_, sections)| sections);
    let dwarf = sections.borrow_with_sup(supplementary_sections, |bytes| reader(bytes));
    let units = Units::new(dwarf, object.has_code_at_zero(), &effort);
    let (roots, split_ids) = roots(&units, wanted);
    // Where each unit's code lies is known now. Symbols and ranges are not read again, as a rule.
    object.forget();

    let mut split_damage = Damage::default();
    let packages = match split_ids.is_empty() {
        true => Vec::new(),
        false => split::open_packages(filename, object.path(), &mut split_damage),
    };
    let mut files = split::Files::new(
        &packages,
        &split_ids,
        filename,
        &effort,
        &mut budget,
        &mut split_damage,
    );
    let mut findings = Findings {
        wanted,
        found,
        is_found: vec![false; wanted.addresses().len()],
        lines: HashMap::new(),
    };
    for (offset, code) in roots {
        let Some(root) = units.check(units.root_at(offset)) else {
            continue;
        };
        let mut lines = Lines::of(&units, &root, wanted);
        if code == Code::Unknown && lines.is_empty() {
            continue;
        }
        let skeleton = Skeleton::of(&units, &root);
        let is_found = skeleton.is_some_and(|skeleton| {
            let damage = &mut split_damage;
            files.find(
                &skeleton,
                &units,
                &root,
                damage,
                &mut |split, split_root| {
                    findings.add(split, split_root, (&units, &root), &mut lines);
                },
            )
        });
        // A skeleton that lost its file is all there is.
        if !is_found {
            findings.add(&units, &root, (&units, &root), &mut lines);
        }
        findings.add_lines(&units, &root, &mut lines);
    }
    findings.end();
    problems.check(files.check(object.path()));
    let failures = [(object.path(), units.failure())].into_iter();
    let of_supplementary = supplementary.as_ref().zip(units.supplementary());
    let failures =
        failures.chain(of_supplementary.map(|((path, _), units)| (*path, units.failure())));
    for (path, failure) in failures {
        damage.check(failure.map_or(Ok(()), |failure| Err(damaged(path, failure))));
    }
    problems.check(damage.outcome());
    problems.check(split_damage.outcome());
}

/// The sections that say anything of functions. Those that are damaged are empty.
fn sections<'d>(
    object: &ObjectFile<'d>,
    budget: &mut Budget,
    effort: &Effort,
    damage: &mut Damage,
) -> DwarfSections<Cow<'d, [u8]>> {
    let Ok(sections) = DwarfSections::load(|id| {
        let bytes = match is_needed(id) {
            true => damage.check(object.uncompressed(id.name(), budget)),
            false => None,
        };
        let bytes = bytes.unwrap_or_default();
        effort.allow(bytes.len());
        Ok::<_, Infallible>(bytes)
    });
    sections
}

/// Where the units begin that wanted addresses lie in, or may lie in, and the ids of those that
/// were split off from them. Their first entries are read again: there may be very many of them.
fn roots(units: &Units, wanted: &Wanted) -> (Vec<(DebugInfoOffset, Code)>, Vec<DwoId>) {
    let (mut roots, mut split_ids) = (Vec::new(), Vec::new());
    for header in units.headers() {
        let root = header.and_then(|header| units.root(header));
        let Some(root) = units.check(root) else {
            continue;
        };
        let code = units.check(units.code(&root, wanted));
        let code = code.unwrap_or(Code::Unknown);
        let offset = root.unit.header.debug_info_offset();
        let (false, Some(offset)) = (code == Code::Elsewhere, offset) else {
            continue;
        };
        roots.push((offset, code));
        split_ids.extend(root.unit.dwo_id.filter(|_| root.dwo_name.is_some()));
    }
    (roots, split_ids)
}

impl Findings<'_> {
    /// Adds what a unit has. Its lines are those of another one, where it was split off.
    fn add<'d, 'l>(
        &mut self,
        units: &Units<'d>,
        root: &Root<'d>,
        (units_of_lines, root_of_lines): (&Units<'l>, &Root<'l>),
        lines: &mut Lines<'l>,
    ) {
        let Some(unit) = units.check(units.unit(root)) else {
            return;
        };
        let calls = Calls::of(units, &unit, self.wanted);
        for (place, calls) in calls.by_place() {
            if std::mem::replace(&mut self.is_found[place], true) {
                continue;
            }
            let calls: Vec<&Call> = calls.collect();
            let site = lines.site(place).unwrap_or_default();
            let sites = calls.iter().rev().map(|call| call.site);
            let sites: Vec<Site> = [site].into_iter().chain(sites).collect();
            for site in &sites {
                lines.find_path(units_of_lines, &root_of_lines.unit, site.file);
            }
            // A name may be very long, and that of many calls at many addresses.
            let steps = calls
                .iter()
                .map(|call| 1 + call.name.len() / BYTES_PER_STEP);
            if units.check(units.effort.take(steps.sum())).is_none() {
                return;
            }
            let frames = calls.iter().rev().zip(&sites);
            let frames = frames.map(|(call, site)| Frame {
                name: call.name.to_string_lossy(),
                file: lines.path(site.file).into(),
                line: site.line,
                column: site.column,
            });
            let (_, index) = self.wanted.addresses()[place];
            (self.found)(index, &frames.collect::<Vec<_>>());
        }
    }

    /// Keeps the lines of addresses for which no function was found so far.
    fn add_lines<'d>(&mut self, units: &Units<'d>, root: &Root<'d>, lines: &mut Lines<'d>) {
        let missing: Vec<_> = lines
            .sites()
            .filter(|&(place, _)| !self.is_found[place])
            .collect();
        for (place, site) in missing {
            lines.find_path(units, &root.unit, site.file);
            let frame = || Frame {
                name: Cow::default(),
                file: lines.path(site.file).to_owned().into(),
                line: site.line,
                column: site.column,
            };
            self.lines.entry(place).or_insert_with(frame);
        }
    }

    /// The line table says where an address is, if not in which function.
    fn end(mut self) {
        for (place, frame) in self.lines.drain() {
            if !self.is_found[place] {
                let (_, index) = self.wanted.addresses()[place];
                (self.found)(index, &[frame]);
            }
        }
    }
}
