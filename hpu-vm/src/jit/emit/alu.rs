//! Arithmetic: results in `rd` and no other effect.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64, Type};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::Emitter;
use crate::inst::{Format, Inst, Op};

impl Emitter<'_> {
    /// Computes `rd` of an instruction whose format [computes](Format::computes).
    pub(super) fn arithmetic(&mut self, inst: &Inst) {
        let value = self.result(self.pc, inst);
        self.set(inst.rd, value);
    }

    /// What an instruction of such a format at `pc` computes.
    pub(super) fn result(&mut self, pc: u32, inst: &Inst) -> Value {
        match self.known.result(pc, inst) {
            Some(value) => self.constant(value),
            None => self.computed(inst),
        }
    }

    fn computed(&mut self, inst: &Inst) -> Value {
        let a = self.get(inst.rs1);
        let b =
            if inst.op.format() == Format::R { self.get(inst.rs2) } else { self.constant(inst.imm.cast_unsigned()) };
        match inst.op {
            Op::Addi | Op::Add => self.builder.ins().iadd(a, b),
            Op::Sub => self.builder.ins().isub(a, b),
            Op::Xori | Op::Xor => self.builder.ins().bxor(a, b),
            Op::Ori | Op::Or => self.or(a, b),
            Op::Andi | Op::And => self.builder.ins().band(a, b),
            // Cranelift takes shift amounts modulo the width, as RISC-V does.
            Op::Slli | Op::Sll => self.builder.ins().ishl(a, b),
            Op::Srli | Op::Srl => self.builder.ins().ushr(a, b),
            Op::Srai | Op::Sra => self.builder.ins().sshr(a, b),
            Op::Slti | Op::Slt => self.flag(IntCC::SignedLessThan, a, b),
            Op::Sltiu | Op::Sltu => self.flag(IntCC::UnsignedLessThan, a, b),
            Op::Mul => self.builder.ins().imul(a, b),
            Op::Mulh => self.upper_product(a, b, true, true),
            Op::Mulhsu => self.upper_product(a, b, true, false),
            Op::Mulhu => self.upper_product(a, b, false, false),
            Op::Sh1add | Op::Sh2add | Op::Sh3add => {
                let shifted = self.builder.ins().ishl_imm_u(a, i64::from(inst.op.shift_of_sum()));
                self.builder.ins().iadd(shifted, b)
            }
            Op::Andn => self.builder.ins().band_not(a, b),
            Op::Orn => self.builder.ins().bor_not(a, b),
            Op::Xnor => self.builder.ins().bxor_not(a, b),
            Op::Clz => self.builder.ins().clz(a),
            Op::Ctz => self.builder.ins().ctz(a),
            Op::Cpop => self.builder.ins().popcnt(a),
            Op::Max => self.builder.ins().smax(a, b),
            Op::Maxu => self.builder.ins().umax(a, b),
            Op::Min => self.builder.ins().smin(a, b),
            Op::Minu => self.builder.ins().umin(a, b),
            Op::SextB => self.extend_part(a, I8),
            Op::SextH => self.extend_part(a, I16),
            // Not by 16 bits: Cranelift would compute those anew with all that they are computed from.
            Op::ZextH => self.builder.ins().band_imm_u(a, 0xffff),
            Op::Rol => self.builder.ins().rotl(a, b),
            Op::Ror | Op::Rori => self.builder.ins().rotr(a, b),
            Op::OrcB => self.bytes_with_a_bit(a),
            Op::Rev8 => self.builder.ins().bswap(a),
            Op::Bclr | Op::Bclri => {
                let bit = self.bit(b);
                self.builder.ins().band_not(a, bit)
            }
            Op::Bext | Op::Bexti => {
                let shifted = self.builder.ins().ushr(a, b);
                self.builder.ins().band_imm_u(shifted, 1)
            }
            Op::Binv | Op::Binvi => {
                let bit = self.bit(b);
                self.builder.ins().bxor(a, bit)
            }
            Op::Bset | Op::Bseti => {
                let bit = self.bit(b);
                self.builder.ins().bor(a, bit)
            }
            Op::Div | Op::Rem => self.divide_signed(inst.op, a, b),
            Op::Divu | Op::Remu => self.divide_unsigned(inst.op, a, b),
            // `lui` and `auipc` are constants.
            _ => unreachable!("{} is no arithmetic", inst.op.mnemonic()),
        }
    }

    fn extend_part(&mut self, value: Value, part: Type) -> Value {
        let value = self.builder.ins().ireduce(part, value);
        self.builder.ins().sextend(I32, value)
    }

    /// The bit of that number.
    fn bit(&mut self, index: Value) -> Value {
        let one = self.constant(1);
        self.builder.ins().ishl(one, index)
    }

    /// As [`alu::orc_b`](crate::alu::orc_b).
    fn bytes_with_a_bit(&mut self, value: Value) -> Value {
        let lower = self.constant(0x7f7f_7f7f);
        let masked = self.builder.ins().band(value, lower);
        let carried = self.builder.ins().iadd(masked, lower);
        let any = self.builder.ins().bor(carried, value);
        let upper = self.builder.ins().ushr_imm_u(any, 7);
        let ones = self.constant(0x0101_0101);
        let ones = self.builder.ins().band(upper, ones);
        let all = self.constant(0xff);
        self.builder.ins().imul(ones, all)
    }

    fn flag(&mut self, condition: IntCC, a: Value, b: Value) -> Value {
        let flag = self.builder.ins().icmp(condition, a, b);
        self.builder.ins().uextend(I32, flag)
    }

    fn upper_product(&mut self, a: Value, b: Value, a_signed: bool, b_signed: bool) -> Value {
        let (a, b) = (self.extend(a, a_signed), self.extend(b, b_signed));
        let product = self.builder.ins().imul(a, b);
        let upper = self.builder.ins().ushr_imm_u(product, 32);
        self.builder.ins().ireduce(I32, upper)
    }

    fn extend(&mut self, value: Value, signed: bool) -> Value {
        if signed { self.builder.ins().sextend(I64, value) } else { self.builder.ins().uextend(I64, value) }
    }

    /// Host division traps on zero and overflow, so it is given 1 instead of such divisors: the overflowing quotient is the
    /// dividend and its remainder 0, as division by 1 has it; zero is set right afterwards.
    fn divide_signed(&mut self, op: Op, a: Value, b: Value) -> Value {
        let zero = self.compare(IntCC::Equal, b, 0);
        let minus_one = self.compare(IntCC::Equal, b, u32::MAX);
        let least = self.compare(IntCC::Equal, a, 0x8000_0000);
        let overflow = self.builder.ins().band(minus_one, least);
        let refused = self.builder.ins().bor(zero, overflow);
        let one = self.constant(1);
        let divisor = self.builder.ins().select(refused, one, b);
        let (result, by_zero) = if op == Op::Div {
            (self.builder.ins().sdiv(a, divisor), self.constant(u32::MAX))
        } else {
            (self.builder.ins().srem(a, divisor), a)
        };
        self.builder.ins().select(zero, by_zero, result)
    }

    fn divide_unsigned(&mut self, op: Op, a: Value, b: Value) -> Value {
        let zero = self.compare(IntCC::Equal, b, 0);
        let one = self.constant(1);
        let divisor = self.builder.ins().select(zero, one, b);
        let (result, by_zero) = if op == Op::Divu {
            (self.builder.ins().udiv(a, divisor), self.constant(u32::MAX))
        } else {
            (self.builder.ins().urem(a, divisor), a)
        };
        self.builder.ins().select(zero, by_zero, result)
    }
}
