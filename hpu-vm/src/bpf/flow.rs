//! Facts about the order of blocks and accesses.

use super::options::{L1Packet, Options};
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::COMMAND_ISSUE;

use crate::analysis::cfg::{BlockId, Cfg};
use crate::analysis::dataflow::{Dataflow, PointsTo, RegState};
use crate::analysis::regs::size;
use crate::device::is_device;
use crate::inst::{Format, Inst, Op};

/// Facts about a graph, by block.
#[derive(Debug)]
pub(super) struct Flow {
    /// Whether the handler may get there.
    pub(super) reached: Vec<bool>,
    /// Edges that close a loop: every loop has one.
    back_edges: Vec<(BlockId, BlockId)>,
    /// What may have been done where a block begins.
    done: Vec<Done>,
    /// How the packet in L1 is kept; `None` when no access can be to it.
    pub(super) l1: Option<L1Packet>,
}

/// What the handler may have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Memory may have been written that others see: not the stack.
    pub(super) written: bool,
    /// The packet in L2 may have been written.
    pub(super) packet_written: bool,
}

impl Done {
    /// What may have been done after an instruction.
    pub(super) fn after(mut self, inst: &Inst, state: &RegState) -> Self {
        if matches!(inst.op.format(), Format::Store | Format::Amo) {
            let target = state.points_to(inst.rs1);
            let constant = state.address(inst);
            let is_stack = target == Some(PointsTo::Stack);
            self.written |= !is_stack && !constant.is_some_and(is_device);
            self.packet_written |= constant.is_none() && matches!(target, None | Some(PointsTo::L2Packet));
        }
        // Commands write to host memory.
        self.written |= inst.op == Op::Lw && state.address(inst) == Some(DRIVER_BASE + COMMAND_ISSUE);
        self
    }

    const fn or(self, other: Self) -> Self {
        Self { written: self.written || other.written, packet_written: self.packet_written || other.packet_written }
    }
}

impl Flow {
    pub(super) fn new(cfg: &Cfg, facts: &Dataflow, options: Options) -> Self {
        let (reached, back_edges) = search(cfg);
        let done = done(cfg, facts, &reached);
        let l1 = packet_in_l1(cfg, facts, &reached, &done, options);
        Self { reached, back_edges, done, l1 }
    }

    /// Whether an edge closes a loop at all.
    pub(super) const fn has_loops(&self) -> bool {
        !self.back_edges.is_empty()
    }

    /// Whether an edge closes a loop.
    pub(super) fn is_back_edge(&self, from: BlockId, to: BlockId) -> bool {
        self.back_edges.contains(&(from, to))
    }

    /// What may have been done before the instruction at `index` of a block.
    pub(super) fn done_before(&self, cfg: &Cfg, facts: &Dataflow, block: BlockId, index: usize) -> Done {
        let before = facts.walk(cfg, block).take(index);
        before.fold(self.done[block], |done, (_, inst, state)| done.after(inst, state))
    }
}

/// Depth-first search from the start: what it reaches, and the edges to a block on the way to them.
fn search(cfg: &Cfg) -> (Vec<bool>, Vec<(BlockId, BlockId)>) {
    let mut reached = vec![false; cfg.blocks.len()];
    let mut is_open = vec![false; cfg.blocks.len()];
    let mut back_edges = Vec::new();
    let successors = |id: BlockId| cfg.successors(id).collect::<Vec<_>>().into_iter();
    let mut path = Vec::new();
    for &start in cfg.starts() {
        reached[start] = true;
        is_open[start] = true;
        path.push((start, successors(start)));
    }
    while let Some((id, next)) = path.last_mut() {
        let id = *id;
        match next.next() {
            Some(to) if !reached[to] => {
                reached[to] = true;
                is_open[to] = true;
                path.push((to, successors(to)));
            }
            Some(to) if is_open[to] => back_edges.push((id, to)),
            Some(_) => {}
            None => {
                is_open[id] = false;
                path.pop();
            }
        }
    }
    (reached, back_edges)
}

fn done(cfg: &Cfg, facts: &Dataflow, reached: &[bool]) -> Vec<Done> {
    let mut at_start = vec![Done::default(); cfg.blocks.len()];
    let mut work: Vec<BlockId> = (0..cfg.blocks.len()).filter(|&id| reached[id]).collect();
    while let Some(id) = work.pop() {
        let after = facts.walk(cfg, id).fold(at_start[id], |done, (_, inst, state)| done.after(inst, state));
        for to in cfg.successors(id) {
            let joined = at_start[to].or(after);
            if joined != std::mem::replace(&mut at_start[to], joined) {
                work.push(to);
            }
        }
    }
    at_start
}

/// How the packet in L1 is kept. It is the frame itself if handlers only read it there, before they write to L2.
fn packet_in_l1(cfg: &Cfg, facts: &Dataflow, reached: &[bool], done: &[Done], options: Options) -> Option<L1Packet> {
    let (mut is_used, mut is_copied) = (false, options.copies_packet);
    for id in (0..cfg.blocks.len()).filter(|&id| reached[id]) {
        let mut done = done[id];
        for (_, inst, state) in facts.walk(cfg, id) {
            let is_access = size(inst).is_some();
            let target = state.points_to(inst.rs1);
            let is_l1 = is_access && target == Some(PointsTo::Packet);
            is_used |= is_l1 || is_access && target.is_none();
            is_copied |= is_l1 && (inst.op.format() != Format::Load || done.packet_written);
            done = done.after(inst, state);
        }
    }
    is_used.then_some(if is_copied { L1Packet::Copied } else { L1Packet::InPlace })
}
