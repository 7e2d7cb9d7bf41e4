//! Slides and gathers.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::lanes::lanes;
use crate::jit::emit::Emitter;
use crate::vector::legal::{Operand, Operands};
use crate::vector::{Arithmetic, Source, VLEN_BYTES, VReg, VectorOp, Width};

/// A group that elements are taken from.
#[derive(Clone, Copy)]
struct From {
    first: VReg,
    registers: u32,
    /// Bytes of its elements: a group may fill part of a register only.
    bytes: u32,
}

impl Emitter<'_> {
    pub(super) fn permute(&mut self, inst: &Arithmetic, operands: Operands, count: u32) {
        let Operand::Group(group) = operands.vd else { return };
        let (width, registers) = (group.width, group.registers());
        let bytes = if group.emul < 0 { VLEN_BYTES >> -group.emul } else { registers * VLEN_BYTES };
        let from = From { first: inst.vs2, registers, bytes };
        let distance = self.distance(inst.source).unwrap_or(0);
        let values: Vec<Value> = (0..registers)
            .map(|index| match inst.op {
                VectorOp::SlideUp => self.slid_up(inst.vd, from, width, index, distance),
                VectorOp::Slide1Up => {
                    let slid = self.slid_up(inst.vd, from, width, index, 1);
                    if index == 0 { self.inserted(slid, width, 0, inst.source) } else { slid }
                }
                VectorOp::SlideDown => self.slid_down(from, width, index, distance),
                VectorOp::Slide1Down => {
                    let slid = self.slid_down(from, width, index, 1);
                    let last = count.wrapping_sub(1);
                    let here = last / lanes(width) == index;
                    if here { self.inserted(slid, width, last % lanes(width), inst.source) } else { slid }
                }
                _ => self.gathered(inst, from, width, index, distance),
            })
            .collect();
        self.write_group(inst.vd, width, count, inst.masked, &values);
    }

    /// 16 bytes of a group from byte `at` on, which may be negative; zero where there are none.
    fn window(&mut self, from: From, at: i64) -> Value {
        let size = i64::from(VLEN_BYTES);
        let (index, rest) = (at.div_euclid(size), at.rem_euclid(size));
        let [a, b] = [index, index + 1].map(|index| match u32::try_from(index) {
            Ok(index) if index < from.registers => self.vector_register(Self::grouped(from.first, index)),
            _ => self.zeroes(),
        });
        let end = i64::from(from.bytes);
        self.shuffled(a, b, |byte| {
            let (place, byte) = (at + i64::from(byte), rest + i64::from(byte));
            // Beyond a group that fills part of a register comes a vector of zeroes, as everywhere else.
            let byte = if place >= end { size } else { byte };
            u32::try_from(byte).unwrap_or(0)
        })
    }

    fn slid_down(&mut self, from: From, width: Width, index: u32, distance: u32) -> Value {
        self.window(from, i64::from(VLEN_BYTES * index) + i64::from(width.bytes()) * i64::from(distance))
    }

    /// Elements below the distance stay as they are in `vd`.
    fn slid_up(&mut self, vd: VReg, from: From, width: Width, index: u32, distance: u32) -> Value {
        let slid = self.window(from, i64::from(VLEN_BYTES * index) - i64::from(width.bytes()) * i64::from(distance));
        let old = self.vector_register(Self::grouped(vd, index));
        let kept = distance.saturating_sub(index * lanes(width)).min(lanes(width));
        let mask = self.first(width, kept);
        self.blended(mask, old, slid)
    }

    fn gathered(&mut self, inst: &Arithmetic, from: From, width: Width, index: u32, element: u32) -> Value {
        if let Source::Vector(vs1) = inst.source {
            // Bytes of one register, where an index beyond it gives zero as here.
            let (source, indices) = (self.vector_register(inst.vs2), self.vector_register(Self::grouped(vs1, index)));
            return self.builder.ins().swizzle(source, indices);
        }
        let at = i64::from(width.bytes()) * i64::from(element);
        let window = self.window(from, at);
        self.shuffled(window, window, |byte| byte % width.bytes())
    }
}
