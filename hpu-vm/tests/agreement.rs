//! Programs that tell translations apart from the interpreter where knowledge of addresses meets that of registers.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, A3, A4, A5, Assembly, S0, T0, T1};
use guest::{Guest, OWN, Way, task, translate};
use hpu_vm::jit::{Executor, Limits, Slot, Task};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Checks, Code, Device, Exit, Hart, Inst, Op, Reg, RegionKind, Trap, View};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, PAGE, PERIPHERALS, TASK_BLOCK};
use spin_abi::regs::TASK_FIRST;

/// What an `ecall` counts for.
const CHARGE: u64 = 100;

/// Takes everything, and has `ecall`s count for much.
#[derive(Default)]
struct Permissive {
    charge: u64,
}

impl Device for Permissive {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Ok(0)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Ok(())
    }

    fn ecall(&mut self, _: &mut Hart, _: &mut View<'_>) -> Result<(), Trap> {
        self.charge += CHARGE;
        Ok(())
    }

    fn take_charge(&mut self) -> u64 {
        std::mem::take(&mut self.charge)
    }
}

fn ways() -> impl Iterator<Item = Way> {
    [Checks::Page, Checks::Exact]
        .into_iter()
        .flat_map(|checks| std::iter::once(Way::interpreter(checks)).chain(Way::translated(checks)))
}

/// Runs code in every way, or every one that counts if it is not to return, at most `limit` instructions: whether it returns, and the words of data that are to be there then.
fn everywhere(code: &Code, limit: u64, returns: bool, words: &[u32]) {
    let executor = Executor::new().expect("a timer");
    for way in ways().filter(|way| returns || way.counts()) {
        let mut guest = Guest::new(OWN, code, 0);
        let exit = way.run(&executor, &mut guest, OWN, (code, &[]), limit, &mut Permissive::default());
        let found: Vec<u32> = (0..).step_by(4).map(|at| guest.word(OWN.data + at)).take(words.len()).collect();
        assert_eq!((exit == Exit::Returned, &*found), (returns, words), "{}: {exit:?}", way.name());
    }
}

fn reserve(program: Assembly, at: Reg) -> Assembly {
    program.inst(Inst::new(Op::LrW).rd(T0).rs1(at))
}

#[test]
fn a_word_is_reserved_by_whatever_address_it_has() {
    let program =
        Assembly::new().li(A2, DRIVER_BASE + TASK_FIRST).li(A3, OWN.stack_end() - TASK_BLOCK).li(A5, OWN.data);
    let program = reserve(program, A2).op(Op::ScW, T1, A3, A4).store(Op::Sw, T1, A5, 0);
    let program = reserve(program, A3).op(Op::ScW, T1, A2, A4).store(Op::Sw, T1, A5, 4);
    everywhere(&program.ret().code(), 1000, true, &[0, 0]);
}

/// The interpreter does what is behind an instruction that no code is made of.
#[test]
fn a_word_that_was_reserved_is_still_when_the_interpreter_goes_on() {
    let program = Assembly::new().li(A2, DRIVER_BASE + TASK_FIRST).li(A5, OWN.data).li(T1, 7);
    let program = reserve(program, A2).inst(Inst::new(Op::Csrrw).rs1(Reg::ZERO).imm(0xb00));
    everywhere(&program.op(Op::ScW, T1, A2, A4).store(Op::Sw, T1, A5, 0).ret().code(), 1000, true, &[0]);
}

#[test]
fn what_an_ecall_counts_for_ends_the_task_behind_it() {
    let program = Assembly::new().li(A5, OWN.data).li(T1, 7).inst(Inst::new(Op::Ecall));
    everywhere(&program.store(Op::Sw, T1, A5, 0).ret().code(), CHARGE / 2, false, &[0]);
}

/// An address made of the return address that was loaded is a device's for certain: it is no memory that a check of its
/// neighbours could be made with.
#[test]
fn what_lies_before_a_device_is_checked_to_the_byte() {
    const MAPPED: u32 = 0x10;
    let program = Assembly::new().imm(Op::Addi, S0, Reg::RA, 0);
    let function = program.pc() + 8;
    let program = program.jal(Reg::RA, function);
    let back = program.pc();
    let program = program.imm(Op::Jalr, Reg::ZERO, S0, 0);
    let program = program.imm(Op::Addi, Reg::SP, Reg::SP, -16).store(Op::Sw, Reg::RA, Reg::SP, 12);
    let program = program.imm(Op::Lw, Reg::RA, Reg::SP, 12).imm(Op::Addi, Reg::SP, Reg::SP, 16);
    let program = program.li(T0, PERIPHERALS.wrapping_sub(back)).op(Op::Add, T0, Reg::RA, T0).li(T1, 7);
    let code = program.store(Op::Sw, T1, T0, 8).store(Op::Sw, T1, T0, -8).ret().code();
    let executor = Executor::new().expect("a timer");
    for way in ways().filter(|way| way.checks == Checks::Exact) {
        let mut space = Space::new().expect("a space");
        let [region, stack] = [(); 2].map(|()| Region::new(PAGE as usize).expect("memory"));
        let kinds = [
            (RegionKind::HandlerMemory, PERIPHERALS - PAGE, &region, MAPPED),
            (RegionKind::Stack, OWN.stack_end() - PAGE, &stack, PAGE),
        ];
        for (kind, base, region, len) in kinds {
            space.map(kind, base, region, 0, len, Access::Write).expect("mapped");
        }
        space.map_l2_packet(OWN.l2_packet()).expect("mapped");
        space.set_task_alias(OWN.stack_end() - TASK_BLOCK);
        space.view().set_checks(way.checks);
        let mut slot = Slot::new(0, space);
        let translation = way.options.map(|options| translate(&code, &[], options));
        let limits = Limits { time: None, instructions: Some(1000) };
        let task = Task { limits, ..task(OWN, &code, translation.as_ref()) };
        let exit = executor.run(&mut slot, &mut [], &task, &mut Permissive::default());
        assert!(matches!(exit, Exit::Fault(fault) if fault.cause == Cause::StoreAccess), "{}: {exit:?}", way.name());
        let mut word = [0; 4];
        region.read(PAGE as usize - 8, &mut word).expect("the page");
        assert_eq!(word, [0; 4], "{}", way.name());
    }
}
