//! Handlers that read the packet where it arrived. The packet is in no L1 window until a task accesses it there in
//! another way, and need not be copied.
//!
//! Each read checks whether it belongs to the packet, which costs some instructions. The check is worthwhile for reads
//! of headers. It is not
//! worthwhile for loops that read a packet word by word. Writing to the packet in L1 requires a copy of it.

use crate::inst::{Format, Inst};
use crate::jit::accesses::{may_be_device, size};
use crate::jit::facts::{Facts, Known};
use crate::jit::options::Options;
use crate::jit::plan::{BlockId, Plan};
use crate::jit::polls::leads_to;
use crate::vector::VectorInst;
use crate::view::Checks;

/// How many bytes of a packet are likely to be read where no loop reads it.
const HEADERS: u32 = 128;

/// How many bytes of a packet in L1 are likely to be read where it arrived; `None` if none is to be.
pub(crate) fn bytes_read(plan: &Plan, facts: &Facts, options: Options) -> Option<u32> {
    let any_device = options.any_device || facts.device_escapes;
    if options.observe || any_device || options.checks == Checks::Exact {
        return None;
    }
    let reads: Option<Vec<bool>> = (0..plan.blocks.len()).map(|id| reads(plan, facts, id)).collect();
    let reads = reads?;
    let in_loop = loops(plan).any(|(head, last)| reads[head..=last].contains(&true));
    (reads.contains(&true) && !in_loop).then_some(HEADERS)
}

/// Whether a block reads the packet; `None` if it does something with it that takes a copy.
fn reads(plan: &Plan, facts: &Facts, id: BlockId) -> Option<bool> {
    let (block, Some(known)) = (&plan.blocks[id], facts.known(id)) else { return Some(false) };
    let (mut here, mut reads) = (known.clone(), false);
    for (index, (_, decoded)) in block.body.iter().enumerate() {
        let inst = &decoded.inst;
        if is_of_packet(inst, &here) {
            if inst.op.format() != Format::Load {
                return None;
            }
            reads = true;
        }
        here.step_in(block, index);
    }
    Some(reads)
}

/// Whether an instruction most likely accesses the packet in L1, and no device.
pub(crate) fn is_of_packet(inst: &Inst, known: &Known) -> bool {
    match inst.vector() {
        Some(VectorInst::Memory(memory)) => known.points_to_packet(memory.rs1),
        _ => size(inst).is_some() && known.points_to_packet(inst.rs1) && !may_be_device(inst, known, false),
    }
}

/// First and last block of each loop.
fn loops(plan: &Plan) -> impl Iterator<Item = (BlockId, BlockId)> {
    let heads = |last| plan.successors(last).filter(move |&head| head <= last).map(move |head| (head, last));
    (0..plan.blocks.len()).flat_map(heads).filter(|&(head, last)| leads_to(plan, head, last))
}
