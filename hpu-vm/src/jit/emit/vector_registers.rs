//! Vector registers while translated code runs, and the vector type and length at the current instruction.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I8, I8X16};
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::access::{TRUSTED, offset};
use crate::analysis::cfg::{BlockId, Cfg};
use crate::analysis::dataflow::Dataflow;
use crate::analysis::dataflow::vector::{Setting, VRegs, vectors};
use crate::jit::state::State;
use crate::vector::{VLEN_BYTES, VReg, Width};

/// Number of instructions of the intermediate representation for the vector instructions of a region: one of these may
/// take a hundred.
const ROOM: usize = 60_000;

/// The vector registers.
pub(super) struct Vectors {
    /// The registers; `None` when the region has no vector instructions.
    variables: Option<[Variable; 32]>,
    /// Registers that the region may write. The hart has the values of the others.
    written: VRegs,
    /// Registers that the region may read or write and that may not be zero when it is entered.
    loaded: VRegs,
    /// Vector type and length at the current instruction.
    pub(super) setting: Setting,
    /// What is left of [`ROOM`].
    pub(super) room: usize,
    /// First elements that are at hand as scalars, within a block.
    pub(super) firsts: [Option<(Width, Value)>; 32],
}

impl Vectors {
    pub(super) fn new(builder: &mut FunctionBuilder<'_>, cfg: &Cfg) -> Self {
        let touched = cfg.hot_instructions().filter_map(|inst| inst.vector()).map(|inst| vectors(&inst));
        let none = (VRegs::default(), VRegs::default());
        let (read, written) =
            touched.fold(none, |(read, written), (reads, writes)| (read.or(reads), written.or(writes)));
        let is_used = cfg.hot_instructions().any(|inst| inst.vector().is_some());
        Self {
            variables: is_used.then(|| [(); 32].map(|()| builder.declare_var(I8X16))),
            written,
            // When a task begins, the registers are zero.
            loaded: if cfg.begins_task() { written } else { read.or(written) },
            setting: Setting::default(),
            room: ROOM,
            firsts: [None; 32],
        }
    }

    pub(super) fn begin_block(&mut self, facts: &Dataflow, block: BlockId) {
        self.setting = facts.vector_setting(block);
        self.forget_firsts();
    }

    /// Whether the region has vector instructions.
    pub(super) const fn are_used(&self) -> bool {
        self.variables.is_some()
    }

    pub(super) const fn forget_firsts(&mut self) {
        self.firsts = [None; 32];
    }

    /// A register, as I8X16: all vectors are between operations.
    pub(super) fn get(&self, builder: &mut FunctionBuilder<'_>, reg: VReg) -> Value {
        match &self.variables {
            Some(variables) => builder.use_var(variables[reg.number() as usize]),
            None => zeroes(builder),
        }
    }

    pub(super) fn set(&mut self, builder: &mut FunctionBuilder<'_>, reg: VReg, value: Value) {
        self.firsts[reg.number() as usize] = None;
        if let Some(variables) = &self.variables {
            builder.def_var(variables[reg.number() as usize], value);
        }
    }

    /// Sets all registers to zero.
    pub(super) fn zero(&mut self, builder: &mut FunctionBuilder<'_>) {
        if self.are_used() {
            let zero = zeroes(builder);
            (0..32).map(VReg::new).for_each(|reg| self.set(builder, reg, zero));
        }
    }

    /// Writes all registers to the hart.
    pub(super) fn save_all(&self, builder: &mut FunctionBuilder<'_>, state: Value) {
        self.save(builder, state, self.written);
    }

    /// Loads all registers from the hart.
    pub(super) fn load_all(&mut self, builder: &mut FunctionBuilder<'_>, state: Value) {
        self.zero(builder);
        self.load(builder, state, self.loaded);
    }

    pub(super) fn save(&self, builder: &mut FunctionBuilder<'_>, state: Value, regs: VRegs) {
        let regs = VRegs(regs.0 & self.written.0);
        if regs == VRegs::default() {
            return;
        }
        // First: the watchdog may end the task in between, and the next one must not see the registers.
        let used = builder.ins().iconst(I8, 1);
        builder.ins().store(TRUSTED, used, state, offset(offset_of!(State, hart.dirty)));
        builder.ins().store(TRUSTED, used, state, offset(offset_of!(State, hart.vector.used)));
        for reg in regs.iter() {
            let value = self.get(builder, reg);
            builder.ins().store(TRUSTED, value, state, offset(place(reg)));
        }
    }

    pub(super) fn load(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, regs: VRegs) {
        for reg in regs.iter() {
            let value = builder.ins().load(I8X16, TRUSTED, state, offset(place(reg)));
            self.set(builder, reg, value);
        }
    }
}

/// A vector of zeroes.
pub(super) fn zeroes(builder: &mut FunctionBuilder<'_>) -> Value {
    let constant = builder.func.dfg.constants.insert([0; VLEN_BYTES as usize].as_slice().into());
    builder.ins().vconst(I8X16, constant)
}

/// Offset of a register in the state.
const fn place(reg: VReg) -> usize {
    offset_of!(State, hart.vector.v) + (VLEN_BYTES * reg.number()) as usize
}
