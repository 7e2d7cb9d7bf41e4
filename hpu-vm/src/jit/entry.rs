//! Entry points of handlers.

use std::ffi::c_void;
use std::ptr;

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

/// Host code of a handler. Its translation must live while the code is called.
#[derive(Debug)]
pub(crate) struct Entry {
    function: EntryFunction,
    prologue: Prologue,
    exits: SideExits,
    cold: Option<ColdEntry>,
    /// Number of bytes of the packet in L1 that are likely to be read [in place](super::in_place).
    pub(crate) in_place: u32,
}

/// Host code of a handler's cold part.
#[derive(Debug)]
struct ColdEntry {
    function: EntryFunction,
    /// Resets that have been performed when the cold part is entered.
    prologue: Prologue,
    /// Number of its exits, which come first in [`Entry::exits`].
    exits: usize,
}

/// Offsets of a handler's functions in code memory, with their tables.
pub(crate) struct EntryLayout {
    /// Offset of the function.
    pub(crate) offset: usize,
    /// Resets of the function.
    pub(crate) prologue: Prologue,
    /// Exits of both functions.
    pub(crate) exits: SideExits,
    /// The cold part, if it is a function of its own.
    pub(crate) cold: Option<ColdLayout>,
    /// As [`Entry::in_place`].
    pub(crate) in_place: u32,
}

/// Offset of the function for a handler's cold part.
pub(crate) struct ColdLayout {
    /// Offset of the function.
    pub(crate) offset: usize,
    /// Resets that have been performed when it is entered.
    pub(crate) prologue: Prologue,
    /// Number of its exits, which come first.
    pub(crate) exits: usize,
}

impl Entry {
    /// The entry with this layout in `memory`.
    pub(crate) fn new(memory: &CodeMemory, layout: EntryLayout) -> Self {
        let EntryLayout { offset, prologue, exits, cold, in_place } = layout;
        let cold = cold.map(|ColdLayout { offset, prologue, exits }| ColdEntry {
            function: memory.function(offset),
            prologue,
            exits,
        });
        Self { function: memory.function(offset), prologue, exits, cold, in_place }
    }

    /// Function of the handler. A caller needs a [`State`](super::State) that is attached to a live space and
    /// [watched](crate::trap::Attending), and whose `initial` and `cold_code` are those of the task.
    #[inline(always)]
    pub(crate) const fn function(&self) -> EntryFunction {
        self.function
    }

    /// Value of [`State::cold_code`](super::State::cold_code) while the handler runs.
    pub(crate) fn cold_code(&self) -> *const c_void {
        self.cold.as_ref().map_or(ptr::null(), |cold| cold.function as *const c_void)
    }

    /// Completes the hart for the interpreter after the code was left at `exit`.
    pub(crate) fn prepare_interpreter(&self, hart: &mut Hart, exit: u32) {
        self.exits.restore(hart, exit);
        let left_in = self.cold.as_ref().filter(|cold| (exit as usize) < cold.exits);
        let performed = left_in.map_or(self.prologue, |cold| self.prologue.union(cold.prologue));
        if !performed.command {
            hart.command = CommandRegisters::new();
        }
        if !performed.reservation {
            hart.clear_reservation();
        }
        if !performed.vectors {
            hart.vector.configure(VILL, 0);
        }
    }
}
