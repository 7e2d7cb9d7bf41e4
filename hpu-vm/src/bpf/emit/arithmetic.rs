//! Instructions that only compute. Results are zero-extended.

use super::emitter::{Emitter, R0, R1, STACK};
use super::frame::SCRATCH;
use crate::bpf::insn::{Alu, Bits, Condition, Insn, Operand, Register, Size};
use crate::inst::{Format, Inst, Op};

/// Computes `rd` of an instruction whose format [computes](Format::computes).
pub(super) fn arithmetic(emitter: &mut Emitter<'_>, inst: &Inst) {
    if emitter.homes.of(inst.rd).is_none() {
        return;
    }
    if let Some(value) = emitter.known().result(emitter.at.pc, inst) {
        return emitter.set_constant(inst.rd, value);
    }
    let to = emitter.result(inst.rd, &[inst.rs2]);
    emitter.get_into(to, inst.rs1);
    let b = match inst.op.format() {
        Format::R => emitter.operand(inst.rs2, R1),
        _ => Operand::Immediate(inst.imm),
    };
    compute(emitter, inst.op, to, b);
    emitter.set(inst.rd, to);
}

/// Computes in `to`, which holds the first operand. `b` may be R1.
fn compute(emitter: &mut Emitter<'_>, op: Op, to: Register, b: Operand) {
    match op {
        Op::Addi | Op::Add => emitter.asm.alu32(Alu::Add, to, b),
        Op::Sub => emitter.asm.alu32(Alu::Sub, to, b),
        Op::Xori | Op::Xor => emitter.asm.alu32(Alu::Xor, to, b),
        Op::Ori | Op::Or => emitter.asm.alu32(Alu::Or, to, b),
        Op::Andi | Op::And => emitter.asm.alu32(Alu::And, to, b),
        Op::Slli | Op::Sll => shift(emitter, Alu::Lsh, to, b),
        Op::Srli | Op::Srl => shift(emitter, Alu::Rsh, to, b),
        Op::Srai | Op::Sra => shift(emitter, Alu::Arsh, to, b),
        Op::Slti | Op::Slt => less(emitter, Condition::Less, to, b),
        Op::Sltiu | Op::Sltu => less(emitter, Condition::Below, to, b),
        Op::Sh1add | Op::Sh2add | Op::Sh3add => {
            emitter.asm.alu32(Alu::Lsh, to, op.shift_of_sum());
            emitter.asm.alu32(Alu::Add, to, b);
        }
        Op::Andn | Op::Orn | Op::Xnor => inverted(emitter, op, to, b),
        Op::Max => choose(emitter, Condition::GreaterOrEqual, to, b),
        Op::Maxu => choose(emitter, Condition::AboveOrEqual, to, b),
        Op::Min => choose(emitter, Condition::LessOrEqual, to, b),
        Op::Minu => choose(emitter, Condition::BelowOrEqual, to, b),
        Op::Mul => emitter.asm.alu32(Alu::Mul, to, b),
        Op::Mulh | Op::Mulhsu | Op::Mulhu => upper_product(emitter, op, to, b),
        Op::Div | Op::Divu | Op::Rem | Op::Remu => divide(emitter, op, to, b),
        Op::SextB => sign_extend(emitter, to, Size::Byte),
        Op::SextH => sign_extend(emitter, to, Size::Half),
        Op::ZextH => emitter.asm.alu32(Alu::And, to, 0xffff_u32),
        Op::Rol => rotate_left(emitter, to, b),
        Op::Ror | Op::Rori => rotate_right(emitter, to, b),
        Op::Rev8 => emitter.asm.push(Insn::SwapBytes { reg: to }),
        Op::OrcB => bytes_with_a_bit(emitter, to),
        Op::Clz | Op::Ctz | Op::Cpop => count(emitter, op, to),
        Op::Bclr | Op::Bclri | Op::Binv | Op::Binvi | Op::Bset | Op::Bseti => change_bit(emitter, op, to, b),
        Op::Bext | Op::Bexti => {
            shift(emitter, Alu::Rsh, to, b);
            emitter.asm.alu32(Alu::And, to, 1);
        }
        // `lui` and `auipc` are constants.
        _ => unreachable!("{} is no arithmetic", op.mnemonic()),
    }
}

/// Shift amounts are taken modulo 32, as in RISC-V; constant ones must be in range.
fn shift(emitter: &mut Emitter<'_>, op: Alu, to: Register, b: Operand) {
    emitter.asm.alu32(op, to, amount(b));
}

const fn amount(b: Operand) -> Operand {
    match b {
        Operand::Immediate(value) => Operand::Immediate(value & 31),
        register => register,
    }
}

/// Makes `b` a register, R1 if it is none.
fn in_register(emitter: &mut Emitter<'_>, b: Operand) -> Register {
    match b {
        Operand::Register(register) => register,
        Operand::Immediate(value) => {
            emitter.asm.mov32(R1, value);
            R1
        }
    }
}

/// Copies `b` to R1.
fn copy(emitter: &mut Emitter<'_>, b: Operand) {
    if b != Operand::Register(R1) {
        emitter.asm.mov32(R1, b);
    }
}

/// 1 if the comparison holds, else 0.
fn less(emitter: &mut Emitter<'_>, condition: Condition, to: Register, b: Operand) {
    let [holds, end] = [(); 2].map(|()| emitter.asm.label());
    emitter.asm.branch32(condition, to, b, holds);
    emitter.asm.mov32(to, 0);
    emitter.asm.jump(end);
    emitter.asm.bind(holds);
    emitter.asm.mov32(to, 1);
    emitter.asm.bind(end);
}

/// Keeps the first operand if the comparison holds, else takes the second.
fn choose(emitter: &mut Emitter<'_>, keeps: Condition, to: Register, b: Operand) {
    let end = emitter.asm.label();
    emitter.asm.branch32(keeps, to, b, end);
    emitter.asm.mov32(to, b);
    emitter.asm.bind(end);
}

fn inverted(emitter: &mut Emitter<'_>, op: Op, to: Register, b: Operand) {
    copy(emitter, b);
    emitter.asm.alu32(Alu::Xor, R1, -1);
    let op = match op {
        Op::Andn => Alu::And,
        Op::Orn => Alu::Or,
        _ => Alu::Xor,
    };
    emitter.asm.alu32(op, to, R1);
}

fn sign_extend(emitter: &mut Emitter<'_>, to: Register, size: Size) {
    emitter.asm.push(Insn::SignExtend { bits: Bits::B32, to, from: to, size });
}

fn widen(emitter: &mut Emitter<'_>, register: Register) {
    emitter.asm.push(Insn::SignExtend { bits: Bits::B64, to: register, from: register, size: Size::Word });
}

fn upper_product(emitter: &mut Emitter<'_>, op: Op, to: Register, b: Operand) {
    copy(emitter, b);
    if op != Op::Mulhu {
        widen(emitter, to);
    }
    if op == Op::Mulh {
        widen(emitter, R1);
    }
    emitter.asm.alu64(Alu::Mul, to, R1);
    emitter.asm.alu64(Alu::Rsh, to, 32);
}

/// Division by zero: quotients have all bits set, remainders are the dividend. A signed division by -1 is a negation: some
/// kernels' processors trap on its overflow.
fn divide(emitter: &mut Emitter<'_>, op: Op, to: Register, b: Operand) {
    let b = in_register(emitter, b);
    let [by_zero, by_minus_one, end] = [(); 3].map(|()| emitter.asm.label());
    let is_signed = matches!(op, Op::Div | Op::Rem);
    let is_quotient = matches!(op, Op::Div | Op::Divu);
    emitter.asm.branch32(Condition::Equal, b, 0, by_zero);
    if is_signed {
        emitter.asm.branch32(Condition::Equal, b, -1, by_minus_one);
    }
    emitter.asm.alu32(
        match op {
            Op::Div => Alu::DivSigned,
            Op::Divu => Alu::Div,
            Op::Rem => Alu::ModSigned,
            _ => Alu::Mod,
        },
        to,
        b,
    );
    emitter.asm.jump(end);
    emitter.asm.bind(by_minus_one);
    if is_signed && is_quotient {
        emitter.asm.alu32(Alu::Xor, to, -1);
        emitter.asm.alu32(Alu::Add, to, 1);
        emitter.asm.jump(end);
    } else if is_signed {
        emitter.asm.mov32(to, 0);
        emitter.asm.jump(end);
    }
    emitter.asm.bind(by_zero);
    if is_quotient {
        emitter.asm.mov32(to, -1);
    }
    emitter.asm.bind(end);
}

/// The word twice, shifted, has the rotated one in its lower half.
fn rotate_right(emitter: &mut Emitter<'_>, to: Register, b: Operand) {
    match b {
        Operand::Immediate(value) => {
            emitter.asm.mov32(R1, to);
            emitter.asm.alu64(Alu::Lsh, R1, 32);
            emitter.asm.alu64(Alu::Or, to, R1);
            emitter.asm.alu64(Alu::Rsh, to, value & 31);
        }
        Operand::Register(_) => {
            copy(emitter, b);
            emitter.asm.alu32(Alu::And, R1, 31);
            double(emitter, to);
            emitter.asm.alu64(Alu::Rsh, to, R1);
        }
    }
    emitter.asm.mov32(to, to);
}

fn rotate_left(emitter: &mut Emitter<'_>, to: Register, b: Operand) {
    // A rotation to the right by the negative amount.
    match b {
        Operand::Immediate(value) => rotate_right(emitter, to, Operand::Immediate(value.wrapping_neg())),
        Operand::Register(_) => {
            copy(emitter, b);
            emitter.asm.alu32(Alu::Xor, R1, -1);
            emitter.asm.alu32(Alu::Add, R1, 1);
            rotate_right(emitter, to, R1.into());
        }
    }
}

/// Makes the upper half equal to the lower one, without R1.
fn double(emitter: &mut Emitter<'_>, to: Register) {
    emitter.asm.store(Size::Word, STACK, SCRATCH, to);
    emitter.asm.store(Size::Word, STACK, SCRATCH + 4, to);
    emitter.asm.load(Size::Double, to, STACK, SCRATCH);
}

/// As [`alu::orc_b`](crate::alu::orc_b).
fn bytes_with_a_bit(emitter: &mut Emitter<'_>, to: Register) {
    emitter.asm.mov32(R1, to);
    emitter.asm.alu32(Alu::And, R1, 0x7f7f_7f7f_u32);
    emitter.asm.alu32(Alu::Add, R1, 0x7f7f_7f7f_u32);
    emitter.asm.alu32(Alu::Or, to, R1);
    emitter.asm.alu32(Alu::And, to, 0x8080_8080_u32);
    emitter.asm.alu32(Alu::Rsh, to, 7);
    emitter.asm.alu32(Alu::Mul, to, 0xff);
}

/// Numbers of zeroes and ones. eBPF has no instruction for them: bits are summed in parallel.
fn count(emitter: &mut Emitter<'_>, op: Op, to: Register) {
    match op {
        Op::Clz => {
            for shift in [1, 2, 4, 8, 16] {
                emitter.asm.mov32(R1, to);
                emitter.asm.alu32(Alu::Rsh, R1, shift);
                emitter.asm.alu32(Alu::Or, to, R1);
            }
            emitter.asm.alu32(Alu::Xor, to, -1);
        }
        Op::Ctz => {
            // Ones below the lowest set bit.
            emitter.asm.mov32(R1, to);
            emitter.asm.alu32(Alu::Sub, R1, 1);
            emitter.asm.alu32(Alu::Xor, to, -1);
            emitter.asm.alu32(Alu::And, to, R1);
        }
        _ => {}
    }
    for (shift, mask) in [(1, 0x5555_5555_u32), (2, 0x3333_3333), (4, 0x0f0f_0f0f)] {
        emitter.asm.mov32(R1, to);
        emitter.asm.alu32(Alu::Rsh, R1, shift);
        emitter.asm.alu32(Alu::And, R1, mask);
        emitter.asm.alu32(Alu::And, to, mask);
        emitter.asm.alu32(Alu::Add, to, R1);
    }
    emitter.asm.alu32(Alu::Mul, to, 0x0101_0101_u32);
    emitter.asm.alu32(Alu::Rsh, to, 24);
}

fn change_bit(emitter: &mut Emitter<'_>, op: Op, to: Register, b: Operand) {
    let (op, inverts) = match op {
        Op::Bclr | Op::Bclri => (Alu::And, true),
        Op::Binv | Op::Binvi => (Alu::Xor, false),
        _ => (Alu::Or, false),
    };
    if let Operand::Immediate(value) = b {
        let bit = 1_u32 << (value & 31);
        return emitter.asm.alu32(op, to, if inverts { !bit } else { bit });
    }
    // R1 = 1 << b needs b apart from R1.
    copy(emitter, b);
    emitter.asm.store(Size::Double, STACK, SCRATCH, to);
    emitter.asm.mov32(to, 1);
    emitter.asm.alu32(Alu::Lsh, to, R1);
    if inverts {
        emitter.asm.alu32(Alu::Xor, to, -1);
    }
    emitter.asm.load(Size::Double, R1, STACK, SCRATCH);
    emitter.asm.alu32(op, to, R1);
}

/// R0 is never the home of a guest register.
const _: () = assert!(R0.index() == 0);
