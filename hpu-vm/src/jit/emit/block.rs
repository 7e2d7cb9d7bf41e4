//! Blocks: their instructions, and what precedes them.

use cranelift_codegen::ir::InstBuilder;
use spin_abi::fault::Cause;

use super::emitter::{Cursor, Emitter};
use super::zero_copy::leaves_packet;
use super::{arithmetic, atomics, control, counters, device, entrance, memory, side_exits, vector};
use crate::analysis::cfg::BlockId;
use crate::inst::{Format, Inst, Op};

/// Whether a block becomes part of a conditional move in the block that leads to it.
pub(super) fn is_chosen(emitter: &Emitter<'_>, id: BlockId) -> bool {
    let (cfg, plan) = (emitter.input.cfg, emitter.input.plan);
    matches!(cfg.predecessors[id][..], [from] if plan.choices[from].is_some_and(|choice| choice.skipped == id))
}

/// Emits a block.
pub(super) fn emit(emitter: &mut Emitter<'_>, id: BlockId) {
    let (cfg, facts, plan) = (emitter.input.cfg, emitter.input.facts, emitter.input.plan);
    let block = &cfg.blocks[id];
    let start = emitter.blocks.of[id];
    emitter.builder.switch_to_block(start);
    emitter.begin_block();
    emitter.at = Cursor { block: Some(id), index: 0, pc: block.start, uncounted: 0 };
    emitter.vectors.begin_block(facts, id);
    emitter.ways.shared = emitter.shared_exit(id);
    emitter.locate(false);
    if plan.spins[id] {
        entrance::poll(emitter);
    }
    counters::count_block(emitter, block);
    for (index, (pc, decoded)) in block.body.iter().enumerate() {
        emitter.at = Cursor { block: Some(id), index, pc: *pc, uncounted: index };
        emitter.locate(matches!(decoded.inst.op.format(), Format::Amo));
        if !instruction(emitter, &decoded.inst) || emitter.is_too_large() {
            return;
        }
        if !side_exits::is_repeatable(&decoded.inst) {
            emitter.ways.shared = None;
        }
        if !leaves_packet(&decoded.inst) {
            emitter.cache.forget_packet();
        }
    }
    (emitter.at.index, emitter.at.uncounted) = (block.body.len(), block.body.len());
    control::end(emitter, id);
    emitter.ways.shared_after[id] = emitter.ways.shared;
}

/// Emits an instruction; returns `false` when none after it is reached.
fn instruction(emitter: &mut Emitter<'_>, inst: &Inst) -> bool {
    match inst.op.format() {
        Format::R | Format::Unary | Format::I | Format::Shift | Format::U => arithmetic::arithmetic(emitter, inst),
        Format::Load => memory::load(emitter, inst),
        Format::Store => memory::store(emitter, inst),
        Format::Amo if inst.op == Op::ScW => atomics::store_conditional(emitter, inst),
        Format::Amo => atomics::amo(emitter, inst),
        Format::LoadReserved => atomics::load_reserved(emitter, inst),
        Format::Csr | Format::CsrImmediate => return counters::csr(emitter, inst),
        Format::Fence => {
            if inst.op == Op::Fence && !(emitter.input.stores_in_order && is_implied(inst.imm)) {
                emitter.builder.ins().fence();
            }
        }
        Format::System if inst.op == Op::Ecall => device::ecall(emitter),
        Format::System => {
            emitter.fault_always(Cause::Breakpoint, 0);
            return false;
        }
        Format::Vector => return vector::vector(emitter, inst),
        // They are part of the end of the block.
        Format::Branch | Format::J | Format::JumpRegister => {}
    }
    true
}

/// Whether a host that only reorders stores before later loads has the order that a fence with this immediate asks for
/// (unprivileged ISA, §2.7): the fence orders no earlier write before a later read, or is `fence.tso`.
const fn is_implied(sets: i32) -> bool {
    const TSO: i32 = 0x833;
    let (writes_before, reads_after) = (sets & 0x50, sets & 0xa);
    sets == TSO || writes_before == 0 || reads_after == 0
}
