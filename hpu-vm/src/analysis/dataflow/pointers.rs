//! Registers that most likely point into the packet or into handler memory. A task finds their addresses in the task
//! registers, which its arguments point to. Memory is not tracked, so these facts are hints.

use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::{HANDLER_MEM_ADDR, L2_PACKET_ADDR, PACKET_ADDR, TASK_FIRST};

use crate::analysis::regs::Regs;
use crate::inst::{Inst, Op, Reg};

/// Distance from the first task register to the one with the packet's address.
#[cfg(test)]
const PACKET_FIELD: i32 = distance(PACKET_ADDR);

/// Distance from the first task register to another one.
const fn distance(register: u32) -> i32 {
    (register - TASK_FIRST).cast_signed()
}

/// Registers by what they point to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pointers {
    /// A task's arguments.
    arguments: Regs,
    /// The task registers.
    task: Regs,
    /// The packet in L1.
    packet: Regs,
    /// The packet in L2.
    l2_packet: Regs,
    /// Handler memory.
    handler_mem: Regs,
}

impl Pointers {
    /// At the start of a task.
    pub(crate) fn at_task_start() -> Self {
        Self { arguments: Regs(0).with(Reg::A0), ..Self::default() }
    }

    /// Whether a register points into the packet in L1.
    pub(crate) const fn point_to_packet(self, reg: Reg) -> bool {
        self.packet.has(reg)
    }

    /// Where a register points to, if that is known.
    pub(crate) const fn target(self, reg: Reg) -> Option<PointsTo> {
        if self.packet.has(reg) {
            Some(PointsTo::Packet)
        } else if self.l2_packet.has(reg) {
            Some(PointsTo::L2Packet)
        } else if self.handler_mem.has(reg) {
            Some(PointsTo::HandlerMemory)
        } else if self.task.has(reg) || self.arguments.has(reg) {
            Some(PointsTo::Stack)
        } else {
            None
        }
    }

    /// Forgets a register.
    pub(crate) fn forget(&mut self, reg: Reg) {
        let Self { arguments, task, packet, l2_packet, handler_mem } = self;
        for set in [arguments, task, packet, l2_packet, handler_mem] {
            *set = set.without(reg);
        }
    }

    /// Applies an instruction that writes `rd`; `address` is that of its access, if it is a constant.
    pub(crate) fn transfer(&mut self, rd: Reg, inst: &Inst, address: Option<u32>) {
        let Self { arguments, task, packet, l2_packet, handler_mem } = *self;
        let is_copy = inst.op == Op::Addi && inst.imm == 0;
        let loads = |from: Regs, at: i32| inst.op == Op::Lw && from.has(inst.rs1) && inst.imm == at;
        let stays_in = |memory: Regs, register: u32| match inst.op {
            Op::Addi => memory.has(inst.rs1),
            Op::Add => memory.has(inst.rs1) || memory.has(inst.rs2),
            Op::Sub => memory.has(inst.rs1) && !memory.has(inst.rs2),
            Op::Sh1add | Op::Sh2add | Op::Sh3add => memory.has(inst.rs2),
            Op::Lw => address == Some(DRIVER_BASE + register) || loads(task, distance(register)),
            _ => false,
        };
        let in_packet = stays_in(packet, PACKET_ADDR);
        let in_l2_packet = stays_in(l2_packet, L2_PACKET_ADDR);
        let in_handler_mem = stays_in(handler_mem, HANDLER_MEM_ADDR);
        self.forget(rd);
        let add = |set: &mut Regs, has: bool| *set = if has { set.with(rd) } else { *set };
        add(&mut self.arguments, is_copy && arguments.has(inst.rs1));
        add(&mut self.task, (is_copy && task.has(inst.rs1)) || loads(arguments, 0));
        add(&mut self.packet, in_packet);
        add(&mut self.l2_packet, in_l2_packet);
        add(&mut self.handler_mem, in_handler_mem);
    }

    /// Keeps what holds in both.
    pub(crate) const fn join(&self, other: &Self) -> Self {
        Self {
            arguments: self.arguments.and(other.arguments),
            task: self.task.and(other.task),
            packet: self.packet.and(other.packet),
            l2_packet: self.l2_packet.and(other.l2_packet),
            handler_mem: self.handler_mem.and(other.handler_mem),
        }
    }
}

/// Memory that a register most likely points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointsTo {
    /// The packet in L1.
    Packet,
    /// The packet in L2.
    L2Packet,
    /// Handler memory.
    HandlerMemory,
    /// The stack, its task registers or the arguments.
    Stack,
}

#[cfg(test)]
mod tests {
    use super::{PACKET_FIELD, Pointers};
    use crate::inst::{Inst, Op, Reg};
    use spin_abi::map::DRIVER_BASE;
    use spin_abi::regs::PACKET_ADDR;

    const ARGUMENTS: Reg = Reg::A0;
    const TASK: Reg = Reg::new(12);
    const PACKET: Reg = Reg::new(13);
    const OTHER: Reg = Reg::new(14);
    const RESULT: Reg = Reg::new(15);

    /// State after instructions with unknown addresses.
    fn after(program: &[Inst]) -> Pointers {
        let step = |mut pointers: Pointers, inst: &Inst| {
            pointers.transfer(inst.rd, inst, None);
            pointers
        };
        program.iter().fold(Pointers::at_task_start(), step)
    }

    fn begin() -> [Inst; 2] {
        let load = |rd, rs1, imm| Inst::new(Op::Lw).rd(rd).rs1(rs1).imm(imm);
        [load(TASK, ARGUMENTS, 0), load(PACKET, TASK, PACKET_FIELD)]
    }

    #[test]
    fn what_is_near_the_packet_points_to_it() {
        let result = |inst: Inst| after(&[&begin()[..], &[inst.rd(RESULT)]].concat()).point_to_packet(RESULT);
        let op = |op, rs1, rs2| Inst::new(op).rs1(rs1).rs2(rs2);
        for inst in [
            op(Op::Addi, PACKET, Reg::ZERO).imm(14),
            op(Op::Add, PACKET, OTHER),
            op(Op::Add, OTHER, PACKET),
            op(Op::Sub, PACKET, OTHER),
            op(Op::Sh2add, OTHER, PACKET),
            op(Op::Lw, TASK, Reg::ZERO).imm(PACKET_FIELD),
        ] {
            assert!(result(inst), "{inst:?}");
        }
        for inst in [
            op(Op::Addi, OTHER, Reg::ZERO),
            op(Op::Sub, PACKET, PACKET),
            op(Op::Sub, OTHER, PACKET),
            op(Op::Sh2add, PACKET, OTHER),
            op(Op::Lw, PACKET, Reg::ZERO),
            op(Op::Lw, TASK, Reg::ZERO).imm(PACKET_FIELD + 4),
            op(Op::Lhu, TASK, Reg::ZERO).imm(PACKET_FIELD),
            op(Op::Xor, PACKET, OTHER),
        ] {
            assert!(!result(inst), "{inst:?}");
        }
    }

    #[test]
    fn pointers_are_copied_found_in_the_driver_page_and_forgotten() {
        let copy = |rd, rs1| Inst::new(Op::Addi).rd(rd).rs1(rs1);
        let [task, packet] = begin();
        let copied = [copy(OTHER, ARGUMENTS), task.rs1(OTHER), copy(RESULT, TASK), packet.rs1(RESULT)];
        assert!(after(&copied).point_to_packet(PACKET));
        assert!(!after(&[task, copy(TASK, OTHER), packet]).point_to_packet(PACKET));
        let mut pointers = after(&begin());
        pointers.forget(PACKET);
        assert!(!pointers.point_to_packet(PACKET));
        pointers.transfer(OTHER, &Inst::new(Op::Lw), Some(DRIVER_BASE + PACKET_ADDR));
        assert!(pointers.point_to_packet(OTHER) && !pointers.join(&after(&begin())).point_to_packet(OTHER));
    }
}
