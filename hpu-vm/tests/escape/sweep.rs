//! Every kind of access, by every way to come by an address, at addresses that are not the attacker's.

use hpu_vm::{Op, Reg};
use spin_abi::fault::Cause;
use spin_abi::map::{
    DRIVER_BASE, L1_ALIAS, L1_STACKS, L2_BASE, PAGE, PERIPHERALS, RETURN_ADDRESS, STDOUT_BASE, STDOUT_SIZE,
};
use spin_abi::regs::{self, DRIVER_SIZE};

use crate::assembly::{A2, A3, A4, Assembly, Known};
use crate::attack::{Attack, Ends};
use crate::guest::{CODE, DATA_LEN, FOREIGN, HANDLER_MEM_LEN, MACHINE, OWN, PACKET, SCRATCHPAD_LEN};

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing is there for the attacker.
    Nothing,
    /// The page below its stack.
    BelowStack,
    /// Read-only memory.
    Constant,
}

/// Names, addresses and what they are.
pub const TARGETS: [(&str, u32, What); 34] = [
    ("another's stack", MACHINE.stack_base(FOREIGN.cluster, FOREIGN.hpu) + 0x100, What::Nothing),
    ("another's task registers", FOREIGN.stack_end() - 96, What::Nothing),
    ("another's packet", MACHINE.l1_packet_base(FOREIGN.cluster, FOREIGN.hpu) + 8, What::Nothing),
    ("another's packet in L2", FOREIGN.l2_packet() + 8, What::Nothing),
    ("another's scratchpad", MACHINE.scratchpad_base(FOREIGN.cluster) + 0x40, What::Nothing),
    ("another's data", FOREIGN.data + 0x40, What::Nothing),
    ("another's handler memory", FOREIGN.handler_mem + 0x40, What::Nothing),
    ("the stack above", OWN.stack_end() + 16, What::Nothing),
    ("the stack below", MACHINE.stack_base(OWN.cluster, OWN.hpu - 1) + 0x200, What::BelowStack),
    ("the stack below in the alias", L1_ALIAS + L1_STACKS + (OWN.hpu - 1) * PAGE + 0x200, What::BelowStack),
    ("the stack above in the alias", L1_ALIAS + L1_STACKS + (OWN.hpu + 1) * PAGE + 0x200, What::Nothing),
    ("the packet window above", MACHINE.l1_packet_base(OWN.cluster, OWN.hpu + 1) + 4, What::Nothing),
    ("the packet window below", MACHINE.l1_packet_base(OWN.cluster, OWN.hpu - 1) + 4, What::Nothing),
    ("the L2 packet window above", MACHINE.l2_packet_window(OWN.cluster, OWN.hpu + 1) + 4, What::Nothing),
    ("the L2 packet window below", MACHINE.l2_packet_window(OWN.cluster, OWN.hpu - 1) + 4, What::Nothing),
    ("behind the scratchpad's pages", MACHINE.scratchpad_base(OWN.cluster) + 2 * PAGE, What::Nothing),
    ("another cluster's L1", MACHINE.l1_base(2) + 0x1_0000, What::Nothing),
    ("behind the alias", L1_ALIAS + MACHINE.l1_size, What::Nothing),
    ("before the alias", L1_ALIAS - 4, What::Nothing),
    ("behind the data's pages", L2_BASE + 2 * PAGE, What::Nothing),
    ("before the data", L2_BASE - 4, What::Nothing),
    ("behind handler memory's page", OWN.handler_mem + PAGE, What::Nothing),
    ("address 0", 0, What::Nothing),
    ("the first page's end", PAGE - 4, What::Nothing),
    ("the last page", 0xffff_f000, What::Nothing),
    ("the last word", 0xffff_fffc, What::Nothing),
    ("the return address", RETURN_ADDRESS, What::Nothing),
    ("the sign's change", 0x8000_0000, What::Nothing),
    ("before the sign's change", 0x7fff_fffc, What::Nothing),
    ("code", CODE, What::Constant),
    ("before the code", CODE - 4, What::Nothing),
    ("before the peripherals", PERIPHERALS - 4, What::Nothing),
    ("behind the driver's registers", DRIVER_BASE + DRIVER_SIZE, What::Nothing),
    ("behind the character output", STDOUT_BASE + STDOUT_SIZE, What::Nothing),
];

/// Kinds of access.
const ACCESSES: [Op; 10] =
    [Op::Lb, Op::Lhu, Op::Lw, Op::Sb, Op::Sh, Op::Sw, Op::AmoaddW, Op::AmoswapW, Op::LrW, Op::ScW];
/// Distances of the address from the register's value.
const DISTANCES: [i32; 4] = [0, -2048, 2047, 4];

/// A program that accesses `address` once, by a register `distance` away from it if the operation has an offset.
fn access(op: Op, address: u32, distance: i32, known: Known) -> Assembly {
    let at =
        |distance: i32| Assembly::new().li(A3, 0x55).address(A2, address.wrapping_sub(distance.cast_unsigned()), known);
    match op {
        Op::Lb | Op::Lbu | Op::Lh | Op::Lhu | Op::Lw => at(distance).imm(op, A4, A2, distance),
        Op::Sb | Op::Sh | Op::Sw => at(distance).store(op, A3, A2, distance),
        Op::LrW => at(0).op(op, A4, A2, Reg::ZERO),
        _ => at(0).op(op, A4, A2, A3),
    }
    .ret()
}

/// Every access to every target; distances and ways to know the address take turns.
pub fn foreign() -> Vec<Attack> {
    let mut attacks = Vec::new();
    for (target, (name, address, what)) in TARGETS.into_iter().enumerate() {
        for (index, op) in ACCESSES.into_iter().enumerate() {
            let turn = target + index;
            let (known, distance) = (Known::ALL[turn % Known::ALL.len()], DISTANCES[turn % DISTANCES.len()]);
            let program = access(op, address, distance, known);
            let name = format!("{} {known:?} {distance:+} at {name}", op.mnemonic());
            attacks.push(Attack::new(name, program, ends(op, what)));
        }
    }
    attacks
}

const fn ends(op: Op, what: What) -> Ends {
    let loads = matches!(op, Op::Lb | Op::Lhu | Op::Lw | Op::LrW);
    match what {
        What::Constant if loads => Ends::Done,
        What::BelowStack => Ends::Fault(Cause::StackOverflow),
        _ if loads => Ends::Fault(Cause::LoadAccess),
        _ => Ends::Fault(Cause::StoreAccess),
    }
}

/// Addresses that wrap around, ends of ranges, devices and their edges, misaligned accesses.
pub fn edges() -> Vec<Attack> {
    let mut attacks = Vec::new();
    for known in Known::ALL {
        wrapping(known, &mut attacks);
        range_ends(known, &mut attacks);
        devices(known, &mut attacks);
        misaligned(known, &mut attacks);
    }
    attacks
}

/// Offsets that carry an address over either end of the 32 bits.
fn wrapping(known: Known, attacks: &mut Vec<Attack>) {
    for (value, distance) in
        [(0, -2048), (0, -4), (0, -1), (1, -4), (4, -8), (0x7ff, -2048), (u32::MAX, 1), (u32::MAX, 2047)]
            .into_iter()
            .chain([
                (0xffff_fffc, 4),
                (0xffff_fffd, 0),
                (0xffff_fffe, 0),
                (0xffff_ffff, 0),
                (0xffff_f801, 2047),
                (0x8000_0000, -2048),
            ])
    {
        for (op, cause) in [(Op::Lw, Cause::LoadAccess), (Op::Lhu, Cause::LoadAccess), (Op::Sw, Cause::StoreAccess)] {
            let program = access(op, value.wrapping_add_signed(distance), distance, known);
            let name = format!("{} {known:?} at {value:#x}{distance:+}", op.mnemonic());
            attacks.push(Attack::new(name, program, Ends::Fault(cause)));
        }
    }
}

/// The last bytes of each range, and what reaches over them.
fn range_ends(known: Known, attacks: &mut Vec<Attack>) {
    let ends = [
        ("data", OWN.data + DATA_LEN),
        ("handler memory", OWN.handler_mem + HANDLER_MEM_LEN),
        ("packet", MACHINE.l1_packet_base(OWN.cluster, OWN.hpu) + PACKET),
        ("packet in the alias", L1_ALIAS + L1_STACKS + (MACHINE.hpus_per_cluster + OWN.hpu) * PAGE + PACKET),
        ("packet in L2", OWN.l2_packet() + PACKET),
        ("scratchpad", MACHINE.scratchpad_base(OWN.cluster) + SCRATCHPAD_LEN),
    ];
    for (name, end) in ends {
        for (op, cause) in [(Op::Lw, Cause::LoadAccess), (Op::Sw, Cause::StoreAccess), (Op::Sb, Cause::StoreAccess)] {
            let width = if op == Op::Sb { 1 } else { 4 };
            let mut push = |what: &str, address, ends| {
                let name = format!("{} {known:?} {what} the end of {name}", op.mnemonic());
                attacks.push(Attack::new(name, access(op, address, -16, known), ends));
            };
            push("up to", end - width, Ends::Done);
            push("over", end - width + 1, Ends::FaultIfExact(cause));
            push("behind", end, Ends::FaultIfExact(cause));
        }
        let last = end.next_multiple_of(PAGE) - 2;
        let program = access(Op::Sw, last, 0, known);
        attacks.push(Attack::new(
            format!("sw {known:?} over the page of {name}"),
            program,
            Ends::Fault(Cause::StoreAccess),
        ));
    }
    let top = OWN.stack_end();
    let program = access(Op::Sw, top - 2, 0, known);
    attacks.push(Attack::new(format!("sw {known:?} over the stack's top"), program, Ends::Fault(Cause::StoreAccess)));
}

/// Device registers: what is none, of a wrong width, misaligned, over the end, by atomics.
fn devices(known: Known, attacks: &mut Vec<Attack>) {
    let device = Ends::Fault(Cause::DeviceAccess);
    // A translation that took an address for memory's is made anew, when the task has ended.
    let seen = |ends: Ends| match ends {
        Ends::Done if known == Known::Loaded => Ends::DeviceOr(None),
        Ends::Fault(cause) if known == Known::Loaded => Ends::DeviceOr(Some(cause)),
        ends => ends,
    };
    let registers = [
        (Op::Lw, regs::COMMAND_TEST, Ends::Done),
        (Op::Lb, regs::COMMAND_TEST, device),
        (Op::Lhu, regs::COMMAND_TEST + 2, device),
        (Op::Lw, regs::COMMAND_TEST + 1, device),
        (Op::Lw, DRIVER_SIZE - 2, device),
        (Op::Sw, regs::COMMAND_INFO, Ends::Done),
        (Op::Sh, regs::COMMAND_INFO, device),
        (Op::Sb, regs::DOORBELL, device),
        (Op::Sw, DRIVER_SIZE - 3, device),
        (Op::Sw, regs::HANDLER_ADDR, device),
        (Op::Sw, regs::ERROR, Ends::Fault(Cause::Reported)),
        (Op::Lw, regs::DOORBELL, Ends::Done),
    ];
    for (op, register, ends) in registers {
        let program = access(op, DRIVER_BASE + register, if register & 4 == 0 { 0 } else { 24 }, known);
        attacks.push(Attack::new(
            format!("{} {known:?} at register {register:#x}", op.mnemonic()),
            program,
            seen(ends),
        ));
    }
    for op in [Op::AmoaddW, Op::LrW, Op::ScW] {
        for (name, address) in [("doorbell", DRIVER_BASE + regs::DOORBELL), ("output", STDOUT_BASE)] {
            let program = access(op, address, 0, known);
            attacks.push(Attack::new(format!("{} {known:?} at the {name}", op.mnemonic()), program, device));
        }
    }
    for (op, ends) in [(Op::Sb, Ends::Done), (Op::Lb, device), (Op::Lw, device)] {
        let program = access(op, STDOUT_BASE + STDOUT_SIZE - 1, 0, known);
        attacks.push(Attack::new(format!("{} {known:?} at the last output", op.mnemonic()), program, seen(ends)));
    }
}

/// Loads and stores may be misaligned, over pages too; atomics may not, wherever they are.
fn misaligned(known: Known, attacks: &mut Vec<Attack>) {
    let data = OWN.data;
    for (op, address) in
        [(Op::Lw, data + 1), (Op::Lw, data + PAGE - 1), (Op::Sw, data + PAGE - 3), (Op::Sh, data + PAGE - 1)]
    {
        let name = format!("{} {known:?} at {address:#x}", op.mnemonic());
        attacks.push(Attack::new(name, access(op, address, 4, known), Ends::Done));
    }
    let atomics =
        [(Op::LrW, Cause::LoadMisaligned), (Op::ScW, Cause::StoreMisaligned), (Op::AmoaddW, Cause::StoreMisaligned)];
    for (op, cause) in atomics {
        for (name, address) in [
            ("data", data + 2),
            ("over a page", data + PAGE - 1),
            ("nothing", 0x2000_0001),
            ("the last word", u32::MAX),
            ("a register", DRIVER_BASE + regs::DOORBELL + 2),
        ] {
            let program = access(op, address, 0, known);
            attacks.push(Attack::new(
                format!("{} {known:?} misaligned at {name}", op.mnemonic()),
                program,
                Ends::Fault(cause),
            ));
        }
    }
}
