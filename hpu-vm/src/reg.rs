//! Register numbers.

use std::fmt;

/// A register number, always below 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reg(u8);

impl Reg {
    /// Zero register.
    pub const ZERO: Self = Self(0);
    /// Return address.
    pub const RA: Self = Self(1);
    /// Stack pointer.
    pub const SP: Self = Self(2);
    /// Global pointer.
    pub const GP: Self = Self(3);
    /// Thread pointer; FPsPIN stores the hart id in it.
    pub const TP: Self = Self(4);
    /// First argument, result.
    pub const A0: Self = Self(10);
    /// Second argument.
    pub const A1: Self = Self(11);
    /// Number of an `ecall`.
    pub const A7: Self = Self(17);

    /// Makes a register from the lower five bits of `number`, as in an encoding.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self((number & 31) as u8)
    }

    /// Returns the register number, 0 to 31, as an index.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        // Always a no-op; it tells the compiler that indexing 32 registers needs no check.
        (self.0 & 31) as usize
    }

    /// Returns the register number, 0 to 31.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 32] = [
            "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
            "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
        ];
        f.write_str(NAMES[self.index()])
    }
}

/// A vector register's number, always below 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VReg(u8);

impl VReg {
    /// The mask register.
    pub const V0: Self = Self(0);

    /// Makes a register from the lower five bits of `number`, as in an encoding.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self((number & 31) as u8)
    }

    /// Returns the register number, 0 to 31.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}
