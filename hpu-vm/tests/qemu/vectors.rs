//! Programs of vector instructions: each one in every form under a random type and length, its results logged.
//!
//! A snippet fills registers, sets a type and a length, executes one instruction, and appends what that may have
//! changed to a log in memory. Stores go to the log itself. qemu's log of the same program must be the same.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use hpu_vm::vector::inst::{Operands, Shape};
use hpu_vm::vector::{
    Addressing, Arithmetic, Configure, Direction, Length, Memory, NewType, Source, VReg, VectorInst, VectorOp, Vtype,
    Width,
};
use hpu_vm::{Code, Exit, Hart, Inst, NoDevice, Op, Reg, View, run};
use spin_abi::fault::Cause;

use crate::program::{Program, SCRATCH};
use crate::random::Random;

/// Random data that registers are filled from and loads read.
const POOL_SIZE: u32 = 4096;
/// After it: for each element width 128 bytes of small numbers, for indices.
const INDICES: u32 = SCRATCH + POOL_SIZE;
/// No index is greater.
const INDEX_LIMIT: u32 = 448;
/// Where the log begins.
const LOG: u32 = INDICES + 3 * GROUP;
/// Bytes of eight registers.
const GROUP: u32 = 128;
/// Bytes of the log that a store of any kind stays in, and offset of its base address there.
const STORE_WINDOW: (u32, u32) = (1152, 512);

/// Points to what a snippet is about to access.
const POINTER: Reg = Reg::new(31);
/// Holds the length asked for.
const LENGTH: Reg = Reg::new(30);

/// A program and what it logs.
pub struct Vectors {
    pub program: Program,
    /// First address of each snippet's part of the log, and the snippet.
    pub log: BTreeMap<u32, String>,
}

/// How often each kind of instruction was executed, under which types, masked and not.
#[derive(Default)]
pub struct Coverage {
    kinds: BTreeMap<String, (usize, BTreeSet<u32>, BTreeSet<bool>)>,
    /// Shapes whose destination overlapped a first source with elements of another width.
    overlapping: HashSet<Shape>,
}

impl Coverage {
    fn count(&mut self, inst: VectorInst, bits: u32) {
        let (times, types, masks) = self.kinds.entry(name(inst)).or_default();
        *times += 1;
        types.insert(bits & 0x3f);
        masks.insert(is_masked(inst));
        if let VectorInst::Arithmetic(inst) = inst
            && let Some([vd, vs2]) = ranges(inst, Vtype::from_bits(bits).unwrap())
            && vd.start < vs2.end
            && vs2.start < vd.end
        {
            self.overlapping.insert(inst.op.shape());
        }
    }

    /// Checks that every kind was executed often enough.
    pub fn check(&self, least: usize) {
        for kind in kinds() {
            let name = name(kind);
            let (times, types, masks) = self.kinds.get(&name).unwrap_or_else(|| panic!("{name} was never executed"));
            assert!(*times >= least, "{name} was executed {times} times only");
            // Extension by 4 needs SEW = 32 and LMUL of at least 1/2, segments of 8 fields LMUL up to 1.
            assert!(types.len() >= 3, "{name} was executed under {types:x?} only");
            assert!(!can_be_masked(kind) || masks.len() == 2, "{name} was always or never masked");
        }
        for shape in VectorOp::ALL.iter().map(|op| op.shape()).filter(|&shape| widths(shape, Width::E32).is_some()) {
            assert!(self.overlapping.contains(&shape), "{shape:?} never overlapped its source");
        }
    }
}

/// Widths of vd and vs2 where they differ, `widest` being the wider one.
fn widths(shape: Shape, widest: Width) -> Option<[Option<Width>; 2]> {
    let (widest, half) = (Some(widest), widest.divided(1));
    match shape {
        Shape::Widen | Shape::WidenAccumulate | Shape::Extend2 => Some([widest, half]),
        Shape::Extend4 => Some([widest, widest.and_then(|width| width.divided(2))]),
        Shape::Narrow => Some([half, widest]),
        _ => None,
    }
}

/// The registers of vd and vs2 where the widths of their elements differ.
fn ranges(inst: Arithmetic, vtype: Vtype) -> Option<[Range<u32>; 2]> {
    let widest = match inst.op.shape() {
        Shape::Extend2 | Shape::Extend4 => vtype.sew,
        _ => vtype.sew.doubled()?,
    };
    let [vd, vs2] = widths(inst.op.shape(), widest)?;
    let range =
        |first: VReg, width: Option<Width>| Some(first.number()..first.number() + vtype.group(width?)?.registers());
    Some([range(inst.vd, vd)?, range(inst.vs2, vs2)?])
}

/// The mnemonic: one for each kind.
fn name(inst: VectorInst) -> String {
    inst.to_string().split(' ').next().unwrap().to_owned()
}

const fn is_masked(inst: VectorInst) -> bool {
    match inst {
        VectorInst::Configure(_) => false,
        VectorInst::Memory(inst) => inst.masked,
        VectorInst::Arithmetic(inst) => inst.masked,
    }
}

fn can_be_masked(inst: VectorInst) -> bool {
    let masked = match inst {
        VectorInst::Configure(_) => return false,
        VectorInst::Memory(inst) => VectorInst::Memory(Memory { masked: true, ..inst }),
        VectorInst::Arithmetic(inst) => VectorInst::Arithmetic(Arithmetic { masked: true, ..inst }),
    };
    hpu_vm::vector::decode(masked.encode()).is_some() && masked.to_string().ends_with("v0.t")
}

/// One instruction of every kind, its registers yet to be chosen.
pub fn kinds() -> Vec<VectorInst> {
    let register = Reg::A0;
    let configure = [
        (Length::Register(register), NewType::Immediate(0)),
        (Length::Immediate(0), NewType::Immediate(0)),
        (Length::Register(register), NewType::Register(register)),
    ];
    let configure =
        configure.map(|(length, vtype)| VectorInst::Configure(Configure { rd: register, length, vtype })).into_iter();
    let arithmetic = VectorOp::ALL.iter().flat_map(|&op| {
        sources(op.operands()).into_iter().map(move |source| {
            VectorInst::Arithmetic(Arithmetic { op, vd: VReg::V0, vs2: VReg::V0, source, masked: false })
        })
    });
    configure.chain(memory_kinds()).chain(arithmetic).collect()
}

fn sources(operands: Operands) -> Vec<Source> {
    let (v, x, i) = (Source::Vector(VReg::V0), Source::Scalar(Reg::A0), Source::Immediate(1));
    match operands {
        Operands::V => vec![v],
        Operands::X => vec![x],
        Operands::VX => vec![v, x],
        Operands::XI | Operands::XU => vec![x, i],
        Operands::VXI | Operands::VXU => vec![v, x, i],
        Operands::Unary(_) => vec![Source::None],
        // The number of registers is part of the name.
        Operands::Count => [1, 2, 4, 8].map(Source::Immediate).to_vec(),
    }
}

fn memory_kinds() -> Vec<VectorInst> {
    let mut kinds = Vec::new();
    for direction in [Direction::Load, Direction::Store] {
        for (width, fields) in Width::ALL.into_iter().flat_map(|width| (1..=8).map(move |fields| (width, fields))) {
            let indexed = |ordered| Addressing::Indexed { vs2: VReg::V0, ordered };
            let all = [
                Addressing::Unit,
                Addressing::Strided(Reg::A0),
                indexed(false),
                indexed(true),
                Addressing::Whole,
                Addressing::Mask,
            ];
            for addressing in all {
                let inst = Memory { direction, vd: VReg::V0, rs1: Reg::A0, addressing, width, fields, masked: false };
                let inst = VectorInst::Memory(inst);
                kinds.extend(hpu_vm::vector::decode(inst.encode()));
            }
        }
    }
    kinds
}

/// A program with every kind once, in random order.
pub fn program(seed: u64, coverage: &mut Coverage) -> Vectors {
    let mut random = Random::new(seed);
    let pool = (0..POOL_SIZE / 4).flat_map(|_| element_bytes(&mut random));
    let mut scratch: Vec<u8> = pool.collect();
    for width in Width::ALL {
        let limit = INDEX_LIMIT.min(1 << (width.bits() - 1));
        for _ in 0..GROUP / width.bytes() {
            let limit = random.choose(&[limit, 40]);
            scratch.extend_from_slice(&random.below(limit).to_le_bytes()[..width.bytes() as usize]);
        }
    }
    let mut generator = Generator { program: Program::new(Vec::new()), random, log: BTreeMap::new(), end: LOG };
    let mut all = kinds();
    for last in (1..all.len()).rev() {
        all.swap(last, generator.random.below(u32::try_from(last + 1).unwrap()) as usize);
    }
    for number in 1..32 {
        let value = generator.random.value();
        generator.program.set(Reg::new(number), value);
    }
    generator.fill(0, 4);
    for kind in all {
        generator.snippet(kind, coverage);
    }
    generator.log_registers(0, 4);
    scratch.resize((generator.end - SCRATCH) as usize, 0);
    generator.program.set_scratch(scratch);
    generator.program.finish();
    Vectors { program: generator.program, log: generator.log }
}

/// Four bytes that are an edge as a word, as two half-words or as bytes.
fn element_bytes(random: &mut Random) -> [u8; 4] {
    let (a, b) = (random.value(), random.value());
    match random.below(3) {
        0 => a.to_le_bytes(),
        1 => (a & 0xffff | b << 16).to_le_bytes(),
        _ => [a, b, a >> 8, b >> 8].map(|value| value.to_le_bytes()[0]),
    }
}

struct Generator {
    program: Program,
    random: Random,
    log: BTreeMap<u32, String>,
    /// End of the log.
    end: u32,
}

impl Generator {
    fn snippet(&mut self, kind: VectorInst, coverage: &mut Coverage) {
        let (bits, inst) = self.choose(kind);
        let vl = self.length(Vtype::from_bits(bits).unwrap());
        for group in 0..4 {
            if self.random.one_in(3) {
                self.fill(group, 1);
            }
        }
        self.log.insert(self.end, format!("{inst} with vtype {bits:#x}, {vl} elements wanted"));
        coverage.count(inst, bits);
        match inst {
            VectorInst::Configure(inst) => self.configure(inst, bits, vl),
            VectorInst::Memory(inst) => self.memory(inst, bits, vl),
            VectorInst::Arithmetic(inst) => self.arithmetic(inst, bits, vl),
        }
    }

    /// Registers for `kind` and a type under which it is legal.
    fn choose(&mut self, kind: VectorInst) -> (u32, VectorInst) {
        loop {
            let bits = self.random.below(0x100);
            // Few registers fit a large group: were the type drawn anew each time, it would hardly ever have one.
            let tries = if Vtype::from_bits(bits).is_some() { 64 } else { 0 };
            for _ in 0..tries {
                let inst = self.with_registers(kind, bits);
                if is_legal(inst, bits) {
                    return (bits, inst);
                }
            }
        }
    }

    fn with_registers(&mut self, kind: VectorInst, bits: u32) -> VectorInst {
        let mut vector = || VReg::new(self.random.below(32));
        let (vd, vs2, vs1) = (vector(), vector(), vector());
        let masked = can_be_masked(kind) && self.random.one_in(2);
        // Not x0, nor those that snippets use.
        let register = Reg::new(1 + self.random.below(29));
        match kind {
            VectorInst::Configure(inst) => VectorInst::Configure(self.configuration(inst, bits)),
            VectorInst::Memory(inst) => {
                let addressing = match inst.addressing {
                    Addressing::Strided(_) => Addressing::Strided(LENGTH),
                    Addressing::Indexed { ordered, .. } => Addressing::Indexed { vs2, ordered },
                    other => other,
                };
                VectorInst::Memory(Memory { vd, rs1: register, addressing, masked, ..inst })
            }
            VectorInst::Arithmetic(inst) => {
                let source = match (inst.source, inst.op.operands()) {
                    (Source::Vector(_), _) => Source::Vector(vs1),
                    (Source::Scalar(_), _) => Source::Scalar(register),
                    (Source::Immediate(_), Operands::XI | Operands::VXI) => Source::Immediate(self.random.signed(5)),
                    (Source::Immediate(_), Operands::XU | Operands::VXU) => {
                        Source::Immediate(self.random.below(32).cast_signed())
                    }
                    (other, _) => other,
                };
                // Where the field must be zero, only zero is legal.
                let vs2 = match self.random.below(4) {
                    0 => VReg::V0,
                    // The last register of a group of one, two, four or eight.
                    1 | 2 => VReg::new(vd.number() + self.random.choose(&[0, 1, 3, 7])),
                    _ => vs2,
                };
                let masked = masked || inst.op == VectorOp::Merge;
                VectorInst::Arithmetic(Arithmetic { vd, vs2, source, masked, ..inst })
            }
        }
    }

    fn configuration(&mut self, kind: Configure, bits: u32) -> Configure {
        let rd = self.random.choose(&[Reg::ZERO, Reg::A0, Reg::A1]);
        let length = match kind.length {
            Length::Immediate(_) => Length::Immediate(self.random.below(32)),
            _ => match self.random.below(4) {
                0 if rd == Reg::ZERO => Length::Keep,
                0 => Length::Max,
                _ => Length::Register(LENGTH),
            },
        };
        let vtype = match kind.vtype {
            NewType::Immediate(_) => NewType::Immediate(bits),
            NewType::Register(_) => NewType::Register(POINTER),
        };
        Configure { rd, length, vtype }
    }

    /// A number of elements to ask for.
    fn length(&mut self, vtype: Vtype) -> u32 {
        let vlmax = vtype.vlmax();
        match self.random.below(8) {
            0 => 0,
            1 => 1,
            2..5 => vlmax,
            5 => self.random.value(),
            _ => self.random.below(vlmax),
        }
    }

    fn vector(&mut self, inst: VectorInst) {
        self.program.inst(inst.into());
    }

    fn set_type(&mut self, bits: u32, vl: u32) {
        self.program.set(LENGTH, vl);
        let length = Length::Register(LENGTH);
        self.vector(VectorInst::Configure(Configure { rd: LENGTH, length, vtype: NewType::Immediate(bits) }));
    }

    /// Loads or stores `count` groups of eight registers from `first` on, at `address`.
    fn whole(&mut self, direction: Direction, first: u32, count: u32, address: u32) {
        for group in 0..count {
            self.program.set(POINTER, address + group * GROUP);
            self.vector(VectorInst::Memory(Memory {
                direction,
                vd: VReg::new((first + group) * 8),
                rs1: POINTER,
                addressing: Addressing::Whole,
                width: Width::E8,
                fields: 8,
                masked: false,
            }));
        }
    }

    /// Fills `count` groups from anywhere in the pool.
    fn fill(&mut self, first: u32, count: u32) {
        let address = SCRATCH + self.random.below(POOL_SIZE - count * GROUP);
        self.whole(Direction::Load, first, count, address);
    }

    fn log_registers(&mut self, first: u32, count: u32) {
        let count = count.min(4 - first);
        self.whole(Direction::Store, first, count, self.end);
        self.end += count * GROUP;
    }

    fn log_scalar(&mut self, register: Reg) {
        self.program.set(POINTER, self.end);
        self.program.inst(Inst::new(Op::Sw).rs1(POINTER).rs2(register));
        self.end += 4;
    }

    fn log_csr(&mut self, number: i32) {
        self.program.inst(Inst::new(Op::Csrrs).rd(LENGTH).imm(number));
        self.log_scalar(LENGTH);
    }

    /// The type wanted, or one that is illegal; then a legal one again.
    fn configure(&mut self, inst: Configure, bits: u32, vl: u32) {
        let wanted = if self.random.one_in(3) { self.random.value() } else { bits };
        let vtype = match inst.vtype {
            NewType::Immediate(_) => NewType::Immediate(wanted & 0x3ff),
            NewType::Register(_) => inst.vtype,
        };
        self.program.set(LENGTH, vl);
        self.program.set(POINTER, wanted);
        self.vector(VectorInst::Configure(Configure { vtype, ..inst }));
        if inst.rd != Reg::ZERO {
            self.log_scalar(inst.rd);
        }
        for number in [0xc20, 0xc21, 0xc22] {
            self.log_csr(number);
        }
        self.set_type(bits, vl);
    }

    fn memory(&mut self, inst: Memory, bits: u32, vl: u32) {
        let load = inst.direction == Direction::Load;
        let base = if load {
            SCRATCH + STORE_WINDOW.1 + self.random.below(POOL_SIZE - STORE_WINDOW.0)
        } else {
            self.end + STORE_WINDOW.1
        };
        if let Addressing::Indexed { vs2, .. } = inst.addressing {
            let table = INDICES + inst.width.log2() * GROUP;
            self.whole(Direction::Load, vs2.number() / 8, 1, table);
        }
        self.set_type(bits, vl);
        self.program.set(inst.rs1, base);
        if let Addressing::Strided(register) = inst.addressing {
            let most = STORE_WINDOW.1.cast_signed() / vl.clamp(1, GROUP).cast_signed();
            let stride = self.random.choose(&[0, 1, -1, 4, 6, -8, most, -most]).clamp(-most, most);
            self.program.set(register, stride.cast_unsigned());
        }
        self.vector(VectorInst::Memory(inst));
        if load {
            self.log_registers(inst.vd.number() / 8, 2);
        } else {
            self.end += STORE_WINDOW.0;
        }
    }

    fn arithmetic(&mut self, inst: Arithmetic, bits: u32, vl: u32) {
        if let (VectorOp::Gather | VectorOp::Gather16, Source::Vector(vs1)) = (inst.op, inst.source) {
            let width = Vtype::from_bits(bits).unwrap().sew;
            let width = if inst.op == VectorOp::Gather16 { Width::E16 } else { width };
            self.whole(Direction::Load, vs1.number() / 8, 1, INDICES + width.log2() * GROUP);
        }
        self.set_type(bits, vl);
        let rounding = Reg::new(self.random.below(4));
        self.program.inst(Inst::new(Op::Csrrwi).imm(0x00a).rs1(rounding));
        self.program.inst(Inst::new(Op::Csrrwi).imm(0x009));
        if let Source::Scalar(register) = inst.source {
            let value = if self.random.one_in(2) { self.random.below(40) } else { self.random.value() };
            self.program.set(register, value);
        }
        self.vector(VectorInst::Arithmetic(inst));
        self.log_registers(inst.vd.number() / 8, 1);
        // A scalar result, if that is what it has.
        if !matches!(inst.rd(), Reg::ZERO | POINTER) {
            self.log_scalar(inst.rd());
        }
        self.log_csr(0x009);
    }
}

/// Whether the interpreter executes `inst` under that type: tried with no elements, so that nothing is accessed.
pub fn is_legal(inst: VectorInst, bits: u32) -> bool {
    const BASE: u32 = 0x1d00_0000;
    if matches!(inst, VectorInst::Memory(Memory { addressing: Addressing::Whole, .. })) {
        return hpu_vm::vector::decode(inst.encode()).is_some();
    }
    let none = Configure { rd: Reg::ZERO, length: Length::Immediate(0), vtype: NewType::Immediate(bits) };
    let code: Vec<u8> = [VectorInst::Configure(none), inst].iter().flat_map(|i| i.encode().to_le_bytes()).collect();
    let mut hart = Hart::new(0);
    hart.pc = BASE;
    match run(&mut hart, &Code::at(BASE, &code), &mut View::new(), &mut NoDevice, 2) {
        Exit::Fault(fault) => fault.cause != Cause::IllegalInstruction,
        _ => true,
    }
}

/// An instruction of a random kind and a type under which it is illegal here, though another type or other registers
/// would make it legal.
pub fn illegal(random: &mut Random) -> (u32, VectorInst) {
    let mut generator = Generator {
        program: Program::new(Vec::new()),
        random: Random::new(random.next()),
        log: BTreeMap::new(),
        end: LOG,
    };
    let kinds = kinds();
    loop {
        let kind = generator.random.choose(&kinds);
        let bits = generator.random.below(0x40);
        let inst = generator.with_registers(kind, bits);
        if Vtype::from_bits(bits).is_some() && !is_legal(inst, bits) {
            return (bits, inst);
        }
    }
}
