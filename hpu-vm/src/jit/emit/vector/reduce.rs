//! Reductions: all elements of a group to one.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::lanes::{active, lanes, vector_of};
use crate::jit::emit::emitter::Emitter;
use crate::jit::emit::vector::group::{first_element, mask_lanes, set_first_element};
use crate::jit::emit::vector::lanes::{
    blended, cast, elements, extended, first, grouped, half, narrowed, shuffled, vector_register,
};
use crate::vector::inst::Shape;
use crate::vector::legal::Operands;
use crate::vector::{Arithmetic, Source, VLEN_BYTES, VectorOp, Width};

pub(super) fn reduce(emitter: &mut Emitter<'_>, inst: &Arithmetic, operands: Operands, count: u32) {
    let Source::Vector(vs1) = inst.source else { return };
    if count == 0 {
        return;
    }
    let width = operands.vd.width();
    let mut values = reduced_elements(emitter, inst, operands, count);
    while values.len() > 1 {
        let pairs = values.chunks(2).map(|pair| match *pair {
            [a, b] => combine(emitter, inst.op, a, b),
            _ => pair[0],
        });
        values = pairs.collect();
    }
    let mut result = values[0];
    let mut distance = VLEN_BYTES / 2;
    while distance >= width.bytes() {
        let other = shuffled(emitter, result, result, |at| (at + distance) % VLEN_BYTES);
        let other = cast(emitter, vector_of(width), other);
        result = combine(emitter, inst.op, result, other);
        distance /= 2;
    }
    // The last step is scalar, since the operands before and after reductions are.
    let element = emitter.builder.ins().extractlane(result, 0);
    let start = first_element(emitter, vs1, width);
    let signed = inst.op.signs().0;
    let [element, start] = [element, start].map(|value| extended(emitter, value, width, signed));
    let element = combine(emitter, inst.op, element, start);
    let element = narrowed(emitter, element, width);
    set_first_element(emitter, inst.vd, width, element);
}

/// Vectors of all elements to be reduced, extended to the result's width; other elements are neutral.
fn reduced_elements(emitter: &mut Emitter<'_>, inst: &Arithmetic, operands: Operands, count: u32) -> Vec<Value> {
    let from = operands.vs2.width();
    let mut values = Vec::new();
    for index in 0..operands.vs2.registers() {
        let active = active(from, index, count);
        if active == 0 {
            break;
        }
        let mut value = vector_register(emitter, grouped(inst.vs2, index));
        let neutral = elements(emitter, from, |_| neutral(inst.op, from));
        if inst.masked {
            let mask = mask_lanes(emitter, from, index);
            value = blended(emitter, mask, value, neutral);
        }
        if active < lanes(from) {
            let mask = first(emitter, from, active);
            value = blended(emitter, mask, value, neutral);
        }
        let value = cast(emitter, vector_of(from), value);
        if inst.op.shape() == Shape::WidenReduce {
            let signed = inst.op.signs().0;
            values.extend([false, true].map(|upper| half(emitter, value, upper, signed)));
        } else {
            values.push(value);
        }
    }
    values
}

fn combine(emitter: &mut Emitter<'_>, op: VectorOp, a: Value, b: Value) -> Value {
    let ins = emitter.builder.ins();
    match op {
        VectorOp::ReduceAnd => ins.band(a, b),
        VectorOp::ReduceOr => ins.bor(a, b),
        VectorOp::ReduceXor => ins.bxor(a, b),
        VectorOp::ReduceMinu => ins.umin(a, b),
        VectorOp::ReduceMin => ins.smin(a, b),
        VectorOp::ReduceMaxu => ins.umax(a, b),
        VectorOp::ReduceMax => ins.smax(a, b),
        _ => ins.iadd(a, b),
    }
}

/// The neutral element of an operation.
const fn neutral(op: VectorOp, width: Width) -> u32 {
    match op {
        VectorOp::ReduceAnd | VectorOp::ReduceMinu => u32::MAX,
        VectorOp::ReduceMin => (1 << (width.bits() - 1)) - 1,
        VectorOp::ReduceMax => 1 << (width.bits() - 1),
        _ => 0,
    }
}
