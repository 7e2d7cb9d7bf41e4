//! Places in the program that are emitted later: ends of the handler at single instructions, edges that close loops, and
//! the ends of the program.

use spin_abi::fault::Cause;

use crate::analysis::cfg::BlockId;
use crate::bpf::assembler::Assembler;
use crate::bpf::insn::{Label, Size};
use crate::bpf::layout::Reason;
use crate::inst::{Inst, Reg};

/// Where the emission is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    pub(super) block: BlockId,
    pub(super) index: usize,
    pub(super) pc: u32,
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Load,
    Store,
    LoadReserved,
    /// An atomic that may write.
    Atomic,
}

impl Kind {
    /// Whether it needs no right to write.
    pub(super) const fn reads_only(self) -> bool {
        matches!(self, Self::Load | Self::LoadReserved)
    }

    /// Whether it is no atomic.
    pub(super) const fn is_plain(self) -> bool {
        matches!(self, Self::Load | Self::Store)
    }

    /// Whether its address must be a multiple of 4.
    pub(super) const fn is_aligned(self) -> bool {
        !self.is_plain()
    }

    pub(super) const fn refused(self) -> Cause {
        if self.reads_only() { Cause::LoadAccess } else { Cause::StoreAccess }
    }

    pub(super) const fn misaligned(self) -> Cause {
        if self.reads_only() { Cause::LoadMisaligned } else { Cause::StoreMisaligned }
    }
}

/// An end of the handler at one instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stub {
    /// The bytes of an access are nowhere where they were looked for.
    Miss {
        label: Label,
        at: Cursor,
        inst: Inst,
        kind: Kind,
        size: Size,
        written: bool,
    },
    Misaligned {
        label: Label,
        at: Cursor,
        inst: Inst,
        kind: Kind,
    },
    Fault {
        label: Label,
        pc: u32,
        cause: Cause,
        address: u32,
    },
    /// The handler reports the value of a register as an error.
    Report {
        label: Label,
        at: Cursor,
        reg: Reg,
    },
    Leave {
        label: Label,
        pc: u32,
        reason: Reason,
        written: bool,
    },
}

/// An edge that closes a loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackEdge {
    pub(super) label: Label,
    pub(super) pc: u32,
    pub(super) to: BlockId,
}

/// Labels of the ends.
#[derive(Debug)]
pub(super) struct Exits {
    /// The handler returned.
    pub(super) returned: Label,
    /// The handler read the doorbell.
    pub(super) finished: Label,
    /// R1 is the cause's code, R0 the address; the frame has the instruction's address.
    pub(super) faulted: Label,
    /// R1 is the reason's code; the frame has the instruction's address.
    pub(super) left: Label,
    /// The program has no slot.
    pub(super) no_slot: Label,
    /// The context has used up its allowance on this processor.
    pub(super) held: Label,
}

impl Exits {
    pub(super) fn new(asm: &mut Assembler) -> Self {
        let [returned, finished, faulted, left, no_slot, held] = [(); 6].map(|()| asm.label());
        Self { returned, finished, faulted, left, no_slot, held }
    }
}
