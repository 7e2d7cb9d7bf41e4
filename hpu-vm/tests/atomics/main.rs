//! Atomics by placement: two threads with slots of their own, and memory they share.

#[path = "../support/assembly.rs"]
mod assembly;
mod emitted;
#[path = "../support/guest.rs"]
mod guest;
mod registers;
mod twice;

use std::sync::Arc;
use std::thread;

use assembly::{A2, A3, A4, Assembly};
use guest::{Guest, MACHINE, OWN, task, translate};
use hpu_vm::jit::{Atomics, Executor, Options};
use hpu_vm::memory::Region;
use hpu_vm::{Exit, NoDevice, Op, Reg, RegionKind};
use spin_abi::map::L2_BASE;

/// Rounds of each thread.
const ADDS: u32 = 500_000;
const RESERVED: u32 = 200_000;
/// Fewer: who waits for a lock whose holder is not running waits for long.
const LOCKED: u32 = 20_000;

/// A word in the scratchpad, and one in `.data`.
const L1: u32 = MACHINE.scratchpad_base(OWN.cluster) + 0x40;
const L2: u32 = L2_BASE + 0x40;

/// Counts down a2 from `rounds` around `body`.
fn rounds(rounds: u32, body: impl FnOnce(Assembly) -> Assembly) -> Assembly {
    let program = Assembly::new().li(A2, rounds);
    let top = program.pc();
    body(program).imm(Op::Addi, A2, A2, -1).branch(Op::Bne, A2, Reg::ZERO, top).ret()
}

/// Adds 1 to a word in each round.
fn adds(word: u32) -> Assembly {
    rounds(ADDS, |program| program.li(A3, word).li(A4, 1).op(Op::AmoaddW, Reg::ZERO, A3, A4))
}

/// Adds by LR and SC.
fn reserves(word: u32) -> Assembly {
    rounds(RESERVED, |program| {
        let program = program.li(A3, word);
        let again = program.pc();
        let program = program.op(Op::LrW, A4, A3, Reg::ZERO).imm(Op::Addi, A4, A4, 1).op(Op::ScW, A4, A3, A4);
        program.branch(Op::Bne, A4, Reg::ZERO, again)
    })
}

/// Adds by plain accesses, under the lock in the word before.
fn locks(word: u32) -> Assembly {
    rounds(LOCKED, |program| {
        let program = program.li(A3, word - 4);
        let again = program.pc();
        let program = program.li(A4, 1).op(Op::AmoswapW, A4, A3, A4).branch(Op::Bne, A4, Reg::ZERO, again);
        let program = program.imm(Op::Lw, A4, A3, 4).imm(Op::Addi, A4, A4, 1).store(Op::Sw, A4, A3, 4);
        program.op(Op::AmoswapW, Reg::ZERO, A3, Reg::ZERO)
    })
}

/// A kind, its base and length, and what is there.
type Shown = (RegionKind, u32, u32, Arc<Region>);

/// Runs a program on two threads at a time, whose memory is the same or not; what its word holds on each.
fn hammer(program: &Assembly, atomics: Option<Atomics>, word: u32, shared: bool) -> [u32; 2] {
    let code = program.code();
    let translation =
        atomics.map(|atomics| translate(&code, &[], Options { atomics, counting: false, ..Options::default() }));
    let memory = || OWN.ranges().map(|(kind, base, len)| (kind, base, len, Region::new(len as usize).expect("memory")));
    let first = memory();
    let second = memory().map(|(kind, base, len, own)| {
        let both = shared && matches!(kind, RegionKind::Scratchpad | RegionKind::Data);
        let other =
            first.iter().find(|(other, ..)| *other == kind).map_or_else(|| own.clone(), |(.., it)| Arc::clone(it));
        (kind, base, len, if both { other } else { own })
    });
    let run = |ranges: &[Shown]| {
        let (executor, mut guest) = (Executor::new().expect("a timer"), Guest::with(OWN, &code, ranges));
        let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, translation.as_ref()), &mut NoDevice);
        assert_eq!(exit, Exit::Returned);
    };
    thread::scope(|scope| {
        let there = scope.spawn(|| run(&second));
        run(&first);
        there.join().expect("no panic");
    });
    [&first, &second].map(|ranges| {
        let guest = Guest::with(OWN, &code, ranges);
        guest.word(word)
    })
}

/// A program that adds to a word.
type Program = fn(u32) -> Assembly;

/// Programs and what each thread adds.
const PROGRAMS: [(&str, Program, u32); 3] =
    [("amoadd", adds, ADDS), ("lr and sc", reserves, RESERVED), ("a lock", locks, LOCKED)];

fn exact(atomics: Option<Atomics>, place: &str, word: u32) {
    for (name, program, rounds) in PROGRAMS {
        let sums = hammer(&program(word), atomics, word, true);
        println!("{name}, {atomics:?} in {place}: {}", sums[0]);
        assert_eq!(sums, [2 * rounds; 2], "{name}, {atomics:?} in {place}");
    }
}

#[test]
fn shared_atomics_lose_nothing_anywhere() {
    exact(Some(Atomics::Shared), "L1", L1);
    exact(Some(Atomics::Shared), "L2", L2);
}

#[test]
fn home_atomics_lose_nothing_in_l2() {
    exact(Some(Atomics::Home), "L2", L2);
}

#[test]
fn home_atomics_count_in_their_own_l1() {
    for (name, program, rounds) in PROGRAMS {
        assert_eq!(hammer(&program(L1), Some(Atomics::Home), L1, false), [rounds; 2], "{name}");
    }
}

#[test]
fn the_interpreter_loses_nothing_either() {
    let program = locks(L2);
    assert_eq!(hammer(&program, None, L2, true), [2 * LOCKED; 2]);
}
