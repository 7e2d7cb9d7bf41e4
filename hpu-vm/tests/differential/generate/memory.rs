//! Loads, stores and atomics, most at the edges of what may be accessed.

use hpu_vm::inst::Format;
use hpu_vm::{Inst, Op, Reg, RegionKind};
use spin_abi::map::{DRIVER_BASE, PAGE};
use spin_abi::regs;

use super::{ARGUMENT, COUNTERS, Generator, LOCALS, MOST_TURNS, SP};
use crate::assembler::split;
use crate::device::COMMAND_WRITES;
use crate::memory::{CODE, REGISTERS, TABLES, TABLES_LEN};

const LOADS: [Op; 5] = [Op::Lb, Op::Lh, Op::Lw, Op::Lbu, Op::Lhu];
const STORES: [Op; 3] = [Op::Sb, Op::Sh, Op::Sw];
/// Bytes of code that every program has.
const SOME_CODE: u32 = 32;
/// Task registers that hold addresses.
const POINTERS: [u32; 5] =
    [regs::HANDLER_MEM_ADDR, regs::PACKET_ADDR, regs::SCRATCHPAD_ADDR, regs::SCRATCHPAD_ADDR + 4, regs::L2_PACKET_ADDR];

/// Registers of [`POINTERS`] that point to [`TABLE_ROOM`] writable bytes.
const TABLE_POINTERS: [u32; 3] = [regs::HANDLER_MEM_ADDR, regs::SCRATCHPAD_ADDR, regs::SCRATCHPAD_ADDR + 4];
const TABLE_ROOM: u32 = 0x100;

/// Task registers that nobody goes by.
const REWRITABLE: (u32, u32) = (regs::HOST_MEM_HIGH, regs::L2_PACKET_ADDR);

/// Bytes that a load or store moves.
pub(super) const fn width(op: Op) -> u32 {
    match op {
        Op::Lb | Op::Lbu | Op::Sb => 1,
        Op::Lh | Op::Lhu | Op::Sh => 2,
        _ => 4,
    }
}

impl Generator {
    /// A load or store that is allowed.
    pub(super) fn access(&mut self) {
        let inst = self.some_access();
        let (width, write) = (width(inst.op), inst.op.format() == Format::Store);
        match self.random.below(6) {
            0 if !self.shape.linux => self.access_by_task(inst),
            1 | 2 => {
                let shift = self.random.choose(&[0, 2]);
                if let Some(address) = self.place(width + (1 << shift), write) {
                    self.access_by_index(inst, address, shift);
                }
            }
            _ => {
                if let Some(address) = self.place(width, write) {
                    self.access_at(inst, address);
                }
            }
        }
    }

    /// A load or store without an address.
    pub(super) fn some_access(&mut self) -> Inst {
        if self.random.one_in(2) {
            Inst::new(self.random.choose(&LOADS)).rd(self.scratch())
        } else {
            Inst::new(self.random.choose(&STORES)).rs2(self.source())
        }
    }

    /// Executes the load or store `inst` at `address`, which is put together in one way or another.
    pub(super) fn access_at(&mut self, inst: Inst, address: u32) {
        let base = self.scratch();
        let (high, low) = split(address);
        match self.random.below(4) {
            // What a compiler makes of a constant address.
            0 => {
                self.inst(Inst::new(Op::Lui).rd(base).imm(high));
                self.inst(inst.rs1(base).imm(low));
            }
            1 => {
                let imm = self.random.signed(12);
                self.set(base, address.wrapping_sub(imm.cast_unsigned()));
                self.inst(inst.rs1(base).imm(imm));
            }
            2 => {
                let imm = 4 * self.random.below(32);
                self.set(base, address.wrapping_sub(imm));
                self.inst(inst.rs1(base).imm(imm.cast_signed()));
            }
            _ => {
                self.set(base, address);
                self.inst(inst.rs1(base));
            }
        }
    }

    /// Executes it there or `1 << shift` bytes further, as the data say.
    pub(super) fn access_by_index(&mut self, inst: Inst, address: u32, shift: u32) {
        let (base, source) = (self.scratch(), self.source());
        let (index, threshold) = (self.scratch_but(base), self.random.signed(12));
        self.inst(Inst::new(Op::Sltiu).rd(index).rs1(source).imm(threshold));
        if shift != 0 {
            self.inst(Inst::new(Op::Slli).rd(index).rs1(index).imm(shift.cast_signed()));
        }
        self.set(base, address);
        self.inst(Inst::new(Op::Add).rd(base).rs1(base).rs2(index));
        self.inst(inst.rs1(base));
    }

    /// An access to what a task register points to.
    fn access_by_task(&mut self, inst: Inst) {
        let register = self.random.choose(&POINTERS);
        let base = self.scratch();
        self.inst(Inst::new(Op::Lw).rd(base).rs1(ARGUMENT));
        self.inst(Inst::new(Op::Lw).rd(base).rs1(base).imm((register - regs::TASK_FIRST).cast_signed()));
        // An empty packet has no memory at all.
        let packet = register == regs::PACKET_ADDR || register == regs::L2_PACKET_ADDR;
        let room = if packet { self.packet_len() } else { 0x100 };
        if let Some(last) = room.checked_sub(width(inst.op)) {
            let imm = self.edge(last.min(0x7ff));
            self.inst(inst.rs1(base).imm(imm.cast_signed()));
        }
    }

    fn packet_len(&self) -> u32 {
        self.blocks.iter().find(|block| block.kind == RegionKind::Packet).map_or(0, |block| block.len)
    }

    /// A loop that adds up words next to each other, several in each turn, most often as compilers have them added up.
    pub(super) fn words_added_up(&mut self) {
        let words = self.random.choose(&[4, 4, 4, 8, 8, 12, 5]);
        let Some(address) = self.place(4 * words * MOST_TURNS, false) else { return };
        let beyond = if self.shape.hostile && self.random.one_in(6) { self.random.below(8 * words) } else { 0 };
        let imm = self.random.signed(7);
        let (from, hostile) = (self.scratch(), self.shape.hostile);
        let [total, one, other] =
            [(); 3].map(|()| if hostile && self.random.one_in(8) { self.scratch() } else { self.scratch_but(from) });
        let parts = [one, other];
        self.set(from, address.wrapping_add(beyond).wrapping_sub(imm.cast_unsigned()));
        self.around(|generator| {
            generator.add_up_words(words, from, imm, total, parts);
            // Some are added again, or there are others before.
            let by = match generator.random.below(8) {
                0 if hostile => generator.random.signed(6),
                1 => generator.random.below(4 * words).cast_signed(),
                _ => 4 * words.cast_signed(),
            };
            generator.inst(Inst::new(Op::Addi).rd(from).rs1(from).imm(by));
        });
        if !self.random.one_in(4) {
            parts.into_iter().filter(|part| *part != total).for_each(|part| self.set(part, words));
        }
    }

    /// Adds up words of a turn, one or two at a time; now and then something is done in between.
    fn add_up_words(&mut self, words: u32, from: Reg, imm: i32, total: Reg, parts: [Reg; 2]) {
        let pairs = self.random.one_in(2);
        for word in 0..words {
            let (part, other) = (parts[word as usize % 2], parts[(word as usize + 1) % 2]);
            self.inst(Inst::new(Op::Lw).rd(part).rs1(from).imm(imm + 4 * word.cast_signed()));
            if self.shape.hostile && self.random.one_in(64) {
                self.arithmetic();
            }
            if pairs && word % 2 == 1 {
                self.inst(Inst::new(Op::Add).rd(part).rs1(part).rs2(other));
            }
            if !pairs || word % 2 == 1 {
                self.inst(Inst::new(Op::Add).rd(total).rs1(total).rs2(part));
            }
        }
    }

    /// An address where `width` bytes may be read or written without harm to the program's frames.
    pub(super) fn place(&mut self, width: u32, write: bool) -> Option<u32> {
        if !write && self.random.one_in(8) {
            let (base, len) = self.random.choose(&[(TABLES, TABLES_LEN), (CODE, SOME_CODE)]);
            if let Some(last) = len.checked_sub(width) {
                return Some(base + self.edge(last));
            }
        }
        if !self.shape.linux && self.random.one_in(12) {
            let (first, end) = if write { REWRITABLE } else { (regs::TASK_FIRST, regs::TASK_END) };
            if let Some(last) = (end - first).checked_sub(width) {
                return Some(DRIVER_BASE + first + self.edge(last));
            }
        }
        let index = self.random.below(u32::try_from(self.blocks.len()).unwrap()) as usize;
        let block = &self.blocks[index];
        let ours = block.kind == RegionKind::Stack
            || self.shape.linux && (block.kind == RegionKind::HandlerMemory || block.base == REGISTERS);
        if write && ours {
            return None;
        }
        let base = match block.alias() {
            Some(alias) if self.random.one_in(3) => alias,
            _ => block.base,
        };
        let last = block.reach(self.shape.checks).checked_sub(width)?;
        Some(base + self.edge(last))
    }

    /// A number from 0 to `last`: an end, or around a page's end, more often.
    fn edge(&mut self, last: u32) -> u32 {
        let around = PAGE - 4 + self.random.below(8);
        match self.random.below(5) {
            0 => 0,
            1 => last,
            2 if around <= last => around,
            _ => self.random.below(last + 1),
        }
    }

    /// An access to the function's own part of the stack.
    pub(super) fn local(&mut self) {
        if !self.framed {
            return self.arithmetic();
        }
        let inst = self.some_access();
        let offset = self.random.below(LOCALS + 1 - width(inst.op));
        // Words are aligned more often: that is what compressed instructions can do.
        let offset = if self.random.one_in(4) { offset } else { offset & !3 };
        if self.random.one_in(3) {
            let (pointer, at) = (self.scratch(), 4 * self.random.below(LOCALS / 4));
            self.inst(Inst::new(Op::Addi).rd(pointer).rs1(SP).imm(at.cast_signed()));
            self.inst(inst.rs1(pointer).imm(offset.cast_signed() - at.cast_signed()));
        } else {
            self.inst(inst.rs1(SP).imm(offset.cast_signed()));
        }
    }

    /// Atomics on a word that may be written.
    pub(super) fn atomic(&mut self) {
        if !self.shape.linux && self.random.one_in(12) {
            return self.interfering_command();
        }
        if !self.shape.linux && self.random.one_in(4) {
            return self.atomics_on_a_table();
        }
        let Some(address) = self.place(7, true) else { return };
        let pointer = self.scratch();
        self.set(pointer, address.wrapping_add(3) & !3);
        match self.random.below(8) {
            0..4 => {
                for _ in 0..=self.random.below(2) {
                    let inst = self.some_amo().rs1(pointer);
                    if inst.rd == pointer {
                        return self.inst(inst);
                    }
                    self.inst(inst);
                }
            }
            4 => self.retry_loop(pointer),
            5 => {
                let rd = self.scratch();
                self.store_conditional(rd, pointer);
            }
            _ => self.pair(pointer),
        }
    }

    /// Atomics on words of a table that is somewhere in what a task register points to, by an index of which it is known that it is small:
    /// it is less than 8, and said to be no more than that or than something larger.
    fn atomics_on_a_table(&mut self) {
        const WORDS: u32 = 8;
        let register = self.random.choose(&TABLE_POINTERS);
        let table = self.scratch();
        let index = self.scratch_but(table);
        let limit = loop {
            let limit = self.scratch_but(table);
            if limit != index {
                break limit;
            }
        };
        let (source, over) = (self.source(), self.asm.label());
        match self.random.below(3) {
            0 => self.inst(Inst::new(Op::Andi).rd(index).rs1(source).imm((WORDS - 1).cast_signed())),
            1 => self.inst(Inst::new(Op::Srli).rd(index).rs1(source).imm(29)),
            // What comes of a division tells nothing of it: the comparison does.
            _ => {
                self.inst(Inst::new(Op::Srli).rd(index).rs1(source).imm(16));
                self.set(limit, 0x1_0000 / WORDS);
                self.inst(Inst::new(Op::Divu).rd(index).rs1(index).rs2(limit));
                let most = self.random.choose(&[WORDS - 1, WORDS, 100, 2000, 1 << 17, 1 << 19]);
                let less = self.random.one_in(2);
                self.set(limit, if less { most + 1 } else { most });
                let inst = Inst::new(if less { Op::Bgeu } else { Op::Bltu });
                let inst = if less { inst.rs1(index).rs2(limit) } else { inst.rs1(limit).rs2(index) };
                self.asm.to(&mut self.random, inst, over, 0);
            }
        }
        let offset = match self.random.below(8) {
            // Beyond its end, or none of words.
            0 if self.shape.hostile => self.random.choose(&[0x7f0, 0xff0, 0x11f0, 0x1ff0]),
            1 if self.shape.hostile => self.random.below(0x20),
            _ => 4 * self.random.below((TABLE_ROOM - 4 * WORDS) / 4 + 1),
        };
        self.set(limit, offset);
        self.inst(Inst::new(Op::Lw).rd(table).rs1(ARGUMENT));
        self.inst(Inst::new(Op::Lw).rd(table).rs1(table).imm((register - regs::TASK_FIRST).cast_signed()));
        self.inst(Inst::new(Op::Add).rd(table).rs1(table).rs2(limit));
        if self.loops < COUNTERS.len() && self.random.one_in(2) {
            self.around(|generator| generator.atomics_by_index(table, index));
        } else {
            self.atomics_by_index(table, index);
        }
        self.asm.bind(over);
    }

    /// Some of them, whose index may be another one each time.
    fn atomics_by_index(&mut self, table: Reg, index: Reg) {
        if self.random.one_in(2) {
            let source = self.source();
            self.inst(Inst::new(Op::Andi).rd(index).rs1(source).imm(7));
        }
        let out = self.asm.label();
        for _ in 0..=self.random.below(3) {
            if self.random.one_in(3) {
                let inst = self.some_branch();
                self.asm.to(&mut self.random, inst, out, 0);
            }
            // The sum goes nowhere now and then, and the atomic to address 0.
            let pointer = if self.random.one_in(16) { Reg::ZERO } else { self.scratch_but(table) };
            if self.random.one_in(2) {
                let sum = self.random.choose(&[Op::Sh1add, Op::Sh2add, Op::Sh2add, Op::Sh3add]);
                self.inst(Inst::new(sum).rd(pointer).rs1(index).rs2(table));
            } else {
                let shifted = self.scratch_but(table);
                self.inst(Inst::new(Op::Slli).rd(shifted).rs1(index).imm(2));
                let (first, second) = if self.random.one_in(2) { (shifted, table) } else { (table, shifted) };
                self.inst(Inst::new(Op::Add).rd(pointer).rs1(first).rs2(second));
                if shifted == index && pointer != index {
                    break;
                }
            }
            if self.random.one_in(4) {
                // No index any more.
                self.move_register(pointer, table);
            }
            let amo = self.some_amo().rs1(pointer);
            self.inst(amo);
            if pointer == index || amo.rd == index || amo.rd == table {
                break;
            }
        }
        self.asm.bind(out);
    }

    /// An AMO without an address.
    pub(super) fn some_amo(&mut self) -> Inst {
        let amos: Vec<Op> = Op::ALL.iter().copied().filter(|op| op.format() == Format::Amo && *op != Op::ScW).collect();
        Inst::new(self.random.choose(&amos)).rd(self.scratch()).rs2(self.source())
    }

    fn store_conditional(&mut self, rd: Reg, pointer: Reg) {
        let value = self.source();
        self.inst(Inst::new(Op::ScW).rd(rd).rs1(pointer).rs2(value));
    }

    /// LR, something that may or may not interfere, SC.
    fn pair(&mut self, pointer: Reg) {
        let old = self.scratch_but(pointer);
        self.inst(Inst::new(Op::LrW).rd(old).rs1(pointer));
        match self.random.below(6) {
            // The value it has already: no interference that anybody could see.
            0 => self.inst(Inst::new(Op::Sw).rs1(pointer).rs2(old)),
            1 => {
                let store = Inst::new(self.random.choose(&STORES)).rs1(pointer).rs2(self.source());
                self.inst(store);
            }
            2 => {
                let amo = self.some_amo().rd(old).rs1(pointer);
                self.inst(amo);
            }
            3 => {
                let other = self.scratch_but(pointer);
                self.inst(Inst::new(Op::Addi).rd(other).rs1(SP));
                self.inst(Inst::new(Op::LrW).rd(old).rs1(other));
            }
            4 => self.inst(Inst::new(Op::Addi).rd(old).rs1(old).imm(1)),
            _ => {}
        }
        let done = self.scratch_but(pointer);
        self.store_conditional(done, pointer);
        if self.random.one_in(3) {
            let other = self.scratch_but(pointer);
            self.inst(Inst::new(Op::ScW).rd(other).rs1(pointer).rs2(old));
        }
    }

    /// LR, a command that writes the word, SC.
    fn interfering_command(&mut self) {
        let pointer = self.scratch();
        let old = self.scratch_but(pointer);
        self.set(pointer, COMMAND_WRITES);
        self.inst(Inst::new(Op::LrW).rd(old).rs1(pointer));
        let device = self.scratch_but(pointer);
        self.set(device, DRIVER_BASE);
        self.inst(Inst::new(Op::Lw).rd(device).rs1(device).imm(regs::COMMAND_ISSUE.cast_signed()));
        let done = self.scratch();
        self.store_conditional(done, pointer);
    }

    /// The loop that every atomic operation without an instruction of its own is made of.
    fn retry_loop(&mut self, pointer: Reg) {
        let old = self.scratch_but(pointer);
        let done = loop {
            let done = self.scratch_but(pointer);
            if done != old {
                break done;
            }
        };
        let again = self.asm.here();
        self.inst(Inst::new(Op::LrW).rd(old).rs1(pointer));
        self.inst(Inst::new(Op::Mul).rd(old).rs1(old).rs2(old));
        self.inst(Inst::new(Op::ScW).rd(done).rs1(pointer).rs2(old));
        self.asm.to(&mut self.random, Inst::new(Op::Bne).rs1(done), again, 0);
    }
}
