//! What is known about the registers at one point of a region: constants, alignment, pointer classes.

use spin_abi::map::{
    PERIPHERALS, PERIPHERALS_SIZE, PUBLIC_DMA_BASE, PUBLIC_DMA_CLUSTERS, RETURN_ADDRESS, STDOUT_BASE, STDOUT_SIZE,
};
use spin_abi::regs::dma;

use super::pointers::{Pointers, PointsTo};
use super::vector;
use crate::alu;
use crate::analysis::cfg::Block;
use crate::analysis::regs::{Regs, reads, writes};
use crate::csr::Csr;
use crate::decode::Decoded;
use crate::inst::{Format, Inst, Op, Reg};
use crate::vector::{VLEN_BYTES, VectorInst};

/// Largest distance of sp from its initial value that is tracked.
const STACK_REACH: u32 = 1 << 20;

/// Lattice state of the dataflow analysis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegState {
    /// Values that are equal on all ways to this point.
    constants: [Option<u32>; 32],
    /// Registers that may hold the address of a device without being constants.
    device: Regs,
    /// Registers that hold multiples of 4.
    aligned: Regs,
    /// By register, another one from which it differs by a multiple of 4.
    bases: [Option<Reg>; 32],
    /// Distance of sp from its value at the start of the handler.
    stack: Option<i32>,
    pointers: Pointers,
}

impl RegState {
    /// State at a handler's first instruction ([`crate::Hart::begin`]): all registers but sp, tp and a0 are constants.
    pub(super) fn at_task_start(global_pointer: u32) -> Self {
        let mut constants = [Some(0); 32];
        for reg in [Reg::SP, Reg::TP, Reg::A0] {
            constants[reg.index()] = None;
        }
        constants[Reg::RA.index()] = Some(RETURN_ADDRESS);
        constants[Reg::GP.index()] = Some(global_pointer);
        Self { constants, stack: Some(0), pointers: Pointers::at_task_start(), ..Self::default() }
    }

    /// State where a shared region is entered: `device` registers may hold the addresses of devices.
    pub(super) fn at_point(device: Regs) -> Self {
        Self { device, ..Self::default() }
    }

    /// Registers that may hold the address of a device.
    pub(super) fn devices(&self) -> Regs {
        let constants = self.constants().filter(|&(_, value)| near_device(value));
        constants.fold(self.device, |devices, (reg, _)| devices.with(reg))
    }

    /// Whether a register holds a multiple of 4.
    pub(crate) fn is_aligned(&self, reg: Reg) -> bool {
        self.constant(reg).map_or(self.aligned.has(reg), |value| value & 3 == 0)
    }

    /// Notes that a register holds a multiple of 4; its base then does, too.
    fn set_aligned(&mut self, reg: Reg) {
        self.aligned = self.aligned.with(reg);
        if let Some(base) = self.bases[reg.index()] {
            self.aligned = self.aligned.with(base);
        }
    }

    /// The value of a register, if it is a constant.
    pub(crate) const fn constant(&self, reg: Reg) -> Option<u32> {
        if reg.number() == 0 { Some(0) } else { self.constants[reg.index()] }
    }

    /// The address of an access, if it is a constant.
    pub(crate) fn address(&self, inst: &Inst) -> Option<u32> {
        self.constant(inst.rs1).map(|base| base.wrapping_add(inst.imm.cast_unsigned()))
    }

    /// Registers whose values are constants, with those values.
    pub(crate) fn constants(&self) -> impl Iterator<Item = (Reg, u32)> {
        Regs::ALL.iter().filter_map(|reg| Some((reg, self.constant(reg)?)))
    }

    /// The registers of a set that are no constants.
    pub(crate) fn unknown(&self, regs: Regs) -> Regs {
        self.constants().fold(regs, |regs, (reg, _)| regs.without(reg))
    }

    /// Whether a register that is no constant may hold an address at or near a device.
    pub(crate) const fn may_be_device(&self, reg: Reg) -> bool {
        self.device.has(reg)
    }

    /// Whether a register certainly points to the stack or near it, where no device is.
    pub(crate) fn is_stack(&self, reg: Reg) -> bool {
        reg == Reg::SP && self.stack.is_some()
    }

    /// Distance of sp from its value at the start of the handler, if it is known.
    pub(crate) const fn stack(&self) -> Option<i32> {
        self.stack
    }

    /// Memory that a register which is no constant most likely points to.
    pub(crate) fn points_to(&self, reg: Reg) -> Option<PointsTo> {
        match self.constant(reg) {
            Some(_) => None,
            None if reg == Reg::SP => Some(PointsTo::Stack),
            None => self.pointers.target(reg),
        }
    }

    /// Whether a register most likely points into the packet in L1.
    pub(crate) const fn points_to_packet(&self, reg: Reg) -> bool {
        self.constant(reg).is_none() && self.pointers.point_to_packet(reg)
    }

    /// The value that an instruction at `pc` computes, if it is a constant. Not for jumps.
    pub(crate) fn result(&self, pc: u32, inst: &Inst) -> Option<u32> {
        self.evaluate(pc, inst, 0)
    }

    /// Forgets everything about a register.
    fn forget(&mut self, reg: Reg) {
        if reg != Reg::ZERO {
            self.constants[reg.index()] = None;
            (self.device, self.aligned) = (self.device.without(reg), self.aligned.without(reg));
            self.stack = self.stack.filter(|_| reg != Reg::SP);
            self.pointers.forget(reg);
            self.bases[reg.index()] = None;
            self.bases.iter_mut().filter(|base| **base == Some(reg)).for_each(|base| *base = None);
        }
    }

    /// Applies the instruction at an index of a block.
    pub(super) fn transfer(&mut self, block: &Block, index: usize) {
        let &(pc, Decoded { ref inst, size }) = &block.body[index];
        if inst.op == Op::Ecall {
            // The results of an `ecall` are a0 and a1.
            [Reg::A0, Reg::A1].into_iter().for_each(|reg| self.forget(reg));
        }
        if matches!(inst.op.format(), Format::Amo | Format::LoadReserved) {
            self.set_aligned(inst.rs1);
        }
        let rd = writes(inst);
        if rd == Reg::ZERO {
            return;
        }
        let value = self.evaluate(pc, inst, size);
        let derived = value.is_none() && inst.op.format().computes() && self.has_device_operand(reads(inst));
        let (aligned, base) = self.alignment(inst);
        let moved = inst.op == Op::Addi && (rd, inst.rs1) == (Reg::SP, Reg::SP);
        let mut pointers = self.pointers;
        pointers.transfer(rd, inst, self.address(inst));
        let stack = self.stack.filter(|_| moved).and_then(|at| at.checked_add(inst.imm));
        self.forget(rd);
        self.pointers = pointers;
        self.stack = self.stack.or(stack.filter(|at| at.unsigned_abs() <= STACK_REACH));
        self.constants[rd.index()] = value;
        self.bases[rd.index()] = base.filter(|&base| base != rd);
        if derived {
            self.device = self.device.with(rd);
        }
        if aligned {
            self.aligned = self.aligned.with(rd);
        }
    }

    /// Whether the result is a multiple of 4, and the register from which it differs by one.
    fn alignment(&self, inst: &Inst) -> (bool, Option<Reg>) {
        let (a, b) = (self.is_aligned(inst.rs1), self.is_aligned(inst.rs2));
        let whole = inst.imm & 3 == 0;
        match inst.op {
            Op::Slli => (inst.imm >= 2 || a, None),
            Op::Andi => (whole || a, None),
            Op::Addi => (whole && a, whole.then_some(inst.rs1)),
            Op::Add => (a && b, if b { Some(inst.rs1) } else { a.then_some(inst.rs2) }),
            Op::Sub => (a && b, b.then_some(inst.rs1)),
            Op::Sh2add | Op::Sh3add => (b, Some(inst.rs2)),
            _ => (false, None),
        }
    }

    fn has_device_operand(&self, operands: Regs) -> bool {
        operands.iter().any(|reg| self.device.has(reg) || self.constant(reg).is_some_and(near_device))
    }

    /// Whether an instruction puts the address of a device where it is not tracked: in memory, or in a vector.
    pub(super) fn escapes(&self, inst: &Inst) -> bool {
        if let Some(VectorInst::Arithmetic(_)) = inst.vector() {
            return self.has_device_operand(reads(inst));
        }
        let stored = matches!(inst.op.format(), Format::Store | Format::Amo);
        stored && self.has_device_operand(Regs(0).with(inst.rs2))
    }

    fn evaluate(&self, pc: u32, inst: &Inst, size: u8) -> Option<u32> {
        let (a, b) = (self.constant(inst.rs1), self.constant(inst.rs2));
        let imm = inst.imm.cast_unsigned();
        let csr = || Csr::from_number(inst.imm.cast_unsigned());
        Some(match inst.op {
            Op::Lui => imm,
            Op::Auipc => pc.wrapping_add(imm),
            Op::Jal | Op::Jalr => pc.wrapping_add(u32::from(size)),
            Op::Addi => a?.wrapping_add(imm),
            Op::Xori => a? ^ imm,
            Op::Ori => a? | imm,
            Op::Andi => a? & imm,
            Op::Slli => a? << (imm & 31),
            Op::Srli => a? >> (imm & 31),
            Op::Add => a?.wrapping_add(b?),
            Op::Sub => a?.wrapping_sub(b?),
            Op::Or => a? | b?,
            Op::And => a? & b?,
            Op::Xor => a? ^ b?,
            // Compilers compute masks and addresses with these.
            Op::Bseti => a? | alu::bit(imm),
            Op::Bclri => a? & !alu::bit(imm),
            Op::Binvi => a? ^ alu::bit(imm),
            Op::Rori => a?.rotate_right(imm & 31),
            Op::Sh1add => (a? << 1).wrapping_add(b?),
            Op::Sh2add => (a? << 2).wrapping_add(b?),
            Op::Sh3add => (a? << 3).wrapping_add(b?),
            Op::Vector => vector::new_length(inst, |reg| self.constant(reg))?,
            Op::Csrrs if inst.rs1 == Reg::ZERO && csr() == Some(Csr::VectorBytes) => VLEN_BYTES,
            _ => return None,
        })
    }

    /// Keeps what holds in both states; returns whether that is less than before.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        let both_aligned = |reg: &Reg| before.is_aligned(*reg) && other.is_aligned(*reg);
        let aligned = Regs::ALL.iter().filter(both_aligned).fold(Regs(0), Regs::with);
        let mut device = self.device.or(other.device);
        for (reg, mine) in (0..32).map(Reg::new).zip(&mut self.constants) {
            let theirs = other.constants[reg.index()];
            if *mine != theirs {
                if [*mine, theirs].into_iter().flatten().any(near_device) {
                    device = device.with(reg);
                }
                *mine = None;
            }
        }
        (self.device, self.aligned) = (device, aligned);
        self.stack = self.stack.filter(|_| self.stack == other.stack);
        self.pointers = self.pointers.join(&other.pointers);
        for (mine, theirs) in self.bases.iter_mut().zip(other.bases) {
            *mine = mine.filter(|&base| theirs == Some(base));
        }
        *self != before
    }
}

/// Whether `address` is a device's, or so close that an offset may reach one.
fn near_device(address: u32) -> bool {
    const NEAR: u32 = 0x1000;
    let near = |address: u32, base: u32, size: u32| address.wrapping_sub(base - NEAR) < size + 2 * NEAR;
    near(address, PERIPHERALS, PERIPHERALS_SIZE)
        || near(address, STDOUT_BASE, STDOUT_SIZE)
        || near(address & !PUBLIC_DMA_CLUSTERS, PUBLIC_DMA_BASE, dma::SIZE)
}
