//! Atomics on task registers, whose address was not seen in the code.

use hpu_vm::jit::Executor;
use hpu_vm::{Checks, Exit, NoDevice, Op, Reg};
use spin_abi::map::{DRIVER_BASE, TASK_BLOCK};
use spin_abi::regs::TASK_FIRST;

use crate::L2;
use crate::assembly::{A2, A3, A4, Assembly};
use crate::guest::{Guest, OWN, Way};

#[test]
fn task_registers_are_memory_to_atomics_as_well() {
    let register = OWN.stack_end() - TASK_BLOCK;
    let add = Assembly::new().li(A2, L2).imm(Op::Lw, A3, A2, 0).li(A4, 5).op(Op::AmoaddW, Reg::ZERO, A3, A4);
    let swap = add.op(Op::LrW, A4, A3, Reg::ZERO).imm(Op::Addi, A4, A4, 2).op(Op::ScW, A2, A3, A4);
    let code = swap.ret().code();
    let executor = Executor::new().expect("a timer");
    for checks in [Checks::Page, Checks::Exact] {
        let ways = Way::translated(checks).filter(|way| way.options.is_some_and(|options| options.any_device));
        for way in ways.chain([Way::interpreter(checks)]) {
            let mut guest = Guest::new(OWN, &code, 0);
            guest.set_word(L2, DRIVER_BASE + TASK_FIRST);
            guest.set_word(register, 100);
            let exit = way.run(&executor, &mut guest, OWN, (&code, &[]), 1000, &mut NoDevice);
            assert_eq!((exit, guest.word(register)), (Exit::Returned, 107), "{}", way.name());
        }
    }
}
