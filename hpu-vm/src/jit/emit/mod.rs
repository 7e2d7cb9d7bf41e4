//! Emission: from the graph of a region, its facts and its plan to Cranelift's intermediate representation. One function
//! for each region: of the state and a0, to how it ended.
//!
//! * [`access`], [`registers`], [`vector_registers`], [`cache`], [`ways`]: what the emission keeps track of.
//! * [`emitter`], [`side_exits`]: its state, and the ways out of a region.
//! * [`peephole`]: patterns of Cranelift's instructions.
//! * [`arithmetic`], [`counters`], [`device`], [`zero_copy`], [`host_copy`], [`commands`], [`memory`], [`atomics`],
//!   [`vector`]: instructions by their kind.
//! * [`control`], [`block`]: blocks and their ends.
//! * [`entrance`]: where a region is entered.

mod access;
mod arithmetic;
mod atomics;
mod block;
mod cache;
mod commands;
mod control;
mod counters;
mod device;
mod emitter;
mod entrance;
mod host_copy;
mod memory;
mod peephole;
mod registers;
mod side_exits;
mod vector;
mod vector_registers;
mod ways;
mod zero_copy;

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{self, AbiParam};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::prologue::Prologue;
use super::side_exits::SideExits;
use emitter::Emitter;

pub(crate) use emitter::Input;

/// A function, and what its callers have to know.
pub(crate) struct Emitted {
    pub(crate) function: ir::Function,
    /// Duties of its prologue.
    pub(crate) prologue: Prologue,
    /// Exits to the interpreter and to other regions.
    pub(crate) exits: SideExits,
    /// Number of bytes of the longest copy of which the device is [told later](super::host_copy); 0 for none.
    pub(crate) longest_copy: u32,
}

/// Emits the function of a region. `None` when it would be too large; the context cannot be used again then.
pub(crate) fn function(isa: &dyn TargetIsa, input: Input<'_>, context: &mut FunctionBuilderContext) -> Option<Emitted> {
    let mut signature = ir::Signature::new(isa.default_call_conv());
    signature.params.extend([AbiParam::new(I64); 2]);
    signature.returns.push(AbiParam::new(I64));
    let mut function = ir::Function::with_name_signature(ir::UserFuncName::default(), signature);
    let mut emitter = Emitter::new(FunctionBuilder::new(&mut function, context), input);
    entrance::enter(&mut emitter);
    for id in input.cfg.hot_blocks() {
        if !block::is_chosen(&emitter, id) {
            block::emit(&mut emitter, id);
        }
        emitter.seal_successors(id);
        if emitter.is_too_large() {
            return None;
        }
    }
    (0..input.cfg.tables.len()).for_each(|table| control::dispatch(&mut emitter, table));
    entrance::dispatch_entries(&mut emitter);
    emitter.ways_out();
    emitter.builder.seal_all_blocks();
    let is_too_large = emitter.is_too_large();
    let (prologue, exits) = (emitter.ways.prologue, std::mem::take(&mut emitter.ways.exits));
    let longest_copy = emitter.outcome.longest_copy;
    emitter.builder.finalize(isa.frontend_config());
    (!is_too_large).then_some(Emitted { function, prologue, exits, longest_copy })
}
