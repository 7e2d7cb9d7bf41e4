//! Names of an image: entry points by name, functions by address.

use object::LittleEndian as LE;
use object::elf::{self, FileHeader32, Sym32};
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};

use crate::code::Code;
use crate::image::LoadError;

/// Maximum number of entries of a symbol table.
const MAX_SYMBOLS: usize = 1 << 13;
/// Maximum length of a name. No more bytes are read, so that a hostile string table costs little per symbol. Names may
/// overlap in the file, but each is kept by itself.
const MAX_NAME: usize = 128;

/// A named address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    name: Box<str>,
    /// The symbol's value.
    pub(crate) address: u32,
    /// Bytes, 0 if unknown.
    pub(crate) size: u32,
    global: bool,
    function: bool,
}

/// The symbols of an image that have a usable name and a value. Names that are empty, very long or not printable ASCII
/// are left out, since reports print names. Mapping symbols of the psABI (`$x`, `$d`) and the assembler's own labels
/// (`.L`) are left out too: they would hide the functions around them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    /// By name, a global one before local ones.
    by_name: Box<[Symbol]>,
    /// Indices of labels in code, by address, one for each.
    labels: Box<[usize]>,
}

impl Symbols {
    /// Reads `.symtab`; a stripped file has no symbols.
    pub(crate) fn read(header: &FileHeader32<LE>, data: &[u8], code: &Code) -> Result<Self, LoadError> {
        let damaged = |what| crate::image::damaged(what, data);
        let sections = header.sections(LE, data).map_err(damaged("section headers"))?;
        let table = sections.symbols(LE, data, elf::SHT_SYMTAB).map_err(damaged("symbol table"))?;
        if table.is_empty() {
            return Ok(Self::default());
        }
        if table.len() > MAX_SYMBOLS {
            return Err(LoadError::TooManySymbols { count: table.len(), max: MAX_SYMBOLS });
        }
        let strings = sections.section(table.string_section()).map_err(damaged("string table"))?;
        let strings = strings.data(LE, data).map_err(damaged("string table"))?;
        let mut symbols = Vec::new();
        for (index, entry) in table.iter().enumerate() {
            symbols.extend(symbol(index, entry, strings)?);
        }
        Ok(Self::index(symbols, code))
    }

    fn index(mut symbols: Vec<Symbol>, code: &Code) -> Self {
        symbols.sort_by(|a, b| (&a.name, !a.global, a.address).cmp(&(&b.name, !b.global, b.address)));
        let mut labels: Vec<usize> = (0..symbols.len()).filter(|&at| code.contains(symbols[at].address)).collect();
        // The most informative one at each address: a function, global, with a size.
        let rank = |at: usize| {
            let symbol: &Symbol = &symbols[at];
            (symbol.address, !symbol.function, !symbol.global, symbol.size == 0)
        };
        labels.sort_by_key(|&at| rank(at));
        labels.dedup_by_key(|at| symbols[*at].address);
        Self { by_name: symbols.into_boxed_slice(), labels: labels.into_boxed_slice() }
    }

    /// The symbol called `name`.
    pub(crate) fn find(&self, name: &str) -> Option<&Symbol> {
        let at = self.by_name.partition_point(|symbol| *symbol.name < *name);
        self.by_name.get(at).filter(|symbol| *symbol.name == *name)
    }

    /// Start addresses of functions.
    pub(crate) fn functions(&self) -> impl Iterator<Item = u32> {
        self.labels.iter().map(|&at| &self.by_name[at]).filter(|symbol| symbol.function).map(|symbol| symbol.address)
    }

    /// Whether no symbol tells that `address` is outside of all functions.
    pub(crate) fn may_be_code(&self, address: u32) -> bool {
        let after = self.labels.partition_point(|&at| self.by_name[at].address <= address);
        let label = after.checked_sub(1).and_then(|before| self.labels.get(before));
        label.map(|&at| &self.by_name[at]).is_none_or(|symbol| {
            // Labels in assembly have neither type nor size.
            symbol.size == 0 || symbol.function && address - symbol.address < symbol.size
        })
    }

    /// The last label at or before `pc`, and the distance; `None` if the label's size ends before `pc`.
    pub(crate) fn symbolize(&self, pc: u32) -> Option<(&str, u32)> {
        let after = self.labels.partition_point(|&at| self.by_name[at].address <= pc);
        let symbol = &self.by_name[*self.labels.get(after.checked_sub(1)?)?];
        let offset = pc - symbol.address;
        (symbol.size == 0 || offset < symbol.size).then_some((&*symbol.name, offset))
    }
}

/// Converts an entry of the table; `None` when its name or kind is of no use.
fn symbol(index: usize, entry: &Sym32<LE>, strings: &[u8]) -> Result<Option<Symbol>, LoadError> {
    let kind = entry.st_type();
    let named = matches!(kind, elf::STT_NOTYPE | elf::STT_OBJECT | elf::STT_FUNC);
    if !named || entry.is_undefined(LE) {
        return Ok(None);
    }
    let offset = entry.st_name(LE);
    let name = name(strings, offset).ok_or(LoadError::SymbolName { index, offset, table: strings.len() })?;
    let local = name.starts_with(b"$") || name.starts_with(b".L");
    let usable = !name.is_empty() && !local && name.iter().all(u8::is_ascii_graphic);
    Ok(std::str::from_utf8(name).ok().filter(|_| usable).map(|name| Symbol {
        name: name.into(),
        address: entry.st_value(LE),
        size: entry.st_size(LE),
        global: entry.st_bind() != elf::STB_LOCAL,
        function: kind == elf::STT_FUNC,
    }))
}

/// The bytes of a name, which must end with a zero in the table; no bytes for a name longer than [`MAX_NAME`].
fn name(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    let searched = &rest[..rest.len().min(MAX_NAME + 1)];
    match searched.iter().position(|&byte| byte == 0) {
        Some(end) => Some(&searched[..end]),
        None if rest.len() > MAX_NAME => Some(&[]),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Symbol, Symbols};
    use crate::code::Code;

    fn symbol(name: &str, address: u32, size: u32, global: bool, function: bool) -> Symbol {
        Symbol { name: name.into(), address, size, global, function }
    }

    fn symbols() -> Symbols {
        let code = Code::at(0x1000, &[1; 64]);
        let list = vec![
            symbol("text_start", 0x1000, 0, true, false),
            symbol("first", 0x1000, 8, true, true),
            symbol("twice", 0x1020, 4, false, true),
            symbol("twice", 0x1010, 0, true, true),
            symbol("data", 0x2000, 4, true, false),
        ];
        Symbols::index(list, &code)
    }

    #[test]
    fn constants_are_not_code() {
        let code = Code::at(0x1000, &[1; 64]);
        let list = vec![
            symbol("sized", 0x1004, 8, true, true),
            symbol("label", 0x1010, 0, false, false),
            symbol("object", 0x1020, 8, false, false),
        ];
        let symbols = Symbols::index(list, &code);
        let expected = [
            (0x1000, true),
            (0x1004, true),
            (0x100a, true),
            (0x100c, false),
            (0x1010, true),
            (0x101e, true),
            (0x1020, false),
            (0x1028, false),
        ];
        for (address, is_code) in expected {
            assert_eq!(symbols.may_be_code(address), is_code, "{address:#x}");
        }
        assert!(Symbols::default().may_be_code(0x1000), "a stripped image");
    }

    #[test]
    fn a_global_symbol_is_preferred() {
        let symbols = symbols();
        assert_eq!(symbols.find("twice").map(|s| s.address), Some(0x1010));
        assert_eq!(symbols.find("data").map(|s| (s.address, s.size)), Some((0x2000, 4)));
        assert_eq!(symbols.find("dat"), None);
        assert_eq!(symbols.find("zzz"), None);
    }

    #[test]
    fn functions_by_address() {
        let symbols = symbols();
        let cases = [
            (0x0fff, None),
            (0x1000, Some(("first", 0))),
            (0x1007, Some(("first", 7))),
            (0x1008, None),
            (0x1010, Some(("twice", 0))),
            (0x101f, Some(("twice", 15))),
            (0x1023, Some(("twice", 3))),
            (0x1024, None),
            (0x2000, None),
        ];
        for (pc, expected) in cases {
            assert_eq!(symbols.symbolize(pc), expected, "{pc:#x}");
        }
        assert_eq!(Symbols::default().symbolize(0x1000), None);
    }
}
