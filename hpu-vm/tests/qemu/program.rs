//! A program under construction: instructions at known addresses, scratch memory, and an end that qemu understands.

use hpu_vm::{Inst, Op, Reg};
use spin_abi::map::{L2_BASE, Machine, PROGRAM_BASE};

use crate::support::{Elf, R, Segment, W, X};

/// Program memory large enough for jumps of any distance.
pub const MACHINE: Machine = Machine { program_size: 8 << 20, ..Machine::PSPIN };
/// Memory the program works on and finally writes out.
pub const SCRATCH: u32 = L2_BASE;
/// Bytes of it in programs of scalar instructions.
pub const SCRATCH_SIZE: u32 = 256;
/// Linux's number of write(2) on RISC-V.
pub const WRITE: u32 = 64;
/// Linux's number of exit(2) on RISC-V.
pub const EXIT: u32 = 93;

/// Code from [`PROGRAM_BASE`] on, executed from its first byte.
#[derive(Default)]
pub struct Program {
    code: Vec<u8>,
    scratch: Vec<u8>,
}

impl Program {
    /// An empty program whose scratch memory begins as `scratch`.
    pub fn new(scratch: Vec<u8>) -> Self {
        Self { code: Vec::new(), scratch }
    }

    /// Changes what its scratch memory begins as, before it is finished.
    pub fn set_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    /// Bytes of its scratch memory.
    pub fn scratch_size(&self) -> u32 {
        u32::try_from(self.scratch.len()).unwrap()
    }

    /// Address of what is added next.
    pub fn pc(&self) -> u32 {
        PROGRAM_BASE + u32::try_from(self.code.len()).unwrap()
    }

    /// Adds a 4-byte instruction.
    pub fn inst(&mut self, inst: Inst) {
        self.code.extend_from_slice(&inst.encode().to_le_bytes());
    }

    /// Adds a compressed instruction.
    pub fn half(&mut self, half: u16) {
        self.code.extend_from_slice(&half.to_le_bytes());
    }

    /// Adds bytes that must not be executed: they are illegal instructions.
    pub fn gap(&mut self, bytes: u32) {
        self.code.resize(self.code.len() + bytes as usize, 0);
    }

    /// Adds a jump to `target`, wherever it is: eight bytes, which change t0.
    pub fn jump_far(&mut self, target: u32) {
        let (t0, distance) = (Reg::new(5), target.wrapping_sub(self.pc()));
        let low = (distance << 20).cast_signed() >> 20;
        self.inst(Inst::new(Op::Auipc).rd(t0).imm(distance.wrapping_sub(low.cast_unsigned()).cast_signed()));
        self.inst(Inst::new(Op::Jalr).rs1(t0).imm(low));
    }

    /// Adds a jump to `distance` bytes after itself.
    pub fn jump(&mut self, distance: u32) {
        self.inst(Inst::new(Op::Jal).imm(distance.cast_signed()));
    }

    /// Sets a register by two instructions, whatever its value.
    pub fn set(&mut self, reg: Reg, value: u32) {
        let low = (value << 20).cast_signed() >> 20;
        self.inst(Inst::new(Op::Lui).rd(reg).imm(value.wrapping_sub(low.cast_unsigned()).cast_signed()));
        self.inst(Inst::new(Op::Addi).rd(reg).rs1(reg).imm(low));
    }

    /// Ends the program: it writes its scratch memory to standard output and exits.
    pub fn finish(&mut self) {
        for (reg, value) in [(10, 1), (11, SCRATCH), (12, self.scratch_size()), (17, WRITE)] {
            self.set(Reg::new(reg), value);
        }
        self.inst(Inst::new(Op::Ecall));
        self.set(Reg::A0, 0);
        self.set(Reg::A7, EXIT);
        self.inst(Inst::new(Op::Ecall));
    }

    /// A bound on the instructions it executes, since none is executed twice.
    pub fn steps_at_most(&self) -> usize {
        self.code.len() / 2
    }

    /// The ELF file.
    pub fn elf(&self) -> Vec<u8> {
        Elf { entry: PROGRAM_BASE, flags: 1, ..Elf::default() }
            .segment(Segment::load(PROGRAM_BASE, &self.code, R | X))
            .segment(Segment::load(SCRATCH, &self.scratch, R | W))
            .symbol("payload_handler", PROGRAM_BASE, 0)
            .build()
    }
}
