//! Branches over one instruction: translated code chooses the value that the interpreter computes, and does so without a branch.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use std::collections::{BTreeSet, HashSet};

use assembly::{A2, A3, A4, A5, Assembly, S0};
use guest::{CODE, Guest, OWN, Way, task, translate};
use hpu_vm::jit::{Executor, Limits, Options, Source, Task, Translation};
use hpu_vm::{Checks, Code, Exit, Inst, NoDevice, Op, Reg};

const BRANCHES: [Op; 6] = [Op::Beq, Op::Bne, Op::Blt, Op::Bge, Op::Bltu, Op::Bgeu];

/// What is skipped: of what the branch compares (a2, a3) and something else (a4), into one of them.
fn skipped() -> Vec<Inst> {
    let mut all = Vec::new();
    for rd in [A2, A3, A4, Reg::ZERO] {
        all.extend(
            [(A2, 0), (A3, 0), (rd, 1), (Reg::ZERO, -7)]
                .map(|(from, imm)| Inst::new(Op::Addi).rd(rd).rs1(from).imm(imm)),
        );
        all.extend([Op::Sub, Op::Sltu, Op::Sll, Op::Xor].map(|op| Inst::new(op).rd(rd).rs1(A3).rs2(A4)));
        all.extend([Op::Lui, Op::Auipc].map(|op| Inst::new(op).rd(rd).imm(0x1234_5000)));
    }
    all
}

/// Loads a2, a3 and a4, skips an instruction or not, and stores them. The instruction is behind the branch, or `elsewhere`, so that the
/// branch leads to it.
fn program(branch: Op, skipped: Inst, elsewhere: bool) -> Code {
    let program = Assembly::new().li(S0, OWN.data).imm(Op::Lw, A2, S0, 0).imm(Op::Lw, A3, S0, 4).imm(Op::Lw, A4, S0, 8);
    let at = program.pc();
    let store = |program: Assembly| {
        let program = program.store(Op::Sw, A2, S0, 0).store(Op::Sw, A3, S0, 4).store(Op::Sw, A4, S0, 8);
        program.imm(Op::Addi, A5, A2, 1).store(Op::Sw, A5, S0, 12).ret()
    };
    let program = if elsewhere {
        let program = store(program.branch(branch, A2, A3, at + 28));
        assert_eq!(program.pc(), at + 28, "where the branch leads");
        program.inst(skipped).jal(Reg::ZERO, at + 4)
    } else {
        store(program.branch(branch, A2, A3, at + 8).inst(skipped))
    };
    program.code()
}

/// Adds 1 to a4 for each of three rounds in which a2, which grows by one, is below a3.
fn in_a_loop() -> Code {
    let program = Assembly::new().li(S0, OWN.data).imm(Op::Lw, A2, S0, 0).imm(Op::Lw, A3, S0, 4).imm(Op::Lw, A4, S0, 8);
    let program = program.imm(Op::Addi, A5, Reg::ZERO, 3);
    let again = program.pc();
    let program = program.branch(Op::Bgeu, A2, A3, again + 8).imm(Op::Addi, A4, A4, 1);
    let program = program.imm(Op::Addi, A2, A2, 1).imm(Op::Addi, A5, A5, -1).branch(Op::Bne, A5, Reg::ZERO, again);
    program.store(Op::Sw, A4, S0, 8).ret().code()
}

fn run(executor: &Executor, guest: &mut Guest, checks: Checks, task: &Task<'_>, values: [u32; 3]) -> (Exit, [u32; 4]) {
    guest.fill(1);
    guest.slot.view().set_checks(checks);
    (0..).zip(values).for_each(|(word, value)| guest.set_word(OWN.data + 4 * word, value));
    let exit = executor.run(&mut guest.slot, &mut guest.frame, task, &mut NoDevice);
    (exit, [0, 4, 8, 12].map(|word| guest.word(OWN.data + word)))
}

#[test]
fn what_is_chosen_is_what_the_interpreter_computes() {
    const VALUES: [[u32; 3]; 5] = [[1, 2, 3], [2, 1, 3], [5, 5, 9], [u32::MAX, 1, 31], [0x8000_0000, 0x7fff_ffff, 2]];
    let executor = Executor::new().expect("a timer");
    let programs = BRANCHES.into_iter().flat_map(|branch| {
        skipped().into_iter().flat_map(move |inst| [false, true].map(|elsewhere| program(branch, inst, elsewhere)))
    });
    let mut found = HashSet::new();
    for code in programs.chain([in_a_loop()]) {
        let ways = Way::translated(Checks::Page).chain(Way::translated(Checks::Exact));
        let translations: Vec<_> =
            ways.map(|way| (way, way.options.map(|options| translate(&code, &[], options)))).collect();
        let mut guest = Guest::new(OWN, &code, 1);
        for values in VALUES {
            let expected = run(&executor, &mut guest, Checks::Page, &task(OWN, &code, None), values);
            assert_eq!(expected.0, Exit::Returned);
            found.insert(expected.1);
            for (way, translation) in &translations {
                let limits = Limits { time: None, instructions: way.counts().then_some(1000) };
                let task = Task { limits, ..task(OWN, &code, translation.as_ref()) };
                let found = run(&executor, &mut guest, way.checks, &task, values);
                assert_eq!(found, expected, "{values:x?}, {}", way.name());
            }
        }
    }
    assert!(found.len() > 50, "not a mixture: {}", found.len());
}

#[test]
fn a_choice_is_a_conditional_move() {
    let moves = |inst, elsewhere| {
        let code = program(Op::Bltu, inst, elsewhere);
        let source = Source { code: &code, entries: &[CODE], taken: &BTreeSet::new() };
        let text = Translation::disassemble(source, CODE, Options::default(), "x86_64").expect("a translation");
        text.lines().filter(|line| line.trim().starts_with("cmov")).count()
    };
    for elsewhere in [false, true] {
        assert_eq!(moves(Inst::new(Op::Addi).rd(A2).rs1(A3), elsewhere), 1);
        // What takes long, or touches memory, is a way of its own.
        assert_eq!(moves(Inst::new(Op::Mul).rd(A2).rs1(A3).rs2(A4), elsewhere), 0);
        assert_eq!(moves(Inst::new(Op::Lw).rd(A2).rs1(S0), elsewhere), 0);
    }
}
