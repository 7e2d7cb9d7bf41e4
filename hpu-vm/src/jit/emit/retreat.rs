//! Where the interpreter goes on when a check says no.
//!
//! Writing registers to the hart takes more code than the check itself. What only loads and computes may be done again: so checks
//! behind each other, with nothing else between, share one way out, which leads back to the first of them.

use cranelift_codegen::ir::{Block, InstBuilder, Value};

use super::Emitter;
use crate::inst::{Format, Inst};
use crate::jit::plan::{BlockId, End};

/// Whether nobody can tell that an instruction was done, and is done again. Loads from devices are not: what calls those
/// forgets the way back itself.
pub(super) const fn is_done_again(inst: &Inst) -> bool {
    let format = inst.op.format();
    format.computes() || matches!(format, Format::Load | Format::Branch | Format::J | Format::JumpRegister)
}

impl Emitter<'_> {
    /// The way back from the start of a block: that of all blocks that lead there. Those that are yet to be emitted have none, so a
    /// loop is not done again from before it.
    pub(super) fn common_retreat(&self, id: BlockId) -> Option<Block> {
        let mut ways = self.ways[id].iter().map(|&from| match self.plan.blocks[from].end {
            // They meet where registers get their places for all of them.
            End::Jump { .. } => None,
            _ => self.retreats[from],
        });
        let first = ways.next()??;
        ways.all(|way| way == Some(first)).then_some(first)
    }

    /// Leaves the current instruction, and those before it that may be done again, to the interpreter when `condition` holds.
    pub(super) fn retreat_if(&mut self, condition: Value) {
        let (pc, live) = (self.pc, self.live[self.index]);
        // Counts, and what vectors hold, are those of here.
        if self.retired.is_some() || self.vectors.are_used() || self.registers.in_state() {
            return self.unlikely(condition, |emitter| emitter.interpret(pc, live));
        }
        let go_on = self.builder.create_block();
        if let Some(back) = self.retreat {
            self.builder.ins().brif(condition, back, &[], go_on, &[]);
        } else {
            let back = self.builder.create_block();
            self.builder.set_cold_block(back);
            // Here, since ways from elsewhere will lead there too.
            for reg in self.unknown(live).iter() {
                self.registers.find(&mut self.builder, self.state, reg);
            }
            self.builder.ins().brif(condition, back, &[], go_on, &[]);
            self.builder.switch_to_block(back);
            self.interpret(pc, live);
            self.retreat = Some(back);
        }
        self.builder.seal_block(go_on);
        self.builder.switch_to_block(go_on);
    }
}
