//! What a handler seldom does is a function of its own: so what it does mostly needs not leave registers for it, nor save those of its
//! caller that only the other uses.
//!
//! Guest registers go there by way of the state.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, SourceLoc, Value};
use cranelift_frontend::Switch;

use super::Emitter;
use crate::jit::facts::Regs;
use crate::jit::part::Part;
use crate::jit::pc_map::HANDLER_RETURN;
use crate::jit::plan::BlockId;
use crate::jit::state::State;

impl Emitter<'_> {
    /// Whether registers go to a block by way of the state.
    pub(super) fn is_apart(&self, id: BlockId) -> bool {
        !matches!(self.part, Part::Whole) && self.plan.blocks[id].apart
    }

    /// Goes to a block that is apart, in this function or the other one.
    pub(super) fn hand_over(&mut self, id: BlockId) {
        // The block is over, whatever index instructions are counted by.
        let live = self.live.last().copied().unwrap_or(Regs::ALL);
        self.save(live);
        if self.part.has(id) {
            let block = self.blocks[id];
            self.builder.ins().jump(block, &[]);
            return;
        }
        self.publish_count();
        let way = *self.handed_over.get_or_insert_with(|| {
            let block = self.builder.create_block();
            self.builder.set_cold_block(block);
            self.builder.append_block_param(block, I32);
            block
        });
        // A plan has fewer blocks than a u32 has numbers.
        let number = self.constant(u32::try_from(id).unwrap_or(u32::MAX));
        self.builder.ins().jump(way, &[number.into()]);
    }

    /// At the start of a block that is apart: has its registers.
    pub(super) fn take_over(&mut self) {
        self.retreat = None;
        let live = self.live[0];
        for reg in live.iter() {
            match self.known.constant(reg) {
                Some(value) => {
                    let value = self.constant(value);
                    self.set(reg, value);
                }
                None => self.registers.reload(&mut self.builder, self.state, reg),
            }
        }
    }

    /// The way to the blocks that are apart in the other function.
    pub(super) fn go_aside(&mut self) {
        let (Some(aside), Some(way)) = (self.part.before(), self.handed_over) else { return };
        self.builder.switch_to_block(way);
        self.builder.set_srcloc(SourceLoc::default());
        let number = self.builder.block_params(way)[0];
        self.begin_state(aside.begins.without(self.begins));
        self.unless_stopped();
        self.call_aside(number);
    }

    /// A way to where faults leave, which is never taken: there has to be one.
    pub(super) fn unless_stopped(&mut self) {
        let go_on = self.builder.create_block();
        self.builder.set_cold_block(go_on);
        self.builder.ins().brif(self.state, go_on, &[], self.fault_return, &[]);
        self.builder.switch_to_block(go_on);
    }

    /// Ends the block with a call of the other function: what that returns is what this one does. Of a task that goes on it asks for
    /// no block's number.
    pub(super) fn call_aside(&mut self, number: Value) {
        let mut signature = self.builder.func.signature.clone();
        // That one leaves nothing to its caller.
        signature.returns.truncate(1);
        let signature = self.builder.import_signature(signature);
        let number = self.builder.ins().uextend(I64, number);
        let function = self.load_state(I64, offset_of!(State, cold_code));
        let call = self.builder.ins().call_indirect(signature, function, &[self.state, number]);
        let result = self.builder.inst_results(call)[0];
        // No task is here any more that could be sent to where faults leave.
        self.builder.set_srcloc(SourceLoc::new(HANDLER_RETURN));
        self.return_how(result);
        self.builder.set_srcloc(SourceLoc::default());
    }

    /// Where this function begins, which is the other one's: at the block with the number that it was given.
    pub(super) fn begin_aside(&mut self) {
        let number = self.builder.ins().ireduce(I32, self.argument);
        let mut switch = Switch::new();
        for id in (0..self.plan.blocks.len()).filter(|&id| self.plan.blocks[id].apart && self.part.has(id)) {
            switch.set_entry(id as u128, self.blocks[id]);
        }
        let nowhere = self.fault_return;
        switch.emit(&mut self.builder, number, nowhere);
    }
}
