//! Masks: a bit for each element.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::lanes::{active, lanes, vector_of};
use crate::jit::emit::Emitter;
use crate::vector::legal::Operands;
use crate::vector::{Arithmetic, Source, VReg, VectorOp, Width};

/// Bits that a mask is put together by.
const CHUNK: u32 = 32;

impl Emitter<'_> {
    /// Ones in the elements of register `index` of a group whose bit in v0 is set.
    pub(super) fn mask_lanes(&mut self, width: Width, index: u32) -> Value {
        let first = index * lanes(width);
        let (size, bits) = (width.bytes(), width.bits());
        let mask = self.vector_register(VReg::V0);
        // The bytes of each element with its bit in it.
        let spread = self.shuffled(mask, mask, |at| (first + at / size) / bits * size + at % size);
        let bits = self.elements(width, |lane| 1 << ((first + lane) % bits));
        let (spread, bits) = (self.cast(vector_of(width), spread), self.cast(vector_of(width), bits));
        let bit = self.builder.ins().band(spread, bits);
        self.builder.ins().icmp(IntCC::Equal, bit, bits)
    }

    pub(super) fn merge(&mut self, inst: &Arithmetic, operands: Operands, count: u32) {
        let width = operands.vd.width();
        let values: Vec<Value> = (0..operands.vd.registers())
            .map(|index| {
                let mask = self.mask_lanes(width, index);
                let kept = self.vector_register(Self::grouped(inst.vs2, index));
                let taken = match inst.source {
                    Source::Vector(vs1) => self.vector_register(Self::grouped(vs1, index)),
                    scalar => self.splat(scalar, width, width, false),
                };
                self.blended(mask, taken, kept)
            })
            .collect();
        self.write_group(inst.vd, width, count, false, &values);
    }

    pub(super) fn compare_elements(&mut self, inst: &Arithmetic, operands: Operands, count: u32) {
        let width = operands.vs2.width();
        let mut chunks: Vec<Value> = Vec::new();
        for index in 0..operands.vs2.registers() {
            if active(width, index, count) == 0 {
                break;
            }
            let a = self.as_elements(Self::grouped(inst.vs2, index), width);
            let b = match inst.source {
                Source::Vector(vs1) => self.as_elements(Self::grouped(vs1, index), width),
                scalar => self.splat(scalar, width, width, false),
            };
            let holds = self.builder.ins().icmp(condition(inst.op), a, b);
            let bits = self.builder.ins().vhigh_bits(I32, holds);
            let at = index * lanes(width) % CHUNK;
            match chunks.last_mut().filter(|_| at != 0) {
                Some(last) => {
                    let moved = self.builder.ins().ishl_imm_u(bits, i64::from(at));
                    *last = self.builder.ins().bor(*last, moved);
                }
                None => chunks.push(bits),
            }
        }
        self.write_mask(inst.vd, &chunks, count, inst.masked);
    }

    /// Writes the first `count` bits of a mask, those that v0 has when `masked`.
    fn write_mask(&mut self, vd: VReg, chunks: &[Value], count: u32, masked: bool) {
        let old = self.vector_register(vd);
        let mut result = self.cast(I32X4, old);
        for (chunk, &bits) in (0u8..).zip(chunks) {
            let active = count.saturating_sub(u32::from(chunk) * CHUNK).min(CHUNK);
            let mut mask = self.constant(ones(active));
            if masked {
                let v0 = self.as_elements(VReg::V0, Width::E32);
                let v0 = self.builder.ins().extractlane(v0, chunk);
                mask = self.builder.ins().band(mask, v0);
            }
            let old = self.builder.ins().extractlane(result, chunk);
            let new = self.builder.ins().band(bits, mask);
            let kept = self.builder.ins().band_not(old, mask);
            let bits = self.builder.ins().bor(new, kept);
            result = self.builder.ins().insertlane(result, bits, chunk);
        }
        let result = self.cast(I8X16, result);
        self.set_vector_register(vd, result);
    }

    pub(super) fn mask_logic(&mut self, inst: &Arithmetic, count: u32) {
        let Source::Vector(vs1) = inst.source else { return };
        let (a, b) = (self.vector_register(inst.vs2), self.vector_register(vs1));
        let ins = self.builder.ins();
        let result = match inst.op {
            VectorOp::MaskAnd | VectorOp::MaskNand => ins.band(a, b),
            VectorOp::MaskAndNot => ins.band_not(a, b),
            VectorOp::MaskOr | VectorOp::MaskNor => ins.bor(a, b),
            VectorOp::MaskOrNot => ins.bor_not(a, b),
            _ => ins.bxor(a, b),
        };
        let inverted = matches!(inst.op, VectorOp::MaskNand | VectorOp::MaskNor | VectorOp::MaskXnor);
        let result = if inverted { self.builder.ins().bnot(result) } else { result };
        let mask = self.bytes(std::array::from_fn(|at| {
            let active = count.saturating_sub(8 * at as u32).min(8);
            ones(active).to_le_bytes()[0]
        }));
        let old = self.vector_register(inst.vd);
        let result = self.blended(mask, result, old);
        self.set_vector_register(inst.vd, result);
    }

    /// What is found among the first `count` bits, 64 at most.
    pub(super) fn mask_to_scalar(&mut self, inst: &Arithmetic, count: u32) {
        let mask = self.vector_register(inst.vs2);
        let mask = self.cast(I64X2, mask);
        let mut bits = self.builder.ins().extractlane(mask, 0);
        if inst.masked {
            let v0 = self.vector_register(VReg::V0);
            let v0 = self.cast(I64X2, v0);
            let v0 = self.builder.ins().extractlane(v0, 0);
            bits = self.builder.ins().band(bits, v0);
        }
        if count < 64 {
            let ones = self.builder.ins().iconst(I64, (1i64 << count) - 1);
            bits = self.builder.ins().band(bits, ones);
        }
        let result = if inst.op == VectorOp::CountMask {
            let found = self.builder.ins().popcnt(bits);
            self.builder.ins().ireduce(I32, found)
        } else {
            let first = self.builder.ins().ctz(bits);
            let first = self.builder.ins().ireduce(I32, first);
            let none = self.constant(u32::MAX);
            self.builder.ins().select(bits, first, none)
        };
        self.set(inst.rd(), result);
    }
}

/// So many ones.
const fn ones(count: u32) -> u32 {
    if count >= CHUNK { u32::MAX } else { (1 << count) - 1 }
}

const fn condition(op: VectorOp) -> IntCC {
    match op {
        VectorOp::Equal => IntCC::Equal,
        VectorOp::NotEqual => IntCC::NotEqual,
        VectorOp::Lessu => IntCC::UnsignedLessThan,
        VectorOp::Less => IntCC::SignedLessThan,
        VectorOp::LessEqualu => IntCC::UnsignedLessThanOrEqual,
        VectorOp::LessEqual => IntCC::SignedLessThanOrEqual,
        VectorOp::Greateru => IntCC::UnsignedGreaterThan,
        _ => IntCC::SignedGreaterThan,
    }
}
