//! Labels, addresses and compressed encodings: what stands between a generator and bytes.

use std::collections::HashMap;
use std::sync::OnceLock;

use hpu_vm::compressed::expand;
use hpu_vm::{Inst, Op, Reg};

use crate::random::Random;

/// Every compressed encoding of an instruction.
pub fn compressed(inst: Inst) -> &'static [u16] {
    static ENCODINGS: OnceLock<HashMap<Inst, Vec<u16>>> = OnceLock::new();
    let encodings = ENCODINGS.get_or_init(|| {
        let mut encodings: HashMap<Inst, Vec<u16>> = HashMap::new();
        for half in 0..=u16::MAX {
            if let Some((_, inst)) = expand(half) {
                encodings.entry(inst).or_default().push(half);
            }
        }
        encodings
    });
    encodings.get(&inst).map_or(&[], Vec::as_slice)
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Something that takes its place in the code.
#[derive(Clone, Debug)]
enum Item {
    /// Encoded bits of 2 or 4 bytes.
    Bits(u32, u8),
    /// A branch or jump whose offset leads `addend` bytes behind the label; compressed if it can be and `short` is set.
    To {
        inst: Inst,
        label: Label,
        addend: i32,
        short: bool,
    },
    /// Two instructions that set a register to an address, relative to `pc` or not.
    Address {
        rd: Reg,
        label: Label,
        addend: i32,
        relative: bool,
    },
    Bind(Label),
    /// What follows begins at this address.
    Section(u32),
}

/// A program under construction.
#[derive(Default)]
pub struct Assembler {
    items: Vec<Item>,
    labels: usize,
    tables: Vec<Label>,
}

/// Where everything ended up.
pub struct Assembled {
    /// Base and bytes, in the order of the sections.
    pub sections: Vec<(u32, Vec<u8>)>,
    /// Address and size of each instruction.
    pub places: Vec<(u32, u8)>,
    /// The words of the table.
    pub table: Vec<u32>,
    labels: Vec<u32>,
}

impl Assembled {
    /// Address of a label.
    pub fn address(&self, label: Label) -> u32 {
        self.labels[label.0]
    }
}

impl Assembler {
    /// A label to be bound.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Binds a label to what follows.
    pub fn bind(&mut self, label: Label) {
        self.items.push(Item::Bind(label));
    }

    /// A label bound to what follows.
    pub fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Goes on at `base`.
    pub fn section(&mut self, base: u32) {
        self.items.push(Item::Section(base));
    }

    /// Adds an instruction, half the time compressed if it can be.
    pub fn inst(&mut self, random: &mut Random, inst: Inst) {
        let halves = compressed(inst);
        if halves.is_empty() || random.one_in(2) {
            self.word(inst.encode());
        } else {
            self.half(random.choose(halves));
        }
    }

    /// Adds two bytes.
    pub fn half(&mut self, half: u16) {
        self.items.push(Item::Bits(u32::from(half), 2));
    }

    /// Adds four bytes.
    pub fn word(&mut self, word: u32) {
        self.items.push(Item::Bits(word, 4));
    }

    /// Adds a branch or `jal` to `addend` bytes behind `label`.
    pub fn to(&mut self, random: &mut Random, inst: Inst, label: Label, addend: i32) {
        self.items.push(Item::To { inst, label, addend, short: random.one_in(2) });
    }

    /// Sets `rd` to `addend` bytes behind `label`.
    pub fn address(&mut self, random: &mut Random, rd: Reg, label: Label, addend: i32) {
        self.items.push(Item::Address { rd, label, addend, relative: random.one_in(2) });
    }

    /// Adds a word to the table and returns its offset in it.
    pub fn table(&mut self, entries: &[Label]) -> u32 {
        let offset = 4 * u32::try_from(self.tables.len()).unwrap();
        self.tables.extend_from_slice(entries);
        offset
    }

    /// Words in the table.
    pub fn table_len(&self) -> usize {
        self.tables.len()
    }

    /// Bound on the instructions so far.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Lays everything out.
    pub fn assemble(mut self) -> Assembled {
        // A jump that does not fit its short form gets the long one, until all fit.
        let labels = loop {
            let labels = self.lay_out();
            if !self.lengthen(&labels) {
                break labels;
            }
        };
        let mut result = Assembled {
            table: self.tables.iter().map(|label| labels[label.0]).collect(),
            sections: Vec::new(),
            places: Vec::new(),
            labels,
        };
        for item in &self.items {
            result.add(item);
        }
        result
    }

    fn lay_out(&self) -> Vec<u32> {
        let mut labels = vec![0; self.labels];
        let mut pc = 0;
        for item in &self.items {
            match *item {
                Item::Bind(label) => labels[label.0] = pc,
                Item::Section(base) => pc = base,
                _ => pc += size(item),
            }
        }
        labels
    }

    /// Takes the short form from jumps that do not fit it; whether there were any.
    fn lengthen(&mut self, labels: &[u32]) -> bool {
        let (mut pc, mut changed) = (0, false);
        for item in &mut self.items {
            if let Item::Section(base) = *item {
                pc = base;
                continue;
            }
            let len = size(item);
            if let Item::To { inst, label, addend, short } = item
                && *short
                && compressed(inst.imm(distance(pc, labels[label.0], *addend))).is_empty()
            {
                (*short, changed) = (false, true);
            }
            pc += len;
        }
        changed
    }
}

fn size(item: &Item) -> u32 {
    match item {
        Item::Bits(_, size) => u32::from(*size),
        Item::To { short, .. } => 4 - 2 * u32::from(*short),
        Item::Address { .. } => 8,
        Item::Bind(_) | Item::Section(_) => 0,
    }
}

fn distance(pc: u32, label: u32, addend: i32) -> i32 {
    label.wrapping_sub(pc).wrapping_add(addend.cast_unsigned()).cast_signed()
}

impl Assembled {
    fn add(&mut self, item: &Item) {
        match *item {
            Item::Bits(bits, size) => self.place(bits, size),
            Item::To { inst, label, addend, short } => {
                let inst = inst.imm(distance(self.pc(), self.labels[label.0], addend));
                if short {
                    self.place(u32::from(compressed(inst)[0]), 2);
                } else {
                    self.place(inst.encode(), 4);
                }
            }
            Item::Address { rd, label, addend, relative } => {
                let target = self.labels[label.0].wrapping_add(addend.cast_unsigned());
                let (op, value) =
                    if relative { (Op::Auipc, target.wrapping_sub(self.pc())) } else { (Op::Lui, target) };
                let (high, low) = split(value);
                self.place(Inst::new(op).rd(rd).imm(high).encode(), 4);
                self.place(Inst::new(Op::Addi).rd(rd).rs1(rd).imm(low).encode(), 4);
            }
            Item::Bind(_) => {}
            Item::Section(base) => self.sections.push((base, Vec::new())),
        }
    }

    fn pc(&self) -> u32 {
        self.sections.last().map_or(0, |(base, bytes)| base + u32::try_from(bytes.len()).unwrap())
    }

    fn place(&mut self, bits: u32, size: u8) {
        self.places.push((self.pc(), size));
        let (_, bytes) = self.sections.last_mut().expect("a section");
        bytes.extend_from_slice(&bits.to_le_bytes()[..usize::from(size)]);
    }
}

/// A value as `lui` and a signed 12-bit rest.
pub fn split(value: u32) -> (i32, i32) {
    let low = (value << 20).cast_signed() >> 20;
    (value.wrapping_sub(low.cast_unsigned()).cast_signed(), low)
}
