//! Vector loads and stores.

use crate::hart::Hart;
use crate::vector::inst::{Addressing, Direction, Memory, VReg};
use crate::vector::legal::{Operand, is_mask_kept, is_safe_overlap, overlap};
use crate::vector::state::VectorState;
use crate::vector::vtype::{Group, VLEN_BYTES, Vtype, Width};
use crate::view::View;

/// Reason why a vector instruction did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The instruction is illegal, in general or under the current vtype.
    Illegal,
    /// The element at this address cannot be loaded.
    Load(u32),
    /// The element at this address cannot be stored.
    Store(u32),
}

/// Layout of an access under the current vtype.
struct AccessShape {
    /// Width of the elements loaded or stored.
    width: Width,
    /// Elements per field.
    count: u32,
    /// Registers from one field's group to the next's.
    stride: u32,
    fields: u32,
}

/// Executes a load or store element by element, up to the first one that the view refuses.
pub(super) fn execute(hart: &mut Hart, view: &mut View<'_>, inst: &Memory) -> Result<(), Refusal> {
    let shape = shape(&hart.vector, inst).ok_or(Refusal::Illegal)?;
    let base = hart.get(inst.rs1);
    for index in 0..shape.count {
        if !hart.vector.is_active(inst.masked, index) {
            continue;
        }
        let segment = base.wrapping_add(segment_offset(hart, inst, &shape, index));
        for field in 0..shape.fields {
            let register = VReg::new(inst.vd.number() + field * shape.stride);
            let address = segment.wrapping_add(field * shape.width.bytes());
            transfer(&mut hart.vector, view, inst.direction, (register, index, shape.width), address)?;
        }
    }
    Ok(())
}

/// Returns the shape of an access; `None` when the vtype makes the instruction illegal.
fn shape(state: &VectorState, inst: &Memory) -> Option<AccessShape> {
    match inst.addressing {
        Addressing::Whole => {
            let count = inst.fields * VLEN_BYTES / inst.width.bytes();
            Some(AccessShape { width: inst.width, count, stride: 0, fields: 1 })
        }
        Addressing::Mask => {
            state.vtype()?;
            Some(AccessShape { width: Width::E8, count: state.vl.div_ceil(8), stride: 0, fields: 1 })
        }
        Addressing::Unit | Addressing::Strided(_) | Addressing::Indexed { .. } => {
            let vtype = state.vtype()?;
            let data = data_group(inst, vtype)?;
            is_legal(inst, vtype, data).then_some(AccessShape {
                width: data.width,
                count: state.vl,
                stride: data.registers(),
                fields: inst.fields,
            })
        }
    }
}

/// The group of one field.
fn data_group(inst: &Memory, vtype: Vtype) -> Option<Group> {
    match inst.addressing {
        Addressing::Indexed { .. } => vtype.group(vtype.sew),
        _ => vtype.group(inst.width),
    }
}

fn is_legal(inst: &Memory, vtype: Vtype, data: Group) -> bool {
    let registers = data.registers() * inst.fields;
    let fits = data.fits(inst.vd) && registers <= 8 && inst.vd.number() + registers <= 32;
    let load = inst.direction == Direction::Load;
    // Fields are in ascending registers, so only the first one can be v0.
    let mask_kept = !load || is_mask_kept(inst.vd, Operand::Group(data), inst.masked);
    fits && mask_kept && are_indices_legal(inst, vtype, data)
}

fn are_indices_legal(inst: &Memory, vtype: Vtype, data: Group) -> bool {
    let Addressing::Indexed { vs2, .. } = inst.addressing else { return true };
    let Some(indices) = vtype.group(inst.width) else { return false };
    let source = (vs2, Operand::Group(indices));
    let is_kept = |field| {
        let dest = (VReg::new(inst.vd.number() + field * data.registers()), Operand::Group(data));
        if inst.fields > 1 { !overlap(dest, source) } else { is_safe_overlap(dest, source) }
    };
    indices.fits(vs2) && (inst.direction == Direction::Store || (0..inst.fields).all(is_kept))
}

/// Bytes from the base address to segment `index`.
fn segment_offset(hart: &Hart, inst: &Memory, shape: &AccessShape, index: u32) -> u32 {
    match inst.addressing {
        Addressing::Strided(stride) => hart.get(stride).wrapping_mul(index),
        Addressing::Indexed { vs2, .. } => hart.vector.element(vs2, index, inst.width),
        Addressing::Unit | Addressing::Whole | Addressing::Mask => index * shape.fields * shape.width.bytes(),
    }
}

fn transfer(
    state: &mut VectorState,
    view: &mut View<'_>,
    direction: Direction,
    (register, index, width): (VReg, u32, Width),
    address: u32,
) -> Result<(), Refusal> {
    match direction {
        Direction::Load => {
            let value = load(view, address, width).ok_or(Refusal::Load(address))?;
            state.set_element(register, index, width, value);
        }
        Direction::Store => {
            let value = state.element(register, index, width);
            store(view, address, width, value).ok_or(Refusal::Store(address))?;
        }
    }
    Ok(())
}

fn load(view: &mut View<'_>, address: u32, width: Width) -> Option<u32> {
    Some(match width {
        Width::E8 => u32::from(u8::from_le_bytes(view.load(address)?)),
        Width::E16 => u32::from(u16::from_le_bytes(view.load(address)?)),
        Width::E32 => u32::from_le_bytes(view.load(address)?),
    })
}

fn store(view: &mut View<'_>, address: u32, width: Width, value: u32) -> Option<()> {
    let [a, b, c, d] = value.to_le_bytes();
    match width {
        Width::E8 => view.store(address, [a]),
        Width::E16 => view.store(address, [a, b]),
        Width::E32 => view.store(address, [a, b, c, d]),
    }
}
