//! Emission of the program for a handler's graph.
//!
//! R0 and R1 are scratch registers. R2 to R8 hold guest registers, zero-extended; R9 the end of the frame. All others are
//! in the [frame](frame).
//!
//! * [`frame`]: the program's stack; homes of guest registers.
//! * [`emitter`]: state of the emission.
//! * [`entrance`], [`exits`]: what the program does before the handler, and after it.
//! * [`block`], [`control`]: blocks and their ends.
//! * [`arithmetic`], [`access`], [`memory`], [`atomics`], [`commands`]: instructions.
//! * [`stub`]: places that are emitted later.
//! * [`rights`]: frames that handlers of ordinary users may send.
//! * [`misses`]: accesses that were not where they were expected.

mod access;
mod arithmetic;
mod atomics;
mod block;
mod commands;
mod control;
mod emitter;
mod entrance;
mod exits;
mod frame;
mod memory;
mod misses;
mod rights;
mod stub;

pub(super) use block::emit;
pub(super) use emitter::Input;
