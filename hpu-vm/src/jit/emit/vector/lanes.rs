//! Elements of host vectors: types, constants, extensions, writing part of a group.

use cranelift_codegen::ir::types::{I8, I8X16, I16, I16X8, I32, I32X4};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Type, Value};

use crate::jit::emit::Emitter;
use crate::vector::{Source, VLEN_BYTES, VReg, Width};

/// Lanes are numbered from the lowest byte.
const LITTLE: MemFlagsData = MemFlagsData::new().with_endianness(Endianness::Little);

/// A vector of elements of that width.
pub(super) const fn vector_of(width: Width) -> Type {
    match width {
        Width::E8 => I8X16,
        Width::E16 => I16X8,
        Width::E32 => I32X4,
    }
}

/// Elements of a register.
pub(super) const fn lanes(width: Width) -> u32 {
    VLEN_BYTES / width.bytes()
}

/// Elements of register `index` of a group that are among its first `count`.
pub(super) fn active(width: Width, index: u32, count: u32) -> u32 {
    count.saturating_sub(index * lanes(width)).min(lanes(width))
}

impl Emitter<'_> {
    pub(in crate::jit::emit) fn zeroes(&mut self) -> Value {
        self.bytes([0; 16])
    }

    /// A vector of these bytes, the lowest first.
    pub(super) fn bytes(&mut self, bytes: [u8; 16]) -> Value {
        let constant = self.builder.func.dfg.constants.insert(bytes.as_slice().into());
        self.builder.ins().vconst(I8X16, constant)
    }

    /// A vector whose element of that width is `element(lane)`.
    pub(super) fn elements(&mut self, width: Width, element: impl Fn(u32) -> u32) -> Value {
        let size = width.bytes() as usize;
        let byte = |at: usize| element((at / size) as u32).to_le_bytes()[at % size];
        self.bytes(std::array::from_fn(byte))
    }

    /// The same bits as a vector of another type.
    pub(in crate::jit::emit) fn cast(&mut self, ty: Type, value: Value) -> Value {
        if self.builder.func.dfg.value_type(value) == ty {
            value
        } else {
            self.builder.ins().bitcast(ty, LITTLE, value)
        }
    }

    /// A register as elements of that width.
    pub(super) fn as_elements(&mut self, reg: VReg, width: Width) -> Value {
        let value = self.vector_register(reg);
        self.cast(vector_of(width), value)
    }

    /// Bytes of `a` (0 to 15) and `b` (16 to 31), as `from` says for each of the result.
    pub(in crate::jit::emit) fn shuffled(&mut self, a: Value, b: Value, from: impl Fn(u32) -> u32) -> Value {
        let (a, b) = (self.cast(I8X16, a), self.cast(I8X16, b));
        let bytes: [u8; 16] = std::array::from_fn(|at| from(at as u32).to_le_bytes()[0] & 31);
        let mask = self.builder.func.dfg.immediates.push(bytes.as_slice().into());
        self.builder.ins().shuffle(a, b, mask)
    }

    /// `a` where the mask has ones, `b` elsewhere.
    pub(super) fn blended(&mut self, mask: Value, a: Value, b: Value) -> Value {
        let [mask, a, b] = [mask, a, b].map(|value| self.cast(I8X16, value));
        self.builder.ins().bitselect(mask, a, b)
    }

    /// Ones in the lowest `count` elements.
    pub(super) fn first(&mut self, width: Width, count: u32) -> Value {
        self.elements(width, |lane| if lane < count { u32::MAX } else { 0 })
    }

    /// Elements of register `index` of the group at `reg`, as wide as `to`: of a group whose elements have `from`, the part
    /// that this register of a wider group gets.
    pub(super) fn widened(&mut self, reg: VReg, from: Width, to: Width, index: u32, signed: bool) -> Value {
        let steps = to.log2() - from.log2();
        let mut value = self.as_elements(Self::grouped(reg, index >> steps), from);
        for step in (0..steps).rev() {
            value = self.half(value, index >> step & 1 != 0, signed);
        }
        value
    }

    /// The lower or upper half of a vector's elements, extended to twice their width.
    pub(super) fn half(&mut self, value: Value, upper: bool, signed: bool) -> Value {
        let ins = self.builder.ins();
        match (upper, signed) {
            (false, false) => ins.uwiden_low(value),
            (false, true) => ins.swiden_low(value),
            (true, false) => ins.uwiden_high(value),
            (true, true) => ins.swiden_high(value),
        }
    }

    /// The scalar operand of an instruction, of 32 bits.
    pub(super) fn scalar(&mut self, source: Source) -> Value {
        match source {
            Source::Scalar(reg) => self.get(reg),
            Source::Immediate(value) => self.constant(value.cast_unsigned()),
            Source::Vector(_) | Source::None => self.constant(0),
        }
    }

    /// A value's lower bits, as an element of that width.
    pub(super) fn narrowed(&mut self, value: Value, width: Width) -> Value {
        match width {
            Width::E8 => self.builder.ins().ireduce(I8, value),
            Width::E16 => self.builder.ins().ireduce(I16, value),
            Width::E32 => value,
        }
    }

    /// An element, extended to 32 bits.
    pub(super) fn extended(&mut self, element: Value, width: Width, signed: bool) -> Value {
        match (width, signed) {
            (Width::E32, _) => element,
            (_, true) => self.builder.ins().sextend(I32, element),
            (_, false) => self.builder.ins().uextend(I32, element),
        }
    }

    /// Every element the scalar operand, taken as `from` wide and extended to `to`.
    pub(super) fn splat(&mut self, source: Source, from: Width, to: Width, signed: bool) -> Value {
        let scalar = self.scalar(source);
        let mut value = self.narrowed(scalar, from);
        if from != to {
            let ty = vector_of(to).lane_type();
            let ins = self.builder.ins();
            value = if signed { ins.sextend(ty, value) } else { ins.uextend(ty, value) };
        }
        self.builder.ins().splat(vector_of(to), value)
    }

    /// Writes the registers of a group: of their elements the first `count`, and only those that v0 has when `masked`.
    pub(super) fn write_group(&mut self, vd: VReg, width: Width, count: u32, masked: bool, values: &[Value]) {
        let mut results = Vec::new();
        for (index, &value) in (0..).zip(values) {
            let active = active(width, index, count);
            if active == 0 {
                break;
            }
            let reg = Self::grouped(vd, index);
            let old = self.vector_register(reg);
            let mut value = self.cast(I8X16, value);
            if masked {
                let mask = self.mask_lanes(width, index);
                value = self.blended(mask, value, old);
            }
            if active < lanes(width) {
                let mask = self.first(width, active);
                value = self.blended(mask, value, old);
            }
            results.push((reg, value));
        }
        for (reg, value) in results {
            self.set_vector_register(reg, value);
        }
    }
}
