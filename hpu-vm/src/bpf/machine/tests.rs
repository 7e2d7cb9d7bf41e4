//! Each kind of instruction, its edge cases, and the programs that are refused.

mod arithmetic;
mod control;
mod memory;

use super::{Error, Fault, Machine, MapMemory};
use crate::bpf::assembler::Assembler;
use crate::bpf::insn::{Insn, MapIndex, Register, Size};

const R0: Register = Register::R0;
const R1: Register = Register::R1;
const R2: Register = Register::R2;
const R3: Register = Register::R3;
const R6: Register = Register::new(6);
const R7: Register = Register::new(7);
const R10: Register = Register::FRAME;

const LIMIT: u64 = 1000;

/// Loads 64 bits from a map of constants, which R6 points to.
fn constant(program: &mut Assembler, to: Register, map: MapIndex, number: usize) {
    let offset = u32::try_from(number * 8).expect("few constants");
    program.push(Insn::MapValue { to: R6, map, offset });
    program.load(Size::Double, to, R6, 0);
}

fn bytes_of(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Runs a program without maps on a frame of 64 bytes, 0 to 63.
fn run(build: impl FnOnce(&mut Assembler)) -> Result<u32, Error> {
    run_with(&mut (0..64).collect(), vec![], build)
}

/// Why a program without maps is refused.
fn fault(build: impl FnOnce(&mut Assembler)) -> Fault {
    run(build).expect_err("refused").fault
}

/// Runs a program. An exit is appended.
fn run_with(frame: &mut Vec<u8>, maps: Vec<MapMemory<'_>>, build: impl FnOnce(&mut Assembler)) -> Result<u32, Error> {
    let mut program = Assembler::default();
    build(&mut program);
    program.push(Insn::Exit);
    Machine::new(frame, maps).run(&program.finish(), LIMIT)
}
