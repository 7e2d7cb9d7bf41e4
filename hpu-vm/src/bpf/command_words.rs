//! Words of commands that are known: handlers store them just before they issue the command.

use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::{COMMAND_ISSUE, COMMAND_WORD_COUNT, INFO_SEND};

use super::layout::Layout;
use super::queue::{MAX_COPY, is_copy};
use crate::analysis::cfg::{BlockId, Cfg};
use crate::analysis::dataflow::{Dataflow, PointsTo, RegState};
use crate::device::CommandRegisters;
use crate::inst::{Inst, Op};

/// Maximum number of bytes of a HostDirect command.
const MAX_IMMEDIATE: u32 = 32;
/// Type of a HostDirect command.
const INFO_HOST_DIRECT: u32 = 2 << 1;

/// Index of the command's type among the words.
pub(super) const TYPE: usize = COMMAND_WORD_COUNT;

/// Index of the NIC address of a send among the words.
pub(super) const NIC_ADDRESS: usize = 2;

/// A command that the program makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A send, if it proves to be one at run time.
    Send { certain: bool },
    /// A write of some of the words to host memory.
    Immediate,
    /// A copy of this many bytes to host memory.
    Copy { len: u32 },
    /// One that only user space makes.
    Other,
}

/// Whether an instruction issues a command.
pub(super) fn issues(inst: &Inst, state: &RegState) -> bool {
    inst.op == Op::Lw && state.address(inst) == Some(DRIVER_BASE + COMMAND_ISSUE)
}

/// Index of the word at an address, with [`TYPE`] for the command's type.
pub(super) fn index(address: u32, len: u32) -> Option<usize> {
    CommandRegisters::offset(address, len).map(|offset| offset / 4)
}

/// A block up to an instruction.
#[derive(Clone, Copy)]
pub(super) struct Before<'c> {
    pub(super) cfg: &'c Cfg,
    pub(super) facts: &'c Dataflow,
    pub(super) block: BlockId,
    pub(super) index: usize,
}

impl Before<'_> {
    /// The value of a word of the command, if the block has stored a constant there.
    pub(super) fn word(self, word: usize) -> Option<u32> {
        self.last_store(word, |inst, state| state.constant(inst.rs2))
    }

    /// What a word of the command points to, if the block has stored a known pointer there.
    pub(super) fn points_to(self, word: usize) -> Option<PointsTo> {
        self.last_store(word, |inst, state| state.points_to(inst.rs2))
    }

    /// What is known of the last value that the block has stored to a word of the command.
    fn last_store<T>(self, word: usize, known: impl Fn(&Inst, &RegState) -> Option<T>) -> Option<T> {
        let stores = self.facts.walk(self.cfg, self.block).take(self.index).filter(|(_, inst, state)| {
            inst.op == Op::Sw && state.address(inst).and_then(|address| index(address, 4)) == Some(word)
        });
        stores.last().and_then(|(_, inst, state)| known(inst, state))
    }

    /// The command that is issued there.
    pub(super) fn command(self, layout: &Layout) -> Command {
        let len =
            |word: Option<u32>, most: u32| word.filter(|len| layout.host_queue.is_some() && (1..=most).contains(len));
        match self.word(TYPE) {
            None => Command::Send { certain: false },
            Some(INFO_SEND) => Command::Send { certain: true },
            Some(INFO_HOST_DIRECT) => {
                let size = self.word(2).filter(|size| size & 1 == 1).map(|size| size >> 1);
                len(size, MAX_IMMEDIATE).map_or(Command::Other, |_| Command::Immediate)
            }
            Some(info) if is_copy(info) && self.word(4).is_some_and(|direction| direction & 1 == 1) => {
                len(self.word(3), MAX_COPY).map_or(Command::Other, |len| Command::Copy { len })
            }
            Some(_) => Command::Other,
        }
    }
}
