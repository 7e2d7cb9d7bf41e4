//! Guest registers while translated code runs: variables, of which Cranelift makes SSA values.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::access::{TRUSTED, offset};
use crate::analysis::cfg::Cfg;
use crate::analysis::regs::{Regs, writes};
use crate::inst::Reg;
use crate::jit::state::State;

/// Offset of a register in the state.
pub(super) const fn place(reg: Reg) -> usize {
    offset_of!(State, hart.x) + 4 * reg.index()
}

/// A register's value within a block: as 32 bits, zero-extended to 64, or both.
#[derive(Clone, Copy, Debug, Default)]
struct Cached {
    narrow: Option<Value>,
    wide: Option<Value>,
    /// The variable has another value.
    dirty: bool,
}

/// The registers.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    /// Values between blocks, zero-extended: 32-bit results of the host are, and addresses must be.
    variables: [Variable; 32],
    /// Values within a block.
    cached: [Cached; 32],
    /// Registers whose values the hart may not have. In a shared region it has those that the region does not write.
    written: Regs,
    /// Writes go to the state, too.
    through: bool,
}

impl Registers {
    /// Declares the registers; with `observe` the state always has their values.
    pub(super) fn new(builder: &mut FunctionBuilder<'_>, cfg: &Cfg, observe: bool) -> Self {
        let written = cfg.hot_instructions().fold(Regs(0), |written, inst| written.with(writes(inst)));
        Self {
            variables: [(); 32].map(|()| builder.declare_var(I64)),
            cached: [Cached::default(); 32],
            written: if cfg.begins_task() { Regs::ALL } else { written },
            through: observe,
        }
    }

    /// Whether the hart may lack a register's value.
    pub(super) const fn is_written(&self, reg: Reg) -> bool {
        self.written.has(reg)
    }

    /// Whether the state has all values at all times.
    pub(super) const fn in_state(&self) -> bool {
        self.through
    }

    pub(super) fn begin_block(&mut self) {
        self.cached = [Cached::default(); 32];
    }

    /// The value of a register.
    pub(super) fn get(&mut self, builder: &mut FunctionBuilder<'_>, reg: Reg) -> Value {
        if let Some(value) = self.cached[reg.index()].narrow {
            return value;
        }
        let wide = self.get_wide(builder, reg);
        *self.cached[reg.index()].narrow.insert(builder.ins().ireduce(I32, wide))
    }

    /// The value of a register, zero-extended.
    pub(super) fn get_wide(&mut self, builder: &mut FunctionBuilder<'_>, reg: Reg) -> Value {
        let cached = &mut self.cached[reg.index()];
        *cached.wide.get_or_insert_with(|| match cached.narrow {
            Some(value) => builder.ins().uextend(I64, value),
            None => builder.use_var(self.variables[reg.index()]),
        })
    }

    /// Sets a register.
    pub(super) fn set(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg, value: Value) {
        if reg == Reg::ZERO {
            return;
        }
        if self.through {
            builder.ins().store(TRUSTED, value, state, offset(place(reg)));
        }
        self.changed(reg, Cached { narrow: Some(value), wide: None, dirty: true });
    }

    fn changed(&mut self, reg: Reg, cached: Cached) {
        self.cached[reg.index()] = cached;
    }

    /// Sets a register to a zero-extended value.
    pub(super) fn set_wide(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg, value: Value) {
        if reg == Reg::ZERO {
            return;
        }
        if self.through {
            builder.ins().istore32(TRUSTED, value, state, offset(place(reg)));
        }
        self.changed(reg, Cached { narrow: None, wide: Some(value), dirty: true });
    }

    /// Computes a register's value here, so that code in another block can [save](Self::save) it.
    pub(super) fn find(&mut self, builder: &mut FunctionBuilder<'_>, reg: Reg) {
        if self.cached[reg.index()].narrow.is_none() {
            self.get_wide(builder, reg);
        }
    }

    /// Writes a register's value to the state.
    pub(super) fn save(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) {
        let at = offset(place(reg));
        match self.cached[reg.index()].narrow {
            Some(value) => builder.ins().store(TRUSTED, value, state, at),
            None => {
                let value = self.get_wide(builder, reg);
                builder.ins().istore32(TRUSTED, value, state, at)
            }
        };
    }

    /// Sets a register to what the state has.
    pub(super) fn reload(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) {
        let value = builder.ins().uload32(TRUSTED, state, offset(place(reg)));
        self.changed(reg, Cached { narrow: None, wide: Some(value), dirty: true });
    }

    /// Forgets the value of a register within the block.
    pub(super) fn forget(&mut self, reg: Reg) {
        self.changed(reg, Cached::default());
    }

    /// Makes those values of `live` that were set in this block available in other blocks.
    pub(super) fn publish(&mut self, builder: &mut FunctionBuilder<'_>, live: Regs) {
        for reg in live.iter() {
            if std::mem::take(&mut self.cached[reg.index()].dirty) {
                let value = self.get_wide(builder, reg);
                self.define(builder, reg, value);
            }
        }
    }

    /// Defines a register's value for other blocks, zero-extended; the state is not updated.
    pub(super) fn define(&self, builder: &mut FunctionBuilder<'_>, reg: Reg, value: Value) {
        builder.def_var(self.variables[reg.index()], value);
    }

    /// Computes a register's value here and not in the blocks that use it. Cranelift recomputes sums with constants in each
    /// of these (`opts/remat.isle`), so that the operands live as long, and loops repeat the sums: reduce/1024 takes a
    /// twelfth longer then. It does not look through instructions with two results.
    pub(super) fn compute(&mut self, builder: &mut FunctionBuilder<'_>, reg: Reg) {
        let value = self.get_wide(builder, reg);
        let twice = builder.ins().iconcat(value, value);
        let (same, _) = builder.ins().isplit(twice);
        self.define(builder, reg, same);
        self.cached[reg.index()].dirty = false;
    }
}
