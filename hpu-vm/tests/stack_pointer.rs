//! A stack pointer that was loaded may be a device's address, as any other register's value may: translated code, which takes the
//! stack's own accesses for memory's, finds what the interpreter finds.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, A3, A4, A5, Assembly, S0, T0, T2};
use guest::{Guest, OWN, Way, task, translate};
use hpu_vm::jit::{Executor, Limits, Task};
use hpu_vm::{Checks, Code, Device, Exit, Op, Reg, Trap, View};
use spin_abi::command::{Command, Status};
use spin_abi::fault::Cause;
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::{COMMAND_INFO, COMMAND_ISSUE, COMMAND_WORDS, INFO_SEND, TASK_FIRST};

struct Obliging;

impl Device for Obliging {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Ok(0x77)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Ok(())
    }

    fn issue(&mut self, _: &mut View<'_>, _: Result<Command, Status>) -> Result<u32, Cause> {
        Ok(1)
    }
}

/// Runs a handler whose first data word is `pointer`; returns how it ended, what the second word is then, and whether a device was taken
/// for memory.
fn run(executor: &Executor, way: Way, code: &Code, pointer: u32) -> (Exit, u32, bool) {
    let mut guest = Guest::new(OWN, code, 0);
    guest.slot.view().set_checks(way.checks);
    guest.set_word(OWN.data, pointer);
    let translation = way.options.map(|options| translate(code, &[], options));
    let limits = Limits { time: None, instructions: way.counts().then_some(1000) };
    let task = Task { limits, ..task(OWN, code, translation.as_ref()) };
    let exit = executor.run(&mut guest.slot, &mut guest.frame, &task, &mut Obliging);
    (exit, guest.word(OWN.data + 4), guest.slot.device_touched())
}

fn compare(name: &str, code: &Code, pointer: u32) {
    let executor = Executor::new().expect("a timer");
    for checks in [Checks::Page, Checks::Exact] {
        let (exit, word, _) = run(&executor, Way::interpreter(checks), code, pointer);
        assert_eq!(exit, Exit::Returned, "{name}");
        for way in Way::translated(checks) {
            let (found, found_word, touched) = run(&executor, way, code, pointer);
            // Such a translation is made anew, for devices anywhere.
            let expects_memory = way.options.is_some_and(|options| !options.any_device);
            if !(touched && expects_memory) {
                assert_eq!((found, found_word), (exit, word), "{name}, {}", way.name());
            }
        }
    }
}

#[test]
fn it_may_point_to_the_command_registers() {
    for (pointer, issues) in [Reg::SP, A4].into_iter().flat_map(|pointer| [(pointer, true), (pointer, false)]) {
        let mut program = Assembly::new().li(S0, OWN.data).li(T2, DRIVER_BASE).li(A2, 0x1234);
        let offset = |register: u32| i32::try_from(register).expect("in the page");
        if issues {
            for word in 0..5 {
                program = program.store(Op::Sw, A2, T2, offset(COMMAND_WORDS + 4 * word));
            }
            program = program.li(T0, INFO_SEND).store(Op::Sw, T0, T2, offset(COMMAND_INFO));
            program = program.imm(Op::Lw, A3, T2, offset(COMMAND_ISSUE));
        }
        let program = program.imm(Op::Lw, pointer, S0, 0).imm(Op::Lw, A5, pointer, 4).store(Op::Sw, A5, S0, 4).ret();
        compare(&format!("{pointer}, issues: {issues}"), &program.code(), DRIVER_BASE + COMMAND_WORDS);
    }
}

#[test]
fn vectors_may_be_of_task_registers() {
    for pointer in [Reg::SP, A4] {
        let program = Assembly::new().li(S0, OWN.data).imm(Op::Lw, pointer, S0, 0).li(A2, 4).vsetvli(T0, A2, 0xc0);
        let program = program.vle8(8, pointer).imm(Op::Addi, A3, S0, 4).vse8(8, A3).ret();
        compare(&pointer.to_string(), &program.code(), DRIVER_BASE + TASK_FIRST);
    }
}
