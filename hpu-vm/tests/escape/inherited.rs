//! What a task learns of the one before it in its slot: nothing.

use hpu_vm::jit::{Executor, Options};
use hpu_vm::{Code, Exit, Inst, NoDevice, Op, Reg};
use spin_abi::fault::Cause;

use crate::assembly::{A2, A3, A4, Assembly, Known};
use crate::guest::{CODE, Guest, OWN, task, translate};

/// What `vtype` reads when it is illegal.
const VILL: u32 = 1 << 31;
/// Numbers of `vl` and `vtype`.
const CSRS: [i32; 2] = [0xc20, 0xc21];

/// The body, a jump to it that no translator follows, or one to a function of its own.
fn programs(body: &dyn Fn(Assembly) -> Assembly) -> [Code; 3] {
    let len = Assembly::new().address(A2, CODE, Known::Loaded).imm(Op::Jalr, Reg::ZERO, A2, 0).pc();
    let aside = Assembly::new().address(A2, len, Known::Loaded).imm(Op::Jalr, Reg::ZERO, A2, 0);
    // Seldom, as far as a translator can tell.
    let apart = Assembly::new().branch(Op::Beq, Reg::A0, Reg::ZERO, CODE + 8).jal(Reg::ZERO, CODE + 12).ret();
    let functions = [CODE, apart.pc()].into_iter();
    [body(Assembly::new()).code(), body(aside).code(), body(apart).code().with_functions(functions)]
}

/// Stores `vl` and `vtype` to data.
fn tell(program: Assembly) -> Assembly {
    let read = |program: Assembly, rd, csr| program.inst(Inst::new(Op::Csrrs).rd(rd).imm(csr));
    let program = read(read(program, A3, CSRS[0]), A4, CSRS[1]);
    program.li(A2, OWN.data).store(Op::Sw, A3, A2, 0).store(Op::Sw, A4, A2, 4).ret()
}

#[test]
fn vector_type_and_length_are_those_of_a_new_task() {
    let executor = Executor::new().expect("a timer");
    let before = Assembly::new().vsetvli(Reg::A0, Reg::ZERO, 0).ret().code();
    let set = translate(&before, &[], Options::default());
    let told = programs(&tell).map(|code| (code, Exit::Returned));
    let uses = programs(&|program| program.vadd(1, 2, 3).ret()).map(|code| {
        // `vadd.vv` is the instruction before the last.
        let at = CODE + u32::try_from(code.segments()[0].bytes.len()).unwrap() - 8;
        let bits = u32::from_le_bytes(*code.segments()[0].bytes[(at - CODE) as usize..].first_chunk().unwrap());
        let fault = spin_abi::fault::Fault { cause: Cause::IllegalInstruction, pc: at, address: bits };
        (code, Exit::Fault(fault))
    });
    for (code, ends) in told.into_iter().chain(uses) {
        let translation = translate(&code, &[], Options::default());
        for first in [None, Some(&set)] {
            for second in [None, Some(&translation)] {
                let mut guest = Guest::new(OWN, &code, 0);
                let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &before, first), &mut NoDevice);
                assert_eq!(exit, Exit::Returned);
                let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, second), &mut NoDevice);
                let ways = (first.is_some(), second.is_some());
                assert_eq!(exit, ends, "translated: {ways:?}");
                let expected = if exit == Exit::Returned { [0, VILL] } else { [0; 2] };
                assert_eq!([0, 4].map(|at| guest.word(OWN.data + at)), expected, "translated: {ways:?}");
            }
        }
    }
}

#[test]
fn registers_that_were_set_between_tasks_are_those_of_a_new_task() {
    let executor = Executor::new().expect("a timer");
    for code in programs(&|program| program.li(A3, OWN.data).vsetvli(A4, Reg::ZERO, 0).vse8(1, A3).ret()) {
        let translation = translate(&code, &[], Options::default());
        for translation in [None, Some(&translation)] {
            let mut guest = Guest::new(OWN, &code, 0x11);
            guest.slot.hart_mut().vector.v[1] = [0x77; 16];
            let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, translation), &mut NoDevice);
            assert_eq!((exit, guest.word(OWN.data)), (Exit::Returned, 0), "translated: {}", translation.is_some());
        }
    }
}
