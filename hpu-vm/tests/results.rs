//! What handlers return in a0, by interpreter and translation: whatever way they take to their return.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;
#[path = "support/waits.rs"]
mod waits;

use assembly::{A2, A3, A4, Assembly, Known, S0, T0};
use guest::{CODE, Guest, OWN, task, translate};
use hpu_vm::jit::{Atomics, Executor, Options, Task, Translation};
use hpu_vm::{Checks, Code, Exit, NoDevice, Op, Reg};
use spin_abi::map::{DRIVER_BASE, HANDLER_ARGS};
use spin_abi::regs::COMMAND_WAIT;
use waits::Waits;

/// What a0 holds at first.
const ARGUMENT: u32 = OWN.stack_end() - HANDLER_ARGS;

/// Every translation that keeps results.
fn translations() -> impl Iterator<Item = Options> {
    let flags = (0..8_u8).map(|bits| [0, 1, 2].map(|bit| bits >> bit & 1 != 0));
    flags.flat_map(|[counting, observe, any_device]| {
        [(Checks::Page, Atomics::Shared), (Checks::Exact, Atomics::Home)].map(|(checks, atomics)| Options {
            checks,
            atomics,
            counting,
            observe,
            any_device,
            result: true,
            described: false,
        })
    })
}

/// Runs a program in every way; its computed jumps go to `taken`.
fn returns(name: &str, program: &Assembly, taken: &[u32], expected: u32) {
    let (executor, code) = (Executor::new().expect("a timer"), program.code());
    let run = |translation: Option<&Translation>| {
        let mut guest = Guest::new(OWN, &code, 0);
        let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, translation), &mut NoDevice);
        assert_eq!(exit, Exit::Returned, "{name}");
        guest.slot.result()
    };
    assert_eq!(run(None), expected, "{name}, interpreted");
    for options in translations() {
        assert_eq!(run(Some(&translate(&code, taken, options))), expected, "{name}, {options:?}");
    }
}

#[test]
fn the_value_at_a_plain_return() {
    returns("a constant", &Assembly::new().li(Reg::A0, 0x1234_5678).ret(), &[], 0x1234_5678);
    returns("the argument", &Assembly::new().ret(), &[], ARGUMENT);
    returns("computed", &Assembly::new().imm(Op::Addi, Reg::A0, Reg::A0, 3).ret(), &[], ARGUMENT + 3);
    let stored = Assembly::new().li(A2, 77).store(Op::Sw, A2, Reg::SP, -8).imm(Op::Lw, Reg::A0, Reg::SP, -8).ret();
    returns("loaded", &stored, &[], 77);
}

/// One of two returns, by whether a0, which is the argument, is zero.
#[test]
fn the_value_at_the_return_that_was_taken() {
    for (op, expected) in [(Op::Beq, 4), (Op::Bne, 2)] {
        // Over two instructions and a return.
        let program = Assembly::new().branch(op, Reg::A0, Reg::ZERO, CODE + 16).li(Reg::A0, 4).ret();
        returns("two returns", &program.li(Reg::A0, 2).ret(), &[], expected);
    }
}

#[test]
fn the_value_of_a_tail_call() {
    let program = Assembly::new().li(Reg::A0, 5).jal(Reg::ZERO, CODE + 16).ret();
    returns("a tail call", &program.imm(Op::Addi, Reg::A0, Reg::A0, 1).ret(), &[], 6);
    // To a place that a table has, or that nobody planned: there the interpreter goes on.
    for known in Known::ALL {
        let program = Assembly::new().li(Reg::A0, 5).address(A2, CODE + 48, known).imm(Op::Jalr, Reg::ZERO, A2, 0);
        let gap = (CODE + 48 - program.pc()) as usize;
        let program = program.raw(&vec![0; gap]).imm(Op::Addi, Reg::A0, Reg::A0, 1).ret();
        for taken in [&[CODE + 48][..], &[]] {
            returns(&format!("a tail call by pointer, {known:?}, {taken:x?}"), &program, taken, 6);
        }
    }
}

#[test]
fn the_value_after_calls() {
    let program = Assembly::new().imm(Op::Addi, T0, Reg::RA, 0).jal(Reg::RA, CODE + 12);
    let program = program.imm(Op::Jalr, Reg::ZERO, T0, 0).li(Reg::A0, 9).ret();
    returns("a call", &program, &[], 9);
    // sum(n) = n ? n + sum(n - 1) : 0, with frames of its own.
    let program = Assembly::new().li(Reg::A0, 10);
    let sum = program.pc();
    let program = program.branch(Op::Bne, Reg::A0, Reg::ZERO, sum + 8).ret();
    let program = program.imm(Op::Addi, Reg::SP, Reg::SP, -16);
    let program = program.store(Op::Sw, Reg::RA, Reg::SP, 12).store(Op::Sw, S0, Reg::SP, 8);
    let program = program.imm(Op::Addi, S0, Reg::A0, 0).imm(Op::Addi, Reg::A0, Reg::A0, -1).jal(Reg::RA, sum);
    let program = program.op(Op::Add, Reg::A0, Reg::A0, S0);
    let program = program.imm(Op::Lw, Reg::RA, Reg::SP, 12).imm(Op::Lw, S0, Reg::SP, 8);
    let program = program.imm(Op::Addi, Reg::SP, Reg::SP, 16).ret();
    let after_call = sum + 8 * 4;
    for taken in [&[after_call][..], &[]] {
        returns(&format!("recursion, {taken:x?}"), &program, taken, 55);
    }
}

/// Adds up a word so often that the handler is translated in several regions.
#[test]
fn the_value_of_a_long_handler() {
    const LOADS: u32 = 1700;
    let mut program = Assembly::new().li(A4, 3).store(Op::Sw, A4, Reg::SP, -8).li(Reg::A0, 0);
    for _ in 0..LOADS {
        program = program.imm(Op::Lw, A3, Reg::SP, -8).op(Op::Add, Reg::A0, Reg::A0, A3);
    }
    let (program, executor) = (program.ret(), Executor::new().expect("a timer"));
    let code = program.code();
    let translation = translate(&code, &[], Options { result: true, ..Options::default() });
    let mut guest = Guest::new(OWN, &code, 0);
    let task = task(OWN, &code, Some(&translation));
    assert_eq!(executor.run(&mut guest.slot, &mut [], &task, &mut NoDevice), Exit::Returned);
    assert_eq!(guest.slot.result(), 3 * LOADS);
}

/// Nothing but the return reads a0 after the task was parked, and other tasks run meanwhile.
#[test]
fn the_value_outlives_parking() {
    let program = |value| {
        // No constant: that would be known at the return anyway.
        let program = Assembly::new().imm(Op::Addi, Reg::A0, Reg::A0, value).li(A2, DRIVER_BASE + COMMAND_WAIT);
        program.store(Op::Sw, A3, A2, 0).ret().code()
    };
    let codes = [program(0x111), program(0x222)];
    let executor = Executor::new().expect("a timer");
    let ways = translations().map(Some).chain([None]);
    for options in ways {
        let translation = |code: &Code| options.map(|options| translate(code, &[], options));
        let translations = [translation(&codes[0]), translation(&codes[1])];
        let (mut one, mut other) = (Guest::new(OWN, &codes[0], 0), Guest::new(OWN, &codes[1], 0));
        let tasks = [0, 1].map(|index| task(OWN, &codes[index], translations[index].as_ref()));
        let mut devices = [Waits::new(1), Waits::new(1)];
        let [first, second] = &mut devices;
        assert_eq!(executor.run(&mut one.slot, &mut [], &tasks[0], first), Exit::Parked);
        assert_eq!(executor.run(&mut other.slot, &mut [], &tasks[1], second), Exit::Parked);
        assert_eq!(executor.resume(&mut other.slot, &mut [], &tasks[1], second), Exit::Returned);
        assert_eq!(executor.resume(&mut one.slot, &mut [], &tasks[0], first), Exit::Returned);
        assert_eq!([one.slot.result(), other.slot.result()], [ARGUMENT + 0x111, ARGUMENT + 0x222], "{options:?}");
    }
}

/// Each task of a batch has its own, and they are there while the slot is bound.
#[test]
fn the_value_is_the_last_tasks() {
    // What the word below sp holds, which it counts up.
    let program = Assembly::new().imm(Op::Lw, Reg::A0, Reg::SP, -4).imm(Op::Addi, A2, Reg::A0, 1);
    let code = program.store(Op::Sw, A2, Reg::SP, -4).ret().code();
    let executor = Executor::new().expect("a timer");
    for options in translations().map(Some).chain([None]) {
        let translation = options.map(|options| translate(&code, &[], options));
        let mut guest = Guest::new(OWN, &code, 0);
        let task: Task<'_> = task(OWN, &code, translation.as_ref());
        let mut device = NoDevice;
        executor.bind(&mut guest.slot, &task, &mut device, |bound| {
            for count in 0..4 {
                assert_eq!((bound.run(&mut []), bound.result()), (Exit::Returned, count), "{options:?}");
            }
        });
    }
}

/// Who does not ask for results does not pay for them.
#[test]
fn nothing_is_kept_unless_asked_for() {
    let code = Assembly::new().imm(Op::Addi, Reg::A0, Reg::A0, 3).ret().code();
    let size = |result| translate(&code, &[], Options { result, ..Options::default() }).size().bytes;
    let nothing = translate(&Assembly::new().ret().code(), &[], Options::default()).size().bytes;
    assert_eq!(size(false), nothing, "what only a result needs is not computed");
    assert!(size(true) > nothing);
}
