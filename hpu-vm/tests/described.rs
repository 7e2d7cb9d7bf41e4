//! Handlers that look for the pointer to the task registers in their arguments: where it is known it is not loaded, and where it may have
//! been changed it is. The interpreter always loads it.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, A3, A4, Assembly, S0, T0};
use guest::{Guest, OWN, Way, translate};
use hpu_vm::jit::{Executor, Limits, Options, Source, Task, Translation};
use hpu_vm::{Checks, Code, Exit, NoDevice, Op, Reg};
use spin_abi::map::{HANDLER_ARGS, TASK_BLOCK};

const A0: Reg = Reg::new(10);
/// Instructions until a handler is given up.
const LIMIT: u64 = 1000;
/// What the pointer is changed to.
const ELSEWHERE: u32 = OWN.data + 64;
/// Which result a handler leaves in its data.
const WORD: i32 = 4;

/// Follows the pointer, and keeps it and what it leads to.
fn follow(program: Assembly) -> Assembly {
    let found = program.imm(Op::Lw, A2, A0, 0).imm(Op::Lw, A3, A2, WORD);
    found.li(S0, OWN.data).store(Op::Sw, A2, S0, 0).store(Op::Sw, A3, S0, 4).ret()
}

/// Handlers, and whether the pointer that they find is the one that their task began with.
fn programs() -> Vec<(&'static str, Code, bool)> {
    let new = || Assembly::new().li(T0, ELSEWHERE);
    let loaded_first = Assembly::new().imm(Op::Lw, A4, A0, 4).imm(Op::Lw, A4, A0, 8);
    let again = new().imm(Op::Lw, A4, A0, 0).store(Op::Sw, T0, A0, 0);
    let start = Assembly::new().pc();
    // The second time the argument is another one, whose first word leads elsewhere.
    let back = Assembly::new().imm(Op::Lw, A2, A0, 0).imm(Op::Lw, A3, A2, WORD).li(S0, OWN.data);
    let back = back.store(Op::Sw, A2, S0, 0).store(Op::Sw, A3, S0, 4).imm(Op::Lw, A0, S0, 32);
    let back = back.store(Op::Sw, Reg::ZERO, S0, 32);
    let over = back.pc() + 8;
    let back = back.branch(Op::Beq, A0, Reg::ZERO, over).jal(Reg::ZERO, start).ret();
    vec![
        ("at once", follow(Assembly::new()).code(), true),
        ("after other loads", follow(loaded_first).code(), true),
        ("after a store to it", follow(new().store(Op::Sw, T0, A0, 0)).code(), false),
        ("after a store behind a load of it", follow(again).code(), false),
        ("after an atomic on it", follow(new().op(Op::AmoswapW, A4, A0, T0)).code(), false),
        ("of another argument", follow(Assembly::new().li(S0, OWN.data).imm(Op::Addi, A0, S0, 36)).code(), false),
        (
            "of an argument that was loaded",
            follow(Assembly::new().li(S0, OWN.data).imm(Op::Lw, A0, S0, 32)).code(),
            false,
        ),
        ("and of another one when it comes back", back.code(), false),
    ]
}

/// A handler behind whose last instruction its first one comes again, with another argument.
fn falling_back() -> (Code, u32) {
    let jump = Assembly::new().li(S0, OWN.data).imm(Op::Lw, A0, S0, 32);
    let entry = jump.pc();
    let again = jump.imm(Op::Lw, A2, A0, 0).imm(Op::Lw, A3, A2, WORD).li(S0, OWN.data);
    let again = again.store(Op::Sw, A2, S0, 0).store(Op::Sw, A3, S0, 4).imm(Op::Lw, A4, S0, 40);
    let again = again.imm(Op::Addi, T0, Reg::ZERO, 1).store(Op::Sw, T0, S0, 40);
    let over = again.pc() + 8;
    (again.branch(Op::Bne, A4, Reg::ZERO, over).jal(Reg::ZERO, Assembly::new().pc()).ret().code(), entry)
}

/// A guest whose arguments begin with `pointer`.
fn guest_with(pointer: u32, code: &Code, checks: Checks) -> Guest {
    let mut guest = Guest::new(OWN, code, 0);
    guest.slot.view().set_checks(checks);
    guest.set_word(OWN.stack_end() - HANDLER_ARGS, pointer);
    guest.set_word(OWN.stack_end() - TASK_BLOCK + 4, 77);
    for (at, value) in [(32, OWN.data + 36), (36, ELSEWHERE), (64 + 4, 99)] {
        guest.set_word(OWN.data + at, value);
    }
    guest
}

/// How a task ends, the pointer that it finds, and what that leads to.
fn outcome(executor: &Executor, guest: &mut Guest, task: &Task<'_>) -> (Exit, [u32; 2]) {
    let exit = executor.run(&mut guest.slot, &mut guest.frame, task, &mut NoDevice);
    (exit, [0, 4].map(|at| guest.word(OWN.data + at)))
}

/// Runs a task in a guest that contained `pointer`.
fn run(executor: &Executor, way: Way, code: &Code, pointer: u32) -> (Exit, [u32; 2]) {
    let mut guest = guest_with(pointer, code, way.checks);
    let translation = way.options.map(|options| translate(code, &[], options));
    let limits = Limits { time: None, instructions: way.counts().then_some(LIMIT) };
    let task = Task { limits, ..guest::task(OWN, code, translation.as_ref()) };
    outcome(executor, &mut guest, &task)
}

#[test]
fn the_pointer_is_what_it_is_in_memory() {
    let executor = Executor::new().expect("a timer");
    for (name, code, first) in programs() {
        let expected = if first { [OWN.stack_end() - TASK_BLOCK, 77] } else { [ELSEWHERE, 99] };
        for checks in [Checks::Page, Checks::Exact] {
            let described = |way: Way| Way { options: way.options.map(|o| Options { described: true, ..o }), ..way };
            let ways = Way::translated(checks).flat_map(|way| [way, described(way)]);
            for way in ways.chain([Way::interpreter(checks)]) {
                assert_eq!(
                    run(&executor, way, &code, OWN.stack_end() - TASK_BLOCK),
                    (Exit::Returned, expected),
                    "{name}, {way:?}"
                );
            }
        }
    }
}

#[test]
fn what_comes_to_the_first_instruction_from_the_one_before_it_finds_its_own() {
    let executor = Executor::new().expect("a timer");
    let (code, entry) = falling_back();
    let taken = [entry].into();
    for checks in [Checks::Page, Checks::Exact] {
        let options = Options { checks, described: true, ..Options::default() };
        let source = Source { code: &code, entries: &[entry], taken: &taken };
        let translation = Translation::new(source, options).expect("it is short");
        for translation in [None, Some(&translation)] {
            let mut guest = guest_with(OWN.stack_end() - TASK_BLOCK, &code, checks);
            let task = Task { entry, ..guest::task(OWN, &code, translation) };
            let found = outcome(&executor, &mut guest, &task);
            assert_eq!(found, (Exit::Returned, [ELSEWHERE, 99]), "{checks:?}, {}", translation.is_some());
        }
    }
}

/// Accesses near that of the pointer are checked with it.
#[test]
fn what_is_near_the_arguments_is_checked() {
    let executor = Executor::new().expect("a timer");
    for (op, offset) in [(Op::Lw, 14), (Op::Sw, 14), (Op::Lw, 12), (Op::Lw, 16), (Op::Sw, -2048), (Op::AmoswapW, 0)] {
        let begin = Assembly::new().imm(Op::Lw, A2, A0, 0);
        let program = match op {
            Op::Lw => begin.imm(op, A3, A0, offset),
            Op::Sw => begin.imm(Op::Addi, A3, A0, -2048).store(op, A4, A3, if offset < 0 { -2040 } else { 2048 - 2 }),
            _ => begin.imm(Op::Addi, A3, A0, 2).op(op, A4, A3, A2),
        };
        let code = program.ret().code();
        let checks = Checks::Exact;
        let [expected, found] = [false, true].map(|translated| {
            let options = Options { checks, described: true, ..Options::default() };
            let way = Way { checks, options: translated.then_some(options) };
            run(&executor, way, &code, OWN.stack_end() - TASK_BLOCK).0
        });
        assert_eq!(found, expected, "{op:?} {offset}");
    }
}

/// Seen by tasks that are not described as they should be.
#[test]
fn where_it_is_known_it_is_not_loaded() {
    let executor = Executor::new().expect("a timer");
    for (name, code, first) in programs() {
        for checks in [Checks::Page, Checks::Exact] {
            let way = |described| Way { checks, options: Some(Options { checks, described, ..Options::default() }) };
            let [loaded, known] = [false, true].map(|described| run(&executor, way(described), &code, ELSEWHERE).1);
            assert_eq!(loaded, [ELSEWHERE, 99], "{name}");
            let expected = if first { [OWN.stack_end() - TASK_BLOCK, 77] } else { [ELSEWHERE, 99] };
            assert_eq!(known, expected, "{name}");
        }
    }
}
