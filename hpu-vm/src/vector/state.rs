//! The vector registers of a hart.

use crate::reg::VReg;
use crate::vector::vtype::{VILL, VLEN_BYTES, Vtype, Width};

/// Vector registers, type and length, rounding mode and saturation flag. Registers of a group are adjacent, so element
/// i of a group is i elements from the start of its first register.
///
/// Translated code accesses the fields in place: hence `repr(C)` and the alignment.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
pub struct VectorState {
    /// Registers v0 to v31, with little-endian elements.
    pub v: [[u8; VLEN_BYTES as usize]; 32],
    /// Number of elements of an operation.
    pub(crate) vl: u32,
    /// Value of `vtype`: legal bits, or [`VILL`].
    pub(crate) vtype: u32,
    /// Fixed-point rounding mode, two bits.
    pub(crate) vxrm: u32,
    /// 1 after a fixed-point result was clipped.
    pub(crate) vxsat: u32,
    /// Whether fields other than `vl` and `vtype` may differ from [`VectorState::NEW`]. Code that changes them calls
    /// [`Hart::use_vectors`](crate::Hart::use_vectors) before, so that other tasks need not clear them. Translated code
    /// that reads `vl` or `vtype` clears these two by itself.
    pub(crate) used: bool,
}

impl VectorState {
    /// State at the start of a task: registers zero, no elements, `vill`.
    pub const NEW: Self =
        Self { v: [[0; VLEN_BYTES as usize]; 32], vl: 0, vtype: VILL, vxrm: 0, vxsat: 0, used: false };

    /// Resets to [`VectorState::NEW`], at little cost when no register was written.
    #[inline]
    pub(crate) const fn clear(&mut self) {
        (self.vl, self.vtype) = (0, VILL);
        if self.used {
            *self = Self::NEW;
        }
    }

    /// Returns the vector type; `None` under `vill`.
    #[must_use]
    pub const fn vtype(&self) -> Option<Vtype> {
        Vtype::from_bits(self.vtype)
    }

    /// Returns `vl`.
    #[must_use]
    pub const fn vl(&self) -> u32 {
        self.vl
    }

    /// Sets the type and up to `wanted` elements, at most VLMAX; `vill` and no elements when `bits` are no legal type.
    pub(crate) const fn configure(&mut self, bits: u32, wanted: u32) {
        (self.vtype, self.vl) = match Vtype::from_bits(bits) {
            Some(vtype) if wanted < vtype.vlmax() => (bits, wanted),
            Some(vtype) => (bits, vtype.vlmax()),
            None => (VILL, 0),
        };
    }

    /// Element `index` of the group at `first`, zero-extended. The element must lie in the register file.
    #[inline]
    pub(crate) fn element(&self, first: VReg, index: u32, width: Width) -> u32 {
        let (file, at) = (self.v.as_flattened(), offset(first, index, width));
        match width {
            Width::E8 => u32::from(file[at]),
            Width::E16 => u32::from(u16::from_le_bytes([file[at], file[at + 1]])),
            Width::E32 => u32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]]),
        }
    }

    /// Sets element `index` of the group at `first` to the lower bits of `value`. The element must lie in the register
    /// file.
    #[inline]
    pub(crate) fn set_element(&mut self, first: VReg, index: u32, width: Width, value: u32) {
        let [a, b, c, d] = value.to_le_bytes();
        let bytes = &mut self.v.as_flattened_mut()[offset(first, index, width)..];
        match width {
            Width::E8 => bytes[0] = a,
            Width::E16 => bytes[..2].copy_from_slice(&[a, b]),
            Width::E32 => bytes[..4].copy_from_slice(&[a, b, c, d]),
        }
    }

    /// Bit `index`, below 128, of a mask.
    pub(crate) fn bit(&self, mask: VReg, index: u32) -> bool {
        self.element(mask, index / 8, Width::E8) >> (index % 8) & 1 != 0
    }

    /// Sets bit `index`, below 128, of a mask.
    pub(crate) fn set_bit(&mut self, mask: VReg, index: u32, value: bool) {
        let byte = self.element(mask, index / 8, Width::E8) & !(1 << (index % 8));
        self.set_element(mask, index / 8, Width::E8, byte | u32::from(value) << (index % 8));
    }

    /// Whether element `index` takes part in an instruction.
    pub(crate) fn is_active(&self, masked: bool, index: u32) -> bool {
        !masked || self.bit(VReg::V0, index)
    }
}

const fn offset(first: VReg, index: u32, width: Width) -> usize {
    (first.number() * VLEN_BYTES + index * width.bytes()) as usize
}
