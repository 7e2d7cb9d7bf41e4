//! Loops that wait: they look at the same addresses again and again until somebody else changes what is there.
//!
//! A task in such a loop may be parked at its head, so that its thread goes on with others. All other loops make
//! progress, and pay nothing.

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};

use crate::inst::{Format, Reg};
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
pub(crate) fn leads_to(plan: &Plan, head: BlockId, last: BlockId) -> bool {
    let (mut seen, mut work) = (HashSet::from([head]), vec![head]);
    while let Some(block) = work.pop() {
        if block == last || seen.len() > MOST_ON_THE_WAY {
            return true;
        }
        work.extend(plan.successors(block).filter(|&to| seen.insert(to)));
    }
    false
}

/// Whether the blocks from `head` to `last` read memory, only where they did the round before, and nothing that they write: what keeps
/// its variables in memory computes.
fn waits(plan: &Plan, facts: &Facts, head: BlockId, last: BlockId) -> bool {
    let blocks = &plan.blocks[head..=last];
    let written = blocks.iter().flat_map(|block| &block.body).fold(Regs(0), |written, (_, decoded)| {
        if writes(&decoded.inst).number() == 0 { written } else { written.with(writes(&decoded.inst)) }
    });
    let (mut loads, mut stores, mut reads) = (Vec::new(), Vec::new(), false);
    for (id, block) in (head..).zip(blocks) {
        let Some(mut known) = facts.known(id).cloned() else { return false };
        for (pc, decoded) in &block.body {
            let inst = &decoded.inst;
            if let Some(size) = size(inst) {
                let base = known.constant(inst.rs1);
                if base.is_none() && written.has(inst.rs1) {
                    return false;
                }
                let at = i64::from(base.unwrap_or(0)) + i64::from(inst.imm);
                let bytes = (base.is_none().then_some(inst.rs1), at..at + i64::from(size));
                match inst.op.format() {
                    Format::Store => stores.push(bytes),
                    Format::Load => loads.push(bytes),
                    _ => {}
                }
                reads |= inst.op.format() != Format::Store;
            }
            known.step(*pc, inst, decoded.size);
        }
    }
    let overlap = |(one, here): &(Option<Reg>, Range<i64>), (other, there): &(Option<Reg>, Range<i64>)| {
        one == other && here.start < there.end && there.start < here.end
    };
    reads && !loads.iter().any(|load| stores.iter().any(|store| overlap(load, store)))
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
    fn a_loop_that_writes_what_it_reads_computes() {
        let (load, ret) = (Inst::new(Op::Lw).rd(Reg::A1).rs1(Reg::A0), Inst::new(Op::Jalr).rs1(Reg::RA));
        let back = Inst::new(Op::Bne).rs1(Reg::A1).imm(-8);
        let store = |op: Op, base: Reg, at: i32| Inst::new(op).rs1(base).rs2(Reg::A1).imm(at);
        let heads = |store: Inst| heads(&[Inst::new(Op::Addi), load, store, back, ret], 0);
        for (store, waits) in [
            (store(Op::Sw, Reg::A0, 0), false),
            (store(Op::Sb, Reg::A0, 3), false),
            (store(Op::Sw, Reg::A0, -2), false),
            (store(Op::Sw, Reg::A0, 4), true),
            (store(Op::Sb, Reg::A0, -1), true),
            (store(Op::Sw, Reg::SP, 0), true),
            // A lock that is asked for again and again.
            (Inst::new(Op::AmoswapW).rd(Reg::A1).rs1(Reg::A0).rs2(Reg::A1), true),
        ] {
            assert_eq!(heads(store), if waits { vec![1] } else { Vec::new() }, "{store:?}");
        }
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
