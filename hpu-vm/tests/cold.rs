//! Handlers with code that is rarely executed are translated whenever they would be without.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use std::collections::BTreeSet;

use assembly::{Assembly, S0, T1};
use guest::{CODE, OWN};
use hpu_vm::jit::{Options, Source, TranslateError, Translation};
use hpu_vm::{Code, Op, Reg};

fn translates(code: &Code, options: Options) -> Result<(), TranslateError> {
    Translation::new(Source { code, entries: &[CODE], taken: &BTreeSet::new() }, options).map(|_| ())
}

/// Each function leaves all registers to the next.
#[test]
fn cold_code_of_many_functions() {
    const FUNCTIONS: u32 = 700;
    const COMPUTES: u32 = 25;
    let mut program = Assembly::new().li(S0, OWN.data);
    for number in 9..32 {
        program = program.imm(Op::Lw, Reg::new(number), S0, 4 * number.cast_signed());
    }
    let first = program.pc() + 12;
    let at = |function: u32| first + 4 * (COMPUTES + 1) * function;
    let over = program.pc() + 8;
    program = program.branch(Op::Beq, Reg::new(9), Reg::new(10), over).jal(Reg::ZERO, at(0)).ret();
    for function in 0..FUNCTIONS {
        for number in 0..COMPUTES {
            let [to, from] = [function * 5 + number, function * 3 + number * 7].map(|reg| Reg::new(9 + reg % 23));
            program = program.op(if number % 2 == 0 { Op::Mul } else { Op::Xor }, to, to, from);
        }
        program = program.jal(Reg::ZERO, at((function + 1) % FUNCTIONS));
    }
    let cold = std::iter::once(at(0)..at(FUNCTIONS));
    let split = program.code().with_functions((0..FUNCTIONS).map(at).chain([CODE])).with_cold(cold);
    let options = Options { counting: true, ..Options::default() };
    assert_eq!(translates(&program.code(), options), Ok(()));
    assert_eq!(translates(&split, options), Ok(()));
}

/// A shared function contains its cold code, unless that is another function.
#[test]
fn cold_code_of_a_shared_function() {
    let function = CODE + 32;
    let program = Assembly::new().imm(Op::Addi, S0, Reg::RA, 0).li(T1, function).imm(Op::Jalr, Reg::RA, T1, 0);
    let program = program.imm(Op::Jalr, Reg::ZERO, S0, 0);
    let gap = (function - program.pc()) as usize;
    let program = program.raw(&vec![0; gap]).branch(Op::Beq, Reg::A0, Reg::ZERO, function + 8).ret();
    let program = program.imm(Op::Addi, Reg::A0, Reg::A0, 1).ret();
    let taken = BTreeSet::from([function]);
    let size = |code: &Code| {
        let source = Source { code, entries: &[CODE], taken: &taken };
        let translation = Translation::new(source, Options::default()).expect("a few instructions");
        translation.size().instructions
    };
    let cold = program.code().with_cold(std::iter::once(function + 8..program.pc()));
    assert_eq!(size(&cold), size(&program.code()));
}
