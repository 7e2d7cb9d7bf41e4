//! Registers and memory that instructions read and write.

use crate::inst::{Format, Inst, Op, Reg};

use crate::vector::{Addressing, Configure, Length, Memory, NewType, Source, VectorInst};

/// A set of registers, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regs(pub(crate) u32);

impl Regs {
    /// All registers.
    pub(crate) const ALL: Self = Self(u32::MAX);

    pub(crate) const fn with(self, reg: Reg) -> Self {
        Self(self.0 | 1 << reg.number())
    }

    pub(crate) const fn without(self, reg: Reg) -> Self {
        Self(self.0 & !(1 << reg.number()))
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn has(self, reg: Reg) -> bool {
        self.0 >> reg.number() & 1 != 0
    }

    /// The registers except x0.
    pub(crate) fn iter(self) -> impl Iterator<Item = Reg> {
        (1..32).map(Reg::new).filter(move |&reg| self.has(reg))
    }
}

/// Registers an instruction reads.
pub(crate) fn reads(inst: &Inst) -> Regs {
    let none = Regs(0);
    match inst.op.format() {
        Format::R | Format::Store | Format::Branch | Format::Amo => none.with(inst.rs1).with(inst.rs2),
        Format::Unary
        | Format::I
        | Format::Shift
        | Format::Load
        | Format::JumpRegister
        | Format::LoadReserved
        | Format::Csr => none.with(inst.rs1),
        // The arguments of an `ecall` are a0 to a7.
        Format::System => Regs(0xff << 10),
        Format::Vector => scalars(inst).0,
        _ => none,
    }
}

/// The register an instruction writes; x0 for none.
pub(crate) fn writes(inst: &Inst) -> Reg {
    match inst.op.format() {
        Format::Store | Format::Branch | Format::Fence | Format::System => Reg::ZERO,
        Format::Vector => scalars(inst).1,
        _ => inst.rd,
    }
}

/// Bytes that a scalar memory access touches; `None` for other instructions.
pub(crate) const fn size(inst: &Inst) -> Option<u32> {
    Some(match inst.op {
        Op::Lb | Op::Lbu | Op::Sb => 1,
        Op::Lh | Op::Lhu | Op::Sh => 2,
        Op::Lw | Op::Sw => 4,
        _ => match inst.op.format() {
            Format::Amo | Format::LoadReserved => 4,
            _ => return None,
        },
    })
}

/// Scalar registers that a vector instruction reads, and the one it writes (x0 for none).
pub(crate) fn scalars(inst: &Inst) -> (Regs, Reg) {
    let none = Regs(0);
    match inst.vector() {
        None => (none, Reg::ZERO),
        Some(VectorInst::Configure(Configure { rd, length, vtype })) => {
            let reads = if let Length::Register(reg) = length { none.with(reg) } else { none };
            (if let NewType::Register(reg) = vtype { reads.with(reg) } else { reads }, rd)
        }
        Some(VectorInst::Memory(Memory { rs1, addressing, .. })) => {
            let reads = none.with(rs1);
            (if let Addressing::Strided(reg) = addressing { reads.with(reg) } else { reads }, Reg::ZERO)
        }
        Some(VectorInst::Arithmetic(inst)) => {
            let reads = if let Source::Scalar(reg) = inst.source { none.with(reg) } else { none };
            (reads, if inst.op.shape().has_scalar_result() { inst.rd() } else { Reg::ZERO })
        }
    }
}
