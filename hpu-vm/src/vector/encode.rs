//! Encoder of vector instructions: the inverse of the decoder.

use crate::reg::Reg;
use crate::vector::decode::{LOAD_FP, OP_V, STORE_FP};
use crate::vector::inst::{
    Addressing, Arithmetic, Configure, Direction, Length, Major, Memory, NewType, Operands, Source, VectorInst,
};
use crate::vector::vtype::Width;

impl VectorInst {
    /// Returns the 4-byte encoding. Numbers out of range are truncated to the width of their field.
    #[must_use]
    pub const fn encode(self) -> u32 {
        match self {
            Self::Configure(inst) => configure(inst),
            Self::Memory(inst) => memory(inst),
            Self::Arithmetic(inst) => arithmetic(inst),
        }
    }
}

const fn configure(inst: Configure) -> u32 {
    let length = match inst.length {
        Length::Register(reg) => reg.number(),
        Length::Immediate(count) => count & 31,
        Length::Max | Length::Keep => Reg::ZERO.number(),
    };
    let vtype = match (inst.vtype, inst.length) {
        (NewType::Immediate(bits), Length::Immediate(_)) => 3 << 30 | (bits & 0x3ff) << 20,
        (NewType::Immediate(bits), _) => (bits & 0x7ff) << 20,
        (NewType::Register(reg), _) => 0x40 << 25 | reg.number() << 20,
    };
    OP_V | 7 << 12 | inst.rd.number() << 7 | length << 15 | vtype
}

const fn memory(inst: Memory) -> u32 {
    let opcode = match inst.direction {
        Direction::Load => LOAD_FP,
        Direction::Store => STORE_FP,
    };
    let width = match inst.width {
        Width::E8 => 0,
        Width::E16 => 5,
        Width::E32 => 6,
    };
    let (mop, field) = match inst.addressing {
        Addressing::Unit => (0, 0x00),
        Addressing::Whole => (0, 0x08),
        Addressing::Mask => (0, 0x0b),
        Addressing::Strided(rs2) => (2, rs2.number()),
        Addressing::Indexed { vs2, ordered } => (1 | (ordered as u32) << 1, vs2.number()),
    };
    let fields = inst.fields.wrapping_sub(1) << 29;
    let registers = inst.vd.number() << 7 | inst.rs1.number() << 15 | field << 20;
    opcode | width << 12 | registers | vm(inst.masked) | mop << 26 | fields
}

const fn arithmetic(inst: Arithmetic) -> u32 {
    let op = inst.op;
    let (funct3, field) = match (op.major(), inst.source, op.operands()) {
        (_, Source::None, Operands::Unary(selector)) => (2, selector),
        (_, Source::None, _) => (2, 0),
        (_, Source::Immediate(count), Operands::Count) => (3, count.wrapping_sub(1).cast_unsigned()),
        (_, Source::Immediate(value), _) => (3, value.cast_unsigned()),
        (Major::Integer, Source::Vector(vs1), _) => (0, vs1.number()),
        (Major::Multiply, Source::Vector(vs1), _) => (2, vs1.number()),
        (Major::Integer, Source::Scalar(rs1), _) => (4, rs1.number()),
        (Major::Multiply, Source::Scalar(rs1), _) => (6, rs1.number()),
    };
    let registers = inst.vd.number() << 7 | (field & 31) << 15 | inst.vs2.number() << 20;
    OP_V | funct3 << 12 | registers | vm(inst.masked) | op.funct6() << 26
}

const fn vm(masked: bool) -> u32 {
    (!masked as u32) << 25
}
