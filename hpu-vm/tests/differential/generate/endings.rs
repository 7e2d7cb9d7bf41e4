//! Ways to end a program, all but a return of the handler itself.

use hpu_vm::inst::Format;
use hpu_vm::{Inst, Op, Reg};
use spin_abi::map::{DRIVER_BASE, L1_ALIAS, L2_BASE, PAGE, PROGRAM_BASE, RETURN_ADDRESS, STDOUT_BASE, STDOUT_SIZE};
use spin_abi::regs;

use super::memory::width;
use super::{Generator, RA, SP};
use crate::memory::{CLUSTER, CODE, HPU, MACHINE, TABLES};

/// Bits that are no instruction.
const ILLEGAL: [u32; 6] = [0xffff_ffff, 0x0000_0007, 0x0000_007b, 0xc000_1073, 0x3000_2073, 0xfe00_0033];
/// Halves that are none.
const ILLEGAL_HALVES: [u16; 5] = [0x0000, 0x2000, 0x9c01, 0x1082, 0x8002];

impl Generator {
    /// The end, unless a condition that depends on the data lets it pass.
    pub(super) fn misbehave(&mut self) {
        let past = self.asm.label();
        let source = self.source();
        if self.random.one_in(2) {
            self.asm.to(&mut self.random, Inst::new(Op::Bltu).rs1(source).rs2(SP), past, 0);
        }
        self.ending();
        self.asm.bind(past);
    }

    /// Something that ends the program, or is likely to.
    pub(super) fn ending(&mut self) {
        match self.random.below(22) {
            0 => self.doorbell(),
            1 => self.inst(Inst::new(Op::Ebreak)),
            2 if self.random.one_in(2) => {
                let bits = self.random.choose(&ILLEGAL);
                self.asm.word(bits);
            }
            2 => {
                let half = self.random.choose(&ILLEGAL_HALVES);
                self.asm.half(half);
            }
            3 if !self.shape.plain => self.unknown_ecall(),
            4 | 5 => self.misaligned_atomic(),
            6 | 7 => self.access_beyond(),
            8 => self.store_to_code(),
            9 | 10 => self.bad_device_access(),
            11 => self.report(),
            12 => self.below_the_stack(),
            13 if !self.shape.plain => self.endless_recursion(),
            14 => self.endless_loop(),
            15 | 16 => self.jump_outside(),
            17 => {
                let cut = self.cut;
                self.asm.to(&mut self.random, Inst::new(Op::Jal), cut, 0);
            }
            18 => self.atomic_anywhere(),
            19 => self.access_anywhere(),
            20 => self.return_from_anywhere(),
            _ => self.anything(),
        }
    }

    fn doorbell(&mut self) {
        let inst = Inst::new(Op::Lw).rd(self.scratch());
        self.access_at(inst, DRIVER_BASE + regs::DOORBELL);
    }

    fn unknown_ecall(&mut self) {
        let number = self.random.choose(&[0, 2, 3, 65, u32::MAX]);
        self.set(Reg::A7, number);
        self.inst(Inst::new(Op::Ecall));
    }

    fn misaligned_atomic(&mut self) {
        let pointer = self.scratch();
        let address = self.place(7, true).unwrap_or(L2_BASE);
        let off = 1 + self.random.below(3);
        self.set(pointer, (address & !3) + off);
        let inst = self.any_atomic();
        self.inst(inst.rs1(pointer));
    }

    fn any_atomic(&mut self) -> Inst {
        match self.random.below(3) {
            0 => Inst::new(Op::LrW).rd(self.scratch()),
            1 => Inst::new(Op::ScW).rd(self.scratch()).rs2(self.source()),
            _ => self.some_amo(),
        }
    }

    /// An access that runs over the end of a block, or begins there, or before its start.
    fn access_beyond(&mut self) {
        let index = self.random.below(u32::try_from(self.blocks.len()).unwrap()) as usize;
        let block = &self.blocks[index];
        let base = block.alias().filter(|_| self.random.one_in(3)).unwrap_or(block.base);
        let end = base + block.reach(self.shape.checks);
        let inst = self.some_access();
        let address = match self.random.below(4) {
            0 => base - 1 - self.random.below(4),
            1 => end,
            2 => end + self.random.below(PAGE),
            _ => end + 1 - width(inst.op),
        };
        self.access_at(inst, address);
    }

    fn store_to_code(&mut self) {
        let inst = Inst::new(self.random.choose(&[Op::Sb, Op::Sh, Op::Sw])).rs2(self.source());
        let base = self.random.choose(&[CODE, TABLES, PROGRAM_BASE]);
        let offset = self.random.below(64);
        self.access_at(inst, base + offset);
    }

    fn bad_device_access(&mut self) {
        let inst = self.some_access();
        let offset = match self.random.below(4) {
            0 => DRIVER_BASE + self.random.below(regs::DRIVER_SIZE),
            1 => DRIVER_BASE + regs::DRIVER_SIZE - 3 + self.random.below(8),
            2 => self.random.choose(&[STDOUT_BASE, STDOUT_BASE + STDOUT_SIZE - 1, STDOUT_BASE - 1]),
            _ => DRIVER_BASE + self.random.choose(&[regs::ERROR, regs::COMMAND_WAIT, regs::DOORBELL, 0x58, 0x7c]),
        };
        self.access_at(inst, offset);
    }

    fn report(&mut self) {
        let inst = Inst::new(Op::Sw).rs2(self.source());
        self.access_at(inst, DRIVER_BASE + regs::ERROR);
    }

    fn below_the_stack(&mut self) {
        let inst = self.some_access();
        let distance = self.random.below(PAGE + 8);
        self.access_at(inst, MACHINE.stack_base(CLUSTER, HPU) - distance);
    }

    /// Calls that never return, each with a frame.
    fn endless_recursion(&mut self) {
        let frame = 16 * (1 + self.random.below(40)).cast_signed();
        let again = self.asm.here();
        self.inst(Inst::new(Op::Addi).rd(SP).rs1(SP).imm(-frame));
        self.inst(Inst::new(Op::Sw).rs1(SP).rs2(RA).imm(frame - 4));
        self.asm.to(&mut self.random, Inst::new(Op::Jal).rd(RA), again, 0);
    }

    fn endless_loop(&mut self) {
        let again = self.asm.here();
        for _ in 0..self.random.below(4) {
            self.arithmetic();
        }
        self.asm.to(&mut self.random, Inst::new(Op::Jal), again, 0);
    }

    fn jump_outside(&mut self) {
        let pointer = self.scratch();
        let target = match self.random.below(4) {
            0 => self.value(),
            1 => self.random.choose(&[0, 1, 2, TABLES, CODE - 2, L2_BASE, L1_ALIAS, RETURN_ADDRESS - 4, 0xffff_fffe]),
            2 => CODE + self.random.below(0x8000),
            _ => self.place(4, false).unwrap_or(0),
        };
        self.set(pointer, target);
        let link = if self.random.one_in(2) { RA } else { Reg::ZERO };
        self.inst(Inst::new(Op::Jalr).rd(link).rs1(pointer));
    }

    fn atomic_anywhere(&mut self) {
        let pointer = self.scratch();
        let address = self.random.choose(&[
            DRIVER_BASE,
            DRIVER_BASE + regs::COMMAND_WORDS,
            DRIVER_BASE + regs::PACKET_ADDR,
            STDOUT_BASE,
            TABLES,
            CODE,
            0,
            0xffff_fffc,
            L1_ALIAS + MACHINE.l1_size,
            MACHINE.stack_base(CLUSTER, HPU) - 4,
        ]);
        self.set(pointer, address);
        let inst = self.any_atomic();
        self.inst(inst.rs1(pointer));
    }

    /// An access near an end of the address space, or to any address.
    fn access_anywhere(&mut self) {
        let inst = self.some_access();
        let address = match self.random.below(3) {
            0 => self.random.signed(13).cast_unsigned(),
            1 => self.value(),
            _ => self.random.signed(3).cast_unsigned(),
        };
        self.access_at(inst, address);
    }

    fn return_from_anywhere(&mut self) {
        let pointer = self.scratch();
        let odd = self.random.below(2);
        self.set(pointer, RETURN_ADDRESS + odd);
        self.inst(Inst::new(Op::Jalr).rs1(pointer));
    }

    /// Instructions without a plan, and bits without a meaning.
    fn anything(&mut self) {
        for _ in 0..1 + self.random.below(6) {
            match self.random.below(4) {
                0 => {
                    let half = u16::try_from(self.random.below(0x1_0000)).unwrap();
                    self.asm.half(if half & 3 == 3 { half & !1 } else { half });
                }
                1 => {
                    let word = self.random.value();
                    self.asm.word(word | 3);
                }
                _ => self.any_instruction(),
            }
        }
    }

    fn any_instruction(&mut self) {
        let inst = Inst::new(self.random.choose(Op::ALL))
            .rd(Reg::new(self.random.below(32)))
            .rs1(Reg::new(self.random.below(32)))
            .rs2(Reg::new(self.random.below(32)));
        let imm = match inst.op.format() {
            Format::Branch | Format::J => 2 * self.random.signed(6),
            _ => self.random.signed(12),
        };
        self.asm.word(inst.imm(imm).encode());
    }
}
