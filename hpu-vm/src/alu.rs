//! Results of instructions that only compute, and arithmetic with edge cases: see the ISA manual's chapters "M" (tables
//! of division results) and "A".

use crate::inst::Op;

/// Upper half of signed × signed.
#[allow(clippy::cast_possible_truncation, reason = "after the shift only 32 bits are left")]
pub(crate) const fn mulh(a: u32, b: u32) -> u32 {
    ((a.cast_signed() as i64 * b.cast_signed() as i64) >> 32) as u32
}

/// Upper half of signed × unsigned.
#[allow(clippy::cast_possible_truncation, reason = "after the shift only 32 bits are left")]
pub(crate) const fn mulhsu(a: u32, b: u32) -> u32 {
    ((a.cast_signed() as i64 * b as i64) >> 32) as u32
}

/// Upper half of unsigned × unsigned.
#[allow(clippy::cast_possible_truncation, reason = "after the shift only 32 bits are left")]
pub(crate) const fn mulhu(a: u32, b: u32) -> u32 {
    ((a as u64 * b as u64) >> 32) as u32
}

/// Signed quotient. Division by zero: -1. Overflow (`i32::MIN / -1`): the dividend.
pub(crate) const fn div(a: u32, b: u32) -> u32 {
    if b == 0 { u32::MAX } else { a.cast_signed().wrapping_div(b.cast_signed()).cast_unsigned() }
}

/// Unsigned quotient. Division by zero: all ones.
pub(crate) const fn divu(a: u32, b: u32) -> u32 {
    match a.checked_div(b) {
        Some(quotient) => quotient,
        None => u32::MAX,
    }
}

/// Signed remainder. Division by zero: the dividend. Overflow: 0.
pub(crate) const fn rem(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { a.cast_signed().wrapping_rem(b.cast_signed()).cast_unsigned() }
}

/// Unsigned remainder. Division by zero: the dividend.
pub(crate) const fn remu(a: u32, b: u32) -> u32 {
    match a.checked_rem(b) {
        Some(remainder) => remainder,
        None => a,
    }
}

/// Arithmetic shift right by the lower five bits of `b`.
pub(crate) const fn sra(a: u32, b: u32) -> u32 {
    (a.cast_signed() >> (b & 31)).cast_unsigned()
}

/// Signed comparison.
pub(crate) const fn less(a: u32, b: u32) -> bool {
    a.cast_signed() < b.cast_signed()
}

/// Signed minimum.
pub(crate) const fn min(a: u32, b: u32) -> u32 {
    if less(a, b) { a } else { b }
}

/// Signed maximum.
pub(crate) const fn max(a: u32, b: u32) -> u32 {
    if less(a, b) { b } else { a }
}

/// A word with only the bit set whose number is in the lower five bits of `index`.
pub(crate) const fn bit(index: u32) -> u32 {
    1 << (index & 31)
}

/// Sets all bits of each byte that is not zero.
pub(crate) const fn orc_b(a: u32) -> u32 {
    // The upper bit of each byte: carried from any bit below it, or set already.
    let carried = (a & 0x7f7f_7f7f) + 0x7f7f_7f7f;
    let any = (carried | a) & 0x8080_8080;
    (any >> 7) * 0xff
}

/// The lower `BITS` bits of `value`, sign-extended.
#[inline(always)]
pub(crate) const fn sign_extend<const BITS: u32>(value: u32) -> u32 {
    ((value << (32 - BITS)).cast_signed() >> (32 - BITS)).cast_unsigned()
}

/// The result of an operation that only [computes](crate::inst::Format::computes), other than `auipc`, for the values
/// of its operands; 0 for any other operation.
#[inline(always)]
pub(crate) fn compute(op: Op, a: u32, b: u32, imm: u32) -> u32 {
    match op {
        Op::Lui => imm,
        Op::Addi => a.wrapping_add(imm),
        Op::Slti => u32::from(less(a, imm)),
        Op::Sltiu => u32::from(a < imm),
        Op::Xori => a ^ imm,
        Op::Ori => a | imm,
        Op::Andi => a & imm,
        Op::Slli => a << (imm & 31),
        Op::Srli => a >> (imm & 31),
        Op::Srai => sra(a, imm),
        Op::Add => a.wrapping_add(b),
        Op::Sub => a.wrapping_sub(b),
        Op::Sll => a << (b & 31),
        Op::Slt => u32::from(less(a, b)),
        Op::Sltu => u32::from(a < b),
        Op::Xor => a ^ b,
        Op::Srl => a >> (b & 31),
        Op::Sra => sra(a, b),
        Op::Or => a | b,
        Op::And => a & b,
        Op::Mul => a.wrapping_mul(b),
        Op::Mulh => mulh(a, b),
        Op::Mulhsu => mulhsu(a, b),
        Op::Mulhu => mulhu(a, b),
        Op::Div => div(a, b),
        Op::Divu => divu(a, b),
        Op::Rem => rem(a, b),
        Op::Remu => remu(a, b),
        Op::Sh1add => (a << 1).wrapping_add(b),
        Op::Sh2add => (a << 2).wrapping_add(b),
        Op::Sh3add => (a << 3).wrapping_add(b),
        Op::Andn => a & !b,
        Op::Orn => a | !b,
        Op::Xnor => !(a ^ b),
        Op::Clz => a.leading_zeros(),
        Op::Ctz => a.trailing_zeros(),
        Op::Cpop => a.count_ones(),
        Op::Max => max(a, b),
        Op::Maxu => a.max(b),
        Op::Min => min(a, b),
        Op::Minu => a.min(b),
        Op::SextB => sign_extend::<8>(a),
        Op::SextH => sign_extend::<16>(a),
        Op::ZextH => a & 0xffff,
        Op::Rol => a.rotate_left(b & 31),
        Op::Ror => a.rotate_right(b & 31),
        Op::Rori => a.rotate_right(imm & 31),
        Op::OrcB => orc_b(a),
        Op::Rev8 => a.swap_bytes(),
        Op::Bclr => a & !bit(b),
        Op::Bclri => a & !bit(imm),
        Op::Bext => a >> (b & 31) & 1,
        Op::Bexti => a >> (imm & 31) & 1,
        Op::Binv => a ^ bit(b),
        Op::Binvi => a ^ bit(imm),
        Op::Bset => a | bit(b),
        Op::Bseti => a | bit(imm),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{compute, div, divu, mulh, mulhsu, mulhu, orc_b, rem, remu, sra};

    use crate::inst::Op;

    const MIN: u32 = 0x8000_0000;
    const MINUS_1: u32 = u32::MAX;

    #[test]
    fn division_corner_cases() {
        assert_eq!([div(7, 0), divu(7, 0), rem(7, 0), remu(7, 0)], [MINUS_1, MINUS_1, 7, 7]);
        assert_eq!([div(MIN, MINUS_1), rem(MIN, MINUS_1)], [MIN, 0]);
        assert_eq!([div(MINUS_1 - 6, 2), rem(MINUS_1 - 6, 2)], [MINUS_1 - 2, MINUS_1]);
    }

    #[test]
    fn upper_halves() {
        assert_eq!([mulh(MIN, MIN), mulhu(MIN, MIN), mulhsu(MIN, MIN)], [0x4000_0000, 0x4000_0000, 0xc000_0000]);
        assert_eq!([mulh(MINUS_1, 1), mulhu(MINUS_1, 1), mulhsu(MINUS_1, MINUS_1)], [MINUS_1, 0, MINUS_1]);
    }

    #[test]
    fn bytes_with_a_bit_have_all() {
        assert_eq!([orc_b(0), orc_b(0x8000_0100), orc_b(0x0010_7f00)], [0, 0xff00_ff00, 0x00ff_ff00]);
    }

    #[test]
    fn shift_amounts_are_five_bits() {
        assert_eq!([sra(MIN, 31), sra(MIN, 32), sra(MIN, 33)], [MINUS_1, MIN, 0xc000_0000]);
    }

    /// `compute` returns 0 for operations that it does not know.
    #[test]
    fn every_operation_that_computes_has_a_result() {
        let operands = [(3, 2, 0x1000), (2, 3, 5), (MIN, 31, 31), (7, 7, 7)];
        for op in Op::ALL.iter().copied().filter(|op| op.format().computes() && *op != Op::Auipc) {
            assert!(operands.iter().any(|&(a, b, imm)| compute(op, a, b, imm) != 0), "{}", op.mnemonic());
        }
        assert_eq!(compute(Op::Jal, 1, 1, 1), 0);
    }
}
