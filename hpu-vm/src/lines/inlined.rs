//! Inlined functions: the lines at which they were called (DWARF 5, section 3.3.8).

use std::collections::BTreeSet;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAddr, DebugInfo, DebugLine, DebugRanges, DebugRngLists, Dwarf,
    EndianSlice, EntriesRaw, LittleEndian, RangeLists, Section as _, Unit, UnitHeader, constants,
};

use super::files::{FileLine, Files};
use super::sections::{Bytes, Sections};
use crate::code::Code;

/// Maximum number of address ranges of inlined functions.
pub(super) const MAX_RANGES: usize = 1 << 14;
/// Maximum nesting of inlined functions; deeper ones count as part of the innermost one within the limit.
const MAX_DEPTH: usize = 64;
/// Maximum number of steps: attributes, range entries, and bytes of abbreviations and line table headers. A hostile
/// file can refer to one abbreviation, range list or header from many places.
const MAX_STEPS: usize = 1 << 24;

/// The handler's own lines of inlined code, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct InlineTable {
    rows: Box<[InlineRow]>,
}

/// From `address` to the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InlineRow {
    address: u32,
    /// `None` for code that was not inlined.
    line: Option<FileLine>,
}

/// Code of an inlined function.
#[derive(Clone, Copy, Debug)]
struct InlinedRange {
    begin: u32,
    end: u32,
    /// Number of inlined functions around it.
    depth: usize,
    own_line: FileLine,
}

impl InlineTable {
    /// Reads the inlined functions of `code`.
    pub(super) fn read<'d>(sections: &Sections<'d>, code: &Code, files: &mut Files<'_, 'd>) -> Self {
        let mut reader = Reader { dwarf: dwarf(sections), code, files, steps: MAX_STEPS, ranges: Vec::new() };
        let mut units = reader.dwarf.units();
        // A unit that cannot be read costs only itself.
        while let Ok(Some(header)) = units.next()
            && reader.spend(1).is_some()
        {
            let _ = reader.read_unit(header);
        }
        Self { rows: flatten(&reader.ranges) }
    }

    /// Returns the handler's own line that the code at `pc` was inlined into.
    pub(super) fn find(&self, pc: u32) -> Option<FileLine> {
        let after = self.rows.partition_point(|row| row.address <= pc);
        self.rows.get(after.checked_sub(1)?)?.line
    }
}

fn dwarf<'d>(sections: &Sections<'d>) -> Dwarf<Bytes<'d>> {
    let info = sections.info;
    let section = |bytes| EndianSlice::new(bytes, LittleEndian);
    Dwarf {
        debug_abbrev: DebugAbbrev::new(info.abbreviations, LittleEndian),
        debug_addr: DebugAddr::from(section(info.addresses)),
        debug_info: DebugInfo::new(info.info, LittleEndian),
        debug_line: DebugLine::new(sections.line, LittleEndian),
        ranges: RangeLists::new(
            DebugRanges::new(info.ranges, LittleEndian),
            DebugRngLists::new(info.range_lists, LittleEndian),
        ),
        ..Dwarf::default()
    }
}

struct Reader<'a, 's, 'd> {
    dwarf: Dwarf<Bytes<'d>>,
    code: &'a Code,
    files: &'a mut Files<'s, 'd>,
    /// Steps left of [`MAX_STEPS`].
    steps: usize,
    ranges: Vec<InlinedRange>,
}

/// Attributes of an inlined function.
#[derive(Clone, Copy, Debug, Default)]
struct Attributes<'d> {
    low_pc: Option<AttributeValue<Bytes<'d>>>,
    high_pc: Option<AttributeValue<Bytes<'d>>>,
    ranges: Option<AttributeValue<Bytes<'d>>>,
    call_file: Option<u64>,
    call_line: Option<u64>,
}

impl<'d> Reader<'_, '_, 'd> {
    /// Counts steps; `None` when none are left.
    fn spend(&mut self, steps: usize) -> Option<()> {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(0);
        left.map(drop)
    }

    /// Reads the inlined functions of one translation unit, up to the first error in it.
    fn read_unit(&mut self, header: UnitHeader<Bytes<'d>>) -> Option<()> {
        let abbreviations = self.abbreviations(&header)?;
        let unit = Unit::new_with_abbreviations(&self.dwarf, header, abbreviations).ok()?;
        self.spend(unit.line_program.as_ref()?.header().header_length())?;
        let mut entries = unit.entries_raw(None).ok()?;
        // The inlined functions around an entry: depth in the tree, and own line.
        let mut around: Vec<(isize, FileLine)> = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation().ok()? else { continue };
            let attributes = abbreviation.attributes();
            self.spend(1 + attributes.len())?;
            while around.pop_if(|(outer, _)| *outer >= depth).is_some() {}
            if abbreviation.tag() != constants::DW_TAG_inlined_subroutine || around.len() == MAX_DEPTH {
                entries.skip_attributes(attributes).ok()?;
                continue;
            }
            let attributes = Attributes::read(&mut entries, attributes)?;
            let outer = around.last().map(|&(_, line)| line);
            if let Some(line) = self.own_line(&unit, &attributes, outer) {
                self.add_ranges(&unit, &attributes, around.len(), line)?;
                around.push((depth, line));
            }
        }
        Some(())
    }

    fn abbreviations(&mut self, header: &UnitHeader<Bytes<'d>>) -> Option<Arc<Abbreviations>> {
        let offset = header.debug_abbrev_offset();
        // The size of one table is unknown before it is read.
        let rest = self.dwarf.debug_abbrev.reader().len().checked_sub(offset.0)?;
        self.spend(rest)?;
        self.dwarf.debug_abbrev.abbreviations(offset).ok().map(Arc::new)
    }

    /// The first line that is the handler's own, from the call outwards. If none is known to be, the outermost call.
    fn own_line(
        &mut self,
        unit: &Unit<Bytes<'d>>,
        attributes: &Attributes<'d>,
        outer: Option<FileLine>,
    ) -> Option<FileLine> {
        let header = unit.line_program.as_ref()?.header();
        let call = self.files.line(header, attributes.call_file?, attributes.call_line?);
        call.filter(|&call| self.files.is_own(call)).or(outer).or(call)
    }

    fn add_ranges(
        &mut self,
        unit: &Unit<Bytes<'d>>,
        attributes: &Attributes<'d>,
        depth: usize,
        own_line: FileLine,
    ) -> Option<()> {
        if let (Some(low), Some(high)) = (attributes.low_pc, attributes.high_pc) {
            let begin = self.dwarf.attr_address(unit, low).ok()??;
            let end = match self.dwarf.attr_address(unit, high).ok()? {
                Some(end) => end,
                None => begin.checked_add(high.udata_value()?)?,
            };
            return self.add_range(begin, end, depth, own_line);
        }
        let Some(list) = attributes.ranges else { return Some(()) };
        let offset = self.dwarf.attr_ranges_offset(unit, list).ok()??;
        // Counted first: the next range may be behind any number of entries without one.
        let mut entries = self.dwarf.raw_ranges(unit, offset).ok()?;
        while entries.next().ok()?.is_some() {
            self.spend(1)?;
        }
        let mut ranges = self.dwarf.ranges(unit, offset).ok()?;
        while let Some(range) = ranges.next().ok()? {
            self.add_range(range.begin, range.end, depth, own_line)?;
        }
        Some(())
    }

    /// Adds a range of the code; others belong to functions that the linker dropped. `None` when there are too many.
    fn add_range(&mut self, begin: u64, end: u64, depth: usize, own_line: FileLine) -> Option<()> {
        let (Ok(begin), Ok(end)) = (u32::try_from(begin), u32::try_from(end)) else { return Some(()) };
        if begin < end && self.code.contains(begin) && self.code.contains(end - 1) {
            if self.ranges.len() == MAX_RANGES {
                return None;
            }
            self.ranges.push(InlinedRange { begin, end, depth, own_line });
        }
        Some(())
    }
}

impl<'d> Attributes<'d> {
    fn read(entries: &mut EntriesRaw<'_, Bytes<'d>>, specifications: &[gimli::AttributeSpecification]) -> Option<Self> {
        let mut found = Self::default();
        for &specification in specifications {
            let attribute = entries.read_attribute(specification).ok()?;
            match attribute.name() {
                constants::DW_AT_low_pc => found.low_pc = Some(attribute.value()),
                constants::DW_AT_high_pc => found.high_pc = Some(attribute.value()),
                constants::DW_AT_ranges => found.ranges = Some(attribute.value()),
                constants::DW_AT_call_line => found.call_line = attribute.udata_value(),
                constants::DW_AT_call_file => {
                    found.call_file = match attribute.value() {
                        AttributeValue::FileIndex(index) => Some(index),
                        value => value.udata_value(),
                    };
                }
                _ => {}
            }
        }
        Some(found)
    }
}

/// Rows in which the deepest range of each address counts; of equally deep ones, the last.
fn flatten(ranges: &[InlinedRange]) -> Box<[InlineRow]> {
    let ends = |index: usize| [(ranges[index].begin, index), (ranges[index].end, index)];
    let mut changes: Vec<(u32, usize)> = (0..ranges.len()).flat_map(ends).collect();
    changes.sort_unstable();
    let mut active = BTreeSet::new();
    let mut rows: Vec<InlineRow> = Vec::new();
    for (address, index) in changes {
        // A range is not empty: the first of its two changes is its begin.
        let entry = (ranges[index].depth, index);
        if !active.remove(&entry) {
            active.insert(entry);
        }
        let line = active.last().map(|&(_, index)| ranges[index].own_line);
        rows.pop_if(|last| last.address == address);
        if rows.last().and_then(|last| last.line) != line {
            rows.push(InlineRow { address, line });
        }
    }
    rows.into_boxed_slice()
}
