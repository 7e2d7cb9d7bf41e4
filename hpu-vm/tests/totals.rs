//! Loops that add to registers: whatever else they do with those, they have what the interpreter has.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, A3, A4, A5, Assembly, S0, S1, T0, T1, T2};
use guest::{Guest, OWN, Way, task, translate};
use hpu_vm::jit::{Executor, Limits, Task};
use hpu_vm::{Checks, Code, Exit, Inst, NoDevice, Op, Reg};
use proptest::prelude::*;
use proptest::sample::select;
use spin_abi::map::PAGE;

/// What loops compute with; they begin with data words.
const REGISTERS: [Reg; 7] = [A2, A3, A4, A5, T0, T2, S1];
const TURNS: u32 = 5;
/// Where their ends are in the data.
const ENDS: i32 = 128;

/// A loop of `body`, and what it leaves in all registers.
fn program(body: &[Inst]) -> Code {
    let slots = (0..).step_by(4).zip(REGISTERS);
    let begin = Assembly::new().li(S0, OWN.data).li(T1, TURNS);
    let begin = slots.clone().fold(begin, |program, (at, reg)| program.imm(Op::Lw, reg, S0, at));
    let again = begin.pc();
    let program = body.iter().fold(begin, |program, inst| program.inst(*inst));
    let program = program.imm(Op::Addi, T1, T1, -1).branch(Op::Bne, T1, Reg::ZERO, again);
    slots.fold(program, |program, (at, reg)| program.store(Op::Sw, reg, S0, ENDS + at)).ret().code()
}

fn register() -> impl Strategy<Value = Reg> {
    select(REGISTERS.to_vec())
}

/// Mostly additions to few registers.
fn instruction() -> impl Strategy<Value = Inst> {
    let few = || prop_oneof![3 => select(vec![A2, A3]), 1 => register(), ];
    let add = (few(), few(), register(), any::<bool>()).prop_map(|(rd, rs1, rs2, swap)| {
        let (rs1, rs2) = if swap { (rs2, rs1) } else { (rs1, rs2) };
        Inst::new(Op::Add).rd(rd).rs1(rs1).rs2(rs2)
    });
    let other = (select(vec![Op::Sub, Op::Sltu, Op::Mul, Op::Xor]), register(), register(), register())
        .prop_map(|(op, rd, rs1, rs2)| Inst::new(op).rd(rd).rs1(rs1).rs2(rs2));
    let load = (register(), 0..32_i32).prop_map(|(rd, word)| Inst::new(Op::Lw).rd(rd).rs1(S0).imm(4 * word));
    // Of wherever that leads.
    let far = (register(), register()).prop_map(|(rd, rs1)| Inst::new(Op::Lw).rd(rd).rs1(rs1));
    let store = (register(), 16..32_i32).prop_map(|(rs2, word)| Inst::new(Op::Sw).rs1(S0).rs2(rs2).imm(4 * word));
    prop_oneof![12 => add, 2 => other, 3 => load, 1 => far, 1 => store]
}

fn run(executor: &Executor, checks: Checks, task: &Task<'_>, data: &[u32]) -> (Exit, Vec<u8>) {
    let mut guest = Guest::new(OWN, task.code, 1);
    guest.slot.view().set_checks(checks);
    (OWN.data..).step_by(4).zip(data).for_each(|(at, word)| guest.set_word(at, *word));
    let exit = executor.run(&mut guest.slot, &mut guest.frame, task, &mut NoDevice);
    (exit, guest.memory())
}

proptest! {
    #[test]
    fn what_is_added_up_is_what_the_interpreter_adds_up(
        body in prop::collection::vec(instruction(), 1..14),
        data in prop::collection::vec(prop_oneof![any::<u32>(), (0..PAGE).prop_map(|at| OWN.data + (at & !3))], 32),
    ) {
        let (executor, code) = (Executor::new().expect("a timer"), program(&body));
        for checks in [Checks::Page, Checks::Exact] {
            let expected = run(&executor, checks, &task(OWN, &code, None), &data);
            for way in Way::translated(checks) {
                let translation = way.options.map(|options| translate(&code, &[], options));
                let limits = Limits { time: None, instructions: way.counts().then_some(1000) };
                let task = Task { limits, ..task(OWN, &code, translation.as_ref()) };
                let found = run(&executor, checks, &task, &data);
                prop_assert_eq!(found.0, expected.0, "{}", way.name());
                prop_assert!(found.1 == expected.1, "{}: memory", way.name());
            }
        }
    }
}
