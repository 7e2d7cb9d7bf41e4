//! Handlers that read the packet where it arrived. The packet is in no L1 window until a task accesses it there in
//! another way, and need not be copied.
//!
//! Each read checks whether it belongs to the packet, which costs some instructions. The check is worthwhile for reads
//! of headers, and for [rows](super::rows), whose number of instructions does not depend on their length. It is not
//! worthwhile for loops that read a packet word by word. Writing to the packet in L1 requires a copy of it.

use spin_abi::map::PACKET_WINDOW;

use crate::inst::{Format, Inst};
use crate::jit::accesses::{may_be_device, size};
use crate::jit::facts::{Facts, Known};
use crate::jit::options::Options;
use crate::jit::plan::{BlockId, Plan};
use crate::jit::polls::leads_to;
use crate::jit::rows::Row;
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
    let blocks: Option<Vec<Reads>> = (0..plan.blocks.len()).map(|id| Reads::of(plan, facts, id)).collect();
    let blocks = blocks?;
    if blocks.iter().all(|block| *block == Reads::Nothing) {
        return None;
    }
    let has_rows = blocks.contains(&Reads::Row);
    let loops_are_fine = loops(plan).all(|(head, last)| {
        // What is left when there are no more rows is short.
        let is_rest = has_rows && head == last && blocks[head] == Reads::Pieces { alone: true };
        is_rest || !blocks[head..=last].iter().any(|block| matches!(block, Reads::Pieces { .. }))
    });
    loops_are_fine.then_some(if has_rows { PACKET_WINDOW } else { HEADERS })
}

/// What a block reads of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Nothing,
    /// It is a loop that adds up rows of it.
    Row,
    /// Something else.
    Pieces {
        /// And accesses nothing besides.
        alone: bool,
    },
}

impl Reads {
    /// `None` if it does something with the packet that takes a copy.
    fn of(plan: &Plan, facts: &Facts, id: BlockId) -> Option<Self> {
        let (block, Some(known)) = (&plan.blocks[id], facts.known(id)) else { return Some(Self::Nothing) };
        let (mut here, mut reads, mut others) = (known.clone(), false, false);
        for (index, (_, decoded)) in block.body.iter().enumerate() {
            let inst = &decoded.inst;
            let is_of_packet = is_of_packet(inst, &here);
            match inst.op.format() {
                Format::Load if is_of_packet => reads = true,
                Format::Store | Format::Amo | Format::LoadReserved | Format::Vector if is_of_packet => return None,
                _ => others |= size(inst).is_some() || inst.op.format() == Format::Vector,
            }
            here.step_in(block, index);
        }
        if !reads {
            return Some(Self::Nothing);
        }
        let live = facts.live_within(plan, id).last().copied().unwrap_or_default();
        let row = Row::of(id, block, known, live, false);
        let is_row = row.and_then(|row| row.even).is_some_and(|even| even.counts_by_bits());
        Some(if is_row { Self::Row } else { Self::Pieces { alone: !others } })
    }
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
