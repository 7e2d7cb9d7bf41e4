//! The registers in which handlers describe a command.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use spin_abi::command::{Command, Status};
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::{COMMAND_INFO, COMMAND_WORD_COUNT, COMMAND_WORDS};

/// The command words and the info register. The HPU holds them until a command is issued; they are zero when a task
/// begins.
///
/// Handlers write them word by word just before they are read. They are atomics, so that the compiler reads them word
/// by word too: a load that spans two stores waits until both have left the store buffer.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CommandRegisters {
    words: [AtomicU32; COMMAND_WORD_COUNT],
    info: AtomicU32,
}

impl CommandRegisters {
    /// Registers at the start of a task.
    pub(crate) const fn new() -> Self {
        Self { words: [const { AtomicU32::new(0) }; COMMAND_WORD_COUNT], info: AtomicU32::new(0) }
    }

    /// Decodes the command that the registers describe.
    ///
    /// # Errors
    /// As [`Command::decode`].
    #[inline]
    pub fn decode(&self) -> Result<Command, Status> {
        Command::decode(self.info.load(Relaxed), |index| self.words[index].load(Relaxed))
    }

    /// Offset in this structure of the register at `address`, for an access of `width` bytes.
    pub(crate) const fn offset(address: u32, width: u32) -> Option<usize> {
        let at = address.wrapping_sub(DRIVER_BASE);
        let word = at.wrapping_sub(COMMAND_WORDS);
        if width != 4 || !at.is_multiple_of(4) {
            None
        } else if word < 4 * COMMAND_WORD_COUNT as u32 {
            Some(word as usize)
        } else if at == COMMAND_INFO {
            Some(4 * COMMAND_WORD_COUNT)
        } else {
            None
        }
    }

    pub(crate) fn register(&self, address: u32, width: u8) -> Option<&AtomicU32> {
        let index = Self::offset(address, width.into())? / 4;
        Some(self.words.get(index).unwrap_or(&self.info))
    }

    /// The words, then the info register.
    fn values(&self) -> impl Iterator<Item = u32> {
        self.words.iter().chain([&self.info]).map(|register| register.load(Relaxed))
    }
}

impl Clone for CommandRegisters {
    fn clone(&self) -> Self {
        let copy = |register: &AtomicU32| AtomicU32::new(register.load(Relaxed));
        Self { words: self.words.each_ref().map(copy), info: copy(&self.info) }
    }
}

impl PartialEq for CommandRegisters {
    fn eq(&self, other: &Self) -> bool {
        self.values().eq(other.values())
    }
}

impl Eq for CommandRegisters {}
