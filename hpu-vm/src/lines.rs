//! Source lines of an image built with `-g`, for reports: DWARF's line tables (DWARF 5, section 6.2), resolved at load
//! into one table by address. Code that was inlined from a library's header has the handler's own line, too.
//!
//! Execution does not depend on debug information, so no image is refused for it. Damaged data and data beyond the
//! bounds of these modules are ignored. A hostile file costs at most a few tens of MiB while it is read, and about 1
//! MiB afterwards for its code addresses and names.

mod files;
mod inlined;
mod sections;

use gimli::{DebugLine, DebugLineOffset, IncompleteLineProgram};
use object::LittleEndian as LE;
use object::elf::FileHeader32;

use self::files::{File, FileLine, Files};
use self::inlined::InlineTable;
use self::sections::{Bytes, Sections};
use crate::code::Code;

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
    /// `None` where no source is known.
    line: Option<FileLine>,
    /// The end of a sequence: another sequence may begin at the same address.
    end: bool,
}

/// The line table of an image; empty when it was built without `-g`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    /// By address, one for each.
    rows: Box<[Row]>,
    inlined: InlineTable,
    files: Box<[File]>,
}

impl Lines {
    /// Reads the lines of `code`.
    pub(crate) fn read(header: &FileHeader32<LE>, data: &[u8], code: &Code) -> Self {
        Sections::find(header, data).map_or_else(Self::default, |sections| Self::resolve(&sections, code))
    }

    /// The line that the instruction at `pc` was compiled from. Where the compiler merged code of several lines and names
    /// none, the handler's own line into which it was inlined.
    pub(crate) fn find(&self, pc: u32) -> Option<Line<'_>> {
        self.line(self.row(pc).or_else(|| self.inlined.find(pc))?)
    }

    /// The handler's own line into which the instruction at `pc` was inlined, if [`Lines::find`] returns a line of a
    /// library's header.
    pub(crate) fn inlined_at(&self, pc: u32) -> Option<Line<'_>> {
        let innermost = self.files.get(usize::from(self.row(pc)?.file))?;
        if innermost.own { None } else { self.line(self.inlined.find(pc)?) }
    }

    fn row(&self, pc: u32) -> Option<FileLine> {
        let after = self.rows.partition_point(|row| row.address <= pc);
        self.rows.get(after.checked_sub(1)?)?.line
    }

    fn line(&self, line: FileLine) -> Option<Line<'_>> {
        Some(Line { file: &self.files.get(usize::from(line.file))?.name, line: line.line })
    }

    fn resolve(sections: &Sections<'_>, code: &Code) -> Self {
        let mut table = Table { code, rows: Vec::new(), files: Files::new(sections) };
        let tables = DebugLine::new(sections.line, gimli::LittleEndian);
        let mut offset = 0;
        while offset < sections.line.len() {
            // Before DWARF 5 the table does not contain the size of an address: 4 bytes in a 32-bit image.
            let Ok(program) = tables.program(DebugLineOffset(offset), 4, None, None) else { break };
            let header = program.header();
            let length = usize::from(header.format().initial_length_size()) + header.unit_length();
            table.run(program);
            offset += length;
        }
        let inlined = InlineTable::read(sections, code, &mut table.files);
        table.finish(inlined)
    }
}

/// A line table under construction.
struct Table<'a, 'd> {
    code: &'a Code,
    rows: Vec<Row>,
    files: Files<'a, 'd>,
}

impl<'d> Table<'_, 'd> {
    /// Adds the rows of one translation unit, up to the first error in it.
    fn run(&mut self, program: IncompleteLineProgram<Bytes<'d>>) {
        let mut rows = program.rows();
        while let Ok(Some((header, row))) = rows.next_row() {
            let (Ok(address), end) = (u32::try_from(row.address()), row.end_sequence()) else { continue };
            // Functions that the linker dropped are at zero or a similar address. An end may be the end of the code.
            let inside = self.code.contains(address) || end && self.code.contains(address.wrapping_sub(1));
            if !inside {
                continue;
            }
            let line = row.line().filter(|_| !end);
            let line = line.and_then(|line| self.files.line(header, row.file_index(), line.get()));
            self.push(Row { address, line, end });
        }
    }

    /// Adds a row. The one before covers nothing if it is at the same address of the same sequence.
    fn push(&mut self, row: Row) {
        self.rows.pop_if(|last| last.address == row.address && !last.end);
        self.rows.push(row);
    }

    /// Makes the table. At one address the start of a sequence replaces the end of another, whichever came first.
    fn finish(mut self, inlined: InlineTable) -> Lines {
        self.rows.sort_by_key(|row| (row.address, row.end));
        self.rows.dedup_by_key(|row| row.address);
        Lines { rows: self.rows.into_boxed_slice(), inlined, files: self.files.finish() }
    }
}

#[cfg(test)]
mod tests;
