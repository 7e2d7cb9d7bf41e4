//! Handlers that read the cycle counter around code that they share with others.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, Assembly, S0, S1, T1};
use guest::{CODE, Guest, OWN, task, translate};
use hpu_vm::jit::{Atomics, Executor, Options, Translation};
use hpu_vm::{Checks, Exit, NoDevice, Op, Reg};
use spin_abi::map::L2_BASE;

/// Number of the counter.
const CYCLE: i32 = 0xc00;
/// Number of instructions of the function, without its return.
const WORK: u32 = 50;
const FUNCTION: u32 = CODE + 0x80;

/// The instructions of a function count, though it reads no counter itself.
#[test]
fn shared_functions_are_counted_between_two_readings() {
    let program = Assembly::new().imm(Op::Addi, S0, Reg::RA, 0).li(A2, L2_BASE).li(T1, FUNCTION);
    let program = program.imm(Op::Csrrs, S1, Reg::ZERO, CYCLE).imm(Op::Jalr, Reg::RA, T1, 0);
    let program = program.imm(Op::Csrrs, Reg::A0, Reg::ZERO, CYCLE).op(Op::Sub, Reg::A0, Reg::A0, S1);
    let program = program.store(Op::Sw, Reg::A0, A2, 0).imm(Op::Jalr, Reg::ZERO, S0, 0);
    let gap = (FUNCTION - program.pc()) as usize;
    let program = (0..WORK).fold(program.raw(&vec![0; gap]), |program, _| program.op(Op::Mul, T1, T1, T1)).ret();
    let code = program.code().with_functions([CODE, FUNCTION].into_iter());
    let executor = Executor::new().expect("a timer");
    let run = |translation: Option<&Translation>| {
        let mut guest = Guest::new(OWN, &code, 0);
        let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, translation), &mut NoDevice);
        assert_eq!(exit, Exit::Returned);
        guest.word(L2_BASE)
    };
    assert_eq!(run(None), WORK + 3);
    for checks in [Checks::Exact, Checks::Page] {
        for counting in [false, true] {
            let options = Options { checks, counting, atomics: Atomics::Home, ..Options::default() };
            assert_eq!(run(Some(&translate(&code, &[FUNCTION], options))), WORK + 3, "{options:?}");
        }
    }
}
