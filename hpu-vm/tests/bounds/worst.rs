//! Images that make work.

use std::collections::BTreeSet;

use hpu_vm::inst::Format;
use hpu_vm::{Inst, Op, Reg};
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::COMMAND_WAIT;

use crate::guest::CODE;
use crate::random::Random;

/// Bytes of an image: all of program memory, unless that takes too long.
const SIZE: u32 = if cfg!(debug_assertions) { 0x800 } else { 0x8000 };

/// Code, and addresses of it that its data hold.
pub struct Image {
    pub bytes: Vec<u8>,
    pub taken: BTreeSet<u32>,
    /// Bytes of an instruction, on average.
    pub width: f64,
}

impl Image {
    fn of(insts: impl Iterator<Item = Inst>) -> Self {
        let bytes = insts.flat_map(|inst| inst.encode().to_le_bytes()).take(SIZE as usize).collect();
        Self { bytes, taken: BTreeSet::new(), width: 4.0 }
    }

    fn taken(self, step: usize) -> Self {
        Self { taken: (CODE..CODE + SIZE).step_by(step).collect(), ..self }
    }
}

fn register(random: &mut Random) -> Reg {
    Reg::new(5 + random.below(27))
}

/// An even distance to an instruction of the image, at most `reach` away.
fn distance(random: &mut Random, index: u32, reach: u32, unit: u32) -> i32 {
    let at = index * 4;
    let (low, high) = (at.saturating_sub(reach), (at + reach).min(SIZE - 4));
    let to = (low + random.below(high - low)) / unit * unit;
    to.cast_signed() - at.cast_signed()
}

/// As many instructions as the image has, by index. The first load all registers, so that none is a constant, the last one
/// goes back to the first, so that all are of use.
fn each(mut make: impl FnMut(&mut Random, u32) -> Inst) -> Image {
    let mut random = Random::new(7);
    let last = SIZE / 4 - 1;
    Image::of((0..=last).map(move |index| match index {
        0..27 => Inst::new(Op::Lw).rd(Reg::new(5 + index)).rs1(Reg::SP).imm(-4 - 4 * index.cast_signed()),
        index if index == last => Inst::new(Op::Jal).imm(-4 * index.cast_signed()),
        _ => make(&mut random, index),
    }))
}

fn branch(random: &mut Random, index: u32, unit: u32) -> Inst {
    let op = random.choose(&[Op::Beq, Op::Bne, Op::Blt, Op::Bge, Op::Bltu, Op::Bgeu]);
    Inst::new(op).rs1(register(random)).rs2(register(random)).imm(distance(random, index, 4000, unit))
}

fn call(random: &mut Random, index: u32) -> Inst {
    Inst::new(Op::Jal).rd(Reg::RA).imm(distance(random, index, SIZE, 4))
}

fn memory(random: &mut Random) -> Inst {
    let op = random.choose(&[Op::Lb, Op::Lh, Op::Lw, Op::Lbu, Op::Lhu, Op::Sb, Op::Sh, Op::Sw]);
    let inst = Inst::new(op).rs1(register(random)).imm(random.signed(12));
    if op.format() == Format::Load { inst.rd(register(random)) } else { inst.rs2(register(random)) }
}

fn amo(random: &mut Random) -> Inst {
    let amos = [Op::AmoaddW, Op::AmominW, Op::AmomaxuW, Op::AmoswapW, Op::ScW, Op::LrW, Op::AmoandW, Op::AmoxorW];
    let op = random.choose(&amos);
    let inst = Inst::new(op).rd(register(random)).rs1(register(random));
    if op == Op::LrW { inst } else { inst.rs2(register(random)) }
}

fn alu(random: &mut Random, ops: &[Op]) -> Inst {
    let op = random.choose(ops);
    Inst::new(op).rd(register(random)).rs1(register(random)).rs2(register(random))
}

/// Blocks to each of which two ways lead, with other values in all registers; or loops in loops of such.
fn merge(random: &mut Random, index: u32, in_loops: bool) -> Inst {
    const BLOCK: u32 = 6;
    const REACH: u32 = 150;
    if !index.is_multiple_of(BLOCK) {
        let counter = register(random);
        return Inst::new(Op::Addi).rd(counter).rs1(counter).imm(1);
    }
    let block = index / BLOCK;
    let ways = if in_loops { REACH } else { 2 * REACH };
    let to = (block.saturating_sub(REACH) + random.below(ways)) * BLOCK + 1;
    let to = if in_loops { to.min(index) } else { to.min(SIZE / 4 - 1) };
    Inst { imm: 4 * (to.cast_signed() - index.cast_signed()), ..branch(random, index, 4) }
}

/// A chain of functions, each of which calls the next many times.
fn chain() -> Image {
    const CALLS: u32 = 6;
    const DEPTH: u32 = 12;
    let len = CALLS + 2;
    let level = move |index: u32| {
        let (level, at) = (index / len, index % len);
        match at {
            0 => Inst::new(Op::Addi).rd(Reg::new(8)).rs1(Reg::RA),
            at if at <= CALLS && level < DEPTH => Inst::new(Op::Jal).rd(Reg::RA).imm((4 * (len - at)).cast_signed()),
            _ => Inst::new(Op::Jalr).rs1(Reg::RA),
        }
    };
    Image::of((0..SIZE / 4).map(level))
}

/// Bytes of the kind that `random` chooses: any, any instructions, or halves of compressed ones.
pub fn soup(random: &mut Random, words: u32) -> Vec<u8> {
    let kind = random.below(4);
    let word = |random: &mut Random| {
        let index = random.below(words);
        let at = |random: &mut Random| (random.below(words).cast_signed() - index.cast_signed()) * 2;
        match kind {
            0 => {
                random.value() ^ random.next().to_le_bytes().map(u32::from).iter().fold(0, |all, byte| all << 4 ^ byte)
            }
            1 => random.next().to_le_bytes().into_iter().take(4).fold(0, |all, byte| all << 8 | u32::from(byte)),
            _ => {
                let op = random.choose(Op::ALL);
                let (rd, rs1, rs2) =
                    (Reg::new(random.below(32)), Reg::new(random.below(32)), Reg::new(random.below(32)));
                let inst = Inst::new(op).rd(rd).rs1(rs1);
                match op.format() {
                    Format::R | Format::Amo => inst.rs2(rs2),
                    Format::Shift => inst.imm(random.below(32).cast_signed()),
                    Format::Branch => Inst::new(op).rs1(rs1).rs2(rs2).imm(at(random)),
                    Format::Store => Inst::new(op).rs1(rs1).rs2(rs2).imm(random.signed(12)),
                    Format::J => Inst::new(op).rd(rd).imm(at(random)),
                    Format::U => Inst::new(op).rd(rd).imm(random.signed(20) << 12),
                    Format::I | Format::Load | Format::JumpRegister => inst.imm(random.signed(12)),
                    Format::Unary | Format::LoadReserved => inst,
                    _ => Inst::new(Op::Addi).rd(rd).rs1(rs1).imm(random.signed(12)),
                }
                .encode()
            }
        }
    };
    (0..words).flat_map(|_| word(random).to_le_bytes()).collect()
}

/// Registers move on by one and then are jumped to or not, with any half an instruction of its own: many ways, and many
/// values on each. Always all of program memory: a small image of this kind is no work.
fn moves_and_jumps() -> Image {
    const WHOLE: u32 = 0x8000;
    const NONE: [u8; 2] = [1, 0];
    let halves = |half: u32| half.to_le_bytes().into_iter().take(2);
    // `c.mv`
    let moves = (12..32).rev().flat_map(|to: u32| halves(0x8002 | to << 7 | (to - 1) << 2));
    let load = Inst::new(Op::Lw).rd(Reg::new(11)).rs1(Reg::SP).imm(-4).encode().to_le_bytes();
    let skip = Inst::new(Op::Beq).rs1(Reg::new(8)).rs2(Reg::A0).imm(6).encode().to_le_bytes();
    // `c.jr a0`
    let jump = skip.into_iter().chain(halves(0x8002 | 10 << 7));
    let begin = NONE.repeat(234).into_iter().chain(moves).chain(load);
    let bytes = begin.chain(std::iter::repeat_n(jump, WHOLE as usize).flatten()).take(WHOLE as usize).collect();
    Image { bytes, taken: (CODE..CODE + WHOLE).step_by(2).collect(), width: 2.0 }
}

/// Long blocks of loads, of which each goes on at any of the others.
fn loads_and_jumps() -> Image {
    const BLOCKS: usize = if cfg!(debug_assertions) { 100 } else { 223 };
    const LENGTH: usize = 73;
    // `c.lw a1, 0(a0)`, then into a2, and `c.jr a1`.
    let block = std::iter::once(0x410c).chain(std::iter::repeat_n(0x4110, LENGTH - 2)).chain([0x8582_u16]);
    let bytes = block.flat_map(u16::to_le_bytes).collect::<Vec<_>>().repeat(BLOCKS);
    let end = CODE + u32::try_from(bytes.len()).expect("a small image");
    Image { bytes, taken: (CODE..end).step_by(2 * LENGTH).collect(), width: 2.0 }
}

fn vector(bits: u32) -> Inst {
    Inst::new(Op::Vector).imm(bits.cast_signed())
}

/// Instructions after one that sets the vector type to eight registers at a time, of bytes, as many as there can be or as
/// a register says.
fn vectors(known: bool, mut make: impl FnMut(&mut Random, u32) -> Inst) -> Image {
    let length = if known { 0 } else { 10 };
    each(move |random, index| match index {
        27 => vector(3 << 20 | length << 15 | 7 << 12 | 5 << 7 | 0x57),
        index => make(random, index),
    })
}

/// `vadd.vv` of groups of eight.
fn vector_add(random: &mut Random) -> Inst {
    let [vd, vs2, vs1] = [(); 3].map(|()| random.below(4) * 8);
    vector(1 << 25 | vs2 << 20 | vs1 << 15 | vd << 7 | 0x57)
}

/// `vle8.v` or `vse8.v`.
fn vector_memory(random: &mut Random) -> Inst {
    let opcode = random.choose(&[0x07, 0x27]);
    vector(1 << 25 | register(random).number() << 15 | (random.below(4) * 8) << 7 | opcode)
}

/// Calls of as many functions as fit, each of which is these instructions.
fn small_functions(function: [u16; 3]) -> Image {
    let len = 2 * u32::try_from(function.len()).expect("a short function");
    let count = SIZE / (4 + len) - 1;
    let calls = (0..count).map(|index| {
        let to = 4 * (count + 1) + index * len;
        Inst::new(Op::Jal).rd(Reg::RA).imm((to - 4 * index).cast_signed())
    });
    let calls = calls.chain([Inst::new(Op::Jal)]);
    let bytes = calls.flat_map(|inst| inst.encode().to_le_bytes());
    let functions = function.map(u16::to_le_bytes).concat().repeat(count as usize);
    Image { bytes: bytes.chain(functions).collect(), taken: BTreeSet::new(), width: 3.0 }
}

/// Names and images.
pub fn images() -> Vec<(&'static str, Image)> {
    let wait = DRIVER_BASE + COMMAND_WAIT;
    let store = move |index: u32| match index % 2 {
        0 => Inst::new(Op::Lui).rd(Reg::A0).imm((wait & !0xfff).cast_signed()),
        _ => Inst::new(Op::Sw).rs1(Reg::A0).rs2(Reg::SP).imm((wait & 0xfff).cast_signed()),
    };
    // Jumps through a register, some of which link.
    let jump = |random: &mut Random, _: u32| {
        let link = if random.one_in(2) { Reg::RA } else { Reg::ZERO };
        Inst::new(Op::Jalr).rd(link).rs1(register(random))
    };
    let jump_or_load = move |random: &mut Random, index: u32| {
        if index.is_multiple_of(2) { memory(random) } else { jump(random, index) }
    };
    let branch_or = |random: &mut Random, index: u32| {
        if index.is_multiple_of(2) { memory(random) } else { branch(random, index, 2) }
    };
    let call_or_branch = |random: &mut Random, index: u32| {
        if random.one_in(3) { call(random, index) } else { branch(random, index, 4) }
    };
    let mut random = Random::new(3);
    let halves: Vec<u8> = (0..SIZE / 2)
        .flat_map(|_| {
            loop {
                let [a, b, ..] = random.next().to_le_bytes();
                if hpu_vm::compressed::expand(u16::from_le_bytes([a, b])).is_some() {
                    break [a, b];
                }
            }
        })
        .collect();
    let bytes: Vec<u8> = (0..SIZE).map(|_| random.next().to_le_bytes()[0]).collect();
    let raw = |bytes, width| Image { bytes, taken: BTreeSet::new(), width };
    vec![
        ("merges", each(|random, index| merge(random, index, false))),
        ("merges in loops", each(|random, index| merge(random, index, true))),
        ("atomics", each(|random, _| amo(random))),
        ("memory", each(|random, _| memory(random))),
        ("divisions", each(|random, _| alu(random, &[Op::Div, Op::Divu, Op::Rem, Op::Remu, Op::Mulhsu]))),
        ("arithmetic", each(|random, _| alu(random, &[Op::Add, Op::Sub, Op::Xor, Op::Sll, Op::Slt, Op::Mul]))),
        ("branches", each(|random, index| branch(random, index, 4))),
        ("overlapping branches", each(|random, index| branch(random, index, 2))),
        ("memory and branches", each(branch_or)),
        ("calls", each(call)),
        ("calls and branches", each(call_or_branch)),
        ("a chain of calls", chain()),
        ("loads and jumps", loads_and_jumps()),
        ("jumps, none taken", each(jump)),
        ("jumps, all taken", each(jump).taken(4)),
        ("jumps and memory, all halves taken", each(jump_or_load).taken(2)),
        ("moves and jumps, all halves taken", moves_and_jumps()),
        ("vector additions", vectors(true, |random, _| vector_add(random))),
        ("vector additions of unknown length", vectors(false, |random, _| vector_add(random))),
        (
            "vector additions and branches",
            vectors(
                false,
                |random, index| {
                    if index.is_multiple_of(2) { vector_add(random) } else { branch(random, index, 4) }
                },
            ),
        ),
        ("vector memory", vectors(true, |random, _| vector_memory(random))),
        ("vector memory of unknown length", vectors(false, |random, _| vector_memory(random))),
        // `c.lw a1, 0(a0)`, `c.beqz a1, .-2` and `ret`.
        ("functions that wait", small_functions([0x410c, 0xddfd, 0x8082])),
        // `c.addi a5, 1`, `c.nop` and `c.jr a5`.
        ("functions that jump, all taken", small_functions([0x0785, 0x0001, 0x8782]).taken(2)),
        ("device stores", Image::of((0..SIZE / 4).map(store))),
        ("counters", each(|random, _| Inst::new(Op::Csrrs).rd(register(random)).imm(0xc00))),
        ("system calls", each(|_, _| Inst::new(Op::Ecall))),
        ("compressed", raw(halves, 2.0)),
        ("random bytes", raw(bytes, 3.0)),
        (
            "random bytes, all halves taken",
            raw((0..SIZE).map(|_| random.next().to_le_bytes()[0]).collect(), 3.0).taken(2),
        ),
    ]
}
