//! Loads and stores.

use super::access::{Access, known_address, reach};
use super::commands;
use super::emitter::{Emitter, R1};
use super::stub::Kind;
use crate::bpf::insn::{Bits, Insn, Size};
use crate::device::is_device;
use crate::inst::{Inst, Op};

/// Size of a load or store.
const fn size(op: Op) -> Size {
    match op {
        Op::Lb | Op::Lbu | Op::Sb => Size::Byte,
        Op::Lh | Op::Lhu | Op::Sh => Size::Half,
        _ => Size::Word,
    }
}

pub(super) fn load(emitter: &mut Emitter<'_>, inst: &Inst) {
    let size = size(inst.op);
    if let Some(address) = known_address(emitter, inst, size.bytes()).filter(|&address| is_device(address)) {
        return commands::load(emitter, inst, address);
    }
    reach(emitter, Access { inst, kind: Kind::Load, size }, &mut |emitter, offset| {
        let to = emitter.result(inst.rd, &[]);
        emitter.asm.load(size, to, R1, offset);
        if matches!(inst.op, Op::Lb | Op::Lh) {
            emitter.asm.push(Insn::SignExtend { bits: Bits::B32, to, from: to, size });
        }
        emitter.set(inst.rd, to);
    });
}

pub(super) fn store(emitter: &mut Emitter<'_>, inst: &Inst) {
    let size = size(inst.op);
    if let Some(address) = known_address(emitter, inst, size.bytes()).filter(|&address| is_device(address)) {
        return commands::store(emitter, inst, address);
    }
    reach(emitter, Access { inst, kind: Kind::Store, size }, &mut |emitter, offset| {
        let value = emitter.stored(inst.rs2);
        emitter.asm.store(size, R1, offset, value);
    });
}
