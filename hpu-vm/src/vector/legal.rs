//! Legal register operands: alignment and overlap of groups (spec §3.4.2 and §5.2).
//!
//! Encodings that violate these rules are reserved by the spec and illegal here. The rules also keep every group inside
//! the register file, and let operations process elements in order: where a destination may overlap a source, no
//! element is overwritten before it is read.

use crate::vector::inst::{Arithmetic, Shape, Source, VReg, VectorOp};
use crate::vector::vtype::{Group, Vtype, Width};

/// Kind of an operand of an arithmetic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// No operand.
    Unused,
    /// Bits of one register.
    Mask,
    /// The first element of a register.
    Element(Width),
    /// Elements of a group.
    Group(Group),
}

impl Operand {
    /// Width of the elements; any width for masks and missing operands.
    pub(crate) const fn width(self) -> Width {
        match self {
            Self::Unused | Self::Mask => Width::E8,
            Self::Element(width) | Self::Group(Group { width, .. }) => width,
        }
    }

    /// Number of registers; 0 without an operand.
    pub(crate) const fn registers(self) -> u32 {
        match self {
            Self::Unused => 0,
            _ => self.extent().1,
        }
    }

    /// EEW in bits, whole registers, and whether EMUL is at least 1.
    const fn extent(self) -> (u32, u32, bool) {
        match self {
            Self::Group(group) => (group.width.bits(), group.registers(), group.emul >= 0),
            _ => (1, 1, true),
        }
    }
}

/// The operands of an arithmetic instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    /// Destination.
    pub(crate) vd: Operand,
    /// First operand.
    pub(crate) vs2: Operand,
    /// Other operand, if it is a vector.
    pub(crate) vs1: Operand,
}

/// The operands of `inst` under `vtype`; `None` when `vtype` makes the instruction illegal.
pub(crate) fn operands(inst: &Arithmetic, vtype: Vtype) -> Option<Operands> {
    let operands = shapes(inst.op, vtype)?;
    let Operands { vd, vs2, vs1 } = operands;
    let vs1 = match inst.source {
        Source::Vector(register) => Some((register, vs1)),
        _ => None,
    };
    let sources = [Some((inst.vs2, vs2)), vs1];
    let fits = |register, operand| match operand {
        Operand::Group(group) => group.fits(register),
        _ => true,
    };
    let legal = fits(inst.vd, vd)
        && is_mask_kept(inst.vd, vd, inst.masked)
        && sources.iter().flatten().all(|&(register, operand)| {
            fits(register, operand) && is_overlap_legal(inst.op, (inst.vd, vd), (register, operand))
        });
    legal.then_some(operands)
}

fn shapes(op: VectorOp, vtype: Vtype) -> Option<Operands> {
    let sew = vtype.sew;
    let group = |width| vtype.group(width).map(Operand::Group);
    let wide = || group(sew.doubled()?);
    let plain = group(sew)?;
    let (vd, vs2, vs1) = match op.shape() {
        Shape::Permute if op == VectorOp::Gather16 => (plain, plain, group(Width::E16)?),
        Shape::Plain | Shape::Accumulate | Shape::Merge | Shape::Permute => (plain, plain, plain),
        Shape::Move => (plain, Operand::Unused, plain),
        Shape::Compare => (Operand::Mask, plain, plain),
        Shape::MaskLogic => (Operand::Mask, Operand::Mask, Operand::Mask),
        Shape::Widen | Shape::WidenAccumulate => (wide()?, plain, plain),
        Shape::WidenWide => (wide()?, wide()?, plain),
        Shape::Narrow => (plain, wide()?, plain),
        Shape::Reduce => (Operand::Element(sew), plain, Operand::Element(sew)),
        Shape::WidenReduce => (Operand::Element(sew.doubled()?), plain, Operand::Element(sew.doubled()?)),
        Shape::Extend2 => (plain, group(sew.divided(1)?)?, Operand::Unused),
        Shape::Extend4 => (plain, group(sew.divided(2)?)?, Operand::Unused),
        Shape::ElementToScalar => (Operand::Unused, Operand::Element(sew), Operand::Unused),
        Shape::ScalarToElement => (Operand::Element(sew), Operand::Unused, Operand::Unused),
        Shape::MaskToScalar => (Operand::Unused, Operand::Mask, Operand::Unused),
        Shape::Index => (plain, Operand::Unused, Operand::Unused),
        Shape::MoveRegisters => (Operand::Unused, Operand::Unused, Operand::Unused),
    };
    Some(Operands { vd, vs2, vs1 })
}

/// Whether an instruction leaves its mask intact. A masked one may replace it by a mask or a single element only.
pub(super) fn is_mask_kept(vd: VReg, operand: Operand, masked: bool) -> bool {
    !(masked && vd == VReg::V0 && matches!(operand, Operand::Group(_)))
}

fn is_overlap_legal(op: VectorOp, dest: (VReg, Operand), source: (VReg, Operand)) -> bool {
    match (dest.1, source.1) {
        (Operand::Unused | Operand::Element(_), _) | (_, Operand::Unused) => true,
        _ if moves_elements_up(op) => !overlap(dest, source),
        _ => is_safe_overlap(dest, source),
    }
}

/// Whether an element may be needed after its register was written.
const fn moves_elements_up(op: VectorOp) -> bool {
    matches!(op, VectorOp::Gather | VectorOp::Gather16 | VectorOp::SlideUp | VectorOp::Slide1Up)
}

/// Whether two operands share a register.
pub(super) const fn overlap(a: (VReg, Operand), b: (VReg, Operand)) -> bool {
    let (first_a, first_b) = (a.0.number(), b.0.number());
    first_a < first_b + b.1.extent().1 && first_b < first_a + a.1.extent().1
}

/// Whether a destination does not overlap a source, or overlaps it without the loss of an element. That holds for
/// elements of equal width, for narrower ones in the lowest part of the source, and for wider ones whose highest part
/// is the source.
pub(super) fn is_safe_overlap(dest: (VReg, Operand), source: (VReg, Operand)) -> bool {
    let (dest_bits, dest_registers, _) = dest.1.extent();
    let (source_bits, source_registers, whole) = source.1.extent();
    let (first_dest, first_source) = (dest.0.number(), source.0.number());
    !overlap(dest, source)
        || match dest_bits.cmp(&source_bits) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Less => first_dest == first_source,
            std::cmp::Ordering::Greater => whole && first_source + source_registers == first_dest + dest_registers,
        }
}
