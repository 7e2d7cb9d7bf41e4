//! Symbols that the host side looks up in a handler image.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use libspin::{HandlerNames, MAX_BLOB};
use object::elf::{FileHeader32, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SymbolTable};
use object::{Endianness, elf};
use spin_abi::map::{L2_BASE, Machine, PAGE};

/// Symbol of the data in NIC memory that host programs read and write.
const HOST_DATA: &str = "__host_data";
/// Symbol of the function by which an image declares its handlers.
const INIT_HANDLERS: &str = "init_handlers";
/// Section of the image's own handler memory.
const HANDLER_DATA: &str = ".l2_handler_data";
/// Parts of the names by which FPsPIN finds handlers: header, payload, completion.
const PARTS: [&str; 3] = ["_hh", "_ph", "_th"];

/// Random bytes that make images read from the same file distinct.
type Mark = [u8; 8];
/// Maximum image size in bytes.
const LONGEST: u64 = (MAX_BLOB - size_of::<Mark>()) as u64;

/// Reason why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
    /// The file is longer than spind accepts.
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    /// The file is not a handler image.
    #[error("it is no handler image: {0}")]
    Elf(#[from] object::Error),
}

/// An image's file and the symbols found in it.
#[derive(Debug)]
pub struct Image {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// Address of `__host_data`; the start of L2 if the image does not define it.
    pub host_data: u32,
    /// Handler memory of the machine that the image does not use, in bytes.
    pub handler_mem_left: u32,
    /// First address of the image's `.l2_handler_data`, and the address behind it.
    pub handler_data: Option<Range<u32>>,
    /// The first functions by name whose names have a handler's part.
    found: [Option<String>; 3],
    /// Whether the image declares its handlers.
    pub declares: bool,
}

impl Image {
    /// Reads the image at `path` and appends a random mark. spind then shares nothing with other images of the same
    /// file, so flags and counters in its data are private.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        let mut bytes = Vec::new();
        File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LONGEST {
            return Err(ImageError::TooLong);
        }
        let mut image = Self::of(bytes)?;
        // Bytes behind the end of an ELF file are ignored, but make it a different file.
        let mark: Mark = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        image.bytes.extend_from_slice(&mark);
        Ok(image)
    }

    fn of(bytes: Vec<u8>) -> Result<Self, ImageError> {
        let header = FileHeader32::<Endianness>::parse(&*bytes)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, &*bytes)?;
        let symbols = sections.symbols(endian, &*bytes, elf::SHT_SYMTAB)?;
        let symbol = |name| find(endian, &symbols, name);
        let host_data = symbol(HOST_DATA).unwrap_or(L2_BASE);
        let functions = functions(endian, &symbols);
        let found = PARTS.map(|part| functions.iter().find(|name| name.contains(part)).map(|name| (*name).to_owned()));
        let section = sections.section_by_name(endian, HANDLER_DATA.as_bytes());
        let handler_data = section.map(|(_, section)| {
            let start = section.sh_addr(endian);
            start..start.saturating_add(section.sh_size(endian))
        });
        let Machine { handler_mem_base: base, handler_mem_size: size, .. } = Machine::FPSPIN;
        let ends = header.program_headers(endian, &*bytes)?.iter().filter_map(|segment| {
            let (address, len) = (segment.p_vaddr(endian), segment.p_memsz(endian));
            let here = segment.p_type(endian) == PT_LOAD && address.wrapping_sub(base) < size;
            here.then(|| address.saturating_add(len))
        });
        let used = ends.max().map_or(0, |end| end - base).next_multiple_of(PAGE);
        let declares = symbol(INIT_HANDLERS).is_some();
        Ok(Self { host_data, handler_mem_left: size.saturating_sub(used), handler_data, found, declares, bytes })
    }

    /// The handlers, if the image does not declare them, and the start of handler memory, for an install.
    #[must_use]
    pub fn handler_names(&self) -> Option<HandlerNames> {
        self.names(if self.declares { [None, None, None] } else { self.found.clone() })
    }

    /// The payload handler alone, and the start of handler memory: the handler at `declared` of an image that declares its handlers, or
    /// else the one by its name. `None`: there is none.
    #[must_use]
    pub fn payload_only(&self, declared: Option<u32>) -> Option<HandlerNames> {
        let [_, named, _] = &self.found;
        let payload = if self.declares { format!("{:#x}", declared?) } else { named.clone()? };
        self.names([None, Some(payload), None])
    }

    fn names(&self, handlers: [Option<String>; 3]) -> Option<HandlerNames> {
        let handler_mem = self.handler_data.as_ref().map(|data| format!("{:#x}", data.end));
        let names = HandlerNames { handlers, handler_mem };
        (names != HandlerNames::default()).then_some(names)
    }
}

/// Returns the names of functions, sorted as by `nm`.
fn functions<'n>(endian: Endianness, symbols: &SymbolTable<'n, FileHeader32<Endianness>>) -> Vec<&'n str> {
    use object::read::elf::Sym;
    let strings = symbols.strings();
    let functions = symbols.iter().filter(|symbol| symbol.st_type() == elf::STT_FUNC && !symbol.is_undefined(endian));
    let name = |symbol: &elf::Sym32<Endianness>| std::str::from_utf8(symbol.name(endian, strings).ok()?).ok();
    let mut names: Vec<_> = functions.filter_map(name).collect();
    names.sort_unstable();
    names
}

/// Returns the value of a symbol.
fn find(endian: Endianness, symbols: &SymbolTable<'_, FileHeader32<Endianness>>, name: &str) -> Option<u32> {
    let strings = symbols.strings();
    let named = |symbol: &&elf::Sym32<Endianness>| {
        use object::read::elf::Sym;
        symbol.name(endian, strings).is_ok_and(|found| found == name.as_bytes())
    };
    symbols.iter().find(named).map(|symbol| symbol.st_value.get(endian))
}

#[cfg(test)]
mod tests {
    use super::{Image, ImageError};
    use std::path::Path;

    #[test]
    fn what_is_no_image_is_refused() {
        for bytes in [&b""[..], b"#!/bin/sh", &[0x7f; 200], b"\x7fELF\x01\x01\x01"] {
            assert!(matches!(Image::of(bytes.to_vec()), Err(ImageError::Elf(_))), "{bytes:?}");
        }
        assert!(matches!(Image::read(Path::new("/nowhere")), Err(ImageError::Read(_))));
        assert!(matches!(Image::read(Path::new("/dev/zero")), Err(ImageError::TooLong)));
    }
}
