//! Instruction encoder: the inverse of the decoder, for tests and for programs built in memory.

use crate::inst::{Format, Inst};

impl Inst {
    /// Returns the 4-byte encoding. Fields outside the format are zero, as are acquire and release bits.
    ///
    /// Immediates out of range are truncated to the width of their field.
    #[must_use]
    pub fn encode(self) -> u32 {
        let (rd, rs1, rs2) = (self.rd.number() << 7, self.rs1.number() << 15, self.rs2.number() << 20);
        let imm = self.imm.cast_unsigned();
        let operands = match self.op.format() {
            Format::R | Format::Amo => rd | rs1 | rs2,
            Format::I | Format::Load | Format::JumpRegister | Format::Csr | Format::CsrImmediate => {
                rd | rs1 | imm << 20
            }
            Format::Shift => rd | rs1 | (imm & 31) << 20,
            Format::Store => rs1 | rs2 | (imm >> 5) << 25 | (imm & 0x1f) << 7,
            Format::Branch => rs1 | rs2 | branch_fields(imm),
            Format::U => rd | imm & 0xffff_f000,
            Format::J => rd | jump_fields(imm),
            Format::Unary | Format::LoadReserved => rd | rs1,
            Format::Fence => imm << 20,
            Format::System => 0,
            Format::Vector => imm,
        };
        self.op.pattern() | operands
    }
}

/// B-type: imm[12] at 31, [10:5] at 30:25, [4:1] at 11:8, [11] at 7.
const fn branch_fields(imm: u32) -> u32 {
    (imm >> 12 & 1) << 31 | (imm >> 5 & 0x3f) << 25 | (imm >> 1 & 0xf) << 8 | (imm >> 11 & 1) << 7
}

/// J-type: imm[20] at 31, [10:1] at 30:21, [11] at 20, [19:12] at 19:12.
const fn jump_fields(imm: u32) -> u32 {
    (imm >> 20 & 1) << 31 | (imm >> 1 & 0x3ff) << 21 | (imm >> 11 & 1) << 20 | imm & 0x000f_f000
}

#[cfg(test)]
mod tests {
    use crate::inst::{Inst, Op, Reg};

    /// Against LLVM 19's assembler, so that encoder and decoder cannot be wrong together.
    #[test]
    fn encodings_of_an_assembler() {
        assert_eq!(Inst::new(Op::Addi).rd(Reg::SP).rs1(Reg::SP).imm(-16).encode(), 0xff01_0113);
        assert_eq!(Inst::new(Op::Sw).rs1(Reg::SP).rs2(Reg::RA).imm(-4).encode(), 0xfe11_2e23);
        assert_eq!(Inst::new(Op::Beq).imm(-4096).encode(), 0x8000_0063);
        assert_eq!(Inst::new(Op::Beq).imm(4094).encode(), 0x7e00_0fe3);
        assert_eq!(Inst::new(Op::Jal).rd(Reg::RA).imm(-4).encode(), 0xffdf_f0ef);
        assert_eq!(Inst::new(Op::Jal).imm(1_048_574).encode(), 0x7fff_f06f);
    }
}
