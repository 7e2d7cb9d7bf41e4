//! Blocks, one instruction after the other.

use super::emitter::{Emitter, Input};
use super::stub::Cursor;
use super::{arithmetic, atomics, control, entrance, exits, memory, misses};
use crate::analysis::cfg::{BlockId, End};
use crate::bpf::assembler::Insns;
use crate::inst::{Format, Inst, Op};

/// Emits the program of a graph.
pub(in crate::bpf) fn emit(input: Input<'_>) -> Insns {
    let mut emitter = Emitter::new(input);
    entrance::entrance(&mut emitter);
    let order: Vec<BlockId> = (0..input.cfg.blocks.len()).filter(|&id| input.flow.reached[id]).collect();
    for (place, &id) in order.iter().enumerate() {
        block(&mut emitter, id, order.get(place + 1).copied());
    }
    control::back_edges(&mut emitter);
    misses::stubs(&mut emitter);
    exits::exits(&mut emitter);
    emitter.asm.finish()
}

/// Emits a block, behind which the block `next` is emitted.
fn block(emitter: &mut Emitter<'_>, id: BlockId, next: Option<BlockId>) {
    emitter.asm.bind(emitter.blocks[id]);
    let block = &emitter.input.cfg.blocks[id];
    let ends_with_jump = matches!(block.end, End::Branch { .. } | End::Jump { .. });
    for (index, (pc, decoded)) in block.body.iter().enumerate() {
        emitter.at = Cursor { block: id, index, pc: *pc };
        let is_end = index + 1 == block.body.len() && ends_with_jump;
        if !is_end {
            instruction(emitter, &decoded.inst, decoded.next(*pc));
        }
    }
    control::end(emitter, id, next);
}

/// Emits an instruction that is not the end of a block, or its effect on registers if it jumps.
fn instruction(emitter: &mut Emitter<'_>, inst: &Inst, next: u32) {
    match inst.op.format() {
        format if format.computes() => arithmetic::arithmetic(emitter, inst),
        Format::Load => memory::load(emitter, inst),
        Format::Store => memory::store(emitter, inst),
        Format::Amo => atomics::atomic(emitter, inst),
        Format::LoadReserved => atomics::load_reserved(emitter, inst),
        // A jump to a known address.
        Format::J | Format::JumpRegister => emitter.set_constant(inst.rd, next),
        Format::Fence => {}
        _ if inst.op == Op::Ebreak => control::breakpoint(emitter),
        _ => unreachable!("{} is not eligible", inst.op.mnemonic()),
    }
}
