//! Element widths and the vector type: the width of elements and the number of registers in a group.

use crate::reg::VReg;

/// VLEN / 8: bytes of a vector register.
pub const VLEN_BYTES: u32 = 16;
/// Width in bits of the widest element.
const ELEN: u32 = 32;
/// Value of `vtype` when the vector type is illegal.
pub const VILL: u32 = 1 << 31;

/// Width of an element, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// 8 bits.
    E8,
    /// 16 bits.
    E16,
    /// 32 bits.
    E32,
}

impl Width {
    /// Every width, narrowest first.
    pub const ALL: [Self; 3] = [Self::E8, Self::E16, Self::E32];

    /// Returns the width of `1 << log2` bytes.
    #[must_use]
    pub const fn from_log2(log2: u32) -> Option<Self> {
        match log2 {
            0 => Some(Self::E8),
            1 => Some(Self::E16),
            2 => Some(Self::E32),
            _ => None,
        }
    }

    /// Returns the binary logarithm of the size in bytes.
    #[must_use]
    pub const fn log2(self) -> u32 {
        self as u32
    }

    /// Returns the size in bytes: 1, 2 or 4.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        1 << self.log2()
    }

    /// Returns the size in bits: 8, 16 or 32.
    #[must_use]
    pub const fn bits(self) -> u32 {
        8 << self.log2()
    }

    /// Returns twice this width.
    #[must_use]
    pub const fn doubled(self) -> Option<Self> {
        Self::from_log2(self.log2() + 1)
    }

    /// Returns this width divided by `1 << log2`.
    #[must_use]
    pub const fn divided(self, log2: u32) -> Option<Self> {
        match self.log2().checked_sub(log2) {
            Some(rest) => Self::from_log2(rest),
            None => None,
        }
    }

    /// Extends `value` as an element of this width: sign-extended when `signed`, zero-extended otherwise.
    #[must_use]
    pub const fn extend(self, value: u32, signed: bool) -> i64 {
        let unused = 32 - self.bits();
        if signed { (value << unused).cast_signed() as i64 >> unused } else { (value << unused >> unused) as i64 }
    }
}

/// A legal vector type, the part of `vtype` that affects execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vtype {
    /// SEW: width of an element.
    pub sew: Width,
    /// Binary logarithm of LMUL, -3 to 3.
    pub lmul: i32,
}

impl Vtype {
    /// Decodes `vtype` (spec §3.4); `None` for reserved and unsupported values, which set `vill`.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        // Bits 7:6 are tail and mask policy: both mean undisturbed here.
        let lmul = ((bits & 7) << 29).cast_signed() >> 29;
        match Width::from_log2(bits >> 3 & 7) {
            Some(sew) if bits >> 8 == 0 && lmul != -4 && (lmul >= 0 || sew.bits() <= ELEN >> -lmul) => {
                Some(Self { sew, lmul })
            }
            _ => None,
        }
    }

    /// Returns VLMAX: the maximum number of elements of one operation, 2 to 128.
    #[must_use]
    pub const fn vlmax(self) -> u32 {
        (VLEN_BYTES << 3 >> self.sew.log2()) >> (3 - self.lmul)
    }

    /// Returns the registers of an operand that has elements of `width` and the element count of this type: EMUL is
    /// LMUL × EEW / SEW. `None` when EMUL is out of range.
    #[must_use]
    pub const fn group(self, width: Width) -> Option<Group> {
        let emul = self.lmul + width.log2().cast_signed() - self.sew.log2().cast_signed();
        if emul < -3 || emul > 3 { None } else { Some(Group { width, emul }) }
    }
}

/// Shape of one vector operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// EEW: width of the operand's elements.
    pub width: Width,
    /// Binary logarithm of EMUL, -3 to 3.
    pub emul: i32,
}

impl Group {
    /// Returns the number of registers, at least one.
    #[must_use]
    pub const fn registers(self) -> u32 {
        if self.emul < 0 { 1 } else { 1 << self.emul }
    }

    /// Whether a group may begin at a register.
    #[must_use]
    pub const fn fits(self, first: VReg) -> bool {
        first.number().is_multiple_of(self.registers())
    }
}

#[cfg(test)]
mod tests {
    use super::{Vtype, Width};

    #[test]
    fn legal_types_and_their_vlmax() {
        let all: Vec<(u32, u32)> = (0..0x40).filter_map(|bits| Some((bits, Vtype::from_bits(bits)?.vlmax()))).collect();
        let e8 = [(0, 16), (1, 32), (2, 64), (3, 128), (6, 4), (7, 8)];
        let e16 = [(8, 8), (9, 16), (10, 32), (11, 64), (15, 4)];
        let e32 = [(16, 4), (17, 8), (18, 16), (19, 32)];
        assert_eq!(all, [&e8[..], &e16, &e32].concat());
        assert_eq!(Vtype::from_bits(0xd0), Vtype::from_bits(0x10));
        assert_eq!(Vtype::from_bits(0x110), None);
        assert_eq!(Vtype::from_bits(super::VILL), None);
    }

    #[test]
    fn elements_are_extended_from_their_width() {
        assert_eq!(Width::E8.extend(0x1ff, true), -1);
        assert_eq!(Width::E16.extend(0x1_8000, false), 0x8000);
        assert_eq!(Width::E32.extend(0x8000_0000, true), -0x8000_0000);
        assert_eq!(Width::E32.extend(0x8000_0000, false), 0x8000_0000);
    }
}
