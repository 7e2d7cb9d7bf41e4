//! What a handler seldom does is a function of its own: so what it does mostly needs not leave registers for it, nor save those of its
//! caller that only the other uses.
//!
//! Guest registers go there by way of the state.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, SourceLoc, Value};
use cranelift_frontend::Switch;

use super::{Emitter, RETURNED};
use crate::jit::enter::Begins;
use crate::jit::facts::Regs;
use crate::jit::part::Part;
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
        let live: Regs = self.live[0];
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

    /// Has a task go on in the other function, which has such a resume point.
    pub(super) fn resume_aside(&mut self) {
        let way = *self.resumed_there.get_or_insert_with(|| {
            let block = self.builder.create_block();
            self.builder.set_cold_block(block);
            block
        });
        self.builder.ins().jump(way, &[]);
    }

    /// The ways to the other function.
    pub(super) fn go_aside(&mut self) {
        let Some(aside) = self.part.before() else { return };
        if let Some(way) = self.handed_over {
            self.builder.switch_to_block(way);
            self.builder.set_srcloc(SourceLoc::default());
            let number = self.builder.block_params(way)[0];
            // What this function has done, or has no need of.
            let Begins { command, reservation, .. } = self.begins;
            let begins = aside.begins;
            self.begin_state(Begins {
                command: begins.command && !command,
                reservation: begins.reservation && !reservation,
                vectors: false,
            });
            let number = self.builder.ins().uextend(I64, number);
            self.call_aside(number);
        }
        if let Some(way) = self.resumed_there {
            self.builder.switch_to_block(way);
            self.builder.set_srcloc(SourceLoc::default());
            let nowhere = self.builder.ins().iconst(I64, 0);
            self.call_aside(nowhere);
        }
    }

    /// What the other function returns is what this one does.
    fn call_aside(&mut self, number: Value) {
        let mut signature = Signature::new(self.builder.func.signature.call_conv);
        signature.params.extend([AbiParam::new(I64); 4]);
        signature.returns.push(AbiParam::new(I64));
        let signature = self.builder.import_signature(signature);
        let function = self.load_state(I64, offset_of!(State, aside));
        let call = self.builder.ins().call_indirect(signature, function, &[self.state, number, number, number]);
        let result = self.builder.inst_results(call)[0];
        // No task is here any more that could be sent to where faults leave.
        self.builder.set_srcloc(SourceLoc::new(RETURNED));
        self.builder.ins().return_(&[result]);
    }

    /// Where this function begins, which is the other one's: at the block with the number that it was given.
    pub(super) fn begin_aside(&mut self) {
        let [_, (_, number), _] = self.given;
        let number = self.builder.ins().ireduce(I32, number);
        let mut switch = Switch::new();
        for id in (0..self.plan.blocks.len()).filter(|&id| self.plan.blocks[id].apart && self.part.has(id)) {
            switch.set_entry(id as u128, self.blocks[id]);
        }
        let nowhere = self.fault_return;
        switch.emit(&mut self.builder, number, nowhere);
    }
}
