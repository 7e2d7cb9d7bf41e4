//! Arithmetic: results in `rd` and no other effect.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64, Type};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::emitter::Emitter;
use super::peephole::or;
use crate::inst::{Format, Inst, Op};

/// Computes `rd` of an instruction whose format [computes](Format::computes).
pub(super) fn arithmetic(emitter: &mut Emitter<'_>, inst: &Inst) {
    let value = result(emitter, emitter.at.pc, inst);
    emitter.set(inst.rd, value);
}

/// The result of such an instruction at `pc`.
pub(super) fn result(emitter: &mut Emitter<'_>, pc: u32, inst: &Inst) -> Value {
    match emitter.known().result(pc, inst) {
        Some(value) => emitter.constant(value),
        None => computed(emitter, inst),
    }
}

fn computed(emitter: &mut Emitter<'_>, inst: &Inst) -> Value {
    let a = emitter.get(inst.rs1);
    let b =
        if inst.op.format() == Format::R { emitter.get(inst.rs2) } else { emitter.constant(inst.imm.cast_unsigned()) };
    match inst.op {
        Op::Addi | Op::Add => emitter.builder.ins().iadd(a, b),
        Op::Sub => emitter.builder.ins().isub(a, b),
        Op::Xori | Op::Xor => emitter.builder.ins().bxor(a, b),
        Op::Ori | Op::Or => or(emitter, a, b),
        Op::Andi | Op::And => emitter.builder.ins().band(a, b),
        // Cranelift takes shift amounts modulo the width, as RISC-V does.
        Op::Slli | Op::Sll => emitter.builder.ins().ishl(a, b),
        Op::Srli | Op::Srl => emitter.builder.ins().ushr(a, b),
        Op::Srai | Op::Sra => emitter.builder.ins().sshr(a, b),
        Op::Slti | Op::Slt => flag(emitter, IntCC::SignedLessThan, a, b),
        Op::Sltiu | Op::Sltu => flag(emitter, IntCC::UnsignedLessThan, a, b),
        Op::Mul => emitter.builder.ins().imul(a, b),
        Op::Mulh => upper_product(emitter, a, b, true, true),
        Op::Mulhsu => upper_product(emitter, a, b, true, false),
        Op::Mulhu => upper_product(emitter, a, b, false, false),
        Op::Sh1add | Op::Sh2add | Op::Sh3add => {
            let shifted = emitter.builder.ins().ishl_imm_u(a, i64::from(inst.op.shift_of_sum()));
            emitter.builder.ins().iadd(shifted, b)
        }
        Op::Andn => emitter.builder.ins().band_not(a, b),
        Op::Orn => emitter.builder.ins().bor_not(a, b),
        Op::Xnor => emitter.builder.ins().bxor_not(a, b),
        Op::Clz => emitter.builder.ins().clz(a),
        Op::Ctz => emitter.builder.ins().ctz(a),
        Op::Cpop => emitter.builder.ins().popcnt(a),
        Op::Max => emitter.builder.ins().smax(a, b),
        Op::Maxu => emitter.builder.ins().umax(a, b),
        Op::Min => emitter.builder.ins().smin(a, b),
        Op::Minu => emitter.builder.ins().umin(a, b),
        Op::SextB => extend_part(emitter, a, I8),
        Op::SextH => extend_part(emitter, a, I16),
        // No extension from 16 bits: Cranelift would recompute the value with all its operands.
        Op::ZextH => emitter.builder.ins().band_imm_u(a, 0xffff),
        Op::Rol => emitter.builder.ins().rotl(a, b),
        Op::Ror | Op::Rori => emitter.builder.ins().rotr(a, b),
        Op::OrcB => bytes_with_a_bit(emitter, a),
        Op::Rev8 => emitter.builder.ins().bswap(a),
        Op::Bclr | Op::Bclri => {
            let bit = bit(emitter, b);
            emitter.builder.ins().band_not(a, bit)
        }
        Op::Bext | Op::Bexti => {
            let shifted = emitter.builder.ins().ushr(a, b);
            emitter.builder.ins().band_imm_u(shifted, 1)
        }
        Op::Binv | Op::Binvi => {
            let bit = bit(emitter, b);
            emitter.builder.ins().bxor(a, bit)
        }
        Op::Bset | Op::Bseti => {
            let bit = bit(emitter, b);
            emitter.builder.ins().bor(a, bit)
        }
        Op::Div | Op::Rem => divide_signed(emitter, inst.op, a, b),
        Op::Divu | Op::Remu => divide_unsigned(emitter, inst.op, a, b),
        // `lui` and `auipc` are constants.
        _ => unreachable!("{} is no arithmetic", inst.op.mnemonic()),
    }
}

fn extend_part(emitter: &mut Emitter<'_>, value: Value, part: Type) -> Value {
    let value = emitter.builder.ins().ireduce(part, value);
    emitter.builder.ins().sextend(I32, value)
}

/// A word with one bit set.
fn bit(emitter: &mut Emitter<'_>, index: Value) -> Value {
    let one = emitter.constant(1);
    emitter.builder.ins().ishl(one, index)
}

/// As [`alu::orc_b`](crate::alu::orc_b).
fn bytes_with_a_bit(emitter: &mut Emitter<'_>, value: Value) -> Value {
    let lower = emitter.constant(0x7f7f_7f7f);
    let masked = emitter.builder.ins().band(value, lower);
    let carried = emitter.builder.ins().iadd(masked, lower);
    let any = emitter.builder.ins().bor(carried, value);
    let upper = emitter.builder.ins().ushr_imm_u(any, 7);
    let ones = emitter.constant(0x0101_0101);
    let ones = emitter.builder.ins().band(upper, ones);
    let all = emitter.constant(0xff);
    emitter.builder.ins().imul(ones, all)
}

fn flag(emitter: &mut Emitter<'_>, condition: IntCC, a: Value, b: Value) -> Value {
    let flag = emitter.builder.ins().icmp(condition, a, b);
    emitter.builder.ins().uextend(I32, flag)
}

fn upper_product(emitter: &mut Emitter<'_>, a: Value, b: Value, a_signed: bool, b_signed: bool) -> Value {
    let (a, b) = (extend(emitter, a, a_signed), extend(emitter, b, b_signed));
    let product = emitter.builder.ins().imul(a, b);
    let upper = emitter.builder.ins().ushr_imm_u(product, 32);
    emitter.builder.ins().ireduce(I32, upper)
}

fn extend(emitter: &mut Emitter<'_>, value: Value, signed: bool) -> Value {
    if signed { emitter.builder.ins().sextend(I64, value) } else { emitter.builder.ins().uextend(I64, value) }
}

/// Host division traps on zero and overflow, so such divisors are replaced by 1: the overflowing quotient is the dividend and
/// its remainder 0, as in a division by 1. The result of a division by zero is selected afterwards.
fn divide_signed(emitter: &mut Emitter<'_>, op: Op, a: Value, b: Value) -> Value {
    let zero = emitter.compare(IntCC::Equal, b, 0);
    let minus_one = emitter.compare(IntCC::Equal, b, u32::MAX);
    let least = emitter.compare(IntCC::Equal, a, 0x8000_0000);
    let overflow = emitter.builder.ins().band(minus_one, least);
    let refused = emitter.builder.ins().bor(zero, overflow);
    let one = emitter.constant(1);
    let divisor = emitter.builder.ins().select(refused, one, b);
    let (result, by_zero) = if op == Op::Div {
        (emitter.builder.ins().sdiv(a, divisor), emitter.constant(u32::MAX))
    } else {
        (emitter.builder.ins().srem(a, divisor), a)
    };
    emitter.builder.ins().select(zero, by_zero, result)
}

fn divide_unsigned(emitter: &mut Emitter<'_>, op: Op, a: Value, b: Value) -> Value {
    let zero = emitter.compare(IntCC::Equal, b, 0);
    let one = emitter.constant(1);
    let divisor = emitter.builder.ins().select(zero, one, b);
    let (result, by_zero) = if op == Op::Divu {
        (emitter.builder.ins().udiv(a, divisor), emitter.constant(u32::MAX))
    } else {
        (emitter.builder.ins().urem(a, divisor), a)
    };
    emitter.builder.ins().select(zero, by_zero, result)
}
