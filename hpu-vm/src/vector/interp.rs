//! The interpreter of vector instructions.

use crate::hart::Hart;
use crate::vector::alu::Alu;
use crate::vector::decode::decode;
use crate::vector::inst::{Arithmetic, Configure, Length, NewType, Shape, Source, VReg, VectorInst, VectorOp};
use crate::vector::legal::{self, Operand, Operands};
use crate::vector::memory::{self, Refusal};
use crate::vector::state::VectorState;
use crate::vector::vtype::{VLEN_BYTES, Vtype, Width};
use crate::view::View;

/// Executes the instruction encoded in `bits`.
pub(crate) fn execute(hart: &mut Hart, view: &mut View<'_>, bits: u32) -> Result<(), Refusal> {
    hart.use_vectors();
    match decode(bits).ok_or(Refusal::Illegal)? {
        VectorInst::Configure(inst) => configure(hart, &inst),
        VectorInst::Memory(inst) => return memory::execute(hart, view, &inst),
        VectorInst::Arithmetic(inst) => return arithmetic(hart, &inst),
    }
    Ok(())
}

fn configure(hart: &mut Hart, inst: &Configure) {
    let bits = match inst.vtype {
        NewType::Immediate(bits) => bits,
        NewType::Register(reg) => hart.get(reg),
    };
    let wanted = match inst.length {
        Length::Register(reg) => hart.get(reg),
        Length::Immediate(count) => count,
        Length::Max => u32::MAX,
        Length::Keep => hart.vector.vl,
    };
    hart.vector.configure(bits, wanted);
    hart.set(inst.rd, hart.vector.vl);
}

fn arithmetic(hart: &mut Hart, inst: &Arithmetic) -> Result<(), Refusal> {
    let shape = inst.op.shape();
    if shape == Shape::MoveRegisters {
        move_registers(&mut hart.vector, inst);
        return Ok(());
    }
    let vtype = hart.vector.vtype().ok_or(Refusal::Illegal)?;
    let operands = legal::operands(inst, vtype).ok_or(Refusal::Illegal)?;
    let scalar = match inst.source {
        Source::Scalar(reg) => hart.get(reg),
        Source::Immediate(value) => value.cast_unsigned(),
        Source::Vector(_) | Source::None => 0,
    };
    let state = &mut hart.vector;
    match shape {
        Shape::Permute => permute(state, inst, vtype, scalar),
        Shape::Reduce | Shape::WidenReduce => reduce(state, inst, operands),
        Shape::Index => index(state, inst, vtype.sew),
        Shape::ScalarToElement if state.vl != 0 => state.set_element(inst.vd, 0, vtype.sew, scalar),
        Shape::ScalarToElement => {}
        Shape::ElementToScalar => {
            let element = vtype.sew.extend(state.element(inst.vs2, 0, vtype.sew), true);
            hart.set(inst.rd(), low(element));
        }
        Shape::MaskToScalar => {
            let result = mask_to_scalar(state, inst);
            hart.set(inst.rd(), result);
        }
        _ => elementwise(state, inst, operands, scalar),
    }
    Ok(())
}

fn move_registers(state: &mut VectorState, inst: &Arithmetic) {
    if let Source::Immediate(count) = inst.source {
        let bytes = count.cast_unsigned() * VLEN_BYTES;
        let (from, to) = (inst.vs2.number() * VLEN_BYTES, inst.vd.number() * VLEN_BYTES);
        state.v.as_flattened_mut().copy_within(from as usize..(from + bytes) as usize, to as usize);
    }
}

/// Executes shapes whose element i depends on elements i only.
fn elementwise(state: &mut VectorState, inst: &Arithmetic, operands: Operands, scalar: u32) {
    let Operands { vd, vs2, vs1 } = operands;
    let (sign_a, sign_b) = inst.op.signs();
    let mut alu = Alu { op: inst.op, result: vd.width(), first: vs2.width(), vxrm: state.vxrm, vxsat: false };
    for i in 0..state.vl {
        if inst.op == VectorOp::Merge {
            if !state.bit(VReg::V0, i) {
                let kept = read(state, inst.vs2, vs2, i);
                write(state, inst.vd, vd, i, kept);
                continue;
            }
        } else if !state.is_active(inst.masked, i) {
            continue;
        }
        let a = vs2.width().extend(read(state, inst.vs2, vs2, i), sign_a);
        let b = match inst.source {
            Source::Vector(register) => read(state, register, vs1, i),
            _ => scalar,
        };
        let b = vs1.width().extend(b, sign_b);
        let d = i64::from(read(state, inst.vd, vd, i));
        let result = alu.compute(a, b, d);
        write(state, inst.vd, vd, i, low(result));
    }
    state.vxsat |= u32::from(alu.vxsat);
}

/// Element `index` of an operand, or bit `index` of a mask.
fn read(state: &VectorState, register: VReg, operand: Operand, index: u32) -> u32 {
    match operand {
        Operand::Unused => 0,
        Operand::Mask => u32::from(state.bit(register, index)),
        Operand::Element(width) => state.element(register, 0, width),
        Operand::Group(group) => state.element(register, index, group.width),
    }
}

fn write(state: &mut VectorState, register: VReg, operand: Operand, index: u32, value: u32) {
    match operand {
        Operand::Unused => {}
        Operand::Mask => state.set_bit(register, index, value & 1 != 0),
        Operand::Element(width) => state.set_element(register, 0, width, value),
        Operand::Group(group) => state.set_element(register, index, group.width, value),
    }
}

/// Executes a reduction. Without elements nothing is written (spec §14).
fn reduce(state: &mut VectorState, inst: &Arithmetic, operands: Operands) {
    let Operands { vd, vs2, vs1 } = operands;
    let Source::Vector(register) = inst.source else { return };
    if state.vl == 0 {
        return;
    }
    let (sign, _) = inst.op.signs();
    let mut alu = Alu { op: inst.op, result: vd.width(), first: vs2.width(), vxrm: state.vxrm, vxsat: false };
    let mut result = read(state, register, vs1, 0);
    for i in (0..state.vl).filter(|&i| state.is_active(inst.masked, i)) {
        let a = vs2.width().extend(read(state, inst.vs2, vs2, i), sign);
        result = low(alu.compute(a, vd.width().extend(result, sign), 0));
    }
    write(state, inst.vd, vd, 0, result);
}

/// Slides and gathers (spec §16.3, §16.4).
fn permute(state: &mut VectorState, inst: &Arithmetic, vtype: Vtype, scalar: u32) {
    let (sew, vlmax, vl) = (vtype.sew, vtype.vlmax(), state.vl);
    for i in 0..vl {
        if !state.is_active(inst.masked, i) {
            continue;
        }
        // Source of element i; `None` for the scalar at the open end.
        let from = match inst.op {
            VectorOp::SlideUp if i < scalar => continue,
            VectorOp::SlideUp => Some(i - scalar),
            VectorOp::SlideDown => Some(i.saturating_add(scalar)),
            VectorOp::Slide1Up => i.checked_sub(1),
            VectorOp::Slide1Down => (i + 1 < vl).then_some(i + 1),
            _ => Some(gather_index(state, inst, sew, scalar, i)),
        };
        let value = match from {
            None => scalar,
            Some(from) if from < vlmax => state.element(inst.vs2, from, sew),
            Some(_) => 0,
        };
        state.set_element(inst.vd, i, sew, value);
    }
}

fn gather_index(state: &VectorState, inst: &Arithmetic, sew: Width, scalar: u32, i: u32) -> u32 {
    match inst.source {
        Source::Vector(register) if inst.op == VectorOp::Gather16 => state.element(register, i, Width::E16),
        Source::Vector(register) => state.element(register, i, sew),
        _ => scalar,
    }
}

fn index(state: &mut VectorState, inst: &Arithmetic, sew: Width) {
    for i in 0..state.vl {
        if state.is_active(inst.masked, i) {
            state.set_element(inst.vd, i, sew, i);
        }
    }
}

fn mask_to_scalar(state: &VectorState, inst: &Arithmetic) -> u32 {
    let mut set = (0..state.vl).filter(|&i| state.is_active(inst.masked, i) && state.bit(inst.vs2, i));
    match inst.op {
        VectorOp::CountMask => set.map(|_| 1).sum(),
        _ => set.next().unwrap_or(u32::MAX),
    }
}

/// The bits that an element or a register can hold.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the lower bits are what counts")]
const fn low(value: i64) -> u32 {
    value as u32
}
