//! The interpreter against `qemu-riscv32`, instruction by instruction.
//!
//! Programs of random operands cover every instruction and every compressed form. One ELF file goes to the loader
//! here and to qemu; registers and program counter are compared before each instruction, memory at the end.
//! Each snippet of a program lasts a few instructions and only goes forward, so every program ends.
//!
//! Programs of vector instructions run in one go: each appends what it computed to a log, and the logs are compared.
//! Which registers a vector instruction may name depends on the vector type; what is illegal here must be so for qemu.
//!
//! Not compared: CSR instructions (qemu's counters are the host's), `ebreak`, and `ecall` beyond the two the programs
//! end with; the interpreter's unit tests cover those.

#[path = "../support/mod.rs"]
mod support;

mod far;
mod generate;
mod program;
mod qemu;
mod random;
mod vectors;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use hpu_vm::compressed::{Form, expand};
use hpu_vm::inst::Format;
use hpu_vm::vector::{Configure, Length, NewType, VectorInst};
use hpu_vm::{Code, Device, Exit, Hart, Image, Op, Reg, Trap, View, run};
use program::{MACHINE, Program, SCRATCH, SCRATCH_SIZE};
use qemu::State;
use random::Random;
use spin_abi::fault::Cause;
use spin_abi::map::PROGRAM_BASE;

/// Times each operation and each form is generated per program.
const ROUNDS: usize = 30;
/// Seeds of the programs: failures name theirs.
const SEEDS: std::ops::Range<u64> = 1..13;

/// Number of the signal for illegal instructions.
const SIGILL: i32 = 4;

/// The two system calls the programs end with.
#[derive(Default)]
struct Linux {
    written: Vec<u8>,
}

impl Device for Linux {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn ecall(&mut self, hart: &mut Hart, view: &mut View<'_>) -> Result<(), Trap> {
        match hart.get(Reg::A7) {
            program::WRITE => {
                let len = hart.get(Reg::new(12));
                let address = hart.get(Reg::A1);
                view.kind_of(address, len).ok_or(Trap::Fault(Cause::LoadAccess))?;
                let mut bytes = vec![0; len as usize];
                view.copy_out(address, &mut bytes).ok_or(Trap::Fault(Cause::LoadAccess))?;
                self.written.append(&mut bytes);
                hart.set(Reg::A0, len);
                Ok(())
            }
            program::EXIT => Err(Trap::Finish),
            _ => Err(Trap::Fault(Cause::UnknownEcall)),
        }
    }
}

/// How often each operation and form was executed.
#[derive(Default)]
struct Coverage {
    ops: BTreeMap<Op, usize>,
    forms: BTreeMap<Form, usize>,
    taken: BTreeMap<(Op, bool), usize>,
    instructions: usize,
}

impl Coverage {
    /// Counts the instruction at `pc`, which was followed by the one at `next`.
    fn count(&mut self, code: &Code, pc: u32, next: u32) {
        let decoded = code.fetch(pc).expect("an instruction that was executed");
        self.instructions += 1;
        *self.ops.entry(decoded.inst.op).or_default() += 1;
        if decoded.inst.op.format() == Format::Branch {
            *self.taken.entry((decoded.inst.op, next != pc + u32::from(decoded.size))).or_default() += 1;
        }
        if decoded.size == 2 {
            let segment = &code.segments()[0];
            let at = (pc - segment.base) as usize;
            let half = u16::from_le_bytes([segment.bytes[at], segment.bytes[at + 1]]);
            *self.forms.entry(expand(half).expect("a compressed instruction").0).or_default() += 1;
        }
    }

    fn check(&self) {
        for &op in Op::ALL.iter().filter(|op| generate::is_generated(**op)) {
            let count = self.ops.get(&op).copied().unwrap_or(0);
            assert!(count >= ROUNDS, "{} was executed {count} times only", op.mnemonic());
            if op.format() == Format::Branch {
                for taken in [false, true] {
                    assert!(self.taken.contains_key(&(op, taken)), "{} never with taken = {taken}", op.mnemonic());
                }
            }
        }
        for &form in Form::ALL.iter().filter(|form| **form != Form::Ebreak) {
            let count = self.forms.get(&form).copied().unwrap_or(0);
            assert!(count >= ROUNDS, "{} was executed {count} times only", form.mnemonic());
        }
        assert!(self.instructions > 10_000, "{} instructions only", self.instructions);
    }
}

/// Runs `program` here and under qemu and compares every step.
fn compare(name: &str, program: &Program, coverage: &mut Coverage) {
    let file = program.elf();
    let expected = qemu::trace(name, &file, program.steps_at_most());
    let image = Image::load(&file, &MACHINE).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut memory = image.instantiate();
    let mut view = View::new();
    image.map_into(&mut view).unwrap();
    memory.map_into(&mut view).unwrap();

    let mut hart = Hart::new(0);
    let mut linux = Linux::default();
    let first = expected.states.first().unwrap_or_else(|| panic!("{name}: qemu executed nothing"));
    (hart.x, hart.pc) = (first.x, first.pc);
    for (step, now) in expected.states.iter().enumerate() {
        check_state(name, step, now, &hart, image.code());
        let exit = run(&mut hart, image.code(), &mut view, &mut linux, 1);
        coverage.count(image.code(), now.pc, hart.pc);
        match exit {
            Exit::Fault(fault) if fault.cause == Cause::InstructionLimit => {}
            Exit::Finished => assert_eq!(step + 1, expected.states.len(), "{name}: ended before qemu did"),
            other => panic!("{name}: step {step} at {:#x}: {other:?}", now.pc),
        }
    }
    assert_eq!(linux.written.len(), SCRATCH_SIZE as usize, "{name}: the program did not reach its end");
    assert_eq!(linux.written, expected.written, "{name}: memory differs");
    let mut scratch = vec![0; SCRATCH_SIZE as usize];
    view.copy_out(SCRATCH, &mut scratch).expect("the scratch area is there");
    assert_eq!(scratch, linux.written);
}

fn check_state(name: &str, step: usize, expected: &State, hart: &Hart, code: &Code) {
    if expected.x == hart.x && expected.pc == hart.pc {
        return;
    }
    let text = code.fetch(expected.pc).map_or_else(|| "nothing".to_owned(), |d| d.inst.to_string());
    let differing: Vec<String> = (0..32)
        .filter(|&i| expected.x[i] != hart.x[i])
        .map(|i| format!("x{i}: qemu {:#x}, here {:#x}", expected.x[i], hart.x[i]))
        .collect();
    panic!(
        "{name}: state before step {step} differs: pc qemu {:#x} (there: {text}), here {:#x}; {}",
        expected.pc,
        hart.pc,
        differing.join("; ")
    );
}

#[test]
fn every_instruction_does_what_qemu_does() {
    let mut coverage = Coverage::default();
    for seed in SEEDS {
        compare(&format!("seed {seed:#x}"), &generate::program(seed, ROUNDS), &mut coverage);
    }
    coverage.check();
}

#[test]
fn jumps_and_branches_reach_as_far_as_qemus() {
    compare("far jumps", &far::program(), &mut Coverage::default());
}

/// What `program` writes when it is run here in one go.
fn written(name: &str, program: &Program, file: &[u8]) -> Vec<u8> {
    let image = Image::load(file, &MACHINE).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut memory = image.instantiate();
    let mut view = View::new();
    image.map_into(&mut view).unwrap();
    memory.map_into(&mut view).unwrap();
    let (mut hart, mut linux) = (Hart::new(0), Linux::default());
    hart.pc = PROGRAM_BASE;
    let exit = run(&mut hart, image.code(), &mut view, &mut linux, program.steps_at_most() as u64);
    assert_eq!(exit, Exit::Finished, "{name}: at {:#x}", hart.pc);
    linux.written
}

fn compare_vectors(name: &str, coverage: &mut vectors::Coverage, seed: u64) {
    let vectors::Vectors { program, log } = vectors::program(seed, coverage);
    let file = program.elf();
    let expected = qemu::run(name, &file).unwrap_or_else(|status| panic!("{name}: qemu ended with {status}"));
    let found = written(name, &program, &file);
    assert_eq!(found.len(), expected.len(), "{name}");
    if let Some(at) = (0..found.len()).find(|&at| found[at] != expected[at]) {
        let address = SCRATCH + u32::try_from(at).unwrap();
        let (start, snippet) = log.range(..=address).next_back().expect("only the log is written");
        let (qemu, here) = (expected[at], found[at]);
        panic!("{name}: {snippet}: byte {} of its log: qemu {qemu:#x}, here {here:#x}", address - start);
    }
}

#[test]
fn every_vector_instruction_does_what_qemu_does() {
    let mut coverage = vectors::Coverage::default();
    for seed in 1..=ROUNDS as u64 {
        compare_vectors(&format!("vectors {seed:#x}"), &mut coverage, seed);
    }
    coverage.check(ROUNDS);
}

#[test]
fn illegal_vector_operands_are_illegal_for_qemu() {
    let mut random = Random::new(1);
    for number in 0..60 {
        let (bits, inst) = vectors::illegal(&mut random);
        let none = Configure { rd: Reg::ZERO, length: Length::Immediate(0), vtype: NewType::Immediate(bits) };
        let mut program = Program::new(vec![0; SCRATCH_SIZE as usize]);
        program.inst(VectorInst::Configure(none).into());
        program.inst(inst.into());
        program.finish();
        let status = qemu::run(&format!("illegal {number}"), &program.elf()).err();
        let signal = status.and_then(|status| status.signal().or_else(|| Some(status.code()? - 128)));
        assert_eq!(signal, Some(SIGILL), "{inst} with vtype {bits:#x}");
    }
}
