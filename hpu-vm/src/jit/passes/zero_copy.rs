//! Handlers that read the packet where it arrived. The packet is in no L1 window until a task accesses it there in
//! another way, and need not be copied.
//!
//! Each read checks whether it belongs to the packet, which costs some instructions. That is worthwhile for headers, and
//! not for loops that read the packet word by word. Writing to the packet in L1 requires a copy of it.

use crate::analysis::cfg::{BlockId, Cfg, LoopForest};
use crate::analysis::dataflow::{Dataflow, RegState};
use crate::analysis::regs::size;
use crate::inst::{Format, Inst};
use crate::jit::options::Options;
use crate::vector::VectorInst;
use crate::view::Checks;

use super::devices::may_be_device;

/// Number of bytes of a packet that are likely to be read without a loop.
const HEADERS: u32 = 128;

/// Number of bytes of a packet in L1 that are likely to be read where it arrived; `None` when the packet is to be copied.
pub(super) fn bytes_read(
    cfg: &Cfg,
    facts: &Dataflow,
    forest: &LoopForest,
    options: Options,
    any_device: bool,
) -> Option<u32> {
    if options.observe || any_device || options.checks == Checks::Exact || !cfg.begins_task() {
        return None;
    }
    let mut reads = vec![false; cfg.blocks.len()];
    for id in cfg.hot_blocks() {
        reads[id] = reads_packet(cfg, facts, id)?;
    }
    let in_loop = forest.loops.iter().flat_map(|found| &found.blocks).any(|&id| reads[id]);
    (reads.contains(&true) && !in_loop).then_some(HEADERS)
}

/// Whether a block reads the packet; `None` if it needs a copy of it.
fn reads_packet(cfg: &Cfg, facts: &Dataflow, id: BlockId) -> Option<bool> {
    let mut accesses = facts.walk(cfg, id).filter(|(_, inst, state)| is_of_packet(inst, state)).peekable();
    let reads = accesses.peek().is_some();
    accesses.all(|(_, inst, _)| inst.op.format() == Format::Load).then_some(reads)
}

/// Whether an instruction most likely accesses the packet in L1, and no device.
pub(crate) fn is_of_packet(inst: &Inst, state: &RegState) -> bool {
    match inst.vector() {
        Some(VectorInst::Memory(memory)) => state.points_to_packet(memory.rs1),
        _ => size(inst).is_some() && state.points_to_packet(inst.rs1) && !may_be_device(inst, state, false),
    }
}
