use super::{Exit, run};
use crate::code::Code;
use crate::device::{Device, NoDevice, Trap};
use crate::hart::Hart;
use crate::inst::{Inst, Op, Reg};
use crate::view::{Memory, Range, RegionKind, View};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{DRIVER_BASE, RETURN_ADDRESS, STDOUT_BASE};
use spin_abi::regs::DOORBELL;

const CODE: u32 = 0x1d00_0000;
const DATA: u32 = 0x1c00_0000;
const STACK: u32 = 0x1000_1000;
const A0: Reg = Reg::A0;
const A1: Reg = Reg::A1;
const A2: Reg = Reg::new(12);

const RET: Inst = Inst::new(Op::Jalr).rs1(Reg::RA);

fn assemble(program: &[Inst]) -> Code {
    Code::of(CODE, program)
}

/// A task over 16 bytes of data and 16 of stack.
struct Task {
    hart: Hart,
    data: [u8; 16],
    stack: [u8; 16],
}

impl Task {
    fn new(registers: &[(Reg, u32)]) -> Self {
        let mut hart = Hart::new(3);
        hart.begin(CODE, STACK + 16, 0);
        for &(reg, value) in registers {
            hart.set(reg, value);
        }
        Self { hart, data: [0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], stack: [0; 16] }
    }

    fn run_with(&mut self, program: &[Inst], device: &mut impl Device, limit: u64) -> Exit {
        let code = assemble(program);
        let mut view = View::new();
        let data = Range { kind: RegionKind::Data, base: DATA, memory: Memory::ReadWrite(&mut self.data) };
        let stack = Range { kind: RegionKind::Stack, base: STACK, memory: Memory::ReadWrite(&mut self.stack) };
        let text = Range { kind: RegionKind::Code, base: CODE, memory: Memory::ReadOnly(&code.segments()[0].bytes) };
        for range in [data, stack, text] {
            view.push(range).unwrap();
        }
        run(&mut self.hart, &code, &mut view, device, limit)
    }

    fn run(&mut self, program: &[Inst]) -> Exit {
        self.run_with(program, &mut NoDevice, 100)
    }
}

fn fault(cause: Cause, pc: u32, address: u32) -> Exit {
    Exit::Fault(Fault { cause, pc, address })
}

#[test]
fn a_return_ends_the_task_and_counts() {
    let mut task = Task::new(&[]);
    assert_eq!(task.run(&[Inst::new(Op::Addi).rd(A0).imm(5), RET]), Exit::Returned);
    assert_eq!((task.hart.get(A0), task.hart.pc, task.hart.retired()), (5, RETURN_ADDRESS, 2));
}

#[test]
fn the_limit_stops_before_the_instruction_too_many() {
    let looped = [Inst::new(Op::Addi).rd(A0).rs1(A0).imm(1), Inst::new(Op::Jal).imm(-4)];
    let mut task = Task::new(&[]);
    assert_eq!(task.run_with(&looped, &mut NoDevice, 7), fault(Cause::InstructionLimit, CODE + 4, 0));
    assert_eq!((task.hart.get(A0), task.hart.retired()), (4, 7));
    // The task continues where it stopped.
    assert_eq!(task.run_with(&looped, &mut NoDevice, 1), fault(Cause::InstructionLimit, CODE, 0));
    assert_eq!(task.run_with(&looped, &mut NoDevice, 0), fault(Cause::InstructionLimit, CODE, 0));
    // A task that returns with its last instruction is in time.
    let mut task = Task::new(&[]);
    assert_eq!(task.run_with(&[RET], &mut NoDevice, 1), Exit::Returned);
}

#[test]
fn wild_jumps_are_fetch_faults_at_their_target() {
    let jump = [Inst::new(Op::Jalr).rs1(A0)];
    for target in [0, 4, DATA, CODE - 2, CODE + 4, STACK, DRIVER_BASE, 0xffff_fffe] {
        let mut task = Task::new(&[(A0, target)]);
        assert_eq!(task.run(&jump), fault(Cause::InstructionAccess, target, target));
    }
    let mut task = Task::new(&[(A0, CODE)]);
    task.hart.pc = CODE + 1;
    assert_eq!(task.run(&jump), fault(Cause::InstructionMisaligned, CODE + 1, CODE + 1));
    // `jalr` clears the lowest bit, of the return address too.
    let mut task = Task::new(&[(A0, RETURN_ADDRESS + 1)]);
    assert_eq!(task.run(&jump), Exit::Returned);
}

#[test]
fn illegal_instructions_name_their_bits() {
    let mut task = Task::new(&[]);
    task.hart.pc = CODE + 4;
    let code = Code::at(CODE, &[1, 0, 1, 0, 0x13, 0x10, 0, 0x02]);
    let exit = run(&mut task.hart, &code, &mut View::new(), &mut NoDevice, 1);
    assert_eq!(exit, fault(Cause::IllegalInstruction, CODE + 4, 0x0200_1013));
}

#[test]
fn loads_of_every_width_and_alignment() {
    let load = |op, imm| Inst::new(op).rd(A0).rs1(A1).imm(imm);
    let cases = [
        (load(Op::Lb, 0), 0xffff_ff80),
        (load(Op::Lbu, 0), 0x80),
        (load(Op::Lh, 0), 0x180),
        (load(Op::Lh, -1), 0xffff_800f),
        (load(Op::Lhu, 1), 0x201),
        (load(Op::Lw, 3), 0x0605_0403),
    ];
    for (inst, expected) in cases {
        let mut task = Task::new(&[(A1, DATA)]);
        let shifted = if inst.imm < 0 {
            // Two bytes around a byte with the sign bit set.
            task.data = [0x0f, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            inst.imm(0)
        } else {
            inst
        };
        assert_eq!(task.run(&[shifted, RET]), Exit::Returned);
        assert_eq!(task.hart.get(A0), expected, "{inst}");
    }
}

#[test]
fn stores_change_what_they_name_only() {
    let store = |op| Inst::new(op).rs1(A1).rs2(A0).imm(3);
    for (op, changed) in [(Op::Sb, 1), (Op::Sh, 2), (Op::Sw, 4)] {
        let mut task = Task::new(&[(A0, 0xdead_beef), (A1, DATA)]);
        let mut expected = task.data;
        expected[3..3 + changed].copy_from_slice(&0xdead_beef_u32.to_le_bytes()[..changed]);
        assert_eq!(task.run(&[store(op), RET]), Exit::Returned);
        assert_eq!(task.data, expected);
    }
}

#[test]
fn memory_faults_name_cause_and_address() {
    let at = |op| Inst::new(op).rd(A0).rs1(A1).rs2(A2);
    let cases = [
        (Op::Lw, DATA + 13, Cause::LoadAccess),
        (Op::Lbu, 0, Cause::LoadAccess),
        (Op::Lw, 0xffff_fffe, Cause::LoadAccess),
        (Op::Sw, DATA + 13, Cause::StoreAccess),
        (Op::Sb, CODE, Cause::StoreAccess),
        (Op::LrW, DATA + 2, Cause::LoadMisaligned),
        (Op::LrW, DATA + 16, Cause::LoadAccess),
        (Op::ScW, DATA + 1, Cause::StoreMisaligned),
        (Op::ScW, DATA + 16, Cause::StoreAccess),
        (Op::AmoaddW, DATA + 3, Cause::StoreMisaligned),
        (Op::AmoaddW, DATA + 16, Cause::StoreAccess),
        (Op::AmoaddW, CODE, Cause::StoreAccess),
        (Op::Lw, STACK - 1, Cause::StackOverflow),
        (Op::Sw, STACK - 2, Cause::StackOverflow),
        (Op::AmoswapW, STACK - 4096, Cause::StackOverflow),
        (Op::Sw, STACK - 4097, Cause::StoreAccess),
        (Op::Lw, DRIVER_BASE, Cause::DeviceAccess),
        (Op::Sb, STDOUT_BASE, Cause::DeviceAccess),
        (Op::AmoorW, DRIVER_BASE, Cause::DeviceAccess),
        (Op::LrW, STDOUT_BASE, Cause::DeviceAccess),
        (Op::ScW, STDOUT_BASE, Cause::DeviceAccess),
    ];
    for (op, address, cause) in cases {
        let mut task = Task::new(&[(A0, 7), (A1, address)]);
        let before = task.data;
        let program = [Inst::new(Op::Addi), at(op)];
        assert_eq!(task.run(&program), fault(cause, CODE + 4, address), "{op:?} {address:#x}");
        assert_eq!((task.hart.get(A0), task.data, task.hart.retired()), (7, before, 1), "{op:?} had an effect");
    }
}

#[test]
fn code_can_be_read() {
    let mut task = Task::new(&[(A1, CODE)]);
    assert_eq!(task.run(&[Inst::new(Op::Lw).rd(A0).rs1(A1), RET]), Exit::Returned);
    assert_eq!(task.hart.get(A0), Inst::new(Op::Lw).rd(A0).rs1(A1).encode());
}

#[test]
fn a_reservation_is_for_one_word_one_value_and_one_task() {
    let lr = Inst::new(Op::LrW).rd(A0).rs1(A1);
    let sc = Inst::new(Op::ScW).rd(A0).rs1(A1).rs2(A2);
    let run = |program: &[Inst]| {
        let mut task = Task::new(&[(A1, DATA), (A2, 0x55)]);
        assert_eq!(task.run(program), Exit::Returned);
        (task.hart.get(A0), task.data[0])
    };
    let aside = Inst::new(Op::Addi).rd(A1).rs1(A1).imm(4);
    let store = Inst::new(Op::Sb).rs1(A1).rs2(A2);
    assert_eq!(run(&[lr, sc, RET]), (0, 0x55));
    assert_eq!(run(&[sc, RET]), (1, 0x80));
    assert_eq!(run(&[lr, sc, sc, RET]), (1, 0x55));
    // The word has the reserved value, but the first SC ended the reservation.
    let same = Inst::new(Op::ScW).rd(A0).rs1(A1).rs2(A0);
    assert_eq!(run(&[lr, same, sc, RET]), (1, 0x80));
    assert_eq!(run(&[lr, aside, sc, RET]), (1, 0x80));
    assert_eq!(run(&[lr, store, sc, RET]), (1, 0x55));

    let mut task = Task::new(&[(A1, DATA), (A2, 0x55)]);
    assert_eq!(task.run(&[lr, RET]), Exit::Returned);
    task.hart.begin(CODE, 0, 0);
    task.hart.set(A1, DATA);
    assert_eq!(task.run(&[sc, RET]), Exit::Returned);
    assert_eq!((task.hart.get(A0), task.data[0]), (1, 0x80));
}

#[test]
fn counters_count_instructions() {
    let csr = |op, number, rs1| Inst::new(op).rd(A0).imm(number).rs1(rs1);
    let read = |number| csr(Op::Csrrs, number, Reg::ZERO);
    let run = |program: &[Inst]| {
        let mut task = Task::new(&[(A1, 1000)]);
        assert_eq!(task.run(program), Exit::Returned);
        task.hart.get(A0)
    };
    let nop = Inst::new(Op::Addi);
    for number in [0xc00, 0xc01, 0xc02, 0xb00, 0xb02] {
        assert_eq!(run(&[nop, nop, read(number), RET]), 2, "{number:#x}");
    }
    assert_eq!(run(&[nop, read(0xc80), RET]), 0);
    assert_eq!(run(&[read(0xf14), RET]), 3);
    assert_eq!(run(&[csr(Op::Csrrw, 0xb00, A1), nop, read(0xc00), RET]), 1001);
    assert_eq!(run(&[csr(Op::Csrrw, 0xb00, A1), nop, read(0xc02), RET]), 2);
    assert_eq!(run(&[nop, nop, nop, csr(Op::Csrrci, 0xb02, Reg::new(1)), read(0xb02), RET]), 2);
    assert_eq!(run(&[csr(Op::Csrrsi, 0xb82, Reg::new(5)), read(0xc82), RET]), 5);
}

#[test]
fn system_instructions() {
    let mut task = Task::new(&[(Reg::A7, 1)]);
    let nop = Inst::new(Op::Addi);
    assert_eq!(task.run(&[nop, nop, Inst::new(Op::Ecall), RET]), Exit::Returned);
    assert_eq!(task.hart.get(A0), 2);
    let mut task = Task::new(&[(Reg::A7, 2)]);
    assert_eq!(task.run(&[nop, Inst::new(Op::Ecall)]), fault(Cause::UnknownEcall, CODE + 4, 0));
    assert_eq!(Task::new(&[]).run(&[Inst::new(Op::Ebreak)]), fault(Cause::Breakpoint, CODE, 0));
}

/// Records its accesses. The doorbell finishes; all other loads return `value`.
#[derive(Default)]
struct Recorder {
    value: u32,
    accesses: Vec<(u32, u8, Option<u32>)>,
}

impl Device for Recorder {
    fn load(&mut self, _: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        self.accesses.push((address, width, None));
        if address == DRIVER_BASE + DOORBELL { Err(Trap::Finish) } else { Ok(self.value) }
    }

    fn store(&mut self, _: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        self.accesses.push((address, width, Some(value)));
        Ok(())
    }
}

#[test]
fn device_accesses_arrive_with_width_and_value() {
    let mut device = Recorder { value: 0xffff_ff80, ..Recorder::default() };
    let mut task = Task::new(&[(A0, 0x1234_5678), (A1, DRIVER_BASE), (A2, STDOUT_BASE)]);
    let program = [
        Inst::new(Op::Sb).rs1(A2).rs2(A0),
        Inst::new(Op::Sh).rs1(A1).rs2(A0).imm(0x84),
        Inst::new(Op::Lbu).rd(A0).rs1(A1).imm(0x80),
        Inst::new(Op::Lb).rd(A2).rs1(A1).imm(0x81),
        Inst::new(Op::Lw).rd(A1).rs1(A1).imm(0x50),
        RET,
    ];
    assert_eq!(task.run_with(&program, &mut device, 100), Exit::Finished);
    let expected = [
        (STDOUT_BASE, 1, Some(0x78)),
        (DRIVER_BASE + 0x84, 2, Some(0x5678)),
        (DRIVER_BASE + 0x80, 1, None),
        (DRIVER_BASE + 0x81, 1, None),
        (DRIVER_BASE + 0x50, 4, None),
    ];
    assert_eq!(device.accesses, expected);
    assert_eq!((task.hart.get(A0), task.hart.get(A2)), (0x80, 0xffff_ff80));
    assert_eq!((task.hart.retired(), task.hart.pc), (5, CODE + 16));
}
