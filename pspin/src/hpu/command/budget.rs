//! Cost of commands, in instructions of 1 ns.
//!
//! The cost counts against the handler's instruction limit, if it has one, and against the budget of the task. A time limit alone would
//! let a handler flood the wire.

use super::unit::DeferredSend;

/// Budget for all commands of a task.
const BUDGET: u64 = 1_000_000;
/// Cost of any command.
pub(super) const COMMAND: u64 = 32;
/// Cost of a send: a frame takes about a microsecond through the kernel.
pub(super) const SEND: u64 = 1_000;
/// Cost of a failed request to the NIC for a buffer: a system call.
pub(super) const ATTEMPT: u64 = 1_000;
/// Bytes copied in the time of one instruction.
pub(super) const BYTES_PER_INSTRUCTION: u64 = 8;

/// State of the commands that a task has issued.
#[derive(Clone, Copy, Debug)]
pub struct CommandBudget {
    /// The deferred send.
    pub deferred: Option<DeferredSend>,
    /// Instructions left for further commands.
    pub(super) instructions: u64,
    /// Whether the NIC had no buffer for this task. Later sends then do not wait for one.
    pub(super) no_buffer: bool,
}

impl CommandBudget {
    /// Budget of a task that begins.
    pub const FULL: Self = Self { deferred: None, instructions: BUDGET, no_buffer: false };

    /// Whether the task has issued nothing. Every command that leaves state behind costs something.
    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        debug_assert!(self.instructions != BUDGET || self.deferred.is_none() && !self.no_buffer, "it was charged");
        self.instructions == BUDGET
    }

    /// Budget of a task that is over, with its deferred send.
    #[must_use]
    #[inline]
    pub const fn used(deferred: Option<DeferredSend>) -> Self {
        Self { deferred, instructions: 0, no_buffer: false }
    }

    #[inline]
    pub(super) const fn charge(&mut self, instructions: u64) {
        self.instructions = self.instructions.saturating_sub(instructions);
    }
}
