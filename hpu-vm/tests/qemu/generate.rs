//! Programs of random snippets: set the operands' registers, execute one instruction, land after it.

use std::collections::BTreeMap;

use hpu_vm::compressed::{Form, expand};
use hpu_vm::inst::Format;
use hpu_vm::{Inst, Op, Reg};

use crate::program::{Program, SCRATCH, SCRATCH_SIZE};
use crate::random::Random;

/// Furthest a branch or jump of a snippet goes; `far` does the rest.
const FAR: i32 = 64;

/// An instruction as it is to be encoded.
#[derive(Clone, Copy)]
enum Encoding {
    Word(Inst),
    Half(u16, Inst),
}

impl Encoding {
    const fn inst(self) -> Inst {
        match self {
            Self::Word(inst) | Self::Half(_, inst) => inst,
        }
    }

    const fn size(self) -> u32 {
        match self {
            Self::Word(_) => 4,
            Self::Half(..) => 2,
        }
    }
}

/// Whether programs hold this operation on purpose; see the head of this test for those they do not.
pub fn is_generated(op: Op) -> bool {
    !matches!(op.format(), Format::Csr | Format::CsrImmediate | Format::System)
}

/// A program with every operation and every compressed form `rounds` times, in random order.
pub fn program(seed: u64, rounds: usize) -> Program {
    let mut random = Random::new(seed);
    let scratch = (0..SCRATCH_SIZE).map(|_| random.value().to_le_bytes()[0]).collect();
    let mut generator = Generator { program: Program::new(scratch), random };
    for number in 1..32 {
        generator.set_random(Reg::new(number));
    }
    for encoding in generator.choose_instructions(rounds) {
        generator.snippet(encoding);
    }
    generator.program.finish();
    generator.program
}

struct Generator {
    program: Program,
    random: Random,
}

impl Generator {
    fn choose_instructions(&mut self, rounds: usize) -> Vec<Encoding> {
        let mut forms: BTreeMap<Form, Vec<Encoding>> = BTreeMap::new();
        for half in 0..=u16::MAX {
            if let Some((form, inst)) = expand(half).filter(|(_, inst)| is_usable(*inst, 2)) {
                forms.entry(form).or_default().push(Encoding::Half(half, inst));
            }
        }
        let mut chosen = Vec::new();
        for _ in 0..rounds {
            for &op in Op::ALL.iter().filter(|op| is_generated(**op)) {
                chosen.push(Encoding::Word(self.word(op)));
            }
            for encodings in forms.values() {
                chosen.push(self.random.choose(encodings));
            }
        }
        for last in (1..chosen.len()).rev() {
            let other = self.random.below(u32::try_from(last + 1).unwrap());
            chosen.swap(last, other as usize);
        }
        chosen
    }

    /// A usable instruction with random operands.
    fn word(&mut self, op: Op) -> Inst {
        loop {
            let imm = match op.format() {
                Format::I | Format::Load | Format::Store | Format::JumpRegister => self.random.signed(12),
                Format::Shift => self.random.below(32).cast_signed(),
                Format::Branch | Format::J => self.random.signed(7) * 2,
                Format::U => (self.random.value() & 0xffff_f000).cast_signed(),
                _ => 0,
            };
            let inst = Inst::new(op).rd(self.register()).rs1(self.register()).rs2(self.register()).imm(imm);
            if is_usable(inst, 4) {
                return inst;
            }
        }
    }

    fn register(&mut self) -> Reg {
        Reg::new(self.random.below(32))
    }

    fn set_random(&mut self, reg: Reg) {
        let value = self.random.value();
        self.program.set(reg, value);
    }

    fn emit(&mut self, encoding: Encoding) {
        match encoding {
            Encoding::Word(inst) => self.program.inst(inst),
            Encoding::Half(half, _) => self.program.half(half),
        }
    }

    fn snippet(&mut self, encoding: Encoding) {
        match encoding.inst().op.format() {
            Format::Load | Format::Store => self.access(encoding, 1),
            Format::Amo | Format::LoadReserved => self.access(encoding, 4),
            Format::Branch | Format::J => self.relative_jump(encoding),
            Format::JumpRegister => self.register_jump(encoding),
            _ => self.arithmetic(encoding),
        }
        if encoding.inst().op == Op::LrW {
            self.after_reservation(encoding.inst());
        }
    }

    fn arithmetic(&mut self, encoding: Encoding) {
        self.set_random(encoding.inst().rs1);
        if !self.random.one_in(8) {
            self.set_random(encoding.inst().rs2);
        }
        self.emit(encoding);
    }

    /// A memory access: misaligned ones included unless `align` says otherwise, a word away from either end.
    fn access(&mut self, encoding: Encoding, align: u32) {
        let inst = encoding.inst();
        let address = SCRATCH + 4 + self.random.below(SCRATCH_SIZE - 11) / align * align;
        self.set_random(inst.rs2);
        self.program.set(inst.rs1, address.wrapping_sub(inst.imm.cast_unsigned()));
        self.emit(encoding);
    }

    /// After an LR, most often an SC: to the same word, after a change of the word, or to another.
    fn after_reservation(&mut self, lr: Inst) {
        if lr.rd == lr.rs1 || self.random.one_in(4) {
            return;
        }
        if self.random.one_in(3) {
            let offset = self.random.choose(&[-4, 0, 3, 4]);
            let source = self.register();
            self.program.inst(Inst::new(Op::Sb).rs1(lr.rs1).rs2(source).imm(offset));
        }
        let moved = self.random.choose(&[0, 0, 0, 4]);
        self.program.inst(Inst::new(Op::Addi).rd(lr.rs1).rs1(lr.rs1).imm(moved));
        // Writing back what was read leaves the value as it was: then a second SC tells whether the first one used the
        // reservation up.
        let (rd, other) = (self.register(), self.register());
        let source = self.random.choose(&[lr.rd, other]);
        let sc = Inst::new(Op::ScW).rd(rd).rs1(lr.rs1).rs2(source);
        self.program.inst(sc);
        if rd != lr.rs1 && self.random.one_in(2) {
            self.program.inst(sc);
        }
    }

    fn relative_jump(&mut self, encoding: Encoding) {
        let inst = encoding.inst();
        self.set_random(inst.rs1);
        if self.random.one_in(2) {
            self.set_random(inst.rs2);
        } else if inst.rs2 != Reg::ZERO {
            // Equal operands, which random values hardly ever are.
            self.program.inst(Inst::new(Op::Addi).rd(inst.rs2).rs1(inst.rs1));
        }
        let distance = inst.imm.unsigned_abs();
        if inst.imm > 0 {
            self.emit(encoding);
            self.skip(distance - encoding.size());
        } else {
            // A detour: forward over the target, back to it by the instruction, forward again to the end.
            self.program.jump(4 + distance);
            self.program.jump(distance + encoding.size());
            self.program.gap(distance - 4);
            self.emit(encoding);
        }
    }

    /// Passes `bytes` on the way that does not jump over them.
    fn skip(&mut self, bytes: u32) {
        match bytes {
            0 => {}
            2 => self.program.half(1),
            _ => {
                self.program.jump(bytes);
                self.program.gap(bytes - 4);
            }
        }
    }

    fn register_jump(&mut self, encoding: Encoding) {
        let inst = encoding.inst();
        let gap = 2 * self.random.below(8);
        // `set` takes eight bytes.
        let target = self.program.pc() + 8 + encoding.size() + gap;
        let odd = self.random.below(2);
        self.program.set(inst.rs1, (target + odd).wrapping_sub(inst.imm.cast_unsigned()));
        self.emit(encoding);
        self.program.gap(gap);
    }
}

/// Whether a snippet can be made of it: accesses and jumps need a register to go by, branches room.
fn is_usable(inst: Inst, size: i32) -> bool {
    match inst.op.format() {
        Format::Load | Format::Store | Format::Amo | Format::LoadReserved | Format::JumpRegister => {
            inst.rs1 != Reg::ZERO
        }
        Format::Branch | Format::J => inst.imm <= FAR && inst.imm >= -FAR && (inst.imm >= size || inst.imm <= -4),
        Format::System => false,
        _ => true,
    }
}
