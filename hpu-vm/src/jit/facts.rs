//! What is known about registers before anything is translated: constants, addresses of devices, liveness.

use spin_abi::map::{
    PERIPHERALS, PERIPHERALS_SIZE, PUBLIC_DMA_BASE, PUBLIC_DMA_CLUSTERS, RETURN_ADDRESS, STDOUT_BASE, STDOUT_SIZE,
};
use spin_abi::regs::dma;

use crate::alu;
use crate::csr::Csr;
use crate::inst::{Format, Inst, Op, Reg};
use crate::jit::most;
use crate::jit::plan::{Block, BlockId, End, Plan, Target};
use crate::jit::pointers::Pointers;
use crate::jit::vectors;
use crate::vector::{VLEN_BYTES, VectorInst};

/// A set of registers, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regs(pub(crate) u32);

impl Regs {
    /// All of them.
    pub(crate) const ALL: Self = Self(u32::MAX);

    pub(crate) const fn with(self, reg: Reg) -> Self {
        Self(self.0 | 1 << reg.number())
    }

    pub(crate) const fn without(self, reg: Reg) -> Self {
        Self(self.0 & !(1 << reg.number()))
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, reg: Reg) -> bool {
        self.0 >> reg.number() & 1 != 0
    }

    /// The registers but x0, which needs no care.
    pub(crate) fn iter(self) -> impl Iterator<Item = Reg> {
        (1..32).map(Reg::new).filter(move |&reg| self.has(reg))
    }
}

/// Registers an instruction reads.
pub(crate) fn reads(inst: &Inst) -> Regs {
    let none = Regs(0);
    match inst.op.format() {
        Format::R | Format::Store | Format::Branch | Format::Amo => none.with(inst.rs1).with(inst.rs2),
        Format::Unary
        | Format::I
        | Format::Shift
        | Format::Load
        | Format::JumpRegister
        | Format::LoadReserved
        | Format::Csr => none.with(inst.rs1),
        // The arguments of an `ecall` are a0 to a7.
        Format::System => Regs(0xff << 10),
        Format::Vector => vectors::scalars(inst).0,
        _ => none,
    }
}

/// The register an instruction writes; x0 for none.
pub(crate) fn writes(inst: &Inst) -> Reg {
    match inst.op.format() {
        Format::Store | Format::Branch | Format::Fence | Format::System => Reg::ZERO,
        Format::Vector => vectors::scalars(inst).1,
        _ => inst.rd,
    }
}

/// The CSR that an instruction is about.
fn csr(inst: &Inst) -> Option<Csr> {
    Csr::from_number(inst.imm.cast_unsigned())
}

/// What is known of the registers at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Values that are the same on every way here.
    constants: [Option<u32>; 32],
    /// Registers that may hold the address of a device without being constants.
    device: Regs,
    /// Registers that hold multiples of 4.
    aligned: Regs,
    /// Registers that hold another one's value plus a multiple of 4.
    bases: [Option<Reg>; 32],
    /// By how much registers are certainly less than the largest value, unsigned.
    below: [u32; 32],
    /// How far sp is from where it was when the handler began, if that is known.
    stack: Option<i32>,
    pointers: Pointers,
}

/// Farthest that is followed.
const STACK_REACH: u32 = 1 << 20;

impl Known {
    /// At a handler's first instruction ([`crate::Hart::begin`]): all but sp, tp and a0 are constants.
    fn at_entry(global_pointer: u32) -> Self {
        let mut constants = [Some(0); 32];
        for reg in [Reg::SP, Reg::TP, Reg::A0] {
            constants[reg.index()] = None;
        }
        constants[Reg::RA.index()] = Some(RETURN_ADDRESS);
        constants[Reg::GP.index()] = Some(global_pointer);
        Self { constants, stack: Some(0), pointers: Pointers::at_entry(), ..Self::default() }
    }

    /// Whether a register certainly holds a multiple of 4.
    pub(crate) fn is_aligned(&self, reg: Reg) -> bool {
        self.constant(reg).map_or(self.aligned.has(reg), |value| value & 3 == 0)
    }

    /// The register was found to hold a multiple of 4; so does the one that it is based on.
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

    /// The address of an access, if it is known.
    pub(crate) fn address(&self, inst: &Inst) -> Option<u32> {
        self.constant(inst.rs1).map(|base| base.wrapping_add(inst.imm.cast_unsigned()))
    }

    /// The largest value, unsigned, that a register can have.
    pub(crate) fn most(&self, reg: Reg) -> u32 {
        self.constant(reg).unwrap_or(!self.below[reg.index()])
    }

    /// What is known where the block that ends in this goes on in `next`.
    fn along(&self, end: &End, branch: Option<&Inst>, next: BlockId) -> Self {
        let mut there = self.clone();
        if let (End::Branch { taken, not }, Some(branch)) = (end, branch)
            && taken.block != not.block
            && let Some((reg, most)) = most::told(branch, taken.block == Some(next), |reg| self.most(reg))
            && reg != Reg::ZERO
        {
            there.below[reg.index()] = there.below[reg.index()].max(!most);
        }
        there
    }

    /// The registers whose values are constants, with those.
    pub(crate) fn constants(&self) -> impl Iterator<Item = (Reg, u32)> {
        Regs::ALL.iter().filter_map(|reg| Some((reg, self.constant(reg)?)))
    }

    /// Whether a register may hold, or be near, the address of a device, and is no constant.
    pub(crate) const fn may_be_device(&self, reg: Reg) -> bool {
        self.device.has(reg)
    }

    /// Whether a register points to the stack, or near it, for certain: that is no device.
    pub(crate) fn is_stack(&self, reg: Reg) -> bool {
        reg == Reg::SP && self.stack.is_some()
    }

    /// Whether a register most likely points into the packet in L1.
    pub(crate) const fn points_to_packet(&self, reg: Reg) -> bool {
        self.constant(reg).is_none() && self.pointers.point_to_packet(reg)
    }

    /// The value that an instruction at `pc` computes, if it is a constant. Not for jumps.
    pub(crate) fn result(&self, pc: u32, inst: &Inst) -> Option<u32> {
        self.evaluate(pc, inst, 0)
    }

    /// Nothing is known of a register any more.
    pub(crate) fn forget(&mut self, reg: Reg) {
        if reg != Reg::ZERO {
            self.constants[reg.index()] = None;
            (self.device, self.aligned) = (self.device.without(reg), self.aligned.without(reg));
            self.below[reg.index()] = 0;
            self.stack = self.stack.filter(|_| reg != Reg::SP);
            self.pointers.forget(reg);
            self.bases[reg.index()] = None;
            self.bases.iter_mut().filter(|base| **base == Some(reg)).for_each(|base| *base = None);
        }
    }

    /// Takes in an instruction at `pc`.
    pub(crate) fn step(&mut self, pc: u32, inst: &Inst, size: u8) {
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
        let most = most::greatest(inst, |reg| self.most(reg));
        let moved = inst.op == Op::Addi && (rd, inst.rs1) == (Reg::SP, Reg::SP);
        let mut pointers = self.pointers;
        pointers.step(rd, inst, self.address(inst));
        let stack = self.stack.filter(|_| moved).and_then(|at| at.checked_add(inst.imm));
        self.forget(rd);
        self.pointers = pointers;
        self.stack = self.stack.or(stack.filter(|at| at.unsigned_abs() <= STACK_REACH));
        self.below[rd.index()] = !most;
        self.constants[rd.index()] = value;
        self.bases[rd.index()] = base.filter(|&base| base != rd);
        if derived {
            self.device = self.device.with(rd);
        }
        if aligned {
            self.aligned = self.aligned.with(rd);
        }
    }

    /// Takes in an instruction of a block, by its index there.
    pub(crate) fn step_in(&mut self, block: &Block, index: usize) {
        let (pc, decoded) = &block.body[index];
        self.step(*pc, &decoded.inst, decoded.size);
        if let Some(back) = block.restored(index) {
            self.expect(Reg::RA, back);
        }
    }

    /// A register has been found to hold this.
    pub(crate) const fn expect(&mut self, reg: Reg, value: u32) {
        self.constants[reg.index()] = Some(value);
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

    /// Whether the instruction puts the address of a device where it is no longer followed: into memory, or a vector.
    fn escapes(&self, inst: &Inst) -> bool {
        if let Some(VectorInst::Arithmetic(_)) = inst.vector() {
            return self.has_device_operand(reads(inst));
        }
        let stored = matches!(inst.op.format(), Format::Store | Format::Amo);
        stored && self.has_device_operand(Regs(0).with(inst.rs2))
    }

    fn evaluate(&self, pc: u32, inst: &Inst, size: u8) -> Option<u32> {
        let (a, b) = (self.constant(inst.rs1), self.constant(inst.rs2));
        let imm = inst.imm.cast_unsigned();
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
            // How compilers write masks and addresses of one bit, or of few.
            Op::Bseti => a? | alu::bit(imm),
            Op::Bclri => a? & !alu::bit(imm),
            Op::Binvi => a? ^ alu::bit(imm),
            Op::Rori => a?.rotate_right(imm & 31),
            Op::Sh1add => (a? << 1).wrapping_add(b?),
            Op::Sh2add => (a? << 2).wrapping_add(b?),
            Op::Sh3add => (a? << 3).wrapping_add(b?),
            Op::Vector => vectors::new_length(inst, |reg| self.constant(reg))?,
            Op::Csrrs if inst.rs1 == Reg::ZERO && csr(inst) == Some(Csr::VectorBytes) => VLEN_BYTES,
            _ => return None,
        })
    }

    /// Keeps what holds on both ways; says whether that is less than before.
    fn meet(&mut self, other: &Self) -> bool {
        let before = self.clone();
        let both_aligned = |reg: &Reg| before.is_aligned(*reg) && other.is_aligned(*reg);
        let aligned = Regs::ALL.iter().filter(both_aligned).fold(Regs(0), Regs::with);
        let mut device = self.device.or(other.device);
        for (index, mine) in self.constants.iter_mut().enumerate() {
            let theirs = other.constants[index];
            if *mine != theirs {
                if [*mine, theirs].into_iter().flatten().any(near_device) {
                    device = device.with(Reg::new(u32::try_from(index).unwrap_or(0)));
                }
                *mine = None;
            }
        }
        (self.device, self.aligned) = (device, aligned);
        self.stack = self.stack.filter(|_| self.stack == other.stack);
        self.pointers = self.pointers.meet(&other.pointers);
        for (mine, theirs) in self.bases.iter_mut().zip(other.bases) {
            *mine = mine.filter(|&base| theirs == Some(base));
        }
        // Nothing rather than less: what a loop adds to would go on growing.
        for (reg, most) in (0..32).map(|number| (Reg::new(number), other.most(Reg::new(number)))) {
            if before.most(reg) < most {
                self.below[reg.index()] = 0;
            } else {
                self.below[reg.index()] = !before.most(reg);
            }
        }
        *self != before
    }
}

/// Whether `address` is a device's or so near that an offset may reach one.
fn near_device(address: u32) -> bool {
    const NEAR: u32 = 0x1000;
    let near = |address: u32, base: u32, size: u32| address.wrapping_sub(base - NEAR) < size + 2 * NEAR;
    near(address, PERIPHERALS, PERIPHERALS_SIZE)
        || near(address, STDOUT_BASE, STDOUT_SIZE)
        || near(address & !PUBLIC_DMA_CLUSTERS, PUBLIC_DMA_BASE, dma::SIZE)
}

/// What is known of a plan.
pub(crate) struct Facts {
    /// At the start of each block; `None` for those that are not reached.
    known: Vec<Option<Known>>,
    /// Registers that may be read from the start of each block on.
    live: Vec<Regs>,
    /// Registers that are read when the handler has returned.
    pub(crate) results: Regs,
    /// The address of a device is stored to memory somewhere, so any loaded value may be one.
    pub(crate) device_escapes: bool,
}

impl Facts {
    /// Looks at every block. Computed jumps whose address turns out to be a constant become plain ones in `plan`. `results`
    /// are read when the handler has returned; `gp` holds `global_pointer` when it begins.
    pub(crate) fn new(plan: &mut Plan, results: Regs, global_pointer: u32) -> Self {
        let known = constants(plan, global_pointer);
        resolve_jumps(plan, &known);
        let live = liveness(plan, results);
        let device_escapes = plan.blocks.iter().zip(&known).any(|(block, known)| {
            let Some(mut known) = known.clone() else { return false };
            block.body.iter().enumerate().any(|(index, (_, decoded))| {
                let escapes = known.escapes(&decoded.inst);
                known.step_in(block, index);
                escapes
            })
        });
        Self { known, live, results, device_escapes }
    }

    /// What is known at the start of a block.
    pub(crate) fn known(&self, block: BlockId) -> Option<&Known> {
        self.known[block].as_ref()
    }

    /// Registers that may be read after each instruction of `block`: one more entry than it has instructions, the
    /// first for its start.
    pub(crate) fn live_within(&self, plan: &Plan, id: BlockId) -> Vec<Regs> {
        let block = &plan.blocks[id];
        let mut live = live_out(block, &self.live, self.results);
        let mut all = vec![live];
        for index in (0..block.body.len()).rev() {
            live = before(block, index, live);
            all.push(live);
        }
        all.reverse();
        all
    }
}

fn constants(plan: &Plan, global_pointer: u32) -> Vec<Option<Known>> {
    let mut known: Vec<Option<Known>> = vec![None; plan.blocks.len()];
    known[0] = Some(Known::at_entry(global_pointer));
    let mut queued = vec![false; plan.blocks.len()];
    let mut work = vec![0];
    while let Some(id) = work.pop() {
        queued[id] = false;
        let Some(mut state) = known[id].clone() else { continue };
        let block = &plan.blocks[id];
        for index in 0..block.body.len() {
            state.step_in(block, index);
        }
        let last = block.body.last().map(|(_, decoded)| &decoded.inst);
        for next in plan.successors(id) {
            let state = state.along(&block.end, last, next);
            let changed = match &mut known[next] {
                Some(there) => there.meet(&state),
                none => {
                    *none = Some(state);
                    true
                }
            };
            if changed && !std::mem::replace(&mut queued[next], true) {
                work.push(next);
            }
        }
    }
    known
}

fn resolve_jumps(plan: &mut Plan, known: &[Option<Known>]) {
    for (block, known) in plan.blocks.iter_mut().zip(known) {
        let (End::Jump { likely, table }, Some(mut known)) = (&block.end, known.clone()) else { continue };
        let Some(((_, last), before)) = block.body.split_last() else { continue };
        for index in 0..before.len() {
            known.step_in(block, index);
        }
        if let Some(address) = known.constant(last.inst.rs1) {
            let pc = address.wrapping_add(last.inst.imm.cast_unsigned()) & !1;
            let targets = table.map_or(&[][..], |table| &plan.tables[table]);
            let planned = likely.iter().chain(targets).find(|target| target.pc == pc);
            block.end = End::Goto(planned.copied().unwrap_or(Target { pc, block: None }));
        }
    }
}

fn liveness(plan: &Plan, results: Regs) -> Vec<Regs> {
    let mut predecessors: Vec<Vec<BlockId>> = vec![Vec::new(); plan.blocks.len()];
    for id in 0..plan.blocks.len() {
        plan.successors(id).for_each(|next| predecessors[next].push(id));
    }
    let mut live = vec![Regs(0); plan.blocks.len()];
    let mut queued = vec![true; plan.blocks.len()];
    let mut work: Vec<BlockId> = (0..plan.blocks.len()).collect();
    while let Some(id) = work.pop() {
        queued[id] = false;
        let block = &plan.blocks[id];
        let out = live_out(block, &live, results);
        let now = (0..block.body.len()).rev().fold(out, |live, index| before(block, index, live));
        if now != live[id] {
            live[id] = now;
            for &previous in &predecessors[id] {
                if !std::mem::replace(&mut queued[previous], true) {
                    work.push(previous);
                }
            }
        }
    }
    live
}

/// Live after the block's last instruction. The interpreter, which takes over where nothing is planned, may read all.
fn live_out(block: &Block, live: &[Regs], results: Regs) -> Regs {
    let to = |target: &Target| match target.block {
        Some(id) => live[id],
        None if target.pc == RETURN_ADDRESS => results,
        None => Regs::ALL,
    };
    match &block.end {
        End::Goto(target) => to(target),
        End::Branch { taken, not } => to(taken).or(to(not)),
        End::Jump { .. } => Regs::ALL,
        End::Fetch(RETURN_ADDRESS) => results,
        End::Fetch(_) => Regs(0),
    }
}

/// Live before an instruction of a block. Behind a return address that is not what it should be the interpreter goes on.
fn before(block: &Block, index: usize, after: Regs) -> Regs {
    let after = if block.restored(index).is_some() { Regs::ALL } else { after };
    let inst = &block.body[index].1.inst;
    after.without(writes(inst)).or(reads(inst))
}
