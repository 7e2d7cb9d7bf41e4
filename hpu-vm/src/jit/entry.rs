//! Entry points of handlers and shared regions.

use super::code_memory::CodeMemory;
use super::convention::{EntryFunction, RETURNED, RawResult};
use super::prologue::Prologue;
use super::side_exits::SideExits;
use crate::device::CommandRegisters;
use crate::hart::Hart;
use crate::vector::vtype::VILL;

/// Result of a call of translated code.
pub(crate) enum CallResult {
    /// The handler returned.
    Returned,
    /// The handler returned; the caller must issue its last send.
    LastSend(LastSend),
    /// [`State::exit`](super::State::exit) holds the reason.
    Exited,
}

/// Send that is a handler's last action and is left to the caller.
pub(crate) struct LastSend {
    /// Address of the instruction that issues it.
    pub(crate) pc: u32,
    /// Guest address of the frame.
    pub(crate) address: u32,
    /// Length of the frame in bytes.
    pub(crate) length: u32,
}

impl From<RawResult> for CallResult {
    #[inline(always)]
    fn from(RawResult { code, frame }: RawResult) -> Self {
        if code == RETURNED {
            return Self::Returned;
        }
        std::hint::cold_path();
        if code < 0 {
            // The lower 32 bits hold the address of the instruction.
            Self::LastSend(LastSend { pc: code as u32, address: frame as u32, length: (frame >> 32) as u32 })
        } else {
            Self::Exited
        }
    }
}

/// Host code of a handler or a shared region. Its translation must live while the code is called.
#[derive(Debug)]
pub(crate) struct Entry {
    function: EntryFunction,
    prologue: Prologue,
    exits: SideExits,
    /// Number of bytes of the packet in L1 that are likely to be read [where it arrived](super::passes).
    pub(crate) zero_copy: u32,
}

/// Offset of a function in code memory, with its tables.
pub(crate) struct EntryLayout {
    /// Offset of the function.
    pub(crate) offset: usize,
    /// State that it resets when a task starts. A shared region finds everything in the hart.
    pub(crate) prologue: Prologue,
    /// Exits of the function.
    pub(crate) exits: SideExits,
    /// As [`Entry::zero_copy`].
    pub(crate) zero_copy: u32,
}

impl Entry {
    /// The entry with this layout in `memory`.
    pub(crate) fn new(memory: &CodeMemory, layout: EntryLayout) -> Self {
        let EntryLayout { offset, prologue, exits, zero_copy } = layout;
        Self { function: memory.function(offset), prologue, exits, zero_copy }
    }

    /// Function of the handler. A caller needs a [`State`](super::State) that is attached to a live space and
    /// [watched](crate::trap::TrapGuard), and whose `initial` registers are those of the task. For a shared region the hart
    /// holds all registers.
    #[inline(always)]
    pub(crate) const fn function(&self) -> EntryFunction {
        self.function
    }

    /// Completes the hart after the code was left at `exit`.
    pub(crate) fn complete_hart(&self, hart: &mut Hart, exit: u32) {
        self.exits.restore(hart, exit);
        if !self.prologue.command {
            hart.command = CommandRegisters::new();
        }
        if !self.prologue.reservation {
            hart.clear_reservation();
        }
        if !self.prologue.vectors {
            hart.vector.configure(VILL, 0);
        }
    }
}
