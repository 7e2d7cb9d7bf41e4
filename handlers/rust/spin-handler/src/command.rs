//! Commands: sending frames, and copies between NIC memory and host memory.
//!
//! Issuing blocks only while the HPU has its maximum number of commands in flight. Waiting for a command is optional:
//! the engine delays the task's completion until its commands are complete. A refused command moves nothing, and its
//! status gives the reason.

use crate::regs;

/// Handle of a command of this task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a command may be refused: `wait` says so"]
pub struct Command(u32);

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The command is complete, or too old to be known.
    Done,
    /// The command is not complete yet.
    Pending,
    /// The command words are invalid.
    Malformed,
    /// The context may not access the NIC memory.
    BadNicAddress,
    /// The address is outside the context's host memory.
    BadHostAddress,
    /// The length is zero or exceeds a frame.
    BadLength,
    /// No transmit buffer became free in time.
    NoBuffer,
    /// The engine does not implement the command.
    Unsupported,
    /// The context may not send the frame.
    ForbiddenSend,
}

impl Command {
    /// Waits until the command is complete, and returns its outcome.
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

    /// Returns the command's outcome; it is known for the latest eight commands.
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
            8 => Status::ForbiddenSend,
            _ => Status::Unsupported,
        }
    }

    /// Ignores the outcome; `spinctl stats` counts refused commands.
    pub fn forget(self) {}
}

/// Issues a command with the given words.
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

/// Sends bytes of NIC memory as one frame, Ethernet header first. Bytes of the L2 packet may be sent without a copy
/// when the handler ends; changes made until then are then sent too.
pub fn send(frame: &[u8]) -> Command {
    let [address, length] = [frame.as_ptr().expose_provenance() as u32, frame.len() as u32];
    // No destination node and fid 0 make a raw frame. An upper half of 0 makes the address a NIC address.
    issue(regs::INFO_SEND, &[0, 0, address, 0, length])
}
