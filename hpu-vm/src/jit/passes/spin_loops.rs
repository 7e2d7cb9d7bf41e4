//! Loops that wait: they read the same addresses until another thread changes what is there.
//!
//! A task may be parked at the head of such a loop, so that its thread runs others. All other loops make progress, and pay
//! nothing.

use std::ops::Range;

use crate::analysis::cfg::{Cfg, Loop, LoopForest};
use crate::analysis::dataflow::Dataflow;
use crate::analysis::regs::{Regs, size, writes};
use crate::inst::{Format, Reg};

/// Maximum number of blocks of a loop that is examined; loops that wait are short.
const MAX_BLOCKS: usize = 8;

/// The loops that wait.
pub(super) fn find<'f>(cfg: &Cfg, facts: &Dataflow, forest: &'f LoopForest) -> Vec<&'f Loop> {
    forest.loops.iter().filter(|found| found.blocks.len() <= MAX_BLOCKS && waits(cfg, facts, found)).collect()
}

/// Whether a loop reads memory, at the same addresses in every iteration, and nothing that it writes. A loop that keeps
/// variables in memory makes progress.
fn waits(cfg: &Cfg, facts: &Dataflow, found: &Loop) -> bool {
    let insts = || found.blocks.iter().flat_map(|&id| facts.walk(cfg, id));
    let written = insts().fold(Regs(0), |written, (_, inst, _)| written.with(writes(inst))).without(Reg::ZERO);
    let (mut loads, mut stores, mut reads) = (Vec::new(), Vec::new(), false);
    for (_, inst, state) in insts() {
        let Some(size) = size(inst) else { continue };
        let base = state.constant(inst.rs1);
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
    let overlap = |(one, here): &(Option<Reg>, Range<i64>), (other, there): &(Option<Reg>, Range<i64>)| {
        one == other && here.start < there.end && there.start < here.end
    };
    reads && !loads.iter().any(|load| stores.iter().any(|store| overlap(load, store)))
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::analysis::cfg::LoopForest;
    use crate::analysis::cfg::tests::{handler_at, index};
    use crate::analysis::dataflow::{Begin, Dataflow};
    use crate::analysis::regs::Regs;
    use crate::inst::{Inst, Op, Reg};

    /// Heads of loops that wait in a handler at instruction `entry` of `program`, by instruction.
    fn heads(program: &[Inst], entry: u32) -> Vec<u32> {
        let mut cfg = handler_at(program, entry);
        let facts = Dataflow::new(&mut cfg, Regs(0), &Begin::Task { global_pointer: 0 });
        let forest = LoopForest::new(&cfg);
        find(&cfg, &facts, &forest).iter().map(|found| index(cfg.blocks[found.head].start)).collect()
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
            // A lock that is requested repeatedly.
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
        // The common end of several paths comes first; the handler begins behind it.
        let handler = [nothing, ret, load, back(3), load, back(5), ret];
        assert_eq!(heads(&handler, 2), Vec::<u32>::new());
        // A call in the loop.
        let call = Inst::new(Op::Jal).rd(Reg::new(5)).imm(12);
        assert_eq!(heads(&[nothing, load, call, back(2), ret, Inst::new(Op::Jalr).rs1(Reg::new(5))], 0), [1]);
    }
}
