//! Whole programs: functions that call each other, loops that end, memory at its edges, and one way to end each.
//!
//! Only a function's frame writes `ra`, `sp`, `gp` (the argument), `tp` and the saved registers `s8` to `s11` (loop
//! counters, depth of recursion). A program therefore ends, unless it is made not to. Any code writes the other registers.

mod control;
mod devices;
mod endings;
mod memory;
mod values;
mod vectors;

use hpu_vm::{Checks, Inst, Op, Reg};
use spin_abi::map::PAGE;

use crate::assembler::{Assembler, Label, split};
use crate::device::{EXIT, WRITE};
use crate::memory::{Block, CODE, FAR_CODE, MACHINE, REGISTERS, arguments, handler_blocks, linux_blocks, task};
use crate::program::{Program, Start};
use crate::random::Random;

const RA: Reg = Reg::RA;
const SP: Reg = Reg::SP;
/// Where a program keeps its argument.
const ARGUMENT: Reg = Reg::new(3);
/// Loop counters, by how deep the loop is nested.
const COUNTERS: [Reg; 3] = [Reg::new(24), Reg::new(25), Reg::new(26)];
/// Most turns of a loop.
const MOST_TURNS: u32 = 5;
/// How often a function may still call itself.
const RECURSIONS: Reg = Reg::new(27);
/// Bytes of a function's frame: 16 for anybody, then the saved registers, `ra` last.
const FRAME: i32 = 48;
/// Bytes of the frame for anybody.
const LOCALS: u32 = 16;
/// What a frame saves, and where.
const SAVED: [(Reg, i32); 5] =
    [(COUNTERS[0], 28), (COUNTERS[1], 32), (COUNTERS[2], 36), (RECURSIONS, RECURSIONS_SAVED), (RA, RA_SAVED)];
const RECURSIONS_SAVED: i32 = 40;
const RA_SAVED: i32 = 44;

/// What a program may do.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub checks: Checks,
    /// May read what counts instructions.
    pub counters: bool,
    /// May do what ends it at once: faults, jumps anywhere, a low limit.
    pub hostile: bool,
    /// Runs under Linux: no devices, no counters, and it begins and ends by system calls.
    pub linux: bool,
    /// Has vector instructions, many of them.
    pub vectors: bool,
    /// Has no devices, counters, environment calls and recursion.
    pub plain: bool,
}

/// The state of a generation.
struct Generator {
    random: Random,
    asm: Assembler,
    shape: Shape,
    /// What the program may access.
    blocks: Vec<Block>,
    functions: Vec<Label>,
    /// Jumps and calls have their addresses in instructions only. Rare code is then a function of its own.
    direct: bool,
    /// The function being generated.
    level: usize,
    /// Loops around.
    loops: usize,
    /// Whether the function has a frame.
    framed: bool,
    /// An instruction of which the code ends before its second half.
    cut: Label,
}

/// The program of `seed`.
pub fn program(seed: u64, shape: Shape) -> Program {
    let mut random = Random::new(seed);
    let blocks = if shape.linux { linux_blocks(&mut random) } else { handler_blocks(&mut random, shape.checks) };
    let mut asm = Assembler::default();
    // Most are short: what is wrong shows in few instructions, and translating is what takes time.
    let most = random.choose(&[30, 30, 100, 300]);
    let size = 8 + random.below(most);
    let functions: Vec<Label> = (0..=random.below(6.min(size / 12) + 1)).map(|_| asm.label()).collect();
    let cut = asm.label();
    let direct = random.one_in(4);
    let mut generator =
        Generator { random, asm, shape, blocks, functions, direct, level: 0, loops: 0, framed: true, cut };
    generator.whole(size as usize);
    generator.finish(seed)
}

impl Generator {
    /// Functions of about `left` instructions in all, without what each begins and ends with.
    fn whole(&mut self, mut left: usize) {
        self.asm.section(CODE);
        if self.shape.linux {
            self.linux_frame();
        }
        let last = self.functions.len() - 1;
        for level in 0..=last {
            if level == last && level > 0 {
                self.close_section();
                self.asm.section(FAR_CODE);
            }
            let share = if level == last { left } else { left / 2 };
            left -= share;
            self.function(level, share);
        }
        self.asm.bind(self.cut);
        self.close_section();
    }

    /// Ends a section with the lower half of a 4-byte instruction.
    fn close_section(&mut self) {
        self.asm.half(0x0013);
    }

    fn finish(mut self, seed: u64) -> Program {
        let limit = match self.random.below(8) {
            _ if self.shape.linux => 200_000,
            0 if self.shape.hostile && self.shape.counters => 1 + u64::from(self.random.below(200)),
            _ => 3000,
        };
        let code = self.asm.assemble();
        let start = if self.shape.linux {
            Start { entry: CODE, sp: 0, argument: 0, limit }
        } else {
            Start { entry: code.address(self.functions[0]), sp: task(), argument: arguments(), limit }
        };
        // Some are stripped.
        let functions = if self.random.one_in(4) { &[] } else { &*self.functions };
        let functions = functions.iter().map(|&function| code.address(function)).collect();
        Program::new(seed, self.shape.checks, start, &code, functions, self.blocks)
    }

    /// A function: prologue, statements, epilogue. The first one is the handler.
    fn function(&mut self, level: usize, size: usize) {
        (self.level, self.loops) = (level, 0);
        self.framed = level == 0 || !self.random.one_in(5);
        self.asm.bind(self.functions[level]);
        if level == 0 {
            self.move_register(ARGUMENT, Reg::A0);
        }
        if self.framed {
            self.inst(Inst::new(Op::Addi).rd(SP).rs1(SP).imm(-FRAME));
            for (reg, offset) in SAVED {
                self.inst(Inst::new(Op::Sw).rs1(SP).rs2(reg).imm(offset));
            }
        }
        self.statements(size);
        if level == 0 && self.shape.hostile && !self.random.one_in(4) {
            self.ending();
        }
        self.leave();
    }

    /// Statements of about `size` instructions.
    fn statements(&mut self, size: usize) {
        let end = self.asm.len() + size;
        while self.asm.len() < end {
            self.statement(end - self.asm.len());
        }
    }

    fn statement(&mut self, left: usize) {
        if self.shape.vectors && self.random.one_in(4) {
            return self.vectors();
        }
        match self.random.below(100) {
            0..26 => self.arithmetic(),
            26..29 => self.any_form(),
            29..48 => self.access(),
            48..50 if self.framed && self.loops < COUNTERS.len() => self.words_added_up(),
            48..50 => self.access(),
            50..56 => self.local(),
            56..64 => self.atomic(),
            64..72 => self.skip(left),
            72..76 if self.framed && self.loops < COUNTERS.len() => self.counted_loop(left),
            76..86 => self.call(),
            86..90 if !self.direct => self.switch(left),
            90..92 => self.jump_into_an_instruction(),
            92..94 => self.set_some(),
            94..96 if !self.shape.plain => self.counter(),
            96..99 if !self.shape.linux && !self.shape.plain => self.device(),
            99 if self.shape.hostile && self.random.one_in(8) => self.misbehave(),
            _ => self.arithmetic(),
        }
    }

    /// Restores the frame and returns, or goes on in another function that will.
    fn leave(&mut self) {
        if self.framed && self.random.one_in(10) {
            return self.leave_elsewhere();
        }
        let mut back = RA;
        if self.framed {
            if self.random.one_in(4) {
                back = self.scratch();
            }
            for (reg, offset) in SAVED {
                let to = if reg == RA && self.random.one_in(2) { back } else { reg };
                self.inst(Inst::new(Op::Lw).rd(to).rs1(SP).imm(offset));
                if reg == RA && to == RA {
                    back = RA;
                }
            }
            self.inst(Inst::new(Op::Addi).rd(SP).rs1(SP).imm(FRAME));
        }
        if back == RA && self.random.one_in(if self.level == 0 { 5 } else { 10 }) {
            self.begin_again();
        }
        let tail = self.random.one_in(if self.direct { 2 } else { 5 }) && back == RA;
        match self.callee().filter(|_| tail) {
            Some(callee) => self.tail_call(callee),
            None => self.inst(Inst::new(Op::Jalr).rs1(back)),
        }
    }

    /// Goes back to the handler's first instruction, once: the argument is odd then.
    fn begin_again(&mut self) {
        let (done, end) = (self.scratch(), self.asm.label());
        self.inst(Inst::new(Op::Andi).rd(done).rs1(ARGUMENT).imm(1));
        self.asm.to(&mut self.random, Inst::new(Op::Bne).rs1(done), end, 0);
        self.inst(Inst::new(Op::Ori).rd(Reg::A0).rs1(ARGUMENT).imm(1));
        let handler = self.functions[0];
        self.asm.to(&mut self.random, Inst::new(Op::Jal), handler, 0);
        self.asm.bind(end);
    }

    /// Returns to an address that the frame was not called with: a few instructions behind, which return from there.
    fn leave_elsewhere(&mut self) {
        let (back, elsewhere) = (self.scratch(), self.asm.label());
        self.inst(Inst::new(Op::Lw).rd(back).rs1(SP).imm(RA_SAVED));
        self.set_label(RA, elsewhere, 0);
        self.inst(Inst::new(Op::Sw).rs2(RA).rs1(SP).imm(RA_SAVED));
        self.inst(Inst::new(Op::Lw).rd(RA).rs1(SP).imm(RA_SAVED));
        for (reg, offset) in SAVED.into_iter().filter(|(reg, _)| *reg != RA) {
            self.inst(Inst::new(Op::Lw).rd(reg).rs1(SP).imm(offset));
        }
        self.inst(Inst::new(Op::Addi).rd(SP).rs1(SP).imm(FRAME));
        self.inst(Inst::new(Op::Jalr).rs1(RA));
        self.asm.bind(elsewhere);
        self.inst(Inst::new(Op::Jalr).rs1(back));
    }

    /// Begins and ends a Linux program: all registers set, the handler called, registers and memory written out.
    fn linux_frame(&mut self) {
        for number in (1..32).filter(|&number| number != SP.number()) {
            let value = if number == RECURSIONS.number() { 0 } else { self.random.value() };
            self.set(Reg::new(number), value);
        }
        // A function that the handler left to reads the word at its stack pointer (`Generator::pair`).
        self.set(SP, MACHINE.handler_mem_base + 2 * PAGE - 16);
        let handler = self.functions[0];
        self.asm.to(&mut self.random, Inst::new(Op::Jal).rd(RA), handler, 0);
        self.set(Reg::TP, REGISTERS);
        for number in 0_u32..32 {
            let offset = 4 * number.cast_signed();
            self.inst(Inst::new(Op::Sw).rs1(Reg::TP).rs2(Reg::new(number)).imm(offset));
        }
        for (base, len) in self.blocks.iter().map(|block| (block.base, block.len)).collect::<Vec<_>>() {
            for (reg, value) in [(10, 1), (11, base), (12, len), (17, WRITE)] {
                self.set(Reg::new(reg), value);
            }
            self.asm.word(Inst::new(Op::Ecall).encode());
        }
        self.set(Reg::A0, 0);
        self.set(Reg::A7, EXIT);
        self.asm.word(Inst::new(Op::Ecall).encode());
    }

    /// Adds an instruction.
    fn inst(&mut self, inst: Inst) {
        self.asm.inst(&mut self.random, inst);
    }

    fn move_register(&mut self, rd: Reg, rs: Reg) {
        self.inst(Inst::new(Op::Add).rd(rd).rs2(rs));
    }

    /// Sets a register to a value, by as few instructions as it takes.
    fn set(&mut self, rd: Reg, value: u32) {
        let (high, low) = split(value);
        if high == 0 {
            self.inst(Inst::new(Op::Addi).rd(rd).imm(low));
            return;
        }
        self.inst(Inst::new(Op::Lui).rd(rd).imm(high));
        if low != 0 {
            self.inst(Inst::new(Op::Addi).rd(rd).rs1(rd).imm(low));
        }
    }

    /// Sets a register to the address of a label.
    fn set_label(&mut self, rd: Reg, label: Label, addend: i32) {
        self.asm.address(&mut self.random, rd, label, addend);
    }

    /// A register that a statement may write: most often one that compressed instructions can name.
    fn scratch(&mut self) -> Reg {
        const ANYBODYS: [u32; 12] = [5, 6, 7, 16, 17, 18, 19, 20, 21, 28, 29, 31];
        let short = self.random.below(3) != 0;
        Reg::new(if short { 8 + self.random.below(8) } else { self.random.choose(&ANYBODYS) })
    }

    /// A register other than `taken`.
    fn scratch_but(&mut self, taken: Reg) -> Reg {
        loop {
            let reg = self.scratch();
            if reg != taken {
                return reg;
            }
        }
    }

    /// A register to read.
    fn source(&mut self) -> Reg {
        if self.random.one_in(12) { Reg::new(self.random.below(32)) } else { self.scratch() }
    }
}
