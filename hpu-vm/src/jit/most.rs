//! How large what registers hold can be: enough to know that an index into a table stays in it.

use crate::inst::{Inst, Op, Reg};

/// The largest value, unsigned, that an instruction's result can have, where `most` says it of registers.
pub(crate) fn greatest(inst: &Inst, most: impl Fn(Reg) -> u32) -> u32 {
    let (a, b) = (most(inst.rs1), most(inst.rs2));
    let imm = inst.imm.cast_unsigned();
    let unknown = u32::MAX;
    match inst.op {
        Op::Lbu => 0xff,
        Op::Lhu => 0xffff,
        Op::Slt | Op::Slti | Op::Sltu | Op::Sltiu => 1,
        Op::And => a.min(b),
        Op::Andi => a.min(imm),
        Op::Or | Op::Xor => ones(a | b),
        Op::Ori | Op::Xori => ones(a | imm),
        Op::Add => a.checked_add(b).unwrap_or(unknown),
        Op::Addi => a.checked_add(imm).unwrap_or(unknown),
        Op::Mul => a.checked_mul(b).unwrap_or(unknown),
        Op::Slli if imm <= a.leading_zeros() => a.checked_shl(imm).unwrap_or(unknown),
        Op::Srli => a >> (imm & 31),
        Op::ZextH => a.min(0xffff),
        Op::Minu => a.min(b),
        Op::Maxu => a.max(b),
        Op::Clz | Op::Ctz | Op::Cpop => u32::BITS,
        Op::Bext | Op::Bexti => 1,
        Op::Andn | Op::Bclr | Op::Bclri => a,
        Op::Sh1add | Op::Sh2add | Op::Sh3add => shifted(a, inst.op).and_then(|a| a.checked_add(b)).unwrap_or(unknown),
        // A remainder of a division by zero is the dividend; no quotient is less than that of 0.
        Op::Srl | Op::Remu => a,
        _ => unknown,
    }
}

/// What such an operation shifts, shifted, if no bit is lost.
fn shifted(a: u32, op: Op) -> Option<u32> {
    a.checked_mul(1 << op.shift_of_sum())
}

/// The least number of ones, from the lowest bit on, that is no less.
const fn ones(value: u32) -> u32 {
    u32::MAX.wrapping_shr(value.leading_zeros()) * (value != 0) as u32
}

/// What a branch tells of a register where it is `taken`, or not: that it is no larger than this.
pub(crate) fn told(branch: &Inst, taken: bool, most: impl Fn(Reg) -> u32) -> Option<(Reg, u32)> {
    let less = match branch.op {
        Op::Bltu => taken,
        Op::Bgeu => !taken,
        _ => return None,
    };
    if less { Some((branch.rs1, most(branch.rs2).saturating_sub(1))) } else { Some((branch.rs2, most(branch.rs1))) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{greatest, told};
    use crate::code::Code;
    use crate::device::NoDevice;
    use crate::hart::Hart;
    use crate::inst::{Format, Inst, Op, Reg};
    use crate::interp;
    use crate::view::View;

    const A: Reg = Reg::A0;
    const B: Reg = Reg::A1;
    const ENTRY: u32 = 0x1d00_0000;

    /// The interpreter, behind the instruction.
    fn step(inst: Inst, a: u32, b: u32) -> Hart {
        let code = Code::at(ENTRY, &inst.encode().to_le_bytes());
        let mut hart = Hart::new(0);
        hart.begin(ENTRY, 0, 0);
        hart.set(A, a);
        hart.set(B, b);
        interp::run(&mut hart, &code, &mut View::new(), &mut NoDevice, 1);
        hart
    }

    proptest! {
        #[test]
        fn no_result_is_greater(op in computing(), a in values(), b in values(), over in values(), imm in -2048..2048_i32) {
            let op = *op;
            let imm = match op.format() {
                Format::Shift => imm & 31,
                Format::I => imm,
                _ => 0,
            };
            let inst = Inst::new(op).rd(A).rs1(A).rs2(B).imm(imm);
            let most = |reg: Reg| if reg == A { a.max(over) } else { b };
            prop_assert!(step(inst, a, b).get(A) <= greatest(&inst, most));
        }

        #[test]
        fn branches_tell_the_truth(op in 0..2_usize, a in values(), b in values(), over in values()) {
            let inst = Inst::new([Op::Bltu, Op::Bgeu][op]).rs1(A).rs2(B).imm(64);
            let taken = step(inst, a, b).pc == ENTRY + 64;
            let most = |reg: Reg| if reg == A { a.max(over) } else { b.max(over) };
            let (reg, at_most) = told(&inst, taken, most).expect("it tells something");
            let value = if reg == A { a } else { b };
            prop_assert!(value <= at_most);
        }
    }

    fn computing() -> impl Strategy<Value = &'static Op> {
        let ops: Vec<&Op> = Op::ALL.iter().filter(|op| op.format().computes()).collect();
        proptest::sample::select(ops)
    }

    /// Of all magnitudes.
    fn values() -> impl Strategy<Value = u32> {
        (any::<u32>(), 0..33_u32).prop_map(|(value, shift)| value.checked_shr(shift).unwrap_or(0))
    }
}
