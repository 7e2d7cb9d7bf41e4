//! Blocks with several AMOs are translated twice, for words in L1 and for others: both do what the block says.

use hpu_vm::jit::{Atomics, Executor, Options};
use hpu_vm::{Exit, NoDevice, Op, Reg};

use crate::assembly::{A2, A3, A4, A5, Assembly, T0, T1};
use crate::guest::{Guest, OWN, task, translate};
use crate::{L1, L2};

const ALL_ONES: u8 = 0xff;
/// `vmv.x.s x16, v1`
const FIRST_TO_SCALAR: u32 = 0x10 << 26 | 1 << 25 | 1 << 20 | 2 << 12 | 16 << 7 | 0x57;
/// `vmv.s.x v1, x14`
const SCALAR_TO_FIRST: u32 = 0x10 << 26 | 1 << 25 | 14 << 15 | 6 << 12 | 1 << 7 | 0x57;

/// Begins the next instruction's block.
fn begin_block(program: Assembly) -> Assembly {
    let next = program.pc() + 4;
    program.branch(Op::Bne, Reg::A0, Reg::ZERO, next)
}

fn amos(program: Assembly) -> Assembly {
    program.op(Op::AmoaddW, T0, A2, A5).op(Op::AmoaddW, T1, A2, A5)
}

/// Runs a program on a word in L1 or L2 at a2, and memory around it at a3 and a4.
fn results(program: &dyn Fn(Assembly) -> Assembly) {
    let executor = Executor::new().expect("a timer");
    for word in [L1, L2] {
        let code = program(Assembly::new().li(A2, word).li(A3, word + 64).li(A4, word + 128)).code();
        let run = |atomics: Option<Atomics>| {
            let translation = atomics.map(|atomics| translate(&code, &[], Options { atomics, ..Options::default() }));
            let mut guest = Guest::new(OWN, &code, ALL_ONES);
            let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, translation.as_ref()), &mut NoDevice);
            (exit, guest.memory())
        };
        let (exit, memory) = run(None);
        assert_eq!(exit, Exit::Returned);
        for atomics in [Atomics::Shared, Atomics::Home] {
            let (other, changed) = run(Some(atomics));
            assert_eq!(other, exit, "{atomics:?}, {word:#x}");
            assert!(changed == memory, "memory differs: {atomics:?}, {word:#x}");
        }
    }
}

#[test]
fn a_vector_type_is_that_of_the_place() {
    results(&|program| {
        let program = begin_block(program.vsetvli(A5, Reg::ZERO, 0).vle8(1, A3)).vadd(2, 1, 1);
        amos(program).vsetvli(A5, Reg::ZERO, 0x10).vse32(2, A4).ret()
    });
}

#[test]
fn a_first_element_is_that_of_the_place() {
    results(&|program| {
        let program = begin_block(program.vsetvli(A5, Reg::ZERO, 0x10)).raw(&FIRST_TO_SCALAR.to_le_bytes());
        let program = amos(program).imm(Op::Lw, A4, A2, 4).raw(&SCALAR_TO_FIRST.to_le_bytes());
        program.store(Op::Sw, Reg::new(16), A2, 8).ret()
    });
}
