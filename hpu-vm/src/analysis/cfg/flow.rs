//! Where control goes after an instruction, regardless of its context.

use crate::analysis::regs::size;
use crate::decode::Decoded;
use crate::inst::{Inst, Op, Reg};

/// The alternate link register (unprivileged ISA, §2.5.1).
const T0: Reg = Reg::new(5);

/// Control flow of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next instruction.
    Next,
    /// To an address.
    Jump(u32),
    /// To an address, or to the next instruction.
    Branch(u32),
    /// A call: its target, unless a register holds it, and the return address.
    Call { target: Option<u32>, back: u32 },
    /// Most likely a return.
    Return,
    /// A jump to an address that a register holds.
    Indirect,
    /// Nowhere.
    Stop,
}

impl Flow {
    /// The flow of the instruction at `pc`; `before` is the instruction that precedes it in its block.
    pub(super) fn of(pc: u32, decoded: &Decoded, before: Option<(u32, Inst)>) -> Self {
        let inst = &decoded.inst;
        let target = pc.wrapping_add(inst.imm.cast_unsigned());
        let back = decoded.next(pc);
        match inst.op {
            Op::Jal if inst.rd == Reg::ZERO => Self::Jump(target),
            Op::Jal => Self::Call { target: Some(target), back },
            Op::Jalr => match (inst.rd == Reg::ZERO, pair_target(inst, before)) {
                (false, target) => Self::Call { target, back },
                (true, Some(target)) => Self::Jump(target),
                (true, None) if [Reg::RA, T0].contains(&inst.rs1) => Self::Return,
                (true, None) => Self::Indirect,
            },
            Op::Beq | Op::Bne | Op::Blt | Op::Bge | Op::Bltu | Op::Bgeu => Self::Branch(target),
            Op::Ebreak => Self::Stop,
            _ => Self::Next,
        }
    }
}

/// The target of a far call or jump, which assemblers write as `auipc` and `jalr`.
fn pair_target(jump: &Inst, before: Option<(u32, Inst)>) -> Option<u32> {
    let (pc, high) = before.filter(|(_, high)| high.op == Op::Auipc && high.rd == jump.rs1)?;
    Some(pc.wrapping_add((high.imm.wrapping_add(jump.imm)).cast_unsigned()) & !1)
}

/// Maximum cost of a region.
pub(super) const MAX_COST: usize = 4_000;

/// Estimates the code that instructions become, so that a region stays small enough to compile in bounded time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Cost of a memory access with its checks, where an instruction costs 1.
    pub(crate) access: usize,
}

impl Cost {
    pub(super) fn of(self, inst: &Inst) -> usize {
        if size(inst).is_some() || inst.op == Op::Ecall { self.access } else { 1 }
    }
}
