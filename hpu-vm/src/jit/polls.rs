//! Loops that wait: they look at the same addresses again and again until somebody else changes what is there.
//!
//! A task in such a loop may be parked at its head, so that its thread goes on with others. All other loops make
//! progress, and pay nothing.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::inst::Format;
use crate::jit::accesses::size;
use crate::jit::facts::{Facts, Regs, writes};
use crate::jit::plan::{BlockId, Plan};

/// Most blocks of a loop that is looked at; those that wait are short.
const MOST_BLOCKS: usize = 8;
/// Most blocks that are looked at for the way from a loop's head to its last one.
const MOST_ON_THE_WAY: usize = 128;

/// The blocks of each loop that waits, from its head on. Blocks of a loop follow each other in a plan, but for those of calls;
/// taking in others that do not belong to it only makes it look less like waiting.
pub(crate) fn loops(plan: &Plan, facts: &Facts) -> Vec<RangeInclusive<BlockId>> {
    let near = |last: BlockId| {
        plan.successors(last)
            .filter(move |&head| head <= last && last - head < MOST_BLOCKS)
            .map(move |head| head..=last)
    };
    let waits = |blocks: &RangeInclusive<BlockId>| {
        let (head, last) = (*blocks.start(), *blocks.end());
        waits(plan, facts, head, last) && leads_to(plan, head, last)
    };
    (0..plan.blocks.len()).flat_map(near).filter(waits).collect()
}

/// Whether there is a way from `head` to `last`, or that is not known: jumps back may also be to what is done in the end.
fn leads_to(plan: &Plan, head: BlockId, last: BlockId) -> bool {
    let (mut seen, mut work) = (HashSet::from([head]), vec![head]);
    while let Some(block) = work.pop() {
        if block == last || seen.len() > MOST_ON_THE_WAY {
            return true;
        }
        work.extend(plan.successors(block).filter(|&to| seen.insert(to)));
    }
    false
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::loops;
    use crate::code::Code;
    use crate::inst::{Inst, Op, Reg};
    use crate::jit::facts::{Facts, Regs};
    use crate::jit::plan::Plan;

    const BASE: u32 = 0x1d00_0000;

    /// Addresses of the heads of loops that wait in a handler at instruction `entry` of `program`, in instructions.
    fn heads(program: &[Inst], entry: u32) -> Vec<u32> {
        let mut plan = Plan::new(&Code::of(BASE, program), BASE + 4 * entry, &BTreeSet::new());
        let facts = Facts::new(&mut plan, Regs(0), 0);
        loops(&plan, &facts).iter().map(|blocks| (plan.blocks[*blocks.start()].start - BASE) / 4).collect()
    }

    #[test]
    fn a_branch_back_is_a_loop_only_where_it_leads_to_itself() {
        let (load, ret) = (Inst::new(Op::Lw).rd(Reg::A1).rs1(Reg::A0), Inst::new(Op::Jalr).rs1(Reg::RA));
        let back = |by: i32| Inst::new(Op::Bne).rs1(Reg::A1).imm(-4 * by);
        let nothing = Inst::new(Op::Addi);
        assert_eq!(heads(&[nothing, load, back(1), ret], 0), [1]);
        // What several ways end with comes first; the handler begins behind it.
        let handler = [nothing, ret, load, back(3), load, back(5), ret];
        assert_eq!(heads(&handler, 2), Vec::<u32>::new());
        // A call on the way.
        let call = Inst::new(Op::Jal).rd(Reg::new(5)).imm(12);
        assert_eq!(heads(&[nothing, load, call, back(2), ret, Inst::new(Op::Jalr).rs1(Reg::new(5))], 0), [1]);
    }
}
