//! Source lines of an image built with `-g`, for reports: DWARF's line tables (DWARF 5, section 6.2), resolved at load
//! into one table by address.
//!
//! Execution does not depend on debug information, so no image is refused for it. Damaged data and data beyond the
//! bounds below are ignored. A hostile file costs at most a few tens of MiB while it is read, and some 500 KiB
//! afterwards for its code addresses and names.

use std::collections::BTreeMap;

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, FileEntry, IncompleteLineProgram};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader32, SectionHeader32};
use object::read::elf::{FileHeader as _, SectionHeader as _};

use crate::code::Code;

/// Longest `.debug_line` read, and with it the number of rows and file entries: one of either takes a byte or more.
/// A full program memory of compiled C needs about a quarter.
const MAX_TABLES: usize = 1 << 18;
/// Most section headers that are searched.
const MAX_SECTIONS: usize = 1 << 10;
/// Most files, each counted once per translation unit that has code from it.
const MAX_FILES: usize = 1 << 10;
/// Longest path; no more than this is looked at, so that overlapping names cost little each.
const MAX_PATH: usize = 1 << 10;
/// Longest name kept, without folders.
const MAX_NAME: usize = 128;

type Bytes<'d> = EndianSlice<'d, gimli::LittleEndian>;

/// A source line of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'i> {
    /// Name of the file without folders, printable ASCII.
    pub file: &'i str,
    /// Line number from 1.
    pub line: u32,
}

/// From `address` to the next row.
#[derive(Clone, Copy, Debug)]
struct Row {
    address: u32,
    /// 0 where no source is known.
    line: u32,
    /// Index in [`Lines::files`].
    file: u16,
    /// The end of a sequence: what follows at once may begin here.
    end: bool,
}

/// The line table of an image; empty when it was built without `-g`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    /// By address, one for each.
    rows: Box<[Row]>,
    files: Box<[Box<str>]>,
}

impl Lines {
    /// Reads what the file tells of `code`.
    pub(crate) fn read(header: &FileHeader32<LE>, data: &[u8], code: &Code) -> Self {
        Sections::find(header, data).map_or_else(Self::default, |sections| Self::resolve(&sections, code))
    }

    /// The line that the instruction at `pc` was compiled from.
    pub(crate) fn find(&self, pc: u32) -> Option<Line<'_>> {
        let after = self.rows.partition_point(|row| row.address <= pc);
        let row = self.rows.get(after.checked_sub(1)?).filter(|row| row.line != 0)?;
        Some(Line { file: self.files.get(usize::from(row.file))?, line: row.line })
    }

    fn resolve(sections: &Sections<'_>, code: &Code) -> Self {
        let mut table = Table { sections, code, rows: Vec::new(), files: Vec::new() };
        let tables = DebugLine::new(sections.line, gimli::LittleEndian);
        let mut offset = 0;
        while offset < sections.line.len() {
            // Before DWARF 5 the table does not tell the size of an address: 4 bytes in a 32-bit image.
            let Ok(program) = tables.program(DebugLineOffset(offset), 4, None, None) else { break };
            let header = program.header();
            let length = usize::from(header.format().initial_length_size()) + header.unit_length();
            table.run(program);
            offset += length;
        }
        table.finish()
    }
}

/// The sections that line tables are in and refer to.
#[derive(Clone, Copy, Debug, Default)]
struct Sections<'d> {
    line: &'d [u8],
    line_strings: &'d [u8],
    strings: &'d [u8],
}

impl<'d> Sections<'d> {
    /// `None` when there are no line tables that can be read.
    fn find(header: &FileHeader32<LE>, data: &'d [u8]) -> Option<Self> {
        let sections = header.section_headers(LE, data).ok().filter(|all| all.len() <= MAX_SECTIONS)?;
        let names = sections.get(header.section_strings_index(LE, data).ok()?.0)?.data(LE, data).ok()?;
        // The names are compared in place: they may overlap, and looking for the end of each could take long.
        let named = |name: &[u8], section: &SectionHeader32<LE>| {
            names.get(section.sh_name(LE) as usize..).is_some_and(|rest| rest.starts_with(name))
        };
        let find = |name| {
            let section = sections.iter().find(|section| named(name, section))?;
            let plain = section.sh_flags(LE).0 & elf::SHF_COMPRESSED.0 == 0;
            section.data(LE, data).ok().filter(|_| plain)
        };
        Some(Self {
            line: find(b".debug_line\0").filter(|line| line.len() <= MAX_TABLES)?,
            line_strings: find(b".debug_line_str\0").unwrap_or_default(),
            strings: find(b".debug_str\0").unwrap_or_default(),
        })
    }

    /// The last component of a file's path, if it can be printed.
    fn file_name(&self, file: &FileEntry<Bytes<'d>>) -> Option<&'d str> {
        let rest = match file.path_name() {
            AttributeValue::String(path) => return base_name(path.slice()),
            AttributeValue::DebugLineStrRef(offset) => self.line_strings.get(offset.0..)?,
            AttributeValue::DebugStrRef(offset) => self.strings.get(offset.0..)?,
            _ => return None,
        };
        let end = rest.iter().take(MAX_PATH).position(|&byte| byte == 0)?;
        base_name(&rest[..end])
    }
}

fn base_name(path: &[u8]) -> Option<&str> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let usable = (1..=MAX_NAME).contains(&name.len()) && name.iter().all(|byte| matches!(byte, b' '..=b'~'));
    std::str::from_utf8(name).ok().filter(|_| usable)
}

/// A line table in the making.
struct Table<'a, 'd> {
    sections: &'a Sections<'d>,
    code: &'a Code,
    rows: Vec<Row>,
    files: Vec<Box<str>>,
}

impl<'d> Table<'_, 'd> {
    /// Adds the rows of one translation unit, up to the first error in it.
    fn run(&mut self, program: IncompleteLineProgram<Bytes<'d>>) {
        // By the unit's own numbers; `None` for a file without a usable name.
        let mut files: BTreeMap<u64, Option<u16>> = BTreeMap::new();
        let mut rows = program.rows();
        while let Ok(Some((header, row))) = rows.next_row() {
            let (Ok(address), end) = (u32::try_from(row.address()), row.end_sequence()) else { continue };
            // Functions that the linker dropped are at zero or the like. An end may be the end of the code.
            let inside = self.code.contains(address) || end && self.code.contains(address.wrapping_sub(1));
            if !inside {
                continue;
            }
            let line = row.line().filter(|_| !end).and_then(|line| u32::try_from(line.get()).ok());
            let place = line.and_then(|line| {
                let file = files.entry(row.file_index()).or_insert_with(|| self.add_file(row.file(header)?));
                Some((line, (*file)?))
            });
            let (line, file) = place.unwrap_or_default();
            self.push(Row { address, line, file, end });
        }
    }

    /// A row covers nothing when the next of its sequence is at the same address.
    fn push(&mut self, row: Row) {
        self.rows.pop_if(|last| last.address == row.address && !last.end);
        self.rows.push(row);
    }

    fn add_file(&mut self, file: &FileEntry<Bytes<'d>>) -> Option<u16> {
        let index = u16::try_from(self.files.len()).ok().filter(|_| self.files.len() < MAX_FILES)?;
        self.files.push(self.sections.file_name(file)?.into());
        Some(index)
    }

    /// A sequence's end gives way to the start of another at the same address, whichever came first.
    fn finish(mut self) -> Lines {
        self.rows.sort_by_key(|row| (row.address, row.end));
        self.rows.dedup_by_key(|row| row.address);
        Lines { rows: self.rows.into_boxed_slice(), files: self.files.into_boxed_slice() }
    }
}

#[cfg(test)]
mod tests;
