//! Loops that wait: they look at the same addresses again and again until somebody else changes what is there.
//!
//! A task in such a loop may be parked at its head, so that its thread goes on with others. All other loops make
//! progress, and pay nothing.

use std::ops::RangeInclusive;

use crate::inst::Format;
use crate::jit::accesses::size;
use crate::jit::facts::{Facts, Regs, writes};
use crate::jit::plan::{BlockId, Plan};

/// Most blocks of a loop that is looked at; those that wait are short.
const MOST_BLOCKS: usize = 8;

/// The blocks of each loop that waits, from its head on. Blocks of a loop follow each other in a plan, but for those of calls;
/// taking in others that do not belong to it only makes it look less like waiting.
pub(crate) fn loops(plan: &Plan, facts: &Facts) -> Vec<RangeInclusive<BlockId>> {
    let near = |last: BlockId| {
        plan.successors(last)
            .filter(move |&head| head <= last && last - head < MOST_BLOCKS)
            .map(move |head| head..=last)
    };
    let waits = |blocks: &RangeInclusive<BlockId>| waits(plan, facts, *blocks.start(), *blocks.end());
    (0..plan.blocks.len()).flat_map(near).filter(waits).collect()
}

/// Whether the blocks from `head` to `last` read memory, and only where they did the round before.
fn waits(plan: &Plan, facts: &Facts, head: BlockId, last: BlockId) -> bool {
    let blocks = &plan.blocks[head..=last];
    let written = blocks.iter().flat_map(|block| &block.body).fold(Regs(0), |written, (_, decoded)| {
        if writes(&decoded.inst).number() == 0 { written } else { written.with(writes(&decoded.inst)) }
    });
    let mut reads = false;
    for (id, block) in (head..).zip(blocks) {
        let Some(mut known) = facts.known(id).cloned() else { return false };
        for (pc, decoded) in &block.body {
            let inst = &decoded.inst;
            if size(inst).is_some() {
                if known.constant(inst.rs1).is_none() && written.has(inst.rs1) {
                    return false;
                }
                reads |= inst.op.format() != Format::Store;
            }
            known.step(*pc, inst, decoded.size);
        }
    }
    reads
}
