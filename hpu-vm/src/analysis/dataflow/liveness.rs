//! Registers that may be read before they are written.

use spin_abi::map::RETURN_ADDRESS;

use crate::analysis::cfg::{Block, BlockId, Cfg, End, Target};
use crate::analysis::regs::{Regs, reads, writes};

/// Live registers before each instruction of all blocks and at the end of each. `results` are read after the handler has
/// returned.
pub(super) fn within(cfg: &Cfg, results: Regs) -> Vec<Regs> {
    let at_start = at_start(cfg, results);
    let mut all = Vec::new();
    for (id, block) in cfg.blocks.iter().enumerate() {
        let mut live = at_end(cfg, id, &at_start, results);
        let first = all.len();
        all.push(live);
        for index in (0..block.body.len()).rev() {
            live = before(block, index, live);
            all.push(live);
        }
        all[first..].reverse();
    }
    all
}

fn at_start(cfg: &Cfg, results: Regs) -> Vec<Regs> {
    let mut live = vec![Regs(0); cfg.blocks.len()];
    let mut queued = vec![true; cfg.blocks.len()];
    let mut work: Vec<BlockId> = (0..cfg.blocks.len()).collect();
    while let Some(id) = work.pop() {
        queued[id] = false;
        let block = &cfg.blocks[id];
        let end = at_end(cfg, id, &live, results);
        let now = (0..block.body.len()).rev().fold(end, |live, index| before(block, index, live));
        if now != live[id] {
            live[id] = now;
            for &previous in &cfg.predecessors[id] {
                if !std::mem::replace(&mut queued[previous], true) {
                    work.push(previous);
                }
            }
        }
    }
    live
}

/// Live after the block's last instruction. Code outside of the region may read all registers. So may compiled code after a
/// cold block: its jumps were resolved by facts that do not hold on that way.
fn at_end(cfg: &Cfg, id: BlockId, live: &[Regs], results: Regs) -> Regs {
    let to = |target: &Target| match target.block {
        Some(to) if cfg.rejoins(id, to) => Regs::ALL,
        Some(to) => live[to],
        None if target.pc == RETURN_ADDRESS => results,
        None => Regs::ALL,
    };
    match &cfg.blocks[id].end {
        End::Goto(target) => to(target),
        End::Branch { taken, not } => to(taken).or(to(not)),
        End::Jump { .. } => Regs::ALL,
        End::Fetch(RETURN_ADDRESS) => results,
        End::Fetch(_) => Regs(0),
    }
}

/// Live before an instruction.
fn before(block: &Block, index: usize, after: Regs) -> Regs {
    let inst = &block.body[index].1.inst;
    after.without(writes(inst)).or(reads(inst))
}
