//! Masks: a bit for each element.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::lanes::{active, lanes};
use crate::jit::emit::emitter::Emitter;
use crate::jit::emit::vector::group::{mask_lanes, write_group};
use crate::jit::emit::vector::lanes::{
    as_elements, blended, bytes, cast, grouped, set_vector_register, splat, vector_register,
};
use crate::vector::legal::Operands;
use crate::vector::{Arithmetic, Source, VReg, VectorOp, Width};

/// Number of bits that are processed at a time.
const CHUNK: u32 = 32;

pub(super) fn merge(emitter: &mut Emitter<'_>, inst: &Arithmetic, operands: Operands, count: u32) {
    let width = operands.vd.width();
    let values: Vec<Value> = (0..operands.vd.registers())
        .map(|index| {
            let mask = mask_lanes(emitter, width, index);
            let kept = vector_register(emitter, grouped(inst.vs2, index));
            let taken = match inst.source {
                Source::Vector(vs1) => vector_register(emitter, grouped(vs1, index)),
                scalar => splat(emitter, scalar, width, width, false),
            };
            blended(emitter, mask, taken, kept)
        })
        .collect();
    write_group(emitter, inst.vd, width, count, false, &values);
}

pub(super) fn compare_elements(emitter: &mut Emitter<'_>, inst: &Arithmetic, operands: Operands, count: u32) {
    let width = operands.vs2.width();
    let mut chunks: Vec<Value> = Vec::new();
    for index in 0..operands.vs2.registers() {
        if active(width, index, count) == 0 {
            break;
        }
        let a = as_elements(emitter, grouped(inst.vs2, index), width);
        let b = match inst.source {
            Source::Vector(vs1) => as_elements(emitter, grouped(vs1, index), width),
            scalar => splat(emitter, scalar, width, width, false),
        };
        let holds = emitter.builder.ins().icmp(condition(inst.op), a, b);
        let bits = emitter.builder.ins().vhigh_bits(I32, holds);
        let at = index * lanes(width) % CHUNK;
        match chunks.last_mut().filter(|_| at != 0) {
            Some(last) => {
                let moved = emitter.builder.ins().ishl_imm_u(bits, i64::from(at));
                *last = emitter.builder.ins().bor(*last, moved);
            }
            None => chunks.push(bits),
        }
    }
    write_mask(emitter, inst.vd, &chunks, count, inst.masked);
}

/// Writes the first `count` bits of a mask; with `masked` only those whose bit in v0 is set.
fn write_mask(emitter: &mut Emitter<'_>, vd: VReg, chunks: &[Value], count: u32, masked: bool) {
    let old = vector_register(emitter, vd);
    let mut result = cast(emitter, I32X4, old);
    for (chunk, &bits) in (0u8..).zip(chunks) {
        let active = count.saturating_sub(u32::from(chunk) * CHUNK).min(CHUNK);
        let mut mask = emitter.constant(ones(active));
        if masked {
            let v0 = as_elements(emitter, VReg::V0, Width::E32);
            let v0 = emitter.builder.ins().extractlane(v0, chunk);
            mask = emitter.builder.ins().band(mask, v0);
        }
        let old = emitter.builder.ins().extractlane(result, chunk);
        let new = emitter.builder.ins().band(bits, mask);
        let kept = emitter.builder.ins().band_not(old, mask);
        let bits = emitter.builder.ins().bor(new, kept);
        result = emitter.builder.ins().insertlane(result, bits, chunk);
    }
    let result = cast(emitter, I8X16, result);
    set_vector_register(emitter, vd, result);
}

pub(super) fn mask_logic(emitter: &mut Emitter<'_>, inst: &Arithmetic, count: u32) {
    let Source::Vector(vs1) = inst.source else { return };
    let (a, b) = (vector_register(emitter, inst.vs2), vector_register(emitter, vs1));
    let ins = emitter.builder.ins();
    let result = match inst.op {
        VectorOp::MaskAnd | VectorOp::MaskNand => ins.band(a, b),
        VectorOp::MaskAndNot => ins.band_not(a, b),
        VectorOp::MaskOr | VectorOp::MaskNor => ins.bor(a, b),
        VectorOp::MaskOrNot => ins.bor_not(a, b),
        _ => ins.bxor(a, b),
    };
    let inverted = matches!(inst.op, VectorOp::MaskNand | VectorOp::MaskNor | VectorOp::MaskXnor);
    let result = if inverted { emitter.builder.ins().bnot(result) } else { result };
    let mask = bytes(
        emitter,
        std::array::from_fn(|at| {
            let active = count.saturating_sub(8 * at as u32).min(8);
            ones(active).to_le_bytes()[0]
        }),
    );
    let old = vector_register(emitter, inst.vd);
    let result = blended(emitter, mask, result, old);
    set_vector_register(emitter, inst.vd, result);
}

/// Counts or finds ones among the first `count` bits, at most 64.
pub(super) fn mask_to_scalar(emitter: &mut Emitter<'_>, inst: &Arithmetic, count: u32) {
    let mask = vector_register(emitter, inst.vs2);
    let mask = cast(emitter, I64X2, mask);
    let mut bits = emitter.builder.ins().extractlane(mask, 0);
    if inst.masked {
        let v0 = vector_register(emitter, VReg::V0);
        let v0 = cast(emitter, I64X2, v0);
        let v0 = emitter.builder.ins().extractlane(v0, 0);
        bits = emitter.builder.ins().band(bits, v0);
    }
    if count < 64 {
        let ones = emitter.builder.ins().iconst(I64, (1i64 << count) - 1);
        bits = emitter.builder.ins().band(bits, ones);
    }
    let result = if inst.op == VectorOp::CountMask {
        let found = emitter.builder.ins().popcnt(bits);
        emitter.builder.ins().ireduce(I32, found)
    } else {
        let first = emitter.builder.ins().ctz(bits);
        let first = emitter.builder.ins().ireduce(I32, first);
        let none = emitter.constant(u32::MAX);
        emitter.builder.ins().select(bits, first, none)
    };
    emitter.set(inst.rd(), result);
}

/// A number of ones, from the lowest bit on.
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
