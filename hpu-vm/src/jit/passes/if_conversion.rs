//! Branches over one instruction that only computes become conditional moves.
//!
//! Compilers emit such branches for `min` on processors without conditional moves. Their conditions usually depend on
//! data, so that a branch would be mispredicted. Where instructions are counted or observed the branch stays.

use crate::analysis::cfg::{Block, BlockId, Cfg, End, Target};
use crate::inst::{Inst, Op, Reg};

/// A branch that becomes a choice between two values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// The block of the skipped instruction, which nothing else leads to.
    pub(crate) skipped: BlockId,
    /// Where both ways continue.
    pub(crate) then: Target,
    /// The instruction is executed when the branch is taken.
    pub(crate) if_taken: bool,
}

/// By block, the choice that its branch becomes. `spins` are the heads of loops where tasks are parked.
pub(super) fn find(cfg: &Cfg, spins: &[bool]) -> Vec<Option<Choice>> {
    let mut is_fixed = spins.to_vec();
    let in_tables = cfg.tables.iter().flatten().filter_map(|target| target.block);
    in_tables.chain(cfg.points().iter().copied()).for_each(|id| is_fixed[id] = true);
    let choice = |from: BlockId, skipped: &Target, then: &Target, if_taken: bool| {
        let (id, then) = (skipped.block?, then.block.map(|_| *then)?);
        let only = cfg.predecessors[id] == [from] && id != from && !is_fixed[id] && leads_to(&cfg.blocks[id], then);
        let is_hot = then.block.is_some_and(|to| cfg.is_compiled(id, to));
        (only && is_hot).then_some(Choice { skipped: id, then, if_taken })
    };
    let choices = cfg.blocks.iter().enumerate().map(|(from, block)| match &block.end {
        End::Branch { taken, not } => choice(from, not, taken, false).or_else(|| choice(from, taken, not, true)),
        _ => None,
    });
    choices.collect()
}

/// Whether a block only computes one register and continues there.
fn leads_to(block: &Block, then: Target) -> bool {
    let computes = match &block.body[..] {
        [(_, only)] => is_quick(&only.inst),
        [(_, first), (_, last)] => is_quick(&first.inst) && last.inst.op == Op::Jal && last.inst.rd == Reg::ZERO,
        _ => false,
    };
    computes && block.end == End::Goto(then)
}

/// Whether the result is computed well before a misprediction would be found.
fn is_quick(inst: &Inst) -> bool {
    use Op::{Div, Divu, Mul, Mulh, Mulhsu, Mulhu, Rem, Remu};
    let takes_long = matches!(inst.op, Mul | Mulh | Mulhsu | Mulhu | Div | Divu | Rem | Remu);
    inst.op.format().computes() && !takes_long
}
