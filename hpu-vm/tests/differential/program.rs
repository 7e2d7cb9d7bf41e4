//! A program: an image and the memory it runs on.

use hpu_vm::{Checks, Image, RegionKind};

use crate::assembler::Assembled;
use crate::memory::{Block, MACHINE, TABLES, TABLES_LEN, put_words};
use crate::support::{Elf, R, Segment, W, X};

/// How a program starts.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub entry: u32,
    pub sp: u32,
    pub argument: u32,
    /// Instructions it may execute.
    pub limit: u64,
}

/// Everything an engine needs to run it.
#[derive(Clone, Debug)]
pub struct Program {
    pub seed: u64,
    pub checks: Checks,
    pub start: Start,
    /// All memory, code included, as it is at the start.
    pub blocks: Vec<Block>,
    /// Address and size of each instruction that was generated.
    pub places: Vec<(u32, u8)>,
    /// Where functions begin, as far as its symbols tell.
    functions: Vec<u32>,
    /// The code, loaded.
    pub image: Image,
}

impl Program {
    /// Puts code and tables into the memory and loads the image.
    pub fn new(
        seed: u64,
        checks: Checks,
        start: Start,
        code: &Assembled,
        functions: Vec<u32>,
        mut blocks: Vec<Block>,
    ) -> Self {
        let mut tables = vec![0; TABLES_LEN as usize];
        put_words(&mut tables, &code.table);
        blocks.push(Block::new(RegionKind::Code, TABLES, tables, false));
        for (base, bytes) in &code.sections {
            blocks.push(Block::new(RegionKind::Code, *base, bytes.clone(), false));
        }
        let image = load(&blocks, start.entry, &functions);
        Self { seed, checks, start, blocks, places: code.places.clone(), functions, image }
    }

    /// The program with no-ops in the places given by index.
    pub fn with_no_ops(&self, places: &[usize]) -> Self {
        let mut changed = self.clone();
        for &(address, size) in places.iter().map(|&index| &self.places[index]) {
            let block = changed.blocks.iter_mut().find(|block| address.wrapping_sub(block.base) < block.len);
            let block = block.expect("code in a block");
            let at = (address - block.base) as usize;
            let no_op: &[u8] = if size == 2 { &[1, 0] } else { &[0x13, 0, 0, 0] };
            block.bytes[at..at + usize::from(size)].copy_from_slice(no_op);
        }
        changed.image = load(&changed.blocks, changed.start.entry, &changed.functions);
        changed
    }

    /// Its ELF file.
    pub fn elf(&self) -> Vec<u8> {
        elf(&self.blocks, self.start.entry, &self.functions)
    }

    /// The instructions generated, one on a line; `no_ops` are left out.
    pub fn disassembly(&self, no_ops: &[usize]) -> String {
        let line = |(index, &(address, size)): (usize, &(u32, u8))| {
            if no_ops.contains(&index) {
                return None;
            }
            let text = match self.image.code().fetch(address) {
                Some(decoded) => decoded.inst.to_string(),
                None => "illegal".to_owned(),
            };
            Some(format!("  {address:#010x} ({size})  {text}\n"))
        };
        self.places.iter().enumerate().filter_map(line).collect()
    }
}

fn load(blocks: &[Block], entry: u32, functions: &[u32]) -> Image {
    Image::load(&elf(blocks, entry, functions), &MACHINE)
        .unwrap_or_else(|error| panic!("the generator's image: {error}"))
}

/// The file of those blocks that an image can hold.
fn elf(blocks: &[Block], entry: u32, functions: &[u32]) -> Vec<u8> {
    let elf = Elf { entry, flags: 1, ..Elf::default() }.symbol("payload_handler", entry, 0);
    let elf = functions.iter().fold(elf, |elf, &function| elf.symbol(&format!("at_{function:x}"), function, 0));
    blocks
        .iter()
        .fold(elf, |elf, block| {
            let flags = match block.kind {
                RegionKind::Code if block.base == TABLES => R,
                RegionKind::Code => R | X,
                RegionKind::Data | RegionKind::HandlerMemory => R | W,
                _ => return elf,
            };
            elf.segment(Segment::load(block.base, &block.bytes[..block.len as usize], flags))
        })
        .build()
}
