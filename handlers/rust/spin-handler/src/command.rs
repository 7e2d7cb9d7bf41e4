//! Commands: sending frames, moving bytes between NIC memory and host memory.
//!
//! Issuing waits only while the HPU has as many commands in flight as it may have. Nobody needs to wait for a command: the engine
//! holds the task's completion back until its commands are done. A refused command moves nothing and says why in its status.

use crate::regs;

/// Names a command of this task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a command may be refused: `wait` says so"]
pub struct Command(u32);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Complete, or so old that it is forgotten.
    Done,
    /// Not complete yet.
    Pending,
    /// The words name no command.
    Malformed,
    /// NIC memory that the context may not touch.
    BadNicAddress,
    /// Outside the context's host memory.
    BadHostAddress,
    /// Longer than a frame, or empty.
    BadLength,
    /// No transmit buffer came free in time.
    NoBuffer,
    /// Not carried out by this engine.
    Unsupported,
}

impl Command {
    /// Waits until the command is complete, and says how it ended.
    pub fn wait(self) -> Status {
        regs::write(regs::COMMAND_WAIT, self.0);
        // The device may have written to memory.
        regs::barrier();
        self.status()
    }

    /// Whether the command is complete.
    #[must_use]
    pub fn is_complete(self) -> bool {
        regs::write(regs::COMMAND_TEST, self.0);
        regs::read(regs::COMMAND_TEST) & 1 == 1
    }

    /// How the command ended; known for the latest eight.
    #[must_use]
    pub fn status(self) -> Status {
        regs::write(regs::COMMAND_STATUS, self.0);
        match regs::read(regs::COMMAND_STATUS) {
            0 => Status::Done,
            1 => Status::Pending,
            2 => Status::Malformed,
            3 => Status::BadNicAddress,
            4 => Status::BadHostAddress,
            5 => Status::BadLength,
            6 => Status::NoBuffer,
            _ => Status::Unsupported,
        }
    }

    /// For those who do not care how it ends; `spinctl stats` counts refused commands.
    pub fn forget(self) {}
}

/// Issues the command of these words.
pub(crate) fn issue(info: u32, words: &[u32]) -> Command {
    for (index, word) in words.iter().enumerate() {
        regs::write(regs::COMMAND_WORDS + 4 * index, *word);
    }
    regs::write(regs::COMMAND_INFO, info);
    // The device reads bytes that the compiler may still hold in registers.
    regs::barrier();
    let command = Command(regs::read(regs::COMMAND_ISSUE));
    regs::barrier();
    command
}

/// Sends bytes of NIC memory as one frame, Ethernet header first. Of the L2 packet it may be the buffer itself that leaves when
/// the handler ends: changes that are made to it meanwhile go along.
pub fn send(frame: &[u8]) -> Command {
    let [address, length] = [frame.as_ptr().expose_provenance() as u32, frame.len() as u32];
    // No destination node and fid 0: a raw frame. Upper half 0: a NIC address.
    issue(regs::INFO_SEND, &[0, 0, address, 0, length])
}
