//! An ELF writer for tests: every field can be set wrong. Shared by the tests of this crate and its fuzz target.
#![allow(dead_code, reason = "each test uses a part of it")]

use hpu_vm::{Inst, Reg};

/// Read permission of a segment.
pub const R: u32 = 4;
/// Write permission.
pub const W: u32 = 2;
/// Execute permission.
pub const X: u32 = 1;

/// Where the segments' bytes are aligned, so that qemu can map the file.
const PAGE: usize = 4096;
const EHDR: usize = 52;
const PHDR: usize = 32;
const SHDR: usize = 40;

/// A program header and its bytes.
#[derive(Clone, Debug)]
pub struct Segment {
    pub kind: u32,
    pub address: u32,
    pub bytes: Vec<u8>,
    /// Bytes in memory.
    pub memory: u32,
    pub flags: u32,
}

impl Segment {
    /// A LOAD segment as long in memory as in the file.
    pub fn load(address: u32, bytes: &[u8], flags: u32) -> Self {
        Self { kind: 1, address, bytes: bytes.to_vec(), memory: u32::try_from(bytes.len()).unwrap(), flags }
    }

    pub fn memory(self, memory: u32) -> Self {
        Self { memory, ..self }
    }
}

/// A global function symbol.
#[derive(Clone, Debug)]
pub struct Symbol {
    pub name: String,
    pub value: u32,
    pub size: u32,
}

/// An ELF file to be.
#[derive(Clone, Debug, Default)]
pub struct Elf {
    pub entry: u32,
    pub flags: u32,
    pub segments: Vec<Segment>,
    pub symbols: Vec<Symbol>,
}

impl Elf {
    pub fn segment(mut self, segment: Segment) -> Self {
        self.segments.push(segment);
        self
    }

    pub fn symbol(mut self, name: &str, value: u32, size: u32) -> Self {
        self.symbols.push(Symbol { name: name.to_owned(), value, size });
        self
    }

    /// The file: headers, segments at page offsets that fit their addresses, symbols, section headers last.
    pub fn build(&self) -> Vec<u8> {
        let mut file = vec![0; EHDR + PHDR * self.segments.len()];
        for (index, segment) in self.segments.iter().enumerate() {
            let offset = file.len().next_multiple_of(PAGE) + segment.address as usize % PAGE;
            file.resize(offset, 0);
            file.extend_from_slice(&segment.bytes);
            let fields = [
                segment.kind,
                word(offset),
                segment.address,
                segment.address,
                word(segment.bytes.len()),
                segment.memory,
                segment.flags,
                word(PAGE),
            ];
            put(&mut file, EHDR + PHDR * index, &fields);
        }
        let sections = self.append_symbols(&mut file);
        self.put_header(&mut file, sections);
        file
    }

    /// Appends symbols, names and section headers; returns the offset of the latter.
    fn append_symbols(&self, file: &mut Vec<u8>) -> usize {
        let mut names = vec![0];
        let symbols = file.len().next_multiple_of(4);
        file.resize(symbols + 16, 0);
        for symbol in &self.symbols {
            let fields = [word(names.len()), symbol.value, symbol.size];
            file.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
            // Global function, in an arbitrary section.
            file.extend_from_slice(&[0x12, 0, 0xf1, 0xff]);
            names.extend_from_slice(symbol.name.as_bytes());
            names.push(0);
        }
        let strings = file.len();
        file.extend_from_slice(&names);
        let sections = file.len().next_multiple_of(4);
        file.resize(sections + 3 * SHDR, 0);
        let symtab = [0, 2, 0, 0, word(symbols), word(strings - symbols), 2, 1, 4, 16];
        let strtab = [0, 3, 0, 0, word(strings), word(names.len()), 0, 0, 1, 0];
        put(file, sections + SHDR, &symtab);
        put(file, sections + 2 * SHDR, &strtab);
        sections
    }

    fn put_header(&self, file: &mut [u8], sections: usize) {
        file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 1, 1, 1]);
        let segments = word(self.segments.len());
        put(file, 16, &[243 << 16 | 2, 1, self.entry, word(EHDR), word(sections), self.flags]);
        put(file, 40, &[word(PHDR) << 16 | word(EHDR), word(SHDR) << 16 | segments, 2 << 16 | 3]);
    }
}

/// Little-endian bytes of 4-byte instructions.
pub fn assemble(program: &[Inst]) -> Vec<u8> {
    program.iter().flat_map(|inst| inst.encode().to_le_bytes()).collect()
}

/// `ret`
pub const RET: Inst = Inst::new(hpu_vm::Op::Jalr).rs1(Reg::RA);

/// A valid image of every kind of segment: code, read-only data, data with zeroes after it, handler memory.
pub fn sample() -> Elf {
    Elf { entry: 0x1d00_0004, flags: 1, ..Elf::default() }
        .segment(Segment::load(0x1d00_0000, &assemble(&[RET, RET, RET]), R | X))
        .segment(Segment::load(0x1d00_1000, b"constant", R))
        .segment(Segment::load(0x1c00_0000, b"variable", R | W).memory(24))
        .segment(Segment::load(0x1c30_0000, b"state", R | W).memory(0x1800))
        .symbol("header_handler", 0x1d00_0000, 4)
        .symbol("payload_handler", 0x1d00_0004, 4)
        .symbol("completion_handler", 0x1d00_0008, 4)
        .symbol("counter", 0x1c00_0000, 8)
}

fn word(value: usize) -> u32 {
    u32::try_from(value).unwrap()
}

fn put(file: &mut [u8], offset: usize, words: &[u32]) {
    for (place, word) in file[offset..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}
