//! Results of arithmetic, comparisons and atomic operations (Linux:
//! `Documentation/bpf/standardization/instruction-set.rst`).

use std::cmp::Ordering;

use super::error::Fault;
use super::value::Value;
use crate::bpf::insn::{Alu, Atomic, Bits, Condition, Operand, Size};

/// The lower 32 bits.
#[allow(clippy::cast_possible_truncation, reason = "the lower bits are wanted")]
pub(super) const fn lower(number: u64) -> u32 {
    number as u32
}

/// Result of an operation on numbers or pointers. The verifier refuses all operations on pointers but these: copies,
/// sums with numbers, and differences.
pub(super) fn alu(bits: Bits, op: Alu, a: Value, b: Value) -> Result<Value, Fault> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(Value::Number(match bits {
            Bits::B32 => u64::from(alu32(op, lower(a), lower(b))),
            Bits::B64 => alu64(op, a, b),
        })),
        (Value::Pointer(pointer), Value::Number(number)) | (Value::Number(number), Value::Pointer(pointer))
            if bits == Bits::B64 && op == Alu::Add =>
        {
            pointer.add(number).map(Value::Pointer)
        }
        (Value::Pointer(pointer), Value::Number(number)) if bits == Bits::B64 && op == Alu::Sub => {
            pointer.add(number.wrapping_neg()).map(Value::Pointer)
        }
        (Value::Pointer(a), Value::Pointer(b)) if bits == Bits::B64 && op == Alu::Sub => {
            let (a, b) = a.common(b).ok_or(Fault::PointerOperand(b.area))?;
            Ok(Value::Number(a.wrapping_sub(b).cast_unsigned()))
        }
        (Value::Pointer(pointer), _) | (_, Value::Pointer(pointer)) => Err(Fault::PointerOperand(pointer.area)),
    }
}

/// Refuses the constants that the verifier refuses.
pub(super) const fn check_constant(bits: Bits, op: Alu, from: Operand) -> Result<(), Fault> {
    let Operand::Immediate(constant) = from else { return Ok(()) };
    let width = match bits {
        Bits::B32 => 32,
        Bits::B64 => 64,
    };
    let is_valid = match op {
        Alu::Div | Alu::DivSigned | Alu::Mod | Alu::ModSigned => constant != 0,
        Alu::Lsh | Alu::Rsh | Alu::Arsh => 0 <= constant && constant < width,
        _ => true,
    };
    if is_valid { Ok(()) } else { Err(Fault::Constant) }
}

/// Defines an operation on numbers of one width. Shifts use as many bits of the operand as name one of the width.
macro_rules! operation {
    ($name:ident, $number:ty) => {
        fn $name(op: Alu, a: $number, b: $number) -> $number {
            let [signed_a, signed_b] = [a, b].map(<$number>::cast_signed);
            match op {
                Alu::Add => a.wrapping_add(b),
                Alu::Sub => a.wrapping_sub(b),
                Alu::Mul => a.wrapping_mul(b),
                Alu::Div => a.checked_div(b).unwrap_or(0),
                Alu::DivSigned if b == 0 => 0,
                Alu::DivSigned => signed_a.wrapping_div(signed_b).cast_unsigned(),
                Alu::Mod => a.checked_rem(b).unwrap_or(a),
                Alu::ModSigned if b == 0 => a,
                Alu::ModSigned => signed_a.wrapping_rem(signed_b).cast_unsigned(),
                Alu::Or => a | b,
                Alu::And => a & b,
                Alu::Xor => a ^ b,
                Alu::Lsh => a << (b % <$number>::from(<$number>::BITS)),
                Alu::Rsh => a >> (b % <$number>::from(<$number>::BITS)),
                Alu::Arsh => (signed_a >> (b % <$number>::from(<$number>::BITS))).cast_unsigned(),
                Alu::Mov => b,
            }
        }
    };
}

operation!(alu32, u32);
operation!(alu64, u64);

/// Sign-extends the lower `size` bytes. Extension to the register's own width does not exist.
pub(super) const fn sign_extend(bits: Bits, size: Size, number: u64) -> Result<u64, Fault> {
    let shift = match (bits, size) {
        (_, Size::Byte) => 56,
        (_, Size::Half) => 48,
        (Bits::B64, Size::Word) => 32,
        (Bits::B32, Size::Word) | (_, Size::Double) => return Err(Fault::Constant),
    };
    let extended = ((number << shift).cast_signed() >> shift).cast_unsigned();
    Ok(match bits {
        Bits::B32 => extended & 0xffff_ffff,
        Bits::B64 => extended,
    })
}

/// Whether `a condition b`. Pointers compare with pointers to the same area, and differ from 0; the outcome of other
/// comparisons depends on the kernel's addresses.
pub(super) fn holds(bits: Bits, condition: Condition, a: Value, b: Value) -> Result<bool, Fault> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(match bits {
            Bits::B32 => {
                let [a, b] = [a, b].map(lower);
                decide(condition, a.cmp(&b), a.cast_signed().cmp(&b.cast_signed()), a & b != 0)
            }
            Bits::B64 => decide(condition, a.cmp(&b), a.cast_signed().cmp(&b.cast_signed()), a & b != 0),
        }),
        (Value::Pointer(a), Value::Pointer(b)) if bits == Bits::B64 && condition != Condition::AnySet => {
            let (from_a, from_b) = a.common(b).ok_or(Fault::PointerOperand(b.area))?;
            // The kernel's addresses have one sign.
            let order = from_a.cmp(&from_b);
            Ok(decide(condition, order, order, false))
        }
        (Value::Pointer(_), Value::Number(0)) if bits == Bits::B64 && condition == Condition::Equal => Ok(false),
        (Value::Pointer(_), Value::Number(0)) if bits == Bits::B64 && condition == Condition::NotEqual => Ok(true),
        (Value::Pointer(pointer), _) | (_, Value::Pointer(pointer)) => Err(Fault::PointerOperand(pointer.area)),
    }
}

/// A condition, of operands in an unsigned and a signed order. `any_set`: they have bits in common.
fn decide(condition: Condition, unsigned: Ordering, signed: Ordering, any_set: bool) -> bool {
    match condition {
        Condition::Equal => unsigned.is_eq(),
        Condition::NotEqual => unsigned.is_ne(),
        Condition::AnySet => any_set,
        Condition::Above => unsigned.is_gt(),
        Condition::AboveOrEqual => unsigned.is_ge(),
        Condition::Below => unsigned.is_lt(),
        Condition::BelowOrEqual => unsigned.is_le(),
        Condition::Greater => signed.is_gt(),
        Condition::GreaterOrEqual => signed.is_ge(),
        Condition::Less => signed.is_lt(),
        Condition::LessOrEqual => signed.is_le(),
    }
}

/// New value of a word. `expected` is R0, if the operation uses it.
pub(super) const fn atomic(op: Atomic, old: u32, operand: u32, expected: u32) -> u32 {
    match op {
        Atomic::Add => old.wrapping_add(operand),
        Atomic::Or => old | operand,
        Atomic::And => old & operand,
        Atomic::Xor => old ^ operand,
        Atomic::Exchange => operand,
        Atomic::CompareExchange => {
            if old == expected {
                operand
            } else {
                old
            }
        }
    }
}
