//! Vector instructions: one operation on 128-bit host vectors for each register of a group.
//!
//! Most kernels use the maximum number of elements, or a number that is a constant. These cases are translated. The hart
//! always has `vl` and `vtype`; if the length is only known at run time, the code checks whether it is the maximum. The
//! interpreter executes single instructions in all other cases, with their registers in the hart.

mod arithmetic;
mod fallback;
mod group;
mod lanes;
mod mask;
mod memory;
mod permute;
mod reduce;

use std::mem::offset_of;

use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::types::I32;

use super::emitter::Emitter;
use crate::inst::Inst;
use crate::jit::state::State;
use crate::vector::{Configure, Length, VectorInst};
use arithmetic::vector_arithmetic;
use fallback::call_interpreter;
use memory::vector_memory;

/// Emits a vector instruction; returns `false` when it and all that follows are left to the interpreter.
pub(super) fn vector(emitter: &mut Emitter<'_>, inst: &Inst) -> bool {
    emitter.ways.prologue.vectors = true;
    let vector = inst.vector().filter(|_| emitter.vectors.room > 0);
    let Some(vector) = vector else {
        emitter.interpret();
        return false;
    };
    let (before, known) = (emitter.builder.func.dfg.num_insts(), emitter.known());
    match vector {
        VectorInst::Configure(wanted) => configure(emitter, inst, &wanted),
        VectorInst::Memory(access) => vector_memory(emitter, inst, &access),
        VectorInst::Arithmetic(arithmetic) => vector_arithmetic(emitter, inst, &arithmetic),
    }
    emitter.vectors.setting.transfer(inst, |reg| known.constant(reg));
    let spent = emitter.builder.func.dfg.num_insts().saturating_sub(before);
    emitter.vectors.room = emitter.vectors.room.saturating_sub(spent);
    true
}

fn configure(emitter: &mut Emitter<'_>, inst: &Inst, configure: &Configure) {
    let (mut after, known) = (emitter.vectors.setting, emitter.known());
    after.transfer(inst, |reg| known.constant(reg));
    let Some(bits) = after.vtype else { return call_interpreter(emitter, inst) };
    let length = match (after.vl, after.vtype()) {
        (Some(length), _) => emitter.constant(length),
        (None, vtype) => {
            let wanted = match configure.length {
                Length::Register(reg) => emitter.get(reg),
                _ => emitter.load_state(I32, offset_of!(State, hart.vector.vl)),
            };
            let most = emitter.constant(vtype.map_or(0, |vtype| vtype.vlmax()));
            emitter.builder.ins().umin(wanted, most)
        }
    };
    let bits = emitter.constant(bits);
    emitter.store_state(length, offset_of!(State, hart.vector.vl));
    emitter.store_state(bits, offset_of!(State, hart.vector.vtype));
    emitter.set(configure.rd, length);
}
