//! The loop forest: natural loops of a graph, and how they are nested.

use std::collections::BTreeMap;

use super::graph::{BlockId, Cfg};

/// A natural loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    /// The block that all ways into the loop lead to.
    pub(crate) head: BlockId,
    /// Its blocks in ascending order.
    pub(crate) blocks: Vec<BlockId>,
    /// Number of loops around it, itself included.
    pub(crate) depth: usize,
}

/// All natural loops of the compiled blocks. A cycle with several heads is not one.
#[derive(Debug)]
pub(crate) struct LoopForest {
    /// The loops, inner ones before those around them.
    pub(crate) loops: Vec<Loop>,
}

impl LoopForest {
    /// Finds the loops of a graph.
    pub(crate) fn new(cfg: &Cfg) -> Self {
        let dominators = Dominators::new(cfg);
        let mut latches: BTreeMap<BlockId, Vec<BlockId>> = BTreeMap::new();
        for &from in &dominators.order {
            for head in cfg.successors(from).filter(|&to| dominators.dominates(to, from)) {
                latches.entry(head).or_default().push(from);
            }
        }
        let natural = |(head, latches)| Loop { head, blocks: body(cfg, &dominators, head, latches), depth: 0 };
        let mut loops: Vec<Loop> = latches.into_iter().map(natural).collect();
        loops.sort_by_key(|found| found.blocks.len());
        let mut depths = vec![0; cfg.blocks.len()];
        loops.iter().flat_map(|found| &found.blocks).for_each(|&block| depths[block] += 1);
        loops.iter_mut().for_each(|found| found.depth = depths[found.head]);
        Self { loops }
    }

    /// The largest number of loops around a block.
    pub(crate) fn depth(&self) -> usize {
        self.loops.iter().map(|found| found.depth).max().unwrap_or(0)
    }
}

/// Blocks from which the latches of a loop are reached without its head.
fn body(cfg: &Cfg, dominators: &Dominators, head: BlockId, latches: Vec<BlockId>) -> Vec<BlockId> {
    let mut blocks = vec![head];
    let mut work = latches;
    let mut seen = vec![false; cfg.blocks.len()];
    seen[head] = true;
    while let Some(block) = work.pop() {
        if !std::mem::replace(&mut seen[block], true) {
            blocks.push(block);
            work.extend(cfg.predecessors[block].iter().filter(|&&from| dominators.is_reached(from)));
        }
    }
    blocks.sort_unstable();
    blocks
}

/// Immediate dominators by the algorithm of Cooper, Harvey and Kennedy. All starts have a common root.
struct Dominators {
    /// Reached blocks in reverse postorder.
    order: Vec<BlockId>,
    /// By block, one more than its position there; 0 for others.
    position: Vec<usize>,
    /// By position, that of the immediate dominator; the root has position 0.
    parents: Vec<usize>,
}

impl Dominators {
    fn new(cfg: &Cfg) -> Self {
        let order = reverse_postorder(cfg);
        let mut position = vec![0; cfg.blocks.len()];
        order.iter().enumerate().for_each(|(index, &block)| position[block] = index + 1);
        let mut parents: Vec<Option<usize>> = vec![None; order.len() + 1];
        parents[0] = Some(0);
        let starts = cfg.starts();
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for (index, block) in order.iter().enumerate().map(|(index, block)| (index + 1, block)) {
                let mut parent = starts.contains(block).then_some(0);
                for &from in cfg.predecessors[*block].iter().filter(|&&from| cfg.is_compiled(from, *block)) {
                    let from = position[from];
                    if from > 0 && parents[from].is_some() {
                        parent = Some(parent.map_or(from, |other| intersect(&parents, other, from)));
                    }
                }
                if parents[index] != parent {
                    (parents[index], changed) = (parent, true);
                }
            }
        }
        Self { order, position, parents: parents.into_iter().map(|parent| parent.unwrap_or(0)).collect() }
    }

    fn is_reached(&self, block: BlockId) -> bool {
        self.position[block] > 0
    }

    fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        let (above, mut at) = (self.position[above], self.position[below]);
        while at > above {
            at = self.parents[at];
        }
        at == above && above > 0
    }
}

fn intersect(parents: &[Option<usize>], mut one: usize, mut other: usize) -> usize {
    while one != other {
        if one > other {
            one = parents[one].unwrap_or(0);
        } else {
            other = parents[other].unwrap_or(0);
        }
    }
    one
}

fn reverse_postorder(cfg: &Cfg) -> Vec<BlockId> {
    let mut seen = vec![false; cfg.blocks.len()];
    let mut order = Vec::new();
    for &start in cfg.starts() {
        let mut stack = vec![(start, false)];
        while let Some((block, is_done)) = stack.pop() {
            if is_done {
                order.push(block);
            } else if !std::mem::replace(&mut seen[block], true) {
                stack.push((block, true));
                let next = cfg.successors(block).filter(|&to| cfg.is_compiled(block, to) && !seen[to]);
                stack.extend(next.map(|to| (to, false)));
            }
        }
    }
    order.reverse();
    order
}
