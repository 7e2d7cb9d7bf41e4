//! What is seen of a task's accesses to memory while it runs, or when it was ended: each of them, by interpreter and translation.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, A3, Assembly};
use guest::{Guest, OWN, task, translate};
use hpu_vm::jit::{Atomics, Executor, Limits, Options, Task, Translation};
use hpu_vm::{Checks, Code, Exit, NoDevice, Op, Reg};
use spin_abi::fault::{Cause, Fault};

/// Runs code in every way; what `check` is told is how it ended.
fn each_way(code: &Code, time: Option<u64>, check: impl Fn(&mut Guest, Exit)) {
    let executor = Executor::new().expect("a timer");
    let run = |translation: Option<&Translation>| {
        let mut guest = Guest::new(OWN, code, 0);
        let limits = Limits { time, instructions: None };
        let task = Task { limits, ..task(OWN, code, translation) };
        let exit = executor.run(&mut guest.slot, &mut [], &task, &mut NoDevice);
        check(&mut guest, exit);
    };
    run(None);
    for checks in [Checks::Page, Checks::Exact] {
        for (atomics, observe) in [(Atomics::Shared, false), (Atomics::Home, true)] {
            run(Some(&translate(code, &[], Options { checks, atomics, observe, ..Options::default() })));
        }
    }
}

#[test]
fn what_was_stored_before_an_endless_loop_is_there() {
    let program = Assembly::new().li(A2, OWN.data).li(A3, 0x55).store(Op::Sw, A3, A2, 0).li(A3, 0);
    let top = program.pc();
    // A3 is even, always.
    let program =
        program.imm(Op::Addi, A3, A3, 2).imm(Op::Andi, Reg::A1, A3, 1).branch(Op::Beq, Reg::A1, Reg::ZERO, top);
    let code = program.store(Op::Sw, Reg::ZERO, A2, 0).ret().code();
    each_way(&code, Some(2000), |guest, exit| {
        assert!(matches!(exit, Exit::Fault(Fault { cause, .. }) if cause.is_limit()), "{exit:?}");
        assert_eq!(guest.word(OWN.data), 0x55);
    });
}

#[test]
fn the_first_of_two_stores_to_the_same_place_faults() {
    for op in [Op::Sb, Op::Sw] {
        let program = Assembly::new().li(A2, 0x100);
        let first = program.pc();
        let code = program.store(op, A3, A2, 8).store(op, Reg::A0, A2, 8).ret().code();
        each_way(&code, None, |_, exit| {
            assert_eq!(exit, Exit::Fault(Fault { cause: Cause::StoreAccess, pc: first, address: 0x108 }));
        });
    }
}
