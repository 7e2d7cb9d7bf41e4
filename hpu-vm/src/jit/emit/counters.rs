//! Counted instructions: the limit of a task, and the counters that a handler reads.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::emitter::Emitter;
use crate::analysis::cfg::Block;
use crate::csr::{Csr, Half};
use crate::inst::{Inst, Op, Reg};
use crate::jit::state::State;
use crate::vector::VLEN_BYTES;

/// At the start of a block: if it would exceed the limit, the interpreter executes what is left, one by one.
pub(super) fn count_block(emitter: &mut Emitter<'_>, block: &Block) {
    if !block.body.is_empty() {
        check_limit(emitter, block.body.len(), block.start);
    }
}

/// After a device access, which counts for more than itself: checks the limit again, from the next instruction on.
pub(super) fn recheck_limit(emitter: &mut Emitter<'_>) {
    if let Some(block) = emitter.at.block.filter(|_| emitter.retired.is_some()) {
        let body = &emitter.input.cfg.blocks[block].body;
        let (pc, decoded) = &body[emitter.at.index];
        emitter.at.index += 1;
        emitter.at.uncounted += 1;
        check_limit(emitter, body.len(), decoded.next(*pc));
        emitter.at.index -= 1;
        emitter.at.uncounted -= 1;
    }
}

/// Leaves at `pc` if a block of `len` instructions would exceed the limit.
fn check_limit(emitter: &mut Emitter<'_>, len: usize, pc: u32) {
    let Some(retired) = emitter.retired else { return };
    let before = emitter.builder.use_var(retired);
    let after = emitter.builder.ins().iadd_imm_s(before, len.cast_signed() as i64);
    let limit = emitter.load_state(I64, offset_of!(State, limits.retired));
    let over = emitter.builder.ins().icmp(IntCC::UnsignedGreaterThan, after, limit);
    emitter.unlikely(over, |emitter| emitter.interpret_from(pc));
}

/// Loads the number of completed instructions from the hart.
pub(super) fn load_count(emitter: &mut Emitter<'_>) {
    if let Some(retired) = emitter.retired {
        let count = emitter.load_state(I64, offset_of!(State, hart.retired));
        emitter.builder.def_var(retired, count);
    }
}

/// At the end of a block: counts its instructions.
pub(super) fn count_end(emitter: &mut Emitter<'_>) {
    if let (Some(retired), Some(count)) = (emitter.retired, emitter.count()) {
        emitter.builder.def_var(retired, count);
        emitter.at.uncounted = 0;
    }
}

/// A CSR instruction; returns `false` when it and all that follows are left to the interpreter: instructions that write.
pub(super) fn csr(emitter: &mut Emitter<'_>, inst: &Inst) -> bool {
    let reads_only = matches!(inst.op, Op::Csrrs | Op::Csrrc | Op::Csrrsi | Op::Csrrci) && inst.rs1 == Reg::ZERO;
    let csr = Csr::from_number(inst.imm.cast_unsigned()).filter(|_| reads_only);
    emitter.ways.prologue.vectors |= matches!(csr, Some(Csr::VectorLength | Csr::VectorType));
    let value = match csr {
        Some(Csr::HartId) => emitter.load_state(I32, offset_of!(State, hart.id)),
        Some(Csr::Cycle(half)) => counter(emitter, half, Some(offset_of!(State, hart.cycle_offset))),
        Some(Csr::Time(half)) => counter(emitter, half, None),
        Some(Csr::Instret(half)) => counter(emitter, half, Some(offset_of!(State, hart.instret_offset))),
        Some(Csr::VectorLength) => emitter.load_state(I32, offset_of!(State, hart.vector.vl)),
        Some(Csr::VectorType) => emitter.load_state(I32, offset_of!(State, hart.vector.vtype)),
        Some(Csr::VectorBytes) => emitter.constant(VLEN_BYTES),
        Some(Csr::VectorRounding) => emitter.load_state(I32, offset_of!(State, hart.vector.vxrm)),
        Some(Csr::VectorSaturated) => emitter.load_state(I32, offset_of!(State, hart.vector.vxsat)),
        _ => {
            emitter.interpret();
            return false;
        }
    };
    emitter.set(inst.rd, value);
    true
}

fn counter(emitter: &mut Emitter<'_>, half: Half, shift: Option<usize>) -> Value {
    let Some(mut value) = emitter.count() else { unreachable!("regions that read a counter are counted") };
    if let Some(shift) = shift {
        let shift = emitter.load_state(I64, shift);
        value = emitter.builder.ins().iadd(value, shift);
    }
    if half == Half::High {
        value = emitter.builder.ins().ushr_imm_u(value, 32);
    }
    emitter.builder.ins().ireduce(I32, value)
}
