//! Slides and gathers.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::lanes::lanes;
use crate::jit::emit::emitter::Emitter;
use crate::jit::emit::vector::group::write_group;
use crate::jit::emit::vector::lanes::{
    blended, cast, first, grouped, narrowed, scalar, shuffled, vector_of, vector_register, zeroes,
};
use crate::vector::legal::{Operand, Operands};
use crate::vector::{Arithmetic, Source, VLEN_BYTES, VReg, VectorOp, Width};

/// Source group of a permutation.
#[derive(Clone, Copy)]
struct From {
    first: VReg,
    registers: u32,
    /// Number of bytes of its elements: a group may fill only a part of a register.
    bytes: u32,
}

pub(super) fn permute(emitter: &mut Emitter<'_>, inst: &Arithmetic, operands: Operands, count: u32) {
    let Operand::Group(group) = operands.vd else { return };
    let (width, registers) = (group.width, group.registers());
    let bytes = if group.emul < 0 { VLEN_BYTES >> -group.emul } else { registers * VLEN_BYTES };
    let from = From { first: inst.vs2, registers, bytes };
    let distance = distance(emitter, inst.source).unwrap_or(0);
    let values: Vec<Value> = (0..registers)
        .map(|index| match inst.op {
            VectorOp::SlideUp => slid_up(emitter, inst.vd, from, width, index, distance),
            VectorOp::Slide1Up => {
                let slid = slid_up(emitter, inst.vd, from, width, index, 1);
                if index == 0 { inserted(emitter, slid, width, 0, inst.source) } else { slid }
            }
            VectorOp::SlideDown => slid_down(emitter, from, width, index, distance),
            VectorOp::Slide1Down => {
                let slid = slid_down(emitter, from, width, index, 1);
                let last = count.wrapping_sub(1);
                let here = last / lanes(width) == index;
                if here { inserted(emitter, slid, width, last % lanes(width), inst.source) } else { slid }
            }
            _ => gathered(emitter, inst, from, width, index, distance),
        })
        .collect();
    write_group(emitter, inst.vd, width, count, inst.masked, &values);
}

/// 16 bytes of a group from byte `at` on, which may be negative; zeroes outside of the group.
fn window(emitter: &mut Emitter<'_>, from: From, at: i64) -> Value {
    let size = i64::from(VLEN_BYTES);
    let (index, rest) = (at.div_euclid(size), at.rem_euclid(size));
    let [a, b] = [index, index + 1].map(|index| match u32::try_from(index) {
        Ok(index) if index < from.registers => vector_register(emitter, grouped(from.first, index)),
        _ => zeroes(emitter),
    });
    let end = i64::from(from.bytes);
    shuffled(emitter, a, b, |byte| {
        let (place, byte) = (at + i64::from(byte), rest + i64::from(byte));
        // The unused part of a register counts as zeroes.
        let byte = if place >= end { size } else { byte };
        u32::try_from(byte).unwrap_or(0)
    })
}

fn slid_down(emitter: &mut Emitter<'_>, from: From, width: Width, index: u32, distance: u32) -> Value {
    window(emitter, from, i64::from(VLEN_BYTES * index) + i64::from(width.bytes()) * i64::from(distance))
}

/// Elements below the distance keep their values in `vd`.
fn slid_up(emitter: &mut Emitter<'_>, vd: VReg, from: From, width: Width, index: u32, distance: u32) -> Value {
    let slid = window(emitter, from, i64::from(VLEN_BYTES * index) - i64::from(width.bytes()) * i64::from(distance));
    let old = vector_register(emitter, grouped(vd, index));
    let kept = distance.saturating_sub(index * lanes(width)).min(lanes(width));
    let mask = first(emitter, width, kept);
    blended(emitter, mask, old, slid)
}

fn gathered(emitter: &mut Emitter<'_>, inst: &Arithmetic, from: From, width: Width, index: u32, element: u32) -> Value {
    if let Source::Vector(vs1) = inst.source {
        // For bytes of one register `swizzle` gives zero for an index beyond it, as required.
        let (source, indices) = (vector_register(emitter, inst.vs2), vector_register(emitter, grouped(vs1, index)));
        return emitter.builder.ins().swizzle(source, indices);
    }
    let at = i64::from(width.bytes()) * i64::from(element);
    let window = window(emitter, from, at);
    shuffled(emitter, window, window, |byte| byte % width.bytes())
}

/// The number of elements that a slide moves, if it is known.
pub(super) fn distance(emitter: &Emitter<'_>, source: Source) -> Option<u32> {
    match source {
        Source::Immediate(distance) => Some(distance.cast_unsigned()),
        Source::Scalar(reg) => emitter.known().constant(reg),
        Source::Vector(_) | Source::None => None,
    }
}

/// Inserts the scalar operand as an element.
fn inserted(emitter: &mut Emitter<'_>, vector: Value, width: Width, lane: u32, source: Source) -> Value {
    let scalar = scalar(emitter, source);
    let element = narrowed(emitter, scalar, width);
    let vector = cast(emitter, vector_of(width), vector);
    let lane = lane.to_le_bytes()[0];
    emitter.builder.ins().insertlane(vector, element, lane)
}
