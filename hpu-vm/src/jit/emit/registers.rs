//! Where guest registers are while translated code runs.

use std::mem::offset_of;

use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::{TRUSTED, offset};
use crate::inst::Reg;
use crate::jit::accesses::Place;
use crate::jit::state::State;

/// Offset of a register in the state.
pub(super) const fn place(reg: Reg) -> usize {
    offset_of!(State, hart.x) + 4 * reg.index()
}

/// The registers.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    /// `None`: they live in the state.
    variables: Option<[Variable; 32]>,
    /// Values known to be in the state too, within a block.
    cached: [Option<Value>; 32],
    /// Host addresses of bytes at known distances from roots, within a block.
    hosts: Vec<(Place, Value)>,
    /// Writes go to the state too.
    through: bool,
}

impl Registers {
    /// Registers in variables or `in_memory`; with `observe` the state always has their values.
    pub(super) fn new(builder: &mut FunctionBuilder<'_>, in_memory: bool, observe: bool) -> Self {
        let variables = (!in_memory).then(|| [(); 32].map(|()| builder.declare_var(I32)));
        Self { variables, cached: [None; 32], hosts: Vec::new(), through: in_memory || observe }
    }

    /// Whether the state has all values at all times.
    pub(super) const fn in_state(&self) -> bool {
        self.through
    }

    pub(super) fn begin_block(&mut self) {
        self.cached = [None; 32];
        self.hosts.clear();
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

    pub(super) fn get(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) -> Value {
        if let Some(variables) = &self.variables {
            return builder.use_var(variables[reg.index()]);
        }
        *self.cached[reg.index()].get_or_insert_with(|| builder.ins().load(I32, TRUSTED, state, offset(place(reg))))
    }

    pub(super) fn set(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg, value: Value) {
        if reg == Reg::ZERO {
            return;
        }
        if self.through {
            builder.ins().store(TRUSTED, value, state, offset(place(reg)));
        }
        self.define(builder, reg, value);
    }

    /// Sets a register to what the state has.
    pub(super) fn reload(&mut self, builder: &mut FunctionBuilder<'_>, state: Value, reg: Reg) {
        let value = builder.ins().load(I32, TRUSTED, state, offset(place(reg)));
        self.define(builder, reg, value);
    }

    /// Sets a register where the state need not know.
    pub(super) fn define(&mut self, builder: &mut FunctionBuilder<'_>, reg: Reg, value: Value) {
        match &self.variables {
            Some(variables) => builder.def_var(variables[reg.index()], value),
            None => self.cached[reg.index()] = Some(value),
        }
    }
}
