//! Code that is rarely executed may lead back to other code, with other values in the registers than a handler has there.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, A3, A4, Assembly, S0, T1};
use guest::{CODE, Guest, OWN, Way};
use hpu_vm::jit::Executor;
use hpu_vm::{Checks, Device, Exit, Op, Reg, Trap, View};
use spin_abi::command::{Command, Status};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, L2_BASE, TASK_BLOCK};
use spin_abi::regs::{COMMAND_INFO, COMMAND_ISSUE, COMMAND_WORDS, INFO_SEND};

/// What programs load, and store.
const VALUE: u32 = 77;
/// Where the parts of the programs begin.
const JOINED: u32 = CODE + 0x80;
const SHORT: u32 = CODE + 0x90;
const LONG: u32 = CODE + 0xa0;
const COLD: u32 = CODE + 0xc0;

fn at(program: Assembly, address: u32) -> Assembly {
    let gap = (address - program.pc()) as usize;
    program.raw(&vec![0; gap])
}

/// Accepts commands.
struct Commands;

impl Device for Commands {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn issue(&mut self, _: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        command.map(|_| 1).map_err(|_| Cause::DeviceAccess)
    }
}

/// Runs a program whose code from [`COLD`] on is rarely executed. It loads [`VALUE`] from below its stack, and stores it.
fn stores_the_value(program: &Assembly) {
    let code = program.code().with_cold(std::iter::once(COLD..program.pc()));
    let executor = Executor::new().expect("a timer");
    for checks in [Checks::Exact, Checks::Page] {
        for way in std::iter::once(Way::interpreter(checks)).chain(Way::translated(checks)) {
            let mut guest = Guest::new(OWN, &code, 0);
            guest.set_word(OWN.stack_end() - TASK_BLOCK - 4, VALUE);
            let exit = way.run(&executor, &mut guest, OWN, (&code, &[SHORT, LONG]), 100, &mut Commands);
            assert_eq!((exit, guest.word(L2_BASE)), (Exit::Returned, VALUE), "{}", way.name());
        }
    }
}

fn load_value() -> Assembly {
    Assembly::new().imm(Op::Lw, S0, Reg::SP, -4).li(A2, L2_BASE)
}

/// The handler jumps to an address that it knows. The cold code makes that another one, where a register is stored.
#[test]
fn cold_code_changes_the_target_of_a_jump() {
    let program = load_value().li(T1, SHORT).branch(Op::Bne, S0, Reg::ZERO, COLD).jal(Reg::ZERO, JOINED);
    let program = at(program, JOINED).imm(Op::Jalr, Reg::ZERO, T1, 0);
    let program = at(program, SHORT).ret();
    let program = at(program, LONG).store(Op::Sw, S0, A2, 0).ret();
    stores_the_value(&at(program, COLD).li(T1, LONG).jal(Reg::ZERO, JOINED));
}

/// A send of the value, and a jump to cold code.
fn send_value() -> Assembly {
    let program = load_value().li(T1, L2_BASE).li(A3, DRIVER_BASE);
    let words = (0..5).map(|word| (if word == 2 { S0 } else { Reg::ZERO }, COMMAND_WORDS + 4 * word));
    let program = words.fold(program, |program, (reg, at)| program.store(Op::Sw, reg, A3, at.cast_signed()));
    let program = program.li(A4, INFO_SEND).store(Op::Sw, A4, A3, COMMAND_INFO.cast_signed());
    let program = program.imm(Op::Lw, A4, A3, COMMAND_ISSUE.cast_signed());
    program.branch(Op::Bne, S0, Reg::ZERO, COLD)
}

/// Offset in the driver page of the word of the command that is the value.
const WORD: i32 = COMMAND_WORDS.cast_signed() + 8;

/// The handler reads a word of memory where the cold code makes it read one of the command.
#[test]
fn cold_code_changes_the_address_of_a_load() {
    let program = at(send_value().jal(Reg::ZERO, LONG), LONG);
    let program = program.imm(Op::Lw, A4, T1, WORD).store(Op::Sw, A4, A2, 0).ret();
    stores_the_value(&at(program, COLD).op(Op::Add, T1, Reg::ZERO, A3).jal(Reg::ZERO, LONG));
}

/// The cold code loads an address of which only its own region knows that it may be a device's.
#[test]
fn cold_code_loads_the_address_of_a_device() {
    let program = at(send_value().ret(), COLD).store(Op::Sw, A3, Reg::SP, -8).imm(Op::Lw, T1, Reg::SP, -8);
    stores_the_value(&program.imm(Op::Lw, A4, T1, WORD).store(Op::Sw, A4, A2, 0).ret());
}
