//! The instruction list: every instruction of RV32IMAC, Zicsr, Zba, Zbb and Zbs that the HPU implements, once.
//!
//! Decoder, encoder, disassembler and the interpreter's dispatch are generated from `for_each_op`. Compressed
//! instructions have no ops of their own: [`crate::compressed`] expands them into these, as the ISA manual defines
//! them. All vector instructions are one op here and have their own list in [`crate::vector::inst`].

use std::fmt;

pub use crate::reg::Reg;
use crate::vector::{self, VectorInst};

/// Calls a macro with the whole instruction list: `Variant "mnemonic" Format pattern`.
///
/// `pattern` holds the fixed bits of the encoding (RISC-V unprivileged ISA, chapter "RV32/64G Instruction Set
/// Listings"); which bits are fixed follows from the format ([`Format::mask`]).
macro_rules! for_each_op {
    ($action:ident) => {
        $action! {
            Lui "lui" U 0x0000_0037;
            Auipc "auipc" U 0x0000_0017;
            Jal "jal" J 0x0000_006f;
            Jalr "jalr" JumpRegister 0x0000_0067;
            Beq "beq" Branch 0x0000_0063;
            Bne "bne" Branch 0x0000_1063;
            Blt "blt" Branch 0x0000_4063;
            Bge "bge" Branch 0x0000_5063;
            Bltu "bltu" Branch 0x0000_6063;
            Bgeu "bgeu" Branch 0x0000_7063;
            Lb "lb" Load 0x0000_0003;
            Lh "lh" Load 0x0000_1003;
            Lw "lw" Load 0x0000_2003;
            Lbu "lbu" Load 0x0000_4003;
            Lhu "lhu" Load 0x0000_5003;
            Sb "sb" Store 0x0000_0023;
            Sh "sh" Store 0x0000_1023;
            Sw "sw" Store 0x0000_2023;
            Addi "addi" I 0x0000_0013;
            Slti "slti" I 0x0000_2013;
            Sltiu "sltiu" I 0x0000_3013;
            Xori "xori" I 0x0000_4013;
            Ori "ori" I 0x0000_6013;
            Andi "andi" I 0x0000_7013;
            Slli "slli" Shift 0x0000_1013;
            Srli "srli" Shift 0x0000_5013;
            Srai "srai" Shift 0x4000_5013;
            Add "add" R 0x0000_0033;
            Sub "sub" R 0x4000_0033;
            Sll "sll" R 0x0000_1033;
            Slt "slt" R 0x0000_2033;
            Sltu "sltu" R 0x0000_3033;
            Xor "xor" R 0x0000_4033;
            Srl "srl" R 0x0000_5033;
            Sra "sra" R 0x4000_5033;
            Or "or" R 0x0000_6033;
            And "and" R 0x0000_7033;
            Fence "fence" Fence 0x0000_000f;
            FenceI "fence.i" Fence 0x0000_100f;
            Ecall "ecall" System 0x0000_0073;
            Ebreak "ebreak" System 0x0010_0073;
            Csrrw "csrrw" Csr 0x0000_1073;
            Csrrs "csrrs" Csr 0x0000_2073;
            Csrrc "csrrc" Csr 0x0000_3073;
            Csrrwi "csrrwi" CsrImmediate 0x0000_5073;
            Csrrsi "csrrsi" CsrImmediate 0x0000_6073;
            Csrrci "csrrci" CsrImmediate 0x0000_7073;
            Mul "mul" R 0x0200_0033;
            Mulh "mulh" R 0x0200_1033;
            Mulhsu "mulhsu" R 0x0200_2033;
            Mulhu "mulhu" R 0x0200_3033;
            Div "div" R 0x0200_4033;
            Divu "divu" R 0x0200_5033;
            Rem "rem" R 0x0200_6033;
            Remu "remu" R 0x0200_7033;
            Sh1add "sh1add" R 0x2000_2033;
            Sh2add "sh2add" R 0x2000_4033;
            Sh3add "sh3add" R 0x2000_6033;
            Andn "andn" R 0x4000_7033;
            Orn "orn" R 0x4000_6033;
            Xnor "xnor" R 0x4000_4033;
            Clz "clz" Unary 0x6000_1013;
            Ctz "ctz" Unary 0x6010_1013;
            Cpop "cpop" Unary 0x6020_1013;
            Max "max" R 0x0a00_6033;
            Maxu "maxu" R 0x0a00_7033;
            Min "min" R 0x0a00_4033;
            Minu "minu" R 0x0a00_5033;
            SextB "sext.b" Unary 0x6040_1013;
            SextH "sext.h" Unary 0x6050_1013;
            ZextH "zext.h" Unary 0x0800_4033;
            Rol "rol" R 0x6000_1033;
            Ror "ror" R 0x6000_5033;
            Rori "rori" Shift 0x6000_5013;
            OrcB "orc.b" Unary 0x2870_5013;
            Rev8 "rev8" Unary 0x6980_5013;
            Bclr "bclr" R 0x4800_1033;
            Bclri "bclri" Shift 0x4800_1013;
            Bext "bext" R 0x4800_5033;
            Bexti "bexti" Shift 0x4800_5013;
            Binv "binv" R 0x6800_1033;
            Binvi "binvi" Shift 0x6800_1013;
            Bset "bset" R 0x2800_1033;
            Bseti "bseti" Shift 0x2800_1013;
            LrW "lr.w" LoadReserved 0x1000_202f;
            ScW "sc.w" Amo 0x1800_202f;
            AmoswapW "amoswap.w" Amo 0x0800_202f;
            AmoaddW "amoadd.w" Amo 0x0000_202f;
            AmoxorW "amoxor.w" Amo 0x2000_202f;
            AmoandW "amoand.w" Amo 0x6000_202f;
            AmoorW "amoor.w" Amo 0x4000_202f;
            AmominW "amomin.w" Amo 0x8000_202f;
            AmomaxW "amomax.w" Amo 0xa000_202f;
            AmominuW "amominu.w" Amo 0xc000_202f;
            AmomaxuW "amomaxu.w" Amo 0xe000_202f;
        }
    };
}

macro_rules! define_ops {
    ($($variant:ident $mnemonic:literal $format:ident $pattern:literal;)*) => {
        /// An operation; its [`Format`] defines the operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op {
            $(#[doc = concat!("`", $mnemonic, "`")] $variant,)*
            /// Any vector instruction, given by [`Inst::vector`]. Not part of [`Op::ALL`].
            Vector,
        }

        impl Op {
            /// Every scalar operation, in list order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the assembler mnemonic.
            #[must_use]
            pub const fn mnemonic(self) -> &'static str {
                match self { $(Self::$variant => $mnemonic,)* Self::Vector => "vector" }
            }

            /// Returns the operand encoding.
            #[must_use]
            pub const fn format(self) -> Format {
                match self { $(Self::$variant => Format::$format,)* Self::Vector => Format::Vector }
            }

            /// Returns the fixed bits of the encoding.
            #[must_use]
            pub const fn pattern(self) -> u32 {
                match self { $(Self::$variant => $pattern,)* Self::Vector => 0 }
            }
        }
    };
}

for_each_op!(define_ops);

impl Op {
    /// Returns the left shift of a sum's first operand: 1 to 3 for `sh1add` to `sh3add`, 0 for all others.
    #[must_use]
    pub const fn shift_of_sum(self) -> u32 {
        match self {
            Self::Sh1add => 1,
            Self::Sh2add => 2,
            Self::Sh3add => 3,
            _ => 0,
        }
    }
}

/// Encoding and syntax of an instruction's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `op rd, rs1, rs2`.
    R,
    /// `op rd, rs1`, where all other bits are fixed.
    Unary,
    /// `op rd, rs1, imm`, 12 bits signed.
    I,
    /// `op rd, rs1, shamt`, 5 bits; a sixth bit is reserved in RV32.
    Shift,
    /// `op rd, imm(rs1)`.
    Load,
    /// `op rs2, imm(rs1)`.
    Store,
    /// `op rs1, rs2, pc + imm`, 13 bits signed, even.
    Branch,
    /// `op rd, imm`: the immediate is the upper 20 bits of its value.
    U,
    /// `op rd, pc + imm`, 21 bits signed, even.
    J,
    /// `op rd, imm(rs1)`: a jump.
    JumpRegister,
    /// No operands; all other fields are ignored, as the ISA requires of implementations.
    Fence,
    /// `op rd, rs2, (rs1)`; acquire and release bits are ignored (every atomic is sequentially consistent).
    Amo,
    /// `op rd, (rs1)`; the rs2 field must be zero.
    LoadReserved,
    /// `op rd, csr, rs1`: the immediate is the register's number.
    Csr,
    /// `op rd, csr, uimm`: the rs1 field is the 5-bit operand.
    CsrImmediate,
    /// No operands, all bits fixed.
    System,
    /// The immediate is the complete encoding; [`Op::pattern`] fixes no bits.
    Vector,
}

impl Format {
    /// Whether the operation's only effect is to compute `rd` from registers and an immediate.
    #[must_use]
    pub const fn computes(self) -> bool {
        matches!(self, Self::R | Self::Unary | Self::I | Self::Shift | Self::U)
    }

    /// Returns a mask of the bits that [`Op::pattern`] fixes.
    #[must_use]
    pub const fn mask(self) -> u32 {
        match self {
            Self::U | Self::J => 0x0000_007f,
            Self::I | Self::Load | Self::Store | Self::Branch => 0x0000_707f,
            Self::JumpRegister | Self::Fence | Self::Csr | Self::CsrImmediate => 0x0000_707f,
            Self::R | Self::Shift => 0xfe00_707f,
            Self::Unary => 0xfff0_707f,
            Self::Amo => 0xf800_707f,
            Self::LoadReserved => 0xf9f0_707f,
            Self::System => 0xffff_ffff,
            Self::Vector => 0,
        }
    }
}

/// One instruction. Fields outside its [`Format`] are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inst {
    /// Operation.
    pub op: Op,
    /// Destination register.
    pub rd: Reg,
    /// First operand; for [`Format::CsrImmediate`] the 5-bit operand itself.
    pub rs1: Reg,
    /// Second operand.
    pub rs2: Reg,
    /// Immediate, sign-extended. CSR instructions: the CSR's number. Vector instructions: the encoding.
    pub imm: i32,
}

impl Inst {
    /// Makes an instruction with only `op` set.
    #[must_use]
    pub const fn new(op: Op) -> Self {
        Self { op, rd: Reg::ZERO, rs1: Reg::ZERO, rs2: Reg::ZERO, imm: 0 }
    }

    /// The vector instruction that `bits` encode.
    pub(crate) const fn from_vector_bits(bits: u32) -> Self {
        Self::new(Op::Vector).imm(bits.cast_signed())
    }

    /// Returns the vector instruction, if it is one.
    #[must_use]
    pub fn vector(self) -> Option<VectorInst> {
        if self.op == Op::Vector { vector::decode(self.imm.cast_unsigned()) } else { None }
    }

    /// Sets the destination.
    #[must_use]
    pub const fn rd(self, rd: Reg) -> Self {
        Self { rd, ..self }
    }

    /// Sets the first operand.
    #[must_use]
    pub const fn rs1(self, rs1: Reg) -> Self {
        Self { rs1, ..self }
    }

    /// Sets the second operand.
    #[must_use]
    pub const fn rs2(self, rs2: Reg) -> Self {
        Self { rs2, ..self }
    }

    /// Sets the immediate.
    #[must_use]
    pub const fn imm(self, imm: i32) -> Self {
        Self { imm, ..self }
    }
}

/// Fences that compilers emit: immediate and text.
const FENCES: [(i32, &str); 5] =
    [(0xff, "fence"), (0x33, "fence rw, rw"), (0x31, "fence rw, w"), (0x23, "fence r, rw"), (0x833, "fence.tso")];

impl From<VectorInst> for Inst {
    fn from(inst: VectorInst) -> Self {
        Self::from_vector_bits(inst.encode())
    }
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, rd, rs1, rs2, imm } = *self;
        let name = op.mnemonic();
        match op.format() {
            Format::R => write!(f, "{name} {rd}, {rs1}, {rs2}"),
            Format::Unary => write!(f, "{name} {rd}, {rs1}"),
            Format::I | Format::Shift => write!(f, "{name} {rd}, {rs1}, {imm}"),
            Format::Load | Format::JumpRegister => write!(f, "{name} {rd}, {imm}({rs1})"),
            Format::Store => write!(f, "{name} {rs2}, {imm}({rs1})"),
            Format::Branch => write!(f, "{name} {rs1}, {rs2}, .{imm:+}"),
            Format::U => write!(f, "{name} {rd}, {:#x}", imm.cast_unsigned() >> 12),
            Format::J => write!(f, "{name} {rd}, .{imm:+}"),
            Format::Amo => write!(f, "{name} {rd}, {rs2}, ({rs1})"),
            Format::LoadReserved => write!(f, "{name} {rd}, ({rs1})"),
            Format::Csr => write!(f, "{name} {rd}, {imm:#x}, {rs1}"),
            Format::CsrImmediate => write!(f, "{name} {rd}, {imm:#x}, {}", rs1.number()),
            Format::Fence => match (op, FENCES.iter().find(|(bits, _)| *bits == imm)) {
                (Op::Fence, Some((_, name))) => f.write_str(name),
                (Op::Fence, None) => write!(f, "{name} {imm:#x}"),
                _ => f.write_str(name),
            },
            Format::System => f.write_str(name),
            Format::Vector => match self.vector() {
                Some(inst) => inst.fmt(f),
                None => write!(f, "{name} {imm:#x}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Inst, Op, Reg};

    #[test]
    fn no_two_operations_share_an_encoding() {
        for (i, a) in Op::ALL.iter().enumerate() {
            assert_eq!(a.pattern() & !a.format().mask(), 0, "{}: pattern outside its mask", a.mnemonic());
            for b in &Op::ALL[i + 1..] {
                let common = a.format().mask() & b.format().mask();
                assert_ne!(a.pattern() & common, b.pattern() & common, "{} and {}", a.mnemonic(), b.mnemonic());
            }
        }
    }

    #[test]
    fn disassembly_reads_like_assembler() {
        let a5 = Reg::new(15);
        let cases = [
            (Inst::new(Op::Add).rd(Reg::A0).rs1(Reg::A1).rs2(a5), "add a0, a1, a5"),
            (Inst::new(Op::Lw).rd(Reg::RA).rs1(Reg::SP).imm(-4), "lw ra, -4(sp)"),
            (Inst::new(Op::Sw).rs2(Reg::RA).rs1(Reg::SP).imm(12), "sw ra, 12(sp)"),
            (Inst::new(Op::Lui).rd(a5).imm(0x1b20_5000), "lui a5, 0x1b205"),
            (Inst::new(Op::Beq).rs1(a5).imm(-8), "beq a5, zero, .-8"),
            (Inst::new(Op::AmoaddW).rd(a5).rs1(Reg::A0).rs2(Reg::A1), "amoadd.w a5, a1, (a0)"),
            (Inst::new(Op::Csrrs).rd(a5).imm(0xc00), "csrrs a5, 0xc00, zero"),
            (Inst::new(Op::Ecall), "ecall"),
        ];
        for (inst, text) in cases {
            assert_eq!(inst.to_string(), text);
        }
    }
}
