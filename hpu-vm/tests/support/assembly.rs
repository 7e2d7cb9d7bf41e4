//! Programs, written down instruction by instruction.
#![allow(dead_code, reason = "each test uses a part of it")]

use hpu_vm::{Code, Inst, Op, Reg};

use super::guest::CODE;

/// Registers that programs use as they like.
pub const A2: Reg = Reg::new(12);
pub const A3: Reg = Reg::new(13);
pub const A4: Reg = Reg::new(14);
pub const A5: Reg = Reg::new(15);
pub const T0: Reg = Reg::new(5);
pub const T1: Reg = Reg::new(6);
pub const T2: Reg = Reg::new(7);
pub const S0: Reg = Reg::new(8);
pub const S1: Reg = Reg::new(9);

/// How a program comes by an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A constant, which a translator sees.
    Constant,
    /// Computed from constants in a way that no translator follows.
    Derived,
    /// Loaded from memory, in two parts that do not resemble it.
    Loaded,
}

impl Known {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Constant, Self::Derived, Self::Loaded];
}

/// A program under construction.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    bytes: Vec<u8>,
}

impl Assembly {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Address of the next instruction.
    pub fn pc(&self) -> u32 {
        CODE + u32::try_from(self.bytes.len()).expect("32 bits")
    }

    /// Adds bytes.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds an instruction.
    pub fn inst(self, inst: Inst) -> Self {
        self.raw(&inst.encode().to_le_bytes())
    }

    /// Adds `op rd, rs1, rs2`, or an AMO, whose address is in `rs1`.
    pub fn op(self, op: Op, rd: Reg, rs1: Reg, rs2: Reg) -> Self {
        self.inst(Inst::new(op).rd(rd).rs1(rs1).rs2(rs2))
    }

    /// Adds `op rd, rs1, imm`, a load or `jalr`.
    pub fn imm(self, op: Op, rd: Reg, rs1: Reg, imm: i32) -> Self {
        self.inst(Inst::new(op).rd(rd).rs1(rs1).imm(imm))
    }

    /// Adds `op rs2, imm(rs1)`.
    pub fn store(self, op: Op, rs2: Reg, rs1: Reg, imm: i32) -> Self {
        self.inst(Inst::new(op).rs2(rs2).rs1(rs1).imm(imm))
    }

    /// Adds a branch to an address in the program.
    pub fn branch(self, op: Op, rs1: Reg, rs2: Reg, to: u32) -> Self {
        let imm = to.wrapping_sub(self.pc()).cast_signed();
        self.inst(Inst::new(op).rs1(rs1).rs2(rs2).imm(imm))
    }

    /// Adds a jump to an address in the program.
    pub fn jal(self, rd: Reg, to: u32) -> Self {
        let imm = to.wrapping_sub(self.pc()).cast_signed();
        self.inst(Inst::new(Op::Jal).rd(rd).imm(imm))
    }

    /// Sets `rd` to a value, in two instructions.
    pub fn li(self, rd: Reg, value: u32) -> Self {
        let low = (value << 20).cast_signed() >> 20;
        let high = value.wrapping_sub(low.cast_unsigned()).cast_signed();
        self.inst(Inst::new(Op::Lui).rd(rd).imm(high)).imm(Op::Addi, rd, rd, low)
    }

    /// Sets `rd` to an address; with [`Known::Loaded`] by way of the word below sp.
    pub fn address(self, rd: Reg, value: u32, known: Known) -> Self {
        match known {
            Known::Constant => self.li(rd, value),
            Known::Derived => self.li(rd, value).li(T2, 1).op(Op::Mul, rd, rd, T2),
            Known::Loaded => self
                .li(T2, value >> 1)
                .store(Op::Sw, T2, Reg::SP, -4)
                .imm(Op::Lw, rd, Reg::SP, -4)
                .imm(Op::Slli, rd, rd, 1)
                .imm(Op::Ori, rd, rd, (value & 1).cast_signed()),
        }
    }

    /// Adds `vsetvli rd, rs1, vtype`: as many elements as there can be if `rs1` alone is x0.
    pub fn vsetvli(self, rd: Reg, rs1: Reg, vtype: u32) -> Self {
        self.word(vtype << 20 | rs1.number() << 15 | 7 << 12 | rd.number() << 7 | 0x57)
    }

    /// Adds `vadd.vv`.
    pub fn vadd(self, vd: u32, vs2: u32, vs1: u32) -> Self {
        self.word(1 << 25 | vs2 << 20 | vs1 << 15 | vd << 7 | 0x57)
    }

    /// Adds `vle8.v vd, (rs1)`.
    pub fn vle8(self, vd: u32, rs1: Reg) -> Self {
        self.word(1 << 25 | rs1.number() << 15 | vd << 7 | 0x07)
    }

    /// Adds `vse8.v vs3, (rs1)`.
    pub fn vse8(self, vs3: u32, rs1: Reg) -> Self {
        self.word(1 << 25 | rs1.number() << 15 | vs3 << 7 | 0x27)
    }

    /// Adds `vse32.v vs3, (rs1)`.
    pub fn vse32(self, vs3: u32, rs1: Reg) -> Self {
        self.word(1 << 25 | rs1.number() << 15 | 6 << 12 | vs3 << 7 | 0x27)
    }

    fn word(self, bits: u32) -> Self {
        self.raw(&bits.to_le_bytes())
    }

    /// Adds `ret`.
    pub fn ret(self) -> Self {
        self.imm(Op::Jalr, Reg::ZERO, Reg::RA, 0)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The program at [`CODE`].
    pub fn code(&self) -> Code {
        Code::at(CODE, &self.bytes)
    }
}
