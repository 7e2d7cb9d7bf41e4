//! Loops that add up words next to each other, wherever these lie: translated code does what the interpreter does, fault for fault.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use std::collections::BTreeMap;

use assembly::{A2, A3, A4, A5, Assembly, S0, S1, T0, T1, T2};
use guest::{CODE, Guest, MACHINE, OWN, PACKET, Way, same, task, translate};
use hpu_vm::jit::{Atomics, Executor, Limits, Options, Task};
use hpu_vm::{Checks, Code, Exit, Inst, NoDevice, Op, Reg};
use proptest::prelude::*;
use proptest::sample::select;
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{L1_ALIAS, PAGE, PERIPHERALS, STDOUT_BASE};

const TOTAL: Reg = A2;
const FROM: Reg = A3;
const TURNS: Reg = T1;
/// What words and sums of them are in.
const PARTS: [Reg; 6] = [A4, A5, T0, T2, S1, Reg::new(16)];
/// What begins as data words, in this order, and where their ends are in the data.
const WORDS: [Reg; 3] = [FROM, TURNS, TOTAL];
const ENDS: i32 = 64;

fn load(rd: Reg, at: i32) -> Inst {
    Inst::new(Op::Lw).rd(rd).rs1(FROM).imm(at)
}

fn add(rd: Reg, rs1: Reg, rs2: Reg) -> Inst {
    Inst::new(Op::Add).rd(rd).rs1(rs1).rs2(rs2)
}

fn move_by(bytes: i32) -> Inst {
    Inst::new(Op::Addi).rd(FROM).rs1(FROM).imm(bytes)
}

/// A loop of `body`, behind which `seen` are looked at too.
fn program(body: &[Inst], seen: &[Reg]) -> Code {
    let slots = |at: i32| (at..).step_by(4);
    let begin = WORDS
        .into_iter()
        .zip(slots(0))
        .fold(Assembly::new().li(S0, OWN.data), |program, (reg, at)| program.imm(Op::Lw, reg, S0, at));
    // Not constants.
    let begin = PARTS.into_iter().zip(slots(12)).fold(begin, |program, (reg, at)| program.imm(Op::Lw, reg, S0, at));
    let again = begin.pc();
    let program = body.iter().fold(begin, |program, inst| program.inst(*inst));
    let program = program.imm(Op::Addi, TURNS, TURNS, -1).branch(Op::Bne, TURNS, Reg::ZERO, again);
    let seen = WORDS.into_iter().chain(seen.iter().copied());
    seen.zip(slots(ENDS)).fold(program, |program, (reg, at)| program.store(Op::Sw, reg, S0, at)).ret().code()
}

/// A row of so many words from `at` on, added up two at a time as compilers do.
fn row(words: i32, at: i32) -> Vec<Inst> {
    let pair = |word: i32| {
        let at = at + 4 * word;
        [load(A4, at), load(A5, at + 4), add(T0, A5, A4), add(TOTAL, T0, TOTAL)]
    };
    (0..words).step_by(2).flat_map(pair).collect()
}

/// Every translation, and those for the clock alone with other options.
fn ways(checks: Checks) -> impl Iterator<Item = Way> {
    let clocked = Options { checks, atomics: Atomics::Shared, result: true, ..Options::default() };
    Way::translated(checks).chain([Way { checks, options: Some(clocked) }])
}

fn run(executor: &Executor, guest: &mut Guest, checks: Checks, task: &Task<'_>, words: &[u32]) -> (Exit, Vec<u8>) {
    guest.slot.view().set_checks(checks);
    guest.scatter();
    (OWN.data..).step_by(4).zip(words).for_each(|(at, word)| guest.set_word(at, *word));
    let exit = executor.run(&mut guest.slot, &mut guest.frame, task, &mut NoDevice);
    (exit, guest.memory())
}

/// Compares all ways to run `code` from each of some beginnings. Returns how the interpreter ended.
fn compare(executor: &Executor, code: &Code, checks: Checks, beginnings: &[Vec<u32>]) -> Result<Vec<Exit>, String> {
    let mut guest = Guest::new(OWN, code, 1);
    let expected: Vec<_> =
        beginnings.iter().map(|words| run(executor, &mut guest, checks, &task(OWN, code, None), words)).collect();
    for way in ways(checks) {
        let translation = way.options.map(|options| translate(code, &[], options));
        let limits = Limits { time: None, instructions: way.counts().then_some(10_000) };
        let task = Task { limits, ..task(OWN, code, translation.as_ref()) };
        let mut guest = Guest::new(OWN, code, 1);
        for (words, expected) in beginnings.iter().zip(&expected) {
            let found = run(executor, &mut guest, checks, &task, words);
            if !same(checks, expected.0, found.0) {
                return Err(format!("{words:#x?}, {}: {:x?} instead of {:x?}", way.name(), found.0, expected.0));
            }
            if found.1 != expected.1 {
                return Err(format!("{words:#x?}, {}: memory", way.name()));
            }
        }
    }
    Ok(expected.into_iter().map(|(exit, _)| exit).collect())
}

/// Ends of memory, of pages, and of devices.
fn edges() -> Vec<u32> {
    let alias = L1_ALIAS + (MACHINE.scratchpad_base(OWN.cluster) - MACHINE.l1_base(OWN.cluster));
    let others = [(OWN.l2_packet(), PACKET), (alias, 0x1204), (CODE, 8), (PERIPHERALS, PAGE)];
    let ranges = OWN.ranges().into_iter().map(|(_, base, len)| (base, len)).chain(others);
    let ends =
        ranges.flat_map(|(base, len)| [0, len, PAGE, len.next_multiple_of(PAGE)].map(|at| base.wrapping_add(at)));
    let mut all: Vec<u32> = ends.chain([0, PAGE, STDOUT_BASE]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Rows that begin a little before each edge, so that they cross it sooner or later, or not.
fn beginnings(bytes: u32) -> Vec<Vec<u32>> {
    let before = [0, 1, 4, 6, bytes - 2, bytes, bytes + 2, 3 * bytes + 8, 3 * bytes + 13];
    let places = edges().into_iter().flat_map(|edge| before.map(|before| edge.wrapping_sub(before)));
    places.map(|place| vec![place, 5, 0xffff_fff0, 1, 2, 3, 4, 5, 6]).collect()
}

#[test]
fn rows_fault_where_the_interpreter_says_and_add_up_otherwise() {
    let executor = Executor::new().expect("a timer");
    let mut ends = BTreeMap::new();
    for (words, at) in [(4, 0), (8, -12), (16, 4)] {
        let code = program(&[row(words, at), vec![move_by(4 * words)]].concat(), &[]);
        for checks in [Checks::Page, Checks::Exact] {
            let found = compare(&executor, &code, checks, &beginnings(4 * words.cast_unsigned()));
            for exit in found.unwrap_or_else(|difference| panic!("{words} words: {difference}")) {
                let name = match exit {
                    Exit::Fault(fault) => format!("{:?}", fault.cause),
                    other => format!("{other:?}"),
                };
                *ends.entry(name).or_insert(0) += 1;
            }
        }
    }
    for end in ["Returned", "LoadAccess", "StackOverflow", "DeviceAccess"] {
        assert!(ends.get(end).is_some_and(|&count| count > 20), "not a mixture: {ends:?}");
    }
}

/// In a window that nobody has looked at there is the packet, when somebody does.
#[test]
fn a_row_opens_a_window() {
    let executor = Executor::new().expect("a timer");
    let code = program(&[row(8, 0), vec![move_by(32)]].concat(), &[]);
    for checks in [Checks::Page, Checks::Exact] {
        for start in [0, 2, 50] {
            let words = vec![OWN.l2_packet() + start, 20, 7];
            assert_eq!(compare(&executor, &code, checks, &[words]), Ok(vec![Exit::Returned]));
        }
    }
    assert!(matches!(
        compare(&executor, &code, Checks::Exact, &[vec![OWN.l2_packet(), 200, 0]]).as_deref(),
        Ok([Exit::Fault(Fault { cause: Cause::LoadAccess, .. })])
    ));
}

/// A loop that is left and begun again, and what follows reads what it leaves.
#[test]
fn a_row_in_a_loop_adds_to_what_was_there() {
    let executor = Executor::new().expect("a timer");
    let body = [row(8, 0), vec![move_by(32), Inst::new(Op::Addi).rd(TURNS).rs1(TURNS).imm(-1)]].concat();
    let program = Assembly::new().li(S0, OWN.data).imm(Op::Lw, FROM, S0, 0).imm(Op::Lw, S1, S0, 4);
    let outer = program.pc();
    let program = program.imm(Op::Lw, TURNS, S0, 4).imm(Op::Lw, T2, FROM, 4);
    let inner = program.pc();
    let program = body.iter().fold(program, |program, inst| program.inst(*inst));
    let program = program.branch(Op::Bne, TURNS, Reg::ZERO, inner).op(Op::Xor, TOTAL, TOTAL, T2);
    // Goes by what was checked in the loop; of what is refused then some is there, and what was added up is seen before the rest.
    let program = program.imm(Op::Lw, T2, FROM, -16).op(Op::Sub, TOTAL, TOTAL, T2).imm(Op::Lw, T2, FROM, 0);
    let program = program.op(Op::Add, TOTAL, TOTAL, T2).store(Op::Sw, TOTAL, S0, ENDS).imm(Op::Lw, T2, FROM, 1500);
    let program = program.imm(Op::Addi, S1, S1, -1);
    let code = program.branch(Op::Bne, S1, Reg::ZERO, outer).store(Op::Sw, TOTAL, S0, ENDS).ret().code();
    for checks in [Checks::Page, Checks::Exact] {
        // The first or second time round the outer loop, all words of the inner one are there, and not all behind it.
        let ends = edges().into_iter().flat_map(|edge| [0, 1, 4, 7].map(|left| edge.wrapping_sub(left)));
        let places = ends.flat_map(|end| [3, 6].map(|rows| end.wrapping_sub(32 * rows)));
        let beginnings: Vec<_> = places.map(|place| vec![place, 3, 0]).collect();
        let compared = compare(&executor, &code, checks, &beginnings);
        assert!(compared.is_ok(), "{compared:?}");
    }
}

/// What a loop may do with a row, mostly nothing but add it up.
#[derive(Clone, Debug)]
struct Shape {
    words: usize,
    at: i32,
    by: i32,
    /// The registers that parts go to, the parts that are added next, and what comes before that.
    choices: Vec<(usize, usize, usize)>,
    /// What is changed: see [`Shape::body`].
    change: Option<(u32, usize)>,
    /// What is looked at behind the loop.
    seen: Option<Reg>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let words = prop_oneof![4 => select(vec![4, 8, 12, 16]), 1 => 1..18_usize];
    let by = (any::<bool>(), -40..40_i32);
    let change = prop::option::weighted(0.4, (0..10_u32, 0..40_usize));
    let seen = prop::option::weighted(0.15, select(PARTS.to_vec()));
    let choices = prop::collection::vec((any::<usize>(), any::<usize>(), any::<usize>()), 64);
    (words, -80..80_i32, by, choices, change, seen).prop_map(|(words, at, (straight, by), choices, change, seen)| {
        let by = if straight { 4 * words as i32 } else { by };
        Shape { words, at, by, choices, change, seen }
    })
}

impl Shape {
    fn body(&self) -> Vec<Inst> {
        let (mut body, mut parts, mut next) = (Vec::new(), vec![TOTAL], 0);
        for &(to, which, how) in self.choices.iter().cycle() {
            // One way or another: a word is loaded, or two parts are added up.
            let free: Vec<Reg> = PARTS.into_iter().chain([TOTAL]).filter(|reg| !parts.contains(reg)).collect();
            let may_load = next < self.words && !free.is_empty();
            if may_load && (parts.len() < 2 || how % 2 == 0) {
                let rd = free[to % free.len()];
                body.push(load(rd, self.at + 4 * next as i32));
                parts.push(rd);
                next += 1;
            } else if parts.len() > 1 {
                let [one, other] = [(); 2].map(|()| parts.remove(which % parts.len()));
                let last = next == self.words && parts.is_empty();
                let free: Vec<Reg> = PARTS.into_iter().filter(|reg| !parts.contains(reg)).collect();
                let rd = if last { TOTAL } else { free[to % free.len()] };
                body.push(add(rd, one, other));
                parts.push(rd);
            } else {
                break;
            }
        }
        body.push(move_by(self.by));
        if let Some((how, at)) = self.change {
            self.change(&mut body, how, at % (self.words + 1));
        }
        body
    }

    fn change(&self, body: &mut Vec<Inst>, how: u32, at: usize) {
        let reg = PARTS[at % PARTS.len()];
        match how {
            // The words in another order; a load or addition twice, or none.
            0 => {
                let words = self.words as i32;
                let from = |inst: &Inst| self.at + ((inst.imm - self.at) / 4 + at as i32) % words * 4;
                body.iter_mut().filter(|inst| inst.op == Op::Lw).for_each(|inst| *inst = inst.imm(from(inst)));
            }
            1 => body.insert(at, body[at]),
            2 => _ = body.remove(at),
            3 => body[at] = body[at].imm(self.at),
            // It moves on sooner, or is lost.
            4 => body.insert(at, move_by(4)),
            5 => body[at] = body[at].rd(FROM),
            // Something is written meanwhile, or does something else with a part.
            6 => body.insert(at, Inst::new(Op::Sw).rs1(FROM).rs2(reg).imm(self.at + 8)),
            7 => body.insert(at, Inst::new(Op::Xor).rd(reg).rs1(TOTAL).rs2(reg)),
            8 => body.insert(at, Inst::new(Op::Mul).rd(Reg::new(17)).rs1(TURNS).rs2(TURNS)),
            _ => body.insert(at, add(TOTAL, TOTAL, TURNS)),
        }
    }
}

proptest! {
    #[test]
    fn what_is_added_up_is_what_the_interpreter_adds_up(
        shape in shape(),
        places in prop::collection::vec((select(edges()), -600..40_i32, 1..12_u32), 4),
    ) {
        let executor = Executor::new().expect("a timer");
        let seen: Vec<Reg> = shape.seen.into_iter().collect();
        let code = program(&shape.body(), &seen);
        let beginnings: Vec<_> = places
            .into_iter()
            .map(|(edge, from, turns)| vec![edge.wrapping_add_signed(from), turns, 9, 1, 2, 3, 4, 5, 6])
            .collect();
        for checks in [Checks::Page, Checks::Exact] {
            let compared = compare(&executor, &code, checks, &beginnings);
            prop_assert!(compared.is_ok(), "{:?}", compared);
        }
    }
}
