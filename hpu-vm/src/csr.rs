//! Control and status registers that handlers may access: Zicntr's counters, their machine-mode counterparts, the hart
//! id, and those of the vector unit. There is no `vstart`: it is always 0.
//!
//! PsPIN's runtime runs handlers in user mode, but its headers also read `mcycle` and `mhartid`, so those are allowed.

/// A supported register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Csr {
    /// `cycle`, `cycleh` (read-only) or `mcycle`, `mcycleh`.
    Cycle(Half),
    /// `time`, `timeh`: the clock of [`Csr::Cycle`]; read-only.
    Time(Half),
    /// `instret`, `instreth` (read-only) or `minstret`, `minstreth`.
    Instret(Half),
    /// `mhartid`.
    HartId,
    /// `vl`: number of elements of a vector operation, set by `vsetvli` and related instructions.
    VectorLength,
    /// `vtype`, set by `vsetvli` and related instructions.
    VectorType,
    /// `vlenb`: bytes of a vector register.
    VectorBytes,
    /// `vxrm`: fixed-point rounding mode.
    VectorRounding,
    /// `vxsat`: whether a fixed-point result was clipped.
    VectorSaturated,
}

/// Half of a 64-bit counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Bits 31:0.
    Low,
    /// Bits 63:32.
    High,
}

impl Half {
    /// Returns this half of `value`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a half is the result")]
    pub const fn of(self, value: u64) -> u32 {
        match self {
            Self::Low => value as u32,
            Self::High => (value >> 32) as u32,
        }
    }

    /// Returns `value` with this half replaced by `half`.
    #[must_use]
    pub const fn replace(self, value: u64, half: u32) -> u64 {
        match self {
            Self::Low => value & !0xffff_ffff | half as u64,
            Self::High => value & 0xffff_ffff | (half as u64) << 32,
        }
    }
}

impl Csr {
    /// Returns the register with a 12-bit number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0xc00 | 0xb00 => Self::Cycle(Half::Low),
            0xc80 | 0xb80 => Self::Cycle(Half::High),
            0xc01 => Self::Time(Half::Low),
            0xc81 => Self::Time(Half::High),
            0xc02 | 0xb02 => Self::Instret(Half::Low),
            0xc82 | 0xb82 => Self::Instret(Half::High),
            0xf14 => Self::HartId,
            0x009 => Self::VectorSaturated,
            0x00a => Self::VectorRounding,
            0xc20 => Self::VectorLength,
            0xc21 => Self::VectorType,
            0xc22 => Self::VectorBytes,
            _ => return None,
        })
    }
}

/// Whether a register can be written: bits 11:10 of its number encode that (privileged ISA, §2.1).
#[must_use]
pub const fn is_writable(number: u32) -> bool {
    number >> 10 & 3 != 3
}

#[cfg(test)]
mod tests {
    use super::{Csr, Half, is_writable};

    #[test]
    fn machine_counters_and_fixed_point_state_are_writable() {
        let known: Vec<u32> = (0..0x1000).filter(|&n| Csr::from_number(n).is_some()).collect();
        let counters = [0xb00, 0xb02, 0xb80, 0xb82, 0xc00, 0xc01, 0xc02];
        assert_eq!(known, [&[9, 10], &counters[..], &[0xc20, 0xc21, 0xc22, 0xc80, 0xc81, 0xc82, 0xf14]].concat());
        let writable: Vec<u32> = known.into_iter().filter(|&n| is_writable(n)).collect();
        assert_eq!(writable, [9, 10, 0xb00, 0xb02, 0xb80, 0xb82]);
    }

    #[test]
    fn halves_are_read_and_replaced_alone() {
        let value = 0x1111_2222_3333_4444;
        assert_eq!(Half::Low.of(value), 0x3333_4444);
        assert_eq!(Half::High.of(value), 0x1111_2222);
        assert_eq!(Half::Low.replace(value, 5), 0x1111_2222_0000_0005);
        assert_eq!(Half::High.replace(value, 5), 0x0000_0005_3333_4444);
    }
}
