//! Decoder of vector instructions. Total: any bits give an instruction or `None`. Encodings that are reserved only
//! under some vtypes are detected at execution.

use crate::reg::Reg;
use crate::vector::inst::{
    Addressing, Arithmetic, Configure, Direction, Length, Major, Memory, NewType, Operands, Shape, Source, VReg,
    VectorInst, VectorOp,
};
use crate::vector::vtype::Width;

/// Major opcode of vector arithmetic and configuration.
pub(super) const OP_V: u32 = 0x57;
/// Major opcode of vector loads, shared with scalar floating point.
pub(super) const LOAD_FP: u32 = 0x07;
/// Major opcode of vector stores.
pub(super) const STORE_FP: u32 = 0x27;

/// Decodes a 4-byte instruction; `None` when it is not in the vector subset.
#[must_use]
pub fn decode(bits: u32) -> Option<VectorInst> {
    match bits & 0x7f {
        OP_V if funct3(bits) == 7 => configure(bits).map(VectorInst::Configure),
        OP_V => arithmetic(bits).map(VectorInst::Arithmetic),
        LOAD_FP => memory(bits, Direction::Load).map(VectorInst::Memory),
        STORE_FP => memory(bits, Direction::Store).map(VectorInst::Memory),
        _ => None,
    }
}

const fn funct3(bits: u32) -> u32 {
    bits >> 12 & 7
}

const fn field_rd(bits: u32) -> u32 {
    bits >> 7 & 31
}

const fn field_rs1(bits: u32) -> u32 {
    bits >> 15 & 31
}

const fn field_rs2(bits: u32) -> u32 {
    bits >> 20 & 31
}

/// Bit 25, `vm`, is clear for masked instructions.
const fn is_masked(bits: u32) -> bool {
    bits >> 25 & 1 == 0
}

/// Formats of spec §6.
fn configure(bits: u32) -> Option<Configure> {
    let (rd, rs1) = (Reg::new(field_rd(bits)), Reg::new(field_rs1(bits)));
    let length = match (rs1, rd) {
        (Reg::ZERO, Reg::ZERO) => Length::Keep,
        (Reg::ZERO, _) => Length::Max,
        _ => Length::Register(rs1),
    };
    let (length, vtype) = match bits >> 30 {
        0 | 1 => (length, NewType::Immediate(bits >> 20 & 0x7ff)),
        3 => (Length::Immediate(field_rs1(bits)), NewType::Immediate(bits >> 20 & 0x3ff)),
        _ if bits >> 25 == 0x40 => (length, NewType::Register(Reg::new(field_rs2(bits)))),
        _ => return None,
    };
    Some(Configure { rd, length, vtype })
}

/// Formats of spec §7.
fn memory(bits: u32, direction: Direction) -> Option<Memory> {
    let width = match funct3(bits) {
        0 => Width::E8,
        5 => Width::E16,
        6 => Width::E32,
        _ => return None,
    };
    // `mew`, for elements of 128 bits and more.
    if bits >> 28 & 1 != 0 {
        return None;
    }
    let addressing = match (bits >> 26 & 3, field_rs2(bits)) {
        (0, 0x00) => Addressing::Unit,
        (0, 0x08) => Addressing::Whole,
        (0, 0x0b) => Addressing::Mask,
        (0, _) => return None,
        (2, rs2) => Addressing::Strided(Reg::new(rs2)),
        (mop, vs2) => Addressing::Indexed { vs2: VReg::new(vs2), ordered: mop == 3 },
    };
    let (vd, rs1) = (VReg::new(field_rd(bits)), Reg::new(field_rs1(bits)));
    let inst = Memory { direction, vd, rs1, addressing, width, fields: (bits >> 29) + 1, masked: is_masked(bits) };
    is_memory_legal(&inst).then_some(inst)
}

fn is_memory_legal(inst: &Memory) -> bool {
    match inst.addressing {
        Addressing::Whole => {
            let narrow = inst.direction == Direction::Load || inst.width == Width::E8;
            !inst.masked && narrow && is_whole_group(inst.vd, inst.fields)
        }
        Addressing::Mask => !inst.masked && inst.width == Width::E8 && inst.fields == 1,
        _ => true,
    }
}

/// Whether `count` registers from `first` are a power of two and aligned to it.
const fn is_whole_group(first: VReg, count: u32) -> bool {
    count.is_power_of_two() && count <= 8 && first.number().is_multiple_of(count)
}

/// Formats of spec §10.
fn arithmetic(bits: u32) -> Option<Arithmetic> {
    let (major, form) = match funct3(bits) {
        0 => (Major::Integer, Form::Vector),
        3 => (Major::Integer, Form::Immediate),
        4 => (Major::Integer, Form::Scalar),
        2 => (Major::Multiply, Form::Vector),
        6 => (Major::Multiply, Form::Scalar),
        _ => return None,
    };
    candidates(major, bits >> 26).find_map(|&op| {
        let source = source(op.operands(), form, field_rs1(bits))?;
        let (vd, vs2) = (VReg::new(field_rd(bits)), VReg::new(field_rs2(bits)));
        let inst = Arithmetic { op, vd, vs2, source, masked: is_masked(bits) };
        is_arithmetic_legal(&inst).then_some(inst)
    })
}

/// Kind of the other source, by funct3.
#[derive(Clone, Copy)]
enum Form {
    Vector,
    Scalar,
    Immediate,
}

/// The other source, if an operation with these operands has that form.
fn source(operands: Operands, form: Form, field: u32) -> Option<Source> {
    use Operands::{Count, Unary, V, VX, VXI, VXU, X, XI, XU};
    let signed = || Source::Immediate((field << 27).cast_signed() >> 27);
    Some(match (form, operands) {
        (Form::Vector, V | VX | VXI | VXU) => Source::Vector(VReg::new(field)),
        (Form::Vector, Unary(selector)) if selector == field => Source::None,
        (Form::Scalar, X | VX | XI | XU | VXI | VXU) => Source::Scalar(Reg::new(field)),
        (Form::Immediate, XI | VXI) => signed(),
        (Form::Immediate, XU | VXU) => Source::Immediate(field.cast_signed()),
        (Form::Immediate, Count) => Source::Immediate(field.cast_signed() + 1),
        _ => return None,
    })
}

/// Whether the other fields have the values that are fixed for the operation.
fn is_arithmetic_legal(inst: &Arithmetic) -> bool {
    let no_vs2 = inst.vs2 == VReg::V0;
    match (inst.op.shape(), inst.source) {
        (Shape::Merge, _) => inst.masked,
        (Shape::Move | Shape::ScalarToElement, _) => !inst.masked && no_vs2,
        (Shape::MaskLogic | Shape::ElementToScalar, _) => !inst.masked,
        (Shape::Index, _) => no_vs2,
        (Shape::MoveRegisters, Source::Immediate(count)) => {
            let count = count.cast_unsigned();
            !inst.masked && is_whole_group(inst.vd, count) && is_whole_group(inst.vs2, count)
        }
        _ => true,
    }
}

/// Index of no operation.
const NONE: u8 = u8::MAX;

/// Index in [`VectorOp::ALL`] of the first operation of each major opcode and funct6. A table, since each interpreted
/// execution decodes.
const FIRST: [u8; 128] = {
    let mut first = [NONE; 128];
    let mut index = VectorOp::ALL.len();
    while index > 0 {
        index -= 1;
        let op = VectorOp::ALL[index];
        first[key(op.major(), op.funct6())] = index as u8;
    }
    first
};

const fn key(major: Major, funct6: u32) -> usize {
    (major as usize) << 6 | (funct6 & 63) as usize
}

/// The operations of a major opcode and funct6, which are adjacent in the list.
fn candidates(major: Major, funct6: u32) -> impl Iterator<Item = &'static VectorOp> {
    let first = usize::from(FIRST[key(major, funct6)]);
    let rest = VectorOp::ALL.get(first..).unwrap_or_default();
    rest.iter().take_while(move |op| op.major() == major && op.funct6() == funct6)
}
