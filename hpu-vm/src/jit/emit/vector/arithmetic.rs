//! Elementwise operations, and the choice of instructions that are translated.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::fallback::Touched;
use super::lanes::{lanes, vector_of};
use crate::inst::Inst;
use crate::jit::emit::emitter::Emitter;
use crate::jit::emit::vector::fallback::{call_interpreter, call_interpreter_with, is_short, unless};
use crate::jit::emit::vector::group::{first_element, set_first_element, write_group};
use crate::jit::emit::vector::lanes::{
    as_elements, cast, elements, extended, grouped, narrowed, scalar, shuffled, splat, vector_register, widened, zeroes,
};
use crate::jit::emit::vector::mask::{compare_elements, mask_logic, mask_to_scalar, merge};
use crate::jit::emit::vector::permute::{distance, permute};
use crate::jit::emit::vector::reduce::reduce;
use crate::vector::inst::Shape;
use crate::vector::legal::{self, Operand, Operands};
use crate::vector::{Arithmetic, Source, VectorOp, Width};

/// Operands of an instruction.
#[derive(Clone, Copy)]
struct Work {
    operands: Operands,
    /// Number of elements.
    count: u32,
}

pub(super) fn vector_arithmetic(emitter: &mut Emitter<'_>, inst: &Inst, arithmetic: &Arithmetic) {
    if arithmetic.op.shape() == Shape::MoveRegisters {
        return move_registers(emitter, arithmetic);
    }
    let vtype = emitter.vectors.setting.vtype();
    let operands = vtype.and_then(|vtype| legal::operands(arithmetic, vtype));
    let (Some(vtype), Some(operands)) = (vtype, operands) else { return call_interpreter(emitter, inst) };
    let (reads, writes) = crate::analysis::dataflow::vector::vectors_of(arithmetic, operands);
    let touched = Touched { reads, writes };
    let most = vtype.vlmax();
    let work = Work { operands, count: emitter.vectors.setting.vl.unwrap_or(most) };
    if !is_translated(emitter, arithmetic, work) {
        return call_interpreter_with(emitter, inst, &touched);
    }
    // Its result does not depend on the length.
    let short = if arithmetic.op == VectorOp::ElementToScalar { None } else { is_short(emitter, most) };
    unless(emitter, short.as_slice(), inst, &touched, |emitter| operate(emitter, arithmetic, work));
}

fn move_registers(emitter: &mut Emitter<'_>, inst: &Arithmetic) {
    let Source::Immediate(count) = inst.source else { return };
    let count = count.cast_unsigned();
    let values: Vec<Value> = (0..count).map(|index| vector_register(emitter, grouped(inst.vs2, index))).collect();
    write_group(emitter, inst.vd, Width::E8, count * lanes(Width::E8), false, &values);
}

/// Whether the host has operations for it.
fn is_translated(emitter: &Emitter<'_>, inst: &Arithmetic, work: Work) -> bool {
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
        Op::Gather | Op::SlideUp | Op::SlideDown => distance(emitter, inst.source).is_some(),
        _ => true,
    }
}

fn operate(emitter: &mut Emitter<'_>, inst: &Arithmetic, Work { operands, count }: Work) {
    match inst.op.shape() {
        Shape::Compare => compare_elements(emitter, inst, operands, count),
        Shape::MaskLogic => mask_logic(emitter, inst, count),
        Shape::Merge => merge(emitter, inst, operands, count),
        Shape::MaskToScalar => mask_to_scalar(emitter, inst, count),
        Shape::Reduce | Shape::WidenReduce => reduce(emitter, inst, operands, count),
        Shape::Permute => permute(emitter, inst, operands, count),
        Shape::ElementToScalar => {
            let width = operands.vs2.width();
            let element = first_element(emitter, inst.vs2, width);
            let extended = extended(emitter, element, width, true);
            emitter.set(inst.rd(), extended);
        }
        Shape::ScalarToElement if count == 0 => {}
        Shape::ScalarToElement => {
            let width = operands.vd.width();
            let scalar = scalar(emitter, inst.source);
            let element = narrowed(emitter, scalar, width);
            set_first_element(emitter, inst.vd, width, element);
        }
        _ => {
            let values: Vec<Value> =
                (0..operands.vd.registers()).map(|index| elementwise(emitter, inst, operands, index)).collect();
            write_group(emitter, inst.vd, operands.vd.width(), count, inst.masked, &values);
        }
    }
}

/// Register `index` of the result.
fn elementwise(emitter: &mut Emitter<'_>, inst: &Arithmetic, operands: Operands, index: u32) -> Value {
    let width = operands.vd.width();
    let (sign_a, sign_b) = inst.op.signs();
    match inst.op.shape() {
        Shape::Index => return elements(emitter, width, |lane| index * lanes(width) + lane),
        Shape::Narrow => return narrowed_shift(emitter, inst, operands, index),
        Shape::Extend2 | Shape::Extend4 => {
            return widened(emitter, inst.vs2, operands.vs2.width(), width, index, sign_a);
        }
        _ => {}
    }
    let b = match inst.source {
        Source::Vector(vs1) => widened(emitter, vs1, operands.vs1.width(), width, index, sign_b),
        scalar => splat(emitter, scalar, operands.vs1.width(), width, sign_b),
    };
    if inst.op == VectorOp::Move {
        return b;
    }
    let a = widened(emitter, inst.vs2, operands.vs2.width(), width, index, sign_a);
    match inst.op {
        VectorOp::ShiftLeft | VectorOp::ShiftRightLogical | VectorOp::ShiftRightArithmetic => shifted(emitter, inst, a),
        _ => {
            let d = as_elements(emitter, grouped(inst.vd, index), width);
            computed_elements(emitter, inst.op, a, b, d)
        }
    }
}

/// Elements shifted by the scalar operand. Cranelift takes as many bits of it as RISC-V.
fn shifted(emitter: &mut Emitter<'_>, inst: &Arithmetic, value: Value) -> Value {
    let amount = scalar(emitter, inst.source);
    let ins = emitter.builder.ins();
    match inst.op {
        VectorOp::ShiftLeft => ins.ishl(value, amount),
        VectorOp::ShiftRightArithmetic | VectorOp::NarrowShiftArithmetic => ins.sshr(value, amount),
        _ => ins.ushr(value, amount),
    }
}

fn narrowed_shift(emitter: &mut Emitter<'_>, inst: &Arithmetic, operands: Operands, index: u32) -> Value {
    let wide = operands.vs2.width();
    let [lower, upper] = [2 * index, 2 * index + 1].map(|index| {
        // A group of half a register becomes one wide register.
        if index < operands.vs2.registers() {
            let value = as_elements(emitter, grouped(inst.vs2, index), wide);
            shifted(emitter, inst, value)
        } else {
            zeroes(emitter)
        }
    });
    let size = wide.bytes() / 2;
    let result = shuffled(emitter, lower, upper, |at| at / size * wide.bytes() + at % size);
    cast(emitter, vector_of(operands.vd.width()), result)
}

fn computed_elements(emitter: &mut Emitter<'_>, op: VectorOp, a: Value, b: Value, d: Value) -> Value {
    use VectorOp as Op;
    match op {
        Op::Sub | Op::WidenSubu | Op::WidenSub | Op::WideSubu | Op::WideSub => emitter.builder.ins().isub(a, b),
        Op::ReverseSub => emitter.builder.ins().isub(b, a),
        Op::Minu => emitter.builder.ins().umin(a, b),
        Op::Min => emitter.builder.ins().smin(a, b),
        Op::Maxu => emitter.builder.ins().umax(a, b),
        Op::Max => emitter.builder.ins().smax(a, b),
        Op::And => emitter.builder.ins().band(a, b),
        Op::Or => emitter.builder.ins().bor(a, b),
        Op::Xor => emitter.builder.ins().bxor(a, b),
        Op::Mul | Op::WidenMulu | Op::WidenMulsu | Op::WidenMul => emitter.builder.ins().imul(a, b),
        Op::MulAdd => multiplied(emitter, b, d, |emitter, product| emitter.builder.ins().iadd(a, product)),
        Op::NegMulSub => multiplied(emitter, b, d, |emitter, product| emitter.builder.ins().isub(a, product)),
        Op::NegMulAcc => multiplied(emitter, a, b, |emitter, product| emitter.builder.ins().isub(d, product)),
        Op::MulAcc | Op::WidenMulAccu | Op::WidenMulAcc | Op::WidenMulAccus | Op::WidenMulAccsu => {
            multiplied(emitter, a, b, |emitter, product| emitter.builder.ins().iadd(d, product))
        }
        _ => emitter.builder.ins().iadd(a, b),
    }
}

fn multiplied(
    emitter: &mut Emitter<'_>,
    a: Value,
    b: Value,
    then: impl FnOnce(&mut Emitter<'_>, Value) -> Value,
) -> Value {
    let product = emitter.builder.ins().imul(a, b);
    then(emitter, product)
}
