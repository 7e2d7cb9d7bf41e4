//! Operations on elements that stand in the same place, and what is translated at all.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::Touched;
use super::lanes::{lanes, vector_of};
use crate::inst::Inst;
use crate::jit::emit::Emitter;
use crate::jit::vectors;
use crate::vector::inst::Shape;
use crate::vector::legal::{self, Operand, Operands};
use crate::vector::{Arithmetic, Source, VectorOp, Width};

/// What an instruction works on.
#[derive(Clone, Copy)]
struct Work {
    operands: Operands,
    /// Elements.
    count: u32,
}

impl Emitter<'_> {
    pub(super) fn vector_arithmetic(&mut self, inst: &Inst, arithmetic: &Arithmetic) {
        if arithmetic.op.shape() == Shape::MoveRegisters {
            return self.move_registers(arithmetic);
        }
        let vtype = self.vectors.setting.vtype();
        let operands = vtype.and_then(|vtype| legal::operands(arithmetic, vtype));
        let (Some(vtype), Some(operands)) = (vtype, operands) else { return self.call_interpreter(inst) };
        let (reads, writes) = vectors::vectors_of(arithmetic, operands);
        let touched = Touched { reads, writes };
        let most = vtype.vlmax();
        let work = Work { operands, count: self.vectors.setting.vl.unwrap_or(most) };
        if !self.is_translated(arithmetic, work) {
            return self.call_interpreter_with(inst, &touched);
        }
        // This one does not depend on the length.
        let short = if arithmetic.op == VectorOp::ElementToScalar { None } else { self.is_short(most) };
        self.unless(short.as_slice(), inst, &touched, |emitter| emitter.operate(arithmetic, work));
    }

    fn move_registers(&mut self, inst: &Arithmetic) {
        let Source::Immediate(count) = inst.source else { return };
        let count = count.cast_unsigned();
        let values: Vec<Value> = (0..count).map(|index| self.vector_register(Self::grouped(inst.vs2, index))).collect();
        self.write_group(inst.vd, Width::E8, count * lanes(Width::E8), false, &values);
    }

    /// Whether there are operations of the host for it.
    fn is_translated(&self, inst: &Arithmetic, work: Work) -> bool {
        use VectorOp as Op;
        let vector = matches!(inst.source, Source::Vector(_));
        let narrow = work.operands.vd.width() == Width::E8;
        match inst.op {
            Op::ShiftLeft | Op::ShiftRightLogical | Op::ShiftRightArithmetic => !vector,
            Op::NarrowShiftLogical | Op::NarrowShiftArithmetic => !vector,
            Op::Mul | Op::MulAdd | Op::NegMulSub | Op::MulAcc | Op::NegMulAcc => !narrow,
            Op::SaturatingAddu | Op::SaturatingAdd | Op::SaturatingSubu | Op::SaturatingSub => false,
            Op::AveragingAddu | Op::AveragingAdd | Op::NarrowClipu | Op::NarrowClip => false,
            Op::Divu | Op::Div | Op::Remu | Op::Rem | Op::MulHighu | Op::MulHighsu | Op::MulHigh => false,
            Op::CountMask | Op::FirstMask => work.count <= 64,
            Op::Gather16 => false,
            Op::Gather if vector => narrow && matches!(work.operands.vd, Operand::Group(group) if group.emul == 0),
            Op::Gather | Op::SlideUp | Op::SlideDown => self.distance(inst.source).is_some(),
            _ => true,
        }
    }

    /// The number of elements that a slide moves, if it is known.
    pub(super) fn distance(&self, source: Source) -> Option<u32> {
        match source {
            Source::Immediate(distance) => Some(distance.cast_unsigned()),
            Source::Scalar(reg) => self.known.constant(reg),
            Source::Vector(_) | Source::None => None,
        }
    }

    fn operate(&mut self, inst: &Arithmetic, Work { operands, count }: Work) {
        match inst.op.shape() {
            Shape::Compare => self.compare_elements(inst, operands, count),
            Shape::MaskLogic => self.mask_logic(inst, count),
            Shape::Merge => self.merge(inst, operands, count),
            Shape::MaskToScalar => self.mask_to_scalar(inst, count),
            Shape::Reduce | Shape::WidenReduce => self.reduce(inst, operands, count),
            Shape::Permute => self.permute(inst, operands, count),
            Shape::ElementToScalar => {
                let width = operands.vs2.width();
                let element = self.first_element(inst.vs2, width);
                let extended = self.extended(element, width, true);
                self.set(inst.rd(), extended);
            }
            Shape::ScalarToElement if count == 0 => {}
            Shape::ScalarToElement => {
                let width = operands.vd.width();
                let scalar = self.scalar(inst.source);
                let element = self.narrowed(scalar, width);
                self.set_first_element(inst.vd, width, element);
            }
            _ => {
                let values: Vec<Value> =
                    (0..operands.vd.registers()).map(|index| self.elementwise(inst, operands, index)).collect();
                self.write_group(inst.vd, operands.vd.width(), count, inst.masked, &values);
            }
        }
    }

    /// Register `index` of the result.
    fn elementwise(&mut self, inst: &Arithmetic, operands: Operands, index: u32) -> Value {
        let width = operands.vd.width();
        let (sign_a, sign_b) = inst.op.signs();
        match inst.op.shape() {
            Shape::Index => return self.elements(width, |lane| index * lanes(width) + lane),
            Shape::Narrow => return self.narrowed_shift(inst, operands, index),
            Shape::Extend2 | Shape::Extend4 => {
                return self.widened(inst.vs2, operands.vs2.width(), width, index, sign_a);
            }
            _ => {}
        }
        let b = match inst.source {
            Source::Vector(vs1) => self.widened(vs1, operands.vs1.width(), width, index, sign_b),
            scalar => self.splat(scalar, operands.vs1.width(), width, sign_b),
        };
        if inst.op == VectorOp::Move {
            return b;
        }
        let a = self.widened(inst.vs2, operands.vs2.width(), width, index, sign_a);
        match inst.op {
            VectorOp::ShiftLeft | VectorOp::ShiftRightLogical | VectorOp::ShiftRightArithmetic => self.shifted(inst, a),
            _ => {
                let d = self.as_elements(Self::grouped(inst.vd, index), width);
                self.computed_elements(inst.op, a, b, d)
            }
        }
    }

    /// All elements shifted by the scalar operand, of which Cranelift takes as many bits as RISC-V.
    fn shifted(&mut self, inst: &Arithmetic, value: Value) -> Value {
        let amount = self.scalar(inst.source);
        let ins = self.builder.ins();
        match inst.op {
            VectorOp::ShiftLeft => ins.ishl(value, amount),
            VectorOp::ShiftRightArithmetic | VectorOp::NarrowShiftArithmetic => ins.sshr(value, amount),
            _ => ins.ushr(value, amount),
        }
    }

    fn narrowed_shift(&mut self, inst: &Arithmetic, operands: Operands, index: u32) -> Value {
        let wide = operands.vs2.width();
        let [lower, upper] = [2 * index, 2 * index + 1].map(|index| {
            // A group that fills half a register has one wide one.
            if index < operands.vs2.registers() {
                let value = self.as_elements(Self::grouped(inst.vs2, index), wide);
                self.shifted(inst, value)
            } else {
                self.zeroes()
            }
        });
        let size = wide.bytes() / 2;
        let result = self.shuffled(lower, upper, |at| at / size * wide.bytes() + at % size);
        self.cast(vector_of(operands.vd.width()), result)
    }

    fn computed_elements(&mut self, op: VectorOp, a: Value, b: Value, d: Value) -> Value {
        use VectorOp as Op;
        match op {
            Op::Sub | Op::WidenSubu | Op::WidenSub | Op::WideSubu | Op::WideSub => self.builder.ins().isub(a, b),
            Op::ReverseSub => self.builder.ins().isub(b, a),
            Op::Minu => self.builder.ins().umin(a, b),
            Op::Min => self.builder.ins().smin(a, b),
            Op::Maxu => self.builder.ins().umax(a, b),
            Op::Max => self.builder.ins().smax(a, b),
            Op::And => self.builder.ins().band(a, b),
            Op::Or => self.builder.ins().bor(a, b),
            Op::Xor => self.builder.ins().bxor(a, b),
            Op::Mul | Op::WidenMulu | Op::WidenMulsu | Op::WidenMul => self.builder.ins().imul(a, b),
            Op::MulAdd => self.multiplied(b, d, |emitter, product| emitter.builder.ins().iadd(a, product)),
            Op::NegMulSub => self.multiplied(b, d, |emitter, product| emitter.builder.ins().isub(a, product)),
            Op::NegMulAcc => self.multiplied(a, b, |emitter, product| emitter.builder.ins().isub(d, product)),
            Op::MulAcc | Op::WidenMulAccu | Op::WidenMulAcc | Op::WidenMulAccus | Op::WidenMulAccsu => {
                self.multiplied(a, b, |emitter, product| emitter.builder.ins().iadd(d, product))
            }
            _ => self.builder.ins().iadd(a, b),
        }
    }

    fn multiplied(&mut self, a: Value, b: Value, then: impl FnOnce(&mut Self, Value) -> Value) -> Value {
        let product = self.builder.ins().imul(a, b);
        then(self, product)
    }

    /// The scalar operand as an element at one place of a vector.
    pub(super) fn inserted(&mut self, vector: Value, width: Width, lane: u32, source: Source) -> Value {
        let scalar = self.scalar(source);
        let element = self.narrowed(scalar, width);
        let vector = self.cast(vector_of(width), vector);
        let lane = lane.to_le_bytes()[0];
        self.builder.ins().insertlane(vector, element, lane)
    }
}
