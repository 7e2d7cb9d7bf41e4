//! Faults: causes for which a handler is ended before it returns.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Cause of a fault. Values below 16 are RISC-V's `mcause` exception codes (privileged ISA, table 3.6). Values from 24
/// on are in the range that the ISA leaves to the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum Cause {
    /// Jump or branch to an address that is not 2-byte aligned.
    InstructionMisaligned = 0,
    /// Fetch from outside the context's code.
    InstructionAccess = 1,
    /// Instruction outside RV32IMAC, Zba, Zbb, Zbs, the vector subset and Zicsr's counters.
    IllegalInstruction = 2,
    /// `ebreak`.
    Breakpoint = 3,
    /// LR on an address that is not 4-byte aligned.
    LoadMisaligned = 4,
    /// Load from an address the context may not read.
    LoadAccess = 5,
    /// SC or AMO on an address that is not 4-byte aligned.
    StoreMisaligned = 6,
    /// Store, SC or AMO to an address the context may not write.
    StoreAccess = 7,
    /// `ecall` with a number the ABI does not define.
    UnknownEcall = 8,
    /// The handler exceeded its context's time limit.
    Watchdog = 24,
    /// Access to a device register with wrong width, direction or offset.
    DeviceAccess = 25,
    /// The handler reported an error through the error register.
    Reported = 26,
    /// Access below the handler's stack window.
    StackOverflow = 27,
    /// The handler exceeded its context's instruction limit.
    InstructionLimit = 28,
}

impl Cause {
    /// All causes, in the order of their codes.
    pub const ALL: [Self; 14] = [
        Self::InstructionMisaligned,
        Self::InstructionAccess,
        Self::IllegalInstruction,
        Self::Breakpoint,
        Self::LoadMisaligned,
        Self::LoadAccess,
        Self::StoreMisaligned,
        Self::StoreAccess,
        Self::UnknownEcall,
        Self::Watchdog,
        Self::DeviceAccess,
        Self::Reported,
        Self::StackOverflow,
        Self::InstructionLimit,
    ];

    /// Code in the error register and in the context's event ring.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Whether a limit of the context ended the handler.
    #[must_use]
    pub const fn is_limit(self) -> bool {
        matches!(self, Self::Watchdog | Self::InstructionLimit)
    }

    /// Description for users.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::InstructionMisaligned => "jump to an odd address",
            Self::InstructionAccess => "jump outside the code",
            Self::IllegalInstruction => "illegal instruction",
            Self::Breakpoint => "breakpoint",
            Self::LoadMisaligned => "misaligned load-reserved",
            Self::LoadAccess => "load outside its memory",
            Self::StoreMisaligned => "misaligned atomic",
            Self::StoreAccess => "store outside its memory",
            Self::UnknownEcall => "unknown ecall",
            Self::Watchdog => "ran over its time limit",
            Self::DeviceAccess => "bad device access",
            Self::Reported => "error reported by the handler",
            Self::StackOverflow => "stack overflow",
            Self::InstructionLimit => "ran over its instruction limit",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// A fault: what happened, at which instruction, on which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Cause of the fault.
    pub cause: Cause,
    /// Address of the faulting instruction. For a fetch, the address fetched from.
    pub pc: u32,
    /// Data address of a memory fault, jump target of a fetch fault, or bits of an illegal instruction. The reported
    /// value of [`Cause::Reported`]. Otherwise 0.
    pub address: u32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cause == Cause::Reported {
            return write!(f, "error {} reported by the handler (pc {:#010x})", self.address, self.pc);
        }
        write!(f, "{} (pc {:#010x}, address {:#010x})", self.cause, self.pc, self.address)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::{Cause, Fault};

    #[test]
    fn a_reported_error_is_a_number() {
        let fault = Fault { cause: Cause::Reported, pc: 0x1d00_0010, address: 1234 };
        assert_eq!(fault.to_string(), "error 1234 reported by the handler (pc 0x1d000010)");
        let fault = Fault { cause: Cause::LoadAccess, ..fault };
        assert_eq!(fault.to_string(), "load outside its memory (pc 0x1d000010, address 0x000004d2)");
    }
}
