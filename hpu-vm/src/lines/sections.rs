//! The DWARF sections of an image.

use gimli::{AttributeValue, EndianSlice, FileEntry, LineProgramHeader};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader32, SectionHeader32};
use object::read::elf::{FileHeader as _, SectionHeader as _};

/// Maximum size of `.debug_line` in bytes, and with it the maximum number of rows and file entries, which take a byte
/// or more each. A full program memory of compiled C needs about a quarter.
pub(super) const MAX_TABLES: usize = 1 << 18;
/// Maximum size of `.debug_info` in bytes.
const MAX_INFO: usize = 1 << 22;
/// Maximum size of `.debug_abbrev` in bytes.
const MAX_ABBREVIATIONS: usize = 1 << 18;
/// Maximum number of section headers that are searched.
const MAX_SECTIONS: usize = 1 << 10;
/// Maximum length of a path. No more bytes are read, so overlapping names cost little each.
const MAX_PATH: usize = 1 << 10;
/// Maximum length of a file name without folders.
const MAX_NAME: usize = 128;

/// Pairs of folders that contain inlined functions which are not the handler's own: those of the C SDK, of the headers
/// for PsPIN and FPsPIN, and of Rust's SDK and core library.
const LIBRARY_FOLDERS: [[&[u8]; 2]; 6] = [
    [b"sdk", b"include"],
    [b"compat", b"include"],
    [b"compat", b"device"],
    [b"compat", b"libc"],
    [b"spin-handler", b"src"],
    [b"library", b"core"],
];

pub(super) type Bytes<'d> = EndianSlice<'d, gimli::LittleEndian>;

/// Sections that contain line tables, or are referred to by them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sections<'d> {
    pub(super) line: &'d [u8],
    pub(super) line_strings: &'d [u8],
    pub(super) strings: &'d [u8],
    pub(super) info: InfoSections<'d>,
}

/// Sections that describe functions; empty if they are too large.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InfoSections<'d> {
    pub(super) info: &'d [u8],
    pub(super) abbreviations: &'d [u8],
    pub(super) addresses: &'d [u8],
    /// `.debug_ranges`, before DWARF 5.
    pub(super) ranges: &'d [u8],
    /// `.debug_rnglists`, since DWARF 5.
    pub(super) range_lists: &'d [u8],
}

impl<'d> Sections<'d> {
    /// `None` without readable line tables.
    pub(super) fn find(header: &FileHeader32<LE>, data: &'d [u8]) -> Option<Self> {
        let sections = header.section_headers(LE, data).ok().filter(|all| all.len() <= MAX_SECTIONS)?;
        let names = sections.get(header.section_strings_index(LE, data).ok()?.0)?.data(LE, data).ok()?;
        // Names are compared in place: they may overlap, and searching the end of each could take long.
        let named = |name: &[u8], section: &SectionHeader32<LE>| {
            names.get(section.sh_name(LE) as usize..).is_some_and(|rest| rest.starts_with(name))
        };
        let find = |name| {
            let section = sections.iter().find(|section| named(name, section))?;
            let plain = section.sh_flags(LE).0 & elf::SHF_COMPRESSED.0 == 0;
            section.data(LE, data).ok().filter(|_| plain)
        };
        let info = find(b".debug_info\0").filter(|info| info.len() <= MAX_INFO);
        let abbreviations = find(b".debug_abbrev\0").filter(|table| table.len() <= MAX_ABBREVIATIONS);
        let info = info.zip(abbreviations).map(|(info, abbreviations)| InfoSections {
            info,
            abbreviations,
            addresses: find(b".debug_addr\0").unwrap_or_default(),
            ranges: find(b".debug_ranges\0").unwrap_or_default(),
            range_lists: find(b".debug_rnglists\0").unwrap_or_default(),
        });
        Some(Self {
            line: find(b".debug_line\0").filter(|line| line.len() <= MAX_TABLES)?,
            line_strings: find(b".debug_line_str\0").unwrap_or_default(),
            strings: find(b".debug_str\0").unwrap_or_default(),
            info: info.unwrap_or_default(),
        })
    }

    /// Name of a file without folders, if it can be printed.
    pub(super) fn file_name(&self, file: &FileEntry<Bytes<'d>>) -> Option<&'d str> {
        base_name(self.path(file.path_name())?)
    }

    /// Whether a file is known to be outside of the [`LIBRARY_FOLDERS`].
    pub(super) fn is_own(&self, file: &FileEntry<Bytes<'d>>, header: &LineProgramHeader<Bytes<'d>>) -> bool {
        let Some(path) = self.path(file.path_name()) else { return false };
        // Before DWARF 5 folder 0 is the current one of the compiler, which the table does not name.
        let is_known = path.starts_with(b"/") || header.version() < 5 && file.directory_index() == 0;
        let folder = if is_known { Some(&b""[..]) } else { file.directory(header).and_then(|path| self.path(path)) };
        folder.is_some_and(|folder| !is_in_library(folder, path))
    }

    fn path(&self, path: AttributeValue<Bytes<'d>>) -> Option<&'d [u8]> {
        let rest = match path {
            AttributeValue::String(path) => return Some(path.slice()).filter(|path| path.len() <= MAX_PATH),
            AttributeValue::DebugLineStrRef(offset) => self.line_strings.get(offset.0..)?,
            AttributeValue::DebugStrRef(offset) => self.strings.get(offset.0..)?,
            _ => return None,
        };
        let end = rest.iter().take(MAX_PATH).position(|&byte| byte == 0)?;
        Some(&rest[..end])
    }
}

fn base_name(path: &[u8]) -> Option<&str> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let usable = (1..=MAX_NAME).contains(&name.len()) && name.iter().all(|byte| matches!(byte, b' '..=b'~'));
    std::str::from_utf8(name).ok().filter(|_| usable)
}

fn is_in_library(folder: &[u8], path: &[u8]) -> bool {
    let folders: Vec<&[u8]> = [folder, path].into_iter().flat_map(|part| part.split(|&byte| byte == b'/')).collect();
    folders.windows(2).any(|pair| LIBRARY_FOLDERS.iter().any(|library| pair == library))
}
