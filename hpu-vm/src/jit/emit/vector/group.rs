//! Groups of registers, and single elements.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I8X16;
use cranelift_codegen::ir::{InstBuilder, Value};

use super::lanes::{
    active, as_elements, blended, cast, elements, first, grouped, lanes, set_vector_register, shuffled, vector_of,
    vector_register,
};
use crate::jit::emit::emitter::Emitter;
use crate::vector::{VReg, Width};

/// Ones in the elements of register `index` of a group whose bit in v0 is set.
pub(super) fn mask_lanes(emitter: &mut Emitter<'_>, width: Width, index: u32) -> Value {
    let first = index * lanes(width);
    let (size, bits) = (width.bytes(), width.bits());
    let mask = vector_register(emitter, VReg::V0);
    // The bytes of each element with its bit in it.
    let spread = shuffled(emitter, mask, mask, |at| (first + at / size) / bits * size + at % size);
    let bits = elements(emitter, width, |lane| 1 << ((first + lane) % bits));
    let (spread, bits) = (cast(emitter, vector_of(width), spread), cast(emitter, vector_of(width), bits));
    let bit = emitter.builder.ins().band(spread, bits);
    emitter.builder.ins().icmp(IntCC::Equal, bit, bits)
}

/// Writes the first `count` elements of a group; with `masked` only those whose bit in v0 is set.
pub(super) fn write_group(
    emitter: &mut Emitter<'_>,
    vd: VReg,
    width: Width,
    count: u32,
    masked: bool,
    values: &[Value],
) {
    let mut results = Vec::new();
    for (index, &value) in (0..).zip(values) {
        let active = active(width, index, count);
        if active == 0 {
            break;
        }
        let reg = grouped(vd, index);
        let old = vector_register(emitter, reg);
        let mut value = cast(emitter, I8X16, value);
        if masked {
            let mask = mask_lanes(emitter, width, index);
            value = blended(emitter, mask, value, old);
        }
        if active < lanes(width) {
            let mask = first(emitter, width, active);
            value = blended(emitter, mask, value, old);
        }
        results.push((reg, value));
    }
    for (reg, value) in results {
        set_vector_register(emitter, reg, value);
    }
}

/// The first element of a vector register, as a scalar of its width.
pub(super) fn first_element(emitter: &mut Emitter<'_>, reg: VReg, width: Width) -> Value {
    match emitter.vectors.firsts[reg.number() as usize] {
        Some((known, value)) if known == width => value,
        _ => {
            let vector = as_elements(emitter, reg, width);
            emitter.builder.ins().extractlane(vector, 0)
        }
    }
}

pub(super) fn set_first_element(emitter: &mut Emitter<'_>, reg: VReg, width: Width, value: Value) {
    let vector = as_elements(emitter, reg, width);
    let vector = emitter.builder.ins().insertlane(vector, value, 0);
    let vector = cast(emitter, I8X16, vector);
    set_vector_register(emitter, reg, vector);
    emitter.vectors.firsts[reg.number() as usize] = Some((width, value));
}
