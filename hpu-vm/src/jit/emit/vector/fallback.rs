//! Vector instructions that are left to the interpreter, always or in some cases.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, Value};

use crate::analysis::dataflow::vector::{VRegs, vectors};
use crate::analysis::regs::{Regs, reads, scalars};
use crate::inst::{Inst, Reg};
use crate::jit::emit::device::call_host;
use crate::jit::emit::emitter::Emitter;
use crate::jit::state::{HostCalls, State};

/// Registers that an instruction reads and writes.
pub(super) struct Touched {
    pub(super) reads: VRegs,
    pub(super) writes: VRegs,
}

/// Leaves an instruction to the interpreter, which may touch all registers that its encoding can name.
pub(super) fn call_interpreter(emitter: &mut Emitter<'_>, inst: &Inst) {
    let (reads, writes) = inst.vector().map(|vector| vectors(&vector)).unwrap_or_default();
    call_interpreter_with(emitter, inst, &Touched { reads, writes });
}

/// Leaves an instruction that touches these registers to the interpreter.
pub(super) fn call_interpreter_with(emitter: &mut Emitter<'_>, inst: &Inst, touched: &Touched) {
    emitter.save(reads(inst));
    emitter.vectors.save(&mut emitter.builder, emitter.state, touched.reads);
    let (pc, bits) = (emitter.constant(emitter.at.pc), emitter.constant(inst.imm.cast_unsigned()));
    emitter.store_state(pc, offset_of!(State, hart.pc));
    emitter.publish_count();
    let result = call_host(emitter, offset_of!(HostCalls, vector), &[bits]);
    let ended = emitter.builder.ins().icmp_imm_s(IntCC::SignedLessThan, result, 0);
    let (go_on, aside) = (emitter.builder.create_block(), emitter.ways.ended.way(&mut emitter.builder));
    emitter.builder.ins().brif(ended, aside, &[], go_on, &[]);
    emitter.join(go_on);
    let rd = scalars(inst).1;
    if rd != Reg::ZERO {
        emitter.reload(rd);
    }
    emitter.vectors.load(&mut emitter.builder, emitter.state, touched.writes);
}

/// Emits `fast`, and a call of the interpreter for the case that one of the conditions `slow` holds.
pub(super) fn unless(
    emitter: &mut Emitter<'_>,
    slow: &[Value],
    inst: &Inst,
    touched: &Touched,
    fast: impl FnOnce(&mut Emitter<'_>),
) {
    let Some((&first, rest)) = slow.split_first() else { return fast(emitter) };
    let any = rest.iter().fold(first, |any, &condition| emitter.builder.ins().bor(any, condition));
    let [aside, straight, joined] = [(); 3].map(|()| emitter.builder.create_block());
    emitter.vectors.forget_firsts();
    emitter.publish(Regs::ALL);
    let (mut before, cache) = (emitter.registers.clone(), emitter.cache.clone());
    emitter.builder.set_cold_block(aside);
    emitter.fork(any, aside, straight);
    emitter.builder.switch_to_block(aside);
    call_interpreter_with(emitter, inst, touched);
    emitter.publish(Regs::ALL);
    if let Some(block) = emitter.builder.current_block() {
        emitter.builder.set_cold_block(block);
    }
    emitter.builder.ins().jump(joined, &[]);
    (emitter.registers, emitter.cache) = (before.clone(), cache.clone());
    emitter.builder.switch_to_block(straight);
    fast(emitter);
    emitter.publish(Regs::ALL);
    emitter.builder.ins().jump(joined, &[]);
    before.forget(scalars(inst).1);
    (emitter.registers, emitter.cache) = (before, cache);
    emitter.join(joined);
    emitter.vectors.forget_firsts();
}

/// Whether the length is not `most`; `None` if the length is known.
pub(super) fn is_short(emitter: &mut Emitter<'_>, most: u32) -> Option<Value> {
    if emitter.vectors.setting.vl.is_some() {
        return None;
    }
    let length = emitter.load_state(I32, offset_of!(State, hart.vector.vl));
    Some(emitter.compare(IntCC::NotEqual, length, most))
}
