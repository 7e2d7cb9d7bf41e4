//! Where guest registers are while translated code runs.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::command::Stored;
use super::in_place::Found;
use super::{TRUSTED, offset};
use crate::inst::Reg;
use crate::jit::accesses::Place;
use crate::jit::facts::Regs;
use crate::jit::state::State;

/// Offset of a register in the state.
pub(super) const fn place(reg: Reg) -> usize {
    offset_of!(State, hart.x) + 4 * reg.index()
}

/// A register's value within a block, as 32 bits, extended with zeroes to 64, or both.
#[derive(Clone, Copy, Debug, Default)]
struct Cached {
    narrow: Option<Value>,
    wide: Option<Value>,
    /// The variable has another.
    dirty: bool,
}

/// The registers.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    /// What they hold between blocks, extended with zeroes: what the host computes of 32 bits is that already, and an address
    /// must be. `None`: they live in the state.
    variables: Option<[Variable; 32]>,
    /// Within a block.
    cached: [Cached; 32],
    /// Host addresses of bytes at known distances from roots, within a block.
    hosts: Vec<(Place, Value)>,
    /// Where bytes of the packet are, as long as it stays there, within a block.
    pub(super) found: Vec<Found>,
    /// What the command registers hold.
    stored: Stored,
    /// Writes go to the state too.
    through: bool,
}

impl Registers {
    /// Registers in variables or `in_memory`; with `observe` the state always has their values.
    pub(super) fn new(builder: &mut FunctionBuilder<'_>, in_memory: bool, observe: bool) -> Self {
        let variables = (!in_memory).then(|| [(); 32].map(|()| builder.declare_var(I64)));
        Self {
            variables,
            cached: [Cached::default(); 32],
            hosts: Vec::new(),
            found: Vec::new(),
            stored: Stored::default(),
            through: in_memory || observe,
        }
    }

    /// Whether the state has all values at all times.
    pub(super) const fn in_state(&self) -> bool {
        self.through
    }

    pub(super) fn begin_block(&mut self) {
        self.cached = [Cached::default(); 32];
        self.hosts.clear();
        self.found.clear();
        self.stored = Stored::default();
    }

    /// What was stored to the command registers since the block began.
    pub(super) const fn stored(&mut self) -> &mut Stored {
        &mut self.stored
    }

    /// A host address of the same root, and how far it is from there to `place`.
    pub(super) fn host_near(&self, place: Place) -> Option<(Value, i32)> {
        let (known, host) = self.hosts.iter().find(|(known, _)| known.root == place.root)?;
        Some((*host, place.distance.wrapping_sub(known.distance).cast_signed()))
    }

    /// Remembers the host address of `place`; the first of a root stays.
    pub(super) fn add_host(&mut self, place: Place, host: Value) {
        if self.host_near(place).is_none() {
            self.hosts.push((place, host));
        }
    }

    /// The value of a register.
    pub(super) fn get(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) -> Value {
        if let Some(value) = self.cached[reg.index()].narrow {
            return value;
        }
        let wide = self.get_wide(builder, state, reg);
        *self.cached[reg.index()].narrow.insert(builder.ins().ireduce(I32, wide))
    }

    /// The same, extended with zeroes.
    pub(super) fn get_wide(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) -> Value {
        let cached = &mut self.cached[reg.index()];
        *cached.wide.get_or_insert_with(|| match (cached.narrow, &self.variables) {
            (Some(value), _) => builder.ins().uextend(I64, value),
            (None, Some(variables)) => builder.use_var(variables[reg.index()]),
            (None, None) => builder.ins().uload32(TRUSTED, state, offset(place(reg))),
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

    /// Sets a register to a value extended with zeroes.
    pub(super) fn set_wide(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg, value: Value) {
        if reg == Reg::ZERO {
            return;
        }
        if self.through {
            builder.ins().istore32(TRUSTED, value, state, offset(place(reg)));
        }
        self.changed(reg, Cached { narrow: None, wide: Some(value), dirty: true });
    }

    /// Has a register's value at hand, so that code in another block may [save](Self::save) it.
    pub(super) fn find(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) {
        if self.cached[reg.index()].narrow.is_none() {
            self.get_wide(builder, state, reg);
        }
    }

    /// Writes a register's value to the state.
    pub(super) fn save(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) {
        let at = offset(place(reg));
        match self.cached[reg.index()].narrow {
            Some(value) => builder.ins().store(TRUSTED, value, state, at),
            None => {
                let value = self.get_wide(builder, state, reg);
                builder.ins().istore32(TRUSTED, value, state, at)
            }
        };
    }

    /// Sets a register to what the state has.
    pub(super) fn reload(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) {
        if self.variables.is_none() {
            // It will be loaded where it is read.
            return self.forget(reg);
        }
        let value = builder.ins().uload32(TRUSTED, state, offset(place(reg)));
        self.changed(reg, Cached { narrow: None, wide: Some(value), dirty: true });
    }

    /// Has a register's value looked up anew.
    pub(super) fn forget(&mut self, reg: Reg) {
        self.changed(reg, Cached::default());
    }

    /// Gives those of `live` that were set since the block began to the blocks that follow.
    pub(super) fn publish(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, live: Regs) {
        for reg in live.iter() {
            if self.variables.is_some() && std::mem::take(&mut self.cached[reg.index()].dirty) {
                let value = self.get_wide(builder, state, reg);
                self.define(builder, reg, value);
            }
        }
    }

    /// What a register holds in the blocks that follow, extended with zeroes, where the state need not know.
    pub(super) fn define(&self, builder: &mut FunctionBuilder<'_>, reg: Reg, value: Value) {
        if let Some(variables) = &self.variables {
            builder.def_var(variables[reg.index()], value);
        }
    }

    /// Has a register's value computed here and nowhere else, for the blocks that follow. Cranelift makes sums and the like of
    /// constants anew in each block that uses them (`opts/remat.isle`), so what they are made of lives as long, and loops repeat
    /// them; but it does not look through what has two results.
    pub(super) fn compute(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) {
        if self.variables.is_some() {
            let value = self.get_wide(builder, state, reg);
            let twice = builder.ins().iconcat(value, value);
            let (same, _) = builder.ins().isplit(twice);
            self.define(builder, reg, same);
            self.cached[reg.index()].dirty = false;
        }
    }
}
