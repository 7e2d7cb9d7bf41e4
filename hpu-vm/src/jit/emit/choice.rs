//! Branches over one instruction that only computes: they select a value.
//!
//! Compilers emit such branches for `min` on processors without conditional moves. The condition usually depends on
//! data, and a branch on it would be mispredicted, so it becomes a conditional move of the host. The conversion is not
//! done where instructions are counted, or observed one by one.

use std::ops::RangeInclusive;

use cranelift_codegen::ir::InstBuilder;

use super::Emitter;
use crate::decode::Decoded;
use crate::inst::{Inst, Op, Reg};
use crate::jit::facts;
use crate::jit::plan::{self, BlockId, End, Plan, Target};

/// What a branch chooses by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The block of the only instruction that is skipped, which nothing else leads to.
    pub(super) skipped: BlockId,
    /// Where both ways go on.
    then: Target,
    /// The branch leads there when it is taken.
    if_taken: bool,
}

/// By block, what its branch chooses; `ways` are the blocks that lead to each, and `loops` those that wait.
pub(super) fn choices(plan: &Plan, ways: &[Vec<BlockId>], loops: &[RangeInclusive<BlockId>]) -> Vec<Option<Choice>> {
    // Computed jumps lead there, or tasks are parked there.
    let mut of_use = vec![false; plan.blocks.len()];
    let in_tables = plan.tables.iter().flatten().filter_map(|target| target.block);
    in_tables.chain(loops.iter().map(|blocks| *blocks.start())).for_each(|id| of_use[id] = true);
    let choice = |from: BlockId, skipped: &Target, then: &Target, if_taken: bool| {
        let (id, then) = (skipped.block?, then.block.map(|_| *then)?);
        let only = ways[id] == [from] && id != from && !of_use[id] && leads_to(&plan.blocks[id], then);
        only.then_some(Choice { skipped: id, then, if_taken })
    };
    let choices = plan.blocks.iter().enumerate().map(|(from, block)| match &block.end {
        End::Branch { taken, not } => choice(from, not, taken, false).or_else(|| choice(from, taken, not, true)),
        _ => None,
    });
    choices.collect()
}

/// Whether a block does nothing but compute one register, and goes on there.
fn leads_to(block: &plan::Block, then: Target) -> bool {
    let computes = match &block.body[..] {
        [(_, only)] => is_quick(&only.inst),
        [(_, first), (_, last)] => is_quick(&first.inst) && last.inst.op == Op::Jal && last.inst.rd == Reg::ZERO,
        _ => false,
    };
    computes && block.end == End::Goto(then) && !block.apart
}

/// Whether it is computed sooner than a branch is found to be mispredicted, by far.
fn is_quick(inst: &Inst) -> bool {
    use Op::{Div, Divu, Mul, Mulh, Mulhsu, Mulhu, Rem, Remu};
    let takes_long = matches!(inst.op, Mul | Mulh | Mulhsu | Mulhu | Div | Divu | Rem | Remu);
    inst.op.format().computes() && !takes_long
}

impl Emitter<'_> {
    /// Whether a block is emitted where a branch chooses whether it is skipped.
    pub(super) fn is_chosen(&self, id: BlockId) -> bool {
        matches!(self.ways[id][..], [from] if self.choices[from].is_some_and(|choice| choice.skipped == id))
    }

    /// Ends a block by a choice.
    pub(super) fn choose(&mut self, id: BlockId, branch: &Decoded, choice: Choice) {
        let condition = self.condition(branch);
        let (pc, Decoded { inst, .. }) = self.plan.blocks[choice.skipped].body[0];
        let rd = facts::writes(&inst);
        let (new, old) = (self.result(pc, &inst), self.get(rd));
        let (taken, not) = if choice.if_taken { (new, old) } else { (old, new) };
        let value = self.builder.ins().select(condition, taken, not);
        self.set(rd, value);
        self.known.forget(rd);
        (self.roots[choice.skipped], self.retreats[choice.skipped]) = (self.roots[id].clone(), self.retreat);
        if let Some(roots) = &mut self.roots[choice.skipped] {
            roots.forget(rd);
        }
        self.publish(self.live[self.plan.blocks[id].body.len()]);
        self.goto(&choice.then);
    }
}
