//! Commands: handlers store type and words just before they issue one, so what is issued is mostly known by the values that they
//! stored. The host is called with those then, and need not wait until the words have left the store buffer.

use std::mem::offset_of;

use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, Value};
use spin_abi::regs::{COMMAND_WORD_COUNT, INFO_DMA, INFO_SEND};

use super::Emitter;
use crate::jit::state::Calls;

/// Words that say what a send or a copy is.
const WORDS: usize = 5;

/// What was stored to the command registers since the block began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    words: [Option<Value>; WORDS],
    info: Option<u32>,
}

impl Stored {
    /// Notes a store of `value`, which may be known, to register `index`, in the order of
    /// [`CommandRegisters`](crate::device::CommandRegisters).
    pub(super) const fn note(&mut self, index: usize, value: Value, known: Option<u32>) {
        if index < WORDS {
            self.words[index] = Some(value);
        } else if index == COMMAND_WORD_COUNT {
            self.info = known;
        }
    }

    /// The words of what is issued now, if they are all, and the field of [`Calls`] that takes them.
    fn command(&self) -> Option<(usize, [Value; WORDS])> {
        let field = match self.info? {
            INFO_SEND => offset_of!(Calls, send),
            INFO_DMA => offset_of!(Calls, dma),
            _ => return None,
        };
        let [Some(first), Some(second), Some(third), Some(fourth), Some(fifth)] = self.words else { return None };
        Some((field, [first, second, third, fourth, fifth]))
    }
}

impl Emitter<'_> {
    /// The handle of the command that is issued.
    pub(super) fn issue(&mut self) -> Value {
        let result = match self.registers.stored().command() {
            Some((field, words)) => self.device_call(field, &words),
            None => self.device_call(offset_of!(Calls, issue), &[]),
        };
        self.builder.ins().ireduce(I32, result)
    }
}
