//! Source files of an image, each once per translation unit that has code from it.

use std::collections::BTreeMap;

use gimli::LineProgramHeader;

use super::sections::{Bytes, Sections};

/// Maximum number of files.
pub(super) const MAX_FILES: usize = 1 << 10;

/// A source file.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// Name without folders, printable ASCII.
    pub(super) name: Box<str>,
    /// The file is known to be the handler's own, not a library's.
    pub(super) own: bool,
}

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileLine {
    /// Index in the list of files.
    pub(super) file: u16,
    /// Line number from 1.
    pub(super) line: u32,
}

/// The files found so far.
pub(super) struct Files<'a, 'd> {
    sections: &'a Sections<'d>,
    files: Vec<File>,
    /// Indices in `files`, by the offset of a line table and the file's number in it. `None` for a file without a
    /// usable name.
    indices: BTreeMap<(usize, u64), Option<u16>>,
}

impl<'a, 'd> Files<'a, 'd> {
    pub(super) const fn new(sections: &'a Sections<'d>) -> Self {
        Self { sections, files: Vec::new(), indices: BTreeMap::new() }
    }

    /// Returns a line of the file with this number in a line table; `None` for line 0, which means no source.
    pub(super) fn line(&mut self, header: &LineProgramHeader<Bytes<'d>>, number: u64, line: u64) -> Option<FileLine> {
        let line = u32::try_from(line).ok().filter(|&line| line != 0)?;
        let key = (header.offset().0, number);
        let index = self.indices.get(&key).copied().unwrap_or_else(|| {
            let index = self.add(header, number);
            self.indices.insert(key, index);
            index
        });
        Some(FileLine { file: index?, line })
    }

    /// Whether a line is in a file that is known to be the handler's own.
    pub(super) fn is_own(&self, line: FileLine) -> bool {
        self.files.get(usize::from(line.file)).is_some_and(|file| file.own)
    }

    pub(super) fn finish(self) -> Box<[File]> {
        self.files.into_boxed_slice()
    }

    fn add(&mut self, header: &LineProgramHeader<Bytes<'d>>, number: u64) -> Option<u16> {
        let index = u16::try_from(self.files.len()).ok().filter(|_| self.files.len() < MAX_FILES)?;
        let file = header.file(number)?;
        let own = self.sections.is_own(file, header);
        self.files.push(File { name: self.sections.file_name(file)?.into(), own });
        Some(index)
    }
}
