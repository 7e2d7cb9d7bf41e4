//! Reductions: all elements of a group to one.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::lanes::{active, lanes, vector_of};
use crate::jit::emit::Emitter;
use crate::vector::inst::Shape;
use crate::vector::legal::Operands;
use crate::vector::{Arithmetic, Source, VLEN_BYTES, VectorOp, Width};

impl Emitter<'_> {
    pub(super) fn reduce(&mut self, inst: &Arithmetic, operands: Operands, count: u32) {
        let Source::Vector(vs1) = inst.source else { return };
        if count == 0 {
            return;
        }
        let width = operands.vd.width();
        let mut values = self.reduced_elements(inst, operands, count);
        while values.len() > 1 {
            let pairs = values.chunks(2).map(|pair| match *pair {
                [a, b] => self.combine(inst.op, a, b),
                _ => pair[0],
            });
            values = pairs.collect();
        }
        let mut result = values[0];
        let mut distance = VLEN_BYTES / 2;
        while distance >= width.bytes() {
            let other = self.shuffled(result, result, |at| (at + distance) % VLEN_BYTES);
            let other = self.cast(vector_of(width), other);
            result = self.combine(inst.op, result, other);
            distance /= 2;
        }
        // The last step is one of scalars: those before and after reductions are.
        let element = self.builder.ins().extractlane(result, 0);
        let start = self.first_element(vs1, width);
        let signed = inst.op.signs().0;
        let [element, start] = [element, start].map(|value| self.extended(value, width, signed));
        let element = self.combine(inst.op, element, start);
        let element = self.narrowed(element, width);
        self.set_first_element(inst.vd, width, element);
    }

    /// Vectors of all elements to be reduced, as wide as the result; others are such that they do not count.
    fn reduced_elements(&mut self, inst: &Arithmetic, operands: Operands, count: u32) -> Vec<Value> {
        let from = operands.vs2.width();
        let mut values = Vec::new();
        for index in 0..operands.vs2.registers() {
            let active = active(from, index, count);
            if active == 0 {
                break;
            }
            let mut value = self.vector_register(Self::grouped(inst.vs2, index));
            let neutral = self.elements(from, |_| neutral(inst.op, from));
            if inst.masked {
                let mask = self.mask_lanes(from, index);
                value = self.blended(mask, value, neutral);
            }
            if active < lanes(from) {
                let mask = self.first(from, active);
                value = self.blended(mask, value, neutral);
            }
            let value = self.cast(vector_of(from), value);
            if inst.op.shape() == Shape::WidenReduce {
                let signed = inst.op.signs().0;
                values.extend([false, true].map(|upper| self.half(value, upper, signed)));
            } else {
                values.push(value);
            }
        }
        values
    }

    fn combine(&mut self, op: VectorOp, a: Value, b: Value) -> Value {
        let ins = self.builder.ins();
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
}

/// The value that does not change what it is combined with.
const fn neutral(op: VectorOp, width: Width) -> u32 {
    match op {
        VectorOp::ReduceAnd | VectorOp::ReduceMinu => u32::MAX,
        VectorOp::ReduceMin => (1 << (width.bits() - 1)) - 1,
        VectorOp::ReduceMax => 1 << (width.bits() - 1),
        _ => 0,
    }
}
