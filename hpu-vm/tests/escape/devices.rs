//! Devices that do not do what they usually do.

use hpu_vm::jit::{Executor, Limits, Options, Slot, Task};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Device, Exit, Hart, Inst, Op, RegionKind, Trap, View};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{PAGE, STDOUT_BASE, STDOUT_SIZE};

use crate::assembly::{A2, A3, A4, Assembly, Known};
use crate::guest::{CODE, Guest, OWN, task, translate};

/// Ends every task as the watchdog does.
struct Impatient;

impl Device for Impatient {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::Watchdog))
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::Watchdog))
    }

    fn ecall(&mut self, _: &mut Hart, _: &mut View<'_>) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::Watchdog))
    }
}

#[test]
fn a_device_may_end_a_task_as_the_watchdog_does() {
    let executor = Executor::new().expect("a timer");
    let begin = || Assembly::new().li(A2, STDOUT_BASE);
    let accesses = [
        (begin().imm(Op::Lw, A3, A2, 4), STDOUT_BASE + 4),
        (begin().store(Op::Sw, A3, A2, 8), STDOUT_BASE + 8),
        (begin().inst(Inst::new(Op::Ecall)), 0),
    ];
    for (program, address) in accesses {
        let code = program.ret().code();
        let translation = translate(&code, &[], Options::default());
        for translation in [None, Some(&translation)] {
            let mut guest = Guest::new(OWN, &code, 0);
            // One that went on would be ended too, but not at once.
            let limits = Limits { time: Some(60_000_000), instructions: None };
            let task = Task { limits, ..task(OWN, &code, translation) };
            let begin = std::time::Instant::now();
            let exit = executor.run(&mut guest.slot, &mut guest.frame, &task, &mut Impatient);
            let fault = Fault { cause: Cause::Watchdog, pc: CODE + 8, address };
            assert_eq!(exit, Exit::Fault(fault), "translated: {}", translation.is_some());
            assert!(begin.elapsed().as_secs() < 50, "{address:#x}: {:?}", begin.elapsed());
        }
    }
}

/// Takes anything.
struct Willing;

impl Device for Willing {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Ok(1)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Ok(())
    }
}

/// Data of 16 bytes lie right behind a device, and an access goes by the same register to each.
#[test]
fn an_access_to_a_device_does_not_stand_for_the_check_of_one_to_memory() {
    const DATA: u32 = STDOUT_BASE + STDOUT_SIZE;
    let executor = Executor::new().expect("a timer");
    let places = [(0, true), (12, true), (13, false), (0x40, false)];
    let ways = [(Known::Constant, false), (Known::Constant, true), (Known::Loaded, true)];
    for ((at, allowed), (known, any_device)) in places.into_iter().flat_map(|at| ways.map(|way| (at, way))) {
        let program = Assembly::new().address(A2, DATA - 16, known);
        let program = program.store(Op::Sb, A4, A2, 0).imm(Op::Lw, A3, A2, 16 + at);
        let (pc, code) = (program.pc() - 4, program.ret().code());
        let translation = translate(&code, &[], Options { any_device, ..Options::default() });
        for translation in [None, Some(&translation)] {
            let mut space = Space::new().expect("a space");
            let page = || Region::new(PAGE as usize).expect("memory");
            space.map(RegionKind::Data, DATA, &page(), 0, 16, Access::Write).expect("mapped");
            space.map(RegionKind::Stack, OWN.stack_end() - PAGE, &page(), 0, PAGE, Access::Write).expect("mapped");
            let mut slot = Slot::new(0, space);
            let exit = executor.run(&mut slot, &mut [], &task(OWN, &code, translation), &mut Willing);
            let fault = Fault { cause: Cause::LoadAccess, pc, address: DATA.wrapping_add_signed(at) };
            let expected = if allowed { Exit::Returned } else { Exit::Fault(fault) };
            assert_eq!(exit, expected, "{at:#x}, {known:?}, translated: {}", translation.is_some());
        }
    }
}
