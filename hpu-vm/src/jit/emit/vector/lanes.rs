//! Elements of host vectors: types, constants, extensions, writing part of a group.

use cranelift_codegen::ir::types::{I8, I8X16, I16, I16X8, I32, I32X4};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Type, Value};

use crate::jit::emit::emitter::Emitter;
use crate::jit::emit::vector_registers;
use crate::vector::{Source, VLEN_BYTES, VReg, Width};

/// Elements are numbered from the lowest byte.
const LITTLE: MemFlagsData = MemFlagsData::new().with_endianness(Endianness::Little);

/// Host vector with elements of a width.
pub(super) const fn vector_of(width: Width) -> Type {
    match width {
        Width::E8 => I8X16,
        Width::E16 => I16X8,
        Width::E32 => I32X4,
    }
}

/// Number of elements of a register.
pub(super) const fn lanes(width: Width) -> u32 {
    VLEN_BYTES / width.bytes()
}

/// Number of elements of register `index` of a group that are among the group's first `count`.
pub(super) fn active(width: Width, index: u32, count: u32) -> u32 {
    count.saturating_sub(index * lanes(width)).min(lanes(width))
}

/// A vector of zeroes.
pub(super) fn zeroes(emitter: &mut Emitter<'_>) -> Value {
    vector_registers::zeroes(&mut emitter.builder)
}

/// A constant vector; the lowest byte comes first.
pub(super) fn bytes(emitter: &mut Emitter<'_>, bytes: [u8; 16]) -> Value {
    let constant = emitter.builder.func.dfg.constants.insert(bytes.as_slice().into());
    emitter.builder.ins().vconst(I8X16, constant)
}

/// A constant vector whose elements are `element(lane)`.
pub(super) fn elements(emitter: &mut Emitter<'_>, width: Width, element: impl Fn(u32) -> u32) -> Value {
    let size = width.bytes() as usize;
    let byte = |at: usize| element((at / size) as u32).to_le_bytes()[at % size];
    bytes(emitter, std::array::from_fn(byte))
}

/// Reinterprets a vector as another type.
pub(super) fn cast(emitter: &mut Emitter<'_>, ty: Type, value: Value) -> Value {
    if emitter.builder.func.dfg.value_type(value) == ty {
        value
    } else {
        emitter.builder.ins().bitcast(ty, LITTLE, value)
    }
}

/// A register as elements of that width.
pub(super) fn as_elements(emitter: &mut Emitter<'_>, reg: VReg, width: Width) -> Value {
    let value = vector_register(emitter, reg);
    cast(emitter, vector_of(width), value)
}

/// Shuffles bytes: byte `i` of the result is byte `from(i)` of `a` (0 to 15) and `b` (16 to 31).
pub(super) fn shuffled(emitter: &mut Emitter<'_>, a: Value, b: Value, from: impl Fn(u32) -> u32) -> Value {
    let (a, b) = (cast(emitter, I8X16, a), cast(emitter, I8X16, b));
    let bytes: [u8; 16] = std::array::from_fn(|at| from(at as u32).to_le_bytes()[0] & 31);
    let mask = emitter.builder.func.dfg.immediates.push(bytes.as_slice().into());
    emitter.builder.ins().shuffle(a, b, mask)
}

/// `a` where the mask has ones, `b` elsewhere.
pub(super) fn blended(emitter: &mut Emitter<'_>, mask: Value, a: Value, b: Value) -> Value {
    let [mask, a, b] = [mask, a, b].map(|value| cast(emitter, I8X16, value));
    emitter.builder.ins().bitselect(mask, a, b)
}

/// Ones in the lowest `count` elements.
pub(super) fn first(emitter: &mut Emitter<'_>, width: Width, count: u32) -> Value {
    elements(emitter, width, |lane| if lane < count { u32::MAX } else { 0 })
}

/// Register `index` of a group, after its elements were extended from `from` to `to`.
pub(super) fn widened(emitter: &mut Emitter<'_>, reg: VReg, from: Width, to: Width, index: u32, signed: bool) -> Value {
    let steps = to.log2() - from.log2();
    let mut value = as_elements(emitter, grouped(reg, index >> steps), from);
    for step in (0..steps).rev() {
        value = half(emitter, value, index >> step & 1 != 0, signed);
    }
    value
}

/// The lower or upper half of a vector's elements, extended to twice their width.
pub(super) fn half(emitter: &mut Emitter<'_>, value: Value, upper: bool, signed: bool) -> Value {
    let ins = emitter.builder.ins();
    match (upper, signed) {
        (false, false) => ins.uwiden_low(value),
        (false, true) => ins.swiden_low(value),
        (true, false) => ins.uwiden_high(value),
        (true, true) => ins.swiden_high(value),
    }
}

/// The scalar operand of an instruction, of 32 bits.
pub(super) fn scalar(emitter: &mut Emitter<'_>, source: Source) -> Value {
    match source {
        Source::Scalar(reg) => emitter.get(reg),
        Source::Immediate(value) => emitter.constant(value.cast_unsigned()),
        Source::Vector(_) | Source::None => emitter.constant(0),
    }
}

/// A value's lower bits, as an element of that width.
pub(super) fn narrowed(emitter: &mut Emitter<'_>, value: Value, width: Width) -> Value {
    match width {
        Width::E8 => emitter.builder.ins().ireduce(I8, value),
        Width::E16 => emitter.builder.ins().ireduce(I16, value),
        Width::E32 => value,
    }
}

/// An element, extended to 32 bits.
pub(super) fn extended(emitter: &mut Emitter<'_>, element: Value, width: Width, signed: bool) -> Value {
    match (width, signed) {
        (Width::E32, _) => element,
        (_, true) => emitter.builder.ins().sextend(I32, element),
        (_, false) => emitter.builder.ins().uextend(I32, element),
    }
}

/// The scalar operand in all elements, reduced to `from` and extended to `to`.
pub(super) fn splat(emitter: &mut Emitter<'_>, source: Source, from: Width, to: Width, signed: bool) -> Value {
    let scalar = scalar(emitter, source);
    let mut value = narrowed(emitter, scalar, from);
    if from != to {
        let ty = vector_of(to).lane_type();
        let ins = emitter.builder.ins();
        value = if signed { ins.sextend(ty, value) } else { ins.uextend(ty, value) };
    }
    emitter.builder.ins().splat(vector_of(to), value)
}

/// The value of a vector register.
pub(super) fn vector_register(emitter: &mut Emitter<'_>, reg: VReg) -> Value {
    emitter.vectors.get(&mut emitter.builder, reg)
}

pub(super) fn set_vector_register(emitter: &mut Emitter<'_>, reg: VReg, value: Value) {
    emitter.vectors.set(&mut emitter.builder, reg, value);
}

/// Register `index` of a group. An encoding that is legal names none beyond v31.
pub(super) fn grouped(first: VReg, index: u32) -> VReg {
    VReg::new(first.number() + index)
}
