//! Device registers, counters and system calls.

use hpu_vm::{Inst, Op, Reg};
use spin_abi::map::{DRIVER_BASE, STDOUT_BASE};
use spin_abi::regs;

use super::Generator;

/// Registers that may be read.
const READABLE: [u32; 8] = [
    regs::HANDLER_ADDR,
    regs::HANDLER_SIZE,
    regs::COMMAND_ISSUE,
    regs::COMMAND_TEST,
    regs::COMMAND_INFO,
    regs::COMMAND_WORDS,
    regs::COMMAND_WORDS + 40,
    regs::COMMAND_STATUS,
];
/// Registers that may be written.
const WRITABLE: [u32; 7] = [
    regs::COMMAND_WAIT,
    regs::COMMAND_TEST,
    regs::COMMAND_INFO,
    regs::COMMAND_WORDS,
    regs::COMMAND_WORDS + 4,
    regs::COMMAND_WORDS + 40,
    regs::COMMAND_STATUS,
];
const COUNTERS: [u32; 10] = [0xb00, 0xb02, 0xb80, 0xb82, 0xc00, 0xc01, 0xc02, 0xc80, 0xc81, 0xc82];
/// Writable counters.
const WRITABLE_COUNTERS: [u32; 4] = [0xb00, 0xb02, 0xb80, 0xb82];
pub const HART_ID: u32 = 0xf14;
const WRITES: [Op; 6] = [Op::Csrrw, Op::Csrrs, Op::Csrrc, Op::Csrrwi, Op::Csrrsi, Op::Csrrci];

impl Generator {
    /// An access that the device allows.
    pub(super) fn device(&mut self) {
        match self.random.below(10) {
            0 => self.print(),
            1 | 2 => {
                let (inst, offset) = (Inst::new(Op::Lw).rd(self.scratch()), self.random.choose(&READABLE));
                self.access_at(inst, DRIVER_BASE + offset);
            }
            3..=6 => self.command(),
            7 => {
                // Which register is for the data to say.
                let store = Inst::new(Op::Sw).rs2(self.source());
                let inst = if self.random.one_in(2) { store } else { Inst::new(Op::Lw).rd(self.scratch()) };
                self.access_by_index(inst, DRIVER_BASE + regs::COMMAND_INFO, 2);
            }
            _ => {
                let (inst, offset) = (Inst::new(Op::Sw).rs2(self.source()), self.random.choose(&WRITABLE));
                self.access_at(inst, DRIVER_BASE + offset);
            }
        }
    }

    fn print(&mut self) {
        let inst = Inst::new(self.random.choose(&[Op::Sb, Op::Sb, Op::Sh, Op::Sw])).rs2(self.source());
        let place = self.random.below(0x1000);
        if self.random.one_in(3) {
            self.access_by_index(inst, STDOUT_BASE + place.min(0xff0), 2);
        } else {
            self.access_at(inst, STDOUT_BASE + place);
        }
    }

    /// What a driver does: words, type, issue, wait, all by one base. Some words keep what they held, and some are written on one way
    /// alone.
    fn command(&mut self) {
        let base = self.scratch();
        let [handle, kind] = [(); 2].map(|()| self.scratch_but(base));
        self.set(base, DRIVER_BASE);
        let at = |op, offset: u32| Inst::new(op).rs1(base).imm(offset.cast_signed());
        for word in 0..self.random.choose(&[1, 5, 5, 11]) {
            let source = if self.random.one_in(2) { Reg::ZERO } else { self.source() };
            let store = at(Op::Sw, regs::COMMAND_WORDS + 4 * word).rs2(source);
            match self.random.below(32) {
                0 => {}
                1 => {
                    let (left_out, condition) = (self.asm.label(), Inst::new(Op::Bne).rs1(self.source()));
                    self.asm.to(&mut self.random, condition, left_out, 0);
                    self.inst(store);
                    self.asm.bind(left_out);
                }
                _ => self.inst(store),
            }
        }
        let kind = if self.random.one_in(8) {
            self.source()
        } else {
            let value = self.random.choose(&[regs::INFO_DMA, regs::INFO_SEND, 1, 3, 4, 6]);
            self.set(kind, value);
            kind
        };
        self.inst(at(Op::Sw, regs::COMMAND_INFO).rs2(kind));
        self.inst(at(Op::Lw, regs::COMMAND_ISSUE).rd(handle));
        self.inst(at(Op::Sw, regs::COMMAND_WAIT).rs2(handle));
    }

    /// A counter read or written, or asked for by a system call.
    pub(super) fn counter(&mut self) {
        let rd = self.scratch();
        if self.shape.linux {
            return self.arithmetic();
        }
        let read = Inst::new(self.random.choose(&[Op::Csrrs, Op::Csrrc, Op::Csrrsi, Op::Csrrci])).rd(rd);
        if !self.shape.counters || self.random.one_in(8) {
            return self.inst(read.imm(HART_ID.cast_signed()));
        }
        match self.random.below(4) {
            0 => {
                self.set(Reg::A7, hpu_vm::device::ECALL_CYCLES);
                self.inst(Inst::new(Op::Ecall));
            }
            1 | 2 => {
                let rd = if self.random.one_in(3) { Reg::ZERO } else { rd };
                let number = self.random.choose(&WRITABLE_COUNTERS);
                let inst = Inst::new(self.random.choose(&WRITES)).rd(rd).rs1(self.source());
                self.inst(inst.imm(number.cast_signed()));
            }
            _ => {
                let number = self.random.choose(&COUNTERS);
                self.inst(read.imm(number.cast_signed()));
            }
        }
    }
}
