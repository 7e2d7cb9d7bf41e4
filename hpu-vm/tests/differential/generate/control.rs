//! Branches, loops, calls, jump tables.

use hpu_vm::{Inst, Op, Reg};

use super::{COUNTERS, Generator, MOST_TURNS, RA, RECURSIONS, RECURSIONS_SAVED, SP};
use crate::assembler::{Label, split};
use crate::memory::{TABLES, TABLES_LEN};

const BRANCHES: [Op; 6] = [Op::Beq, Op::Bne, Op::Blt, Op::Bge, Op::Bltu, Op::Bgeu];

impl Generator {
    /// A branch over some statements, sometimes with an alternative.
    pub(super) fn skip(&mut self, left: usize) {
        let (over, end) = (self.asm.label(), self.asm.label());
        let inst = self.some_branch();
        self.asm.to(&mut self.random, inst, over, 0);
        self.some(left);
        let alternative = self.random.one_in(3);
        if alternative {
            self.asm.to(&mut self.random, Inst::new(Op::Jal), end, 0);
        }
        self.asm.bind(over);
        if alternative {
            self.some(left);
        }
        self.asm.bind(end);
    }

    /// A loop that ends when its counter does, or before.
    pub(super) fn counted_loop(&mut self, left: usize) {
        let out = self.asm.label();
        self.around(|generator| {
            generator.some(left);
            if generator.random.one_in(3) {
                let inst = generator.some_branch();
                generator.asm.to(&mut generator.random, inst, out, 0);
            }
        });
        self.asm.bind(out);
    }

    /// Does something some times.
    pub(super) fn around(&mut self, body: impl FnOnce(&mut Self)) {
        let counter = COUNTERS[self.loops];
        let times = 1 + self.random.below(MOST_TURNS);
        self.set(counter, times);
        let again = self.asm.here();
        self.loops += 1;
        body(self);
        self.loops -= 1;
        self.inst(Inst::new(Op::Addi).rd(counter).rs1(counter).imm(-1));
        self.asm.to(&mut self.random, Inst::new(Op::Bne).rs1(counter), again, 0);
    }

    fn some(&mut self, left: usize) {
        let size = 1 + self.random.below(12) as usize;
        self.statements(size.min(left));
    }

    pub(super) fn some_branch(&mut self) -> Inst {
        let short = self.random.one_in(2);
        let op = self.random.choose(if short { &BRANCHES[..2] } else { &BRANCHES });
        Inst::new(op).rs1(self.source()).rs2(if short { Reg::ZERO } else { self.source() })
    }

    /// A function that may be called without end: one further down.
    pub(super) fn callee(&mut self) -> Option<Label> {
        let further = self.functions.len() - self.level - 1;
        (further > 0)
            .then(|| self.functions[self.level + 1 + self.random.below(u32::try_from(further).unwrap()) as usize])
    }

    /// A call, to the function itself as long as it may.
    pub(super) fn call(&mut self) {
        if !self.framed {
            return self.arithmetic();
        }
        // In a loop a call may multiply what is below: fewer of them there.
        if self.loops > 0 && !self.random.one_in(1 + u32::try_from(self.loops).unwrap()) {
            return self.access();
        }
        if self.random.one_in(4) && self.loops == 0 && !self.direct && !self.shape.plain {
            return self.recursion();
        }
        let Some(callee) = self.callee() else { return self.arithmetic() };
        if self.random.one_in(3) {
            let times = self.random.below(4);
            self.set(RECURSIONS, times);
        } else {
            self.set(RECURSIONS, 0);
        }
        match self.random.below(if self.direct { 2 } else { 5 }) {
            0 | 1 => self.asm.to(&mut self.random, Inst::new(Op::Jal).rd(RA), callee, 0),
            2 => self.call_far(callee),
            3 => self.call_by_register(callee),
            _ => self.call_by_table(),
        }
    }

    /// A call of two instructions, as compilers make it when they do not know the distance.
    fn call_far(&mut self, callee: Label) {
        self.set_label(RA, callee, 0);
        self.inst(Inst::new(Op::Jalr).rd(RA).rs1(RA));
    }

    fn call_by_register(&mut self, callee: Label) {
        let pointer = self.scratch();
        let offset = if self.random.one_in(2) { 0 } else { self.random.signed(12) };
        // The lowest bit of a target is ignored.
        let odd = self.random.below(2).cast_signed();
        self.set_label(pointer, callee, odd - offset);
        self.inst(Inst::new(Op::Jalr).rd(RA).rs1(pointer).imm(offset));
    }

    fn call_by_table(&mut self) {
        let callees: Vec<Label> = (0..4).filter_map(|_| self.callee()).collect();
        match self.load_entry(&callees) {
            Some(pointer) => self.inst(Inst::new(Op::Jalr).rd(RA).rs1(pointer)),
            None => self.arithmetic(),
        }
    }

    /// A call of the function itself, unless it is deep enough.
    fn recursion(&mut self) {
        let (own, enough) = (self.functions[self.level], self.asm.label());
        if self.level == 0 {
            return self.arithmetic();
        }
        // What the caller allowed; other calls have changed the register since.
        self.inst(Inst::new(Op::Lw).rd(RECURSIONS).rs1(SP).imm(RECURSIONS_SAVED));
        self.asm.to(&mut self.random, Inst::new(Op::Beq).rs1(RECURSIONS), enough, 0);
        self.inst(Inst::new(Op::Addi).rd(RECURSIONS).rs1(RECURSIONS).imm(-1));
        self.asm.to(&mut self.random, Inst::new(Op::Jal).rd(RA), own, 0);
        self.asm.bind(enough);
    }

    /// Goes on in `callee`, which returns in our stead, and may recurse as often as our caller.
    pub(super) fn tail_call(&mut self, callee: Label) {
        if self.direct || self.random.one_in(2) {
            self.asm.to(&mut self.random, Inst::new(Op::Jal), callee, 0);
        } else {
            let pointer = self.scratch();
            self.set_label(pointer, callee, 0);
            self.inst(Inst::new(Op::Jalr).rs1(pointer));
        }
    }

    /// A jump through a table to one of several cases.
    pub(super) fn switch(&mut self, left: usize) {
        let cases = self.random.choose(&[2, 4, 4, 8]);
        let labels: Vec<Label> = (0..cases).map(|_| self.asm.label()).collect();
        let Some(pointer) = self.load_entry(&labels) else { return self.arithmetic() };
        self.inst(Inst::new(Op::Jalr).rs1(pointer));
        let end = self.asm.label();
        for label in labels {
            self.asm.bind(label);
            self.some(left / 2 + 1);
            if !self.random.one_in(4) {
                self.asm.to(&mut self.random, Inst::new(Op::Jal), end, 0);
            }
        }
        self.asm.bind(end);
    }

    /// Loads a word of a new table, whichever the data say, unless there is no room for one: a power of two of `labels`.
    fn load_entry(&mut self, labels: &[Label]) -> Option<Reg> {
        let count = u32::try_from(labels.len()).unwrap();
        if !count.is_power_of_two() || 4 * self.asm.table_len() + 4 * labels.len() > TABLES_LEN as usize {
            return None;
        }
        let (high, low) = split(TABLES + self.asm.table(labels));
        let (index, source) = (self.scratch(), self.source());
        let base = self.scratch_but(index);
        self.inst(Inst::new(Op::Andi).rd(index).rs1(source).imm((count - 1).cast_signed()));
        self.inst(Inst::new(Op::Slli).rd(index).rs1(index).imm(2));
        self.inst(Inst::new(Op::Lui).rd(base).imm(high));
        if self.random.one_in(2) {
            self.inst(Inst::new(Op::Add).rd(base).rs1(base).rs2(index));
            self.inst(Inst::new(Op::Lw).rd(index).rs1(base).imm(low));
        } else {
            self.inst(Inst::new(Op::Addi).rd(base).rs1(base).imm(low));
            self.inst(Inst::new(Op::Add).rd(index).rs1(index).rs2(base));
            self.inst(Inst::new(Op::Lw).rd(index).rs1(index));
        }
        Some(index)
    }

    /// A jump to the upper half of an instruction, which is one itself.
    pub(super) fn jump_into_an_instruction(&mut self) {
        let target = self.asm.label();
        let word = self.two_in_one();
        match self.random.below(3) {
            0 => self.asm.to(&mut self.random, Inst::new(Op::Jal), target, 2),
            1 => {
                let inst = self.some_branch();
                self.asm.to(&mut self.random, inst, target, 2);
            }
            _ => {
                let pointer = self.scratch();
                self.set_label(pointer, target, 2);
                self.inst(Inst::new(Op::Jalr).rs1(pointer));
            }
        }
        self.asm.bind(target);
        self.asm.word(word);
    }

    /// A `lui` whose upper half is a compressed instruction.
    fn two_in_one(&mut self) -> u32 {
        let upper = u32::from(self.computation()) << 16 | self.random.below(16) << 12;
        let rd = self.scratch();
        Inst::new(Op::Lui).rd(rd).imm(upper.cast_signed()).encode()
    }
}
