//! The interface of every variant: memory, a log of commands, and a loop over packets.

use super::command::Log;
use super::memory::Memory;
use super::work::Work;
use std::ops::Range;

/// A way to run one handler on the packets of one [`Work`](super::work::Work).
pub trait Runner {
    /// Returns the memory that the handlers use.
    fn memory(&mut self) -> Memory<'_>;

    /// Makes the state of [`Runner::memory`] visible to the handlers.
    fn publish_state(&mut self) {}

    /// Copies packets to the handlers' windows in their original form. Each variant writes them once, since a second
    /// copy would leave less of the second-level cache to the handlers.
    fn place(&mut self, work: &Work, packets: Range<usize>) {
        self.memory().place(work, packets);
    }

    /// Updates [`Runner::memory`] with the state that the handlers left.
    fn collect(&mut self) {}

    /// Returns the commands since the log was cleared.
    fn log(&mut self) -> &mut Log;

    /// Returns the address of the first packet window, as used in the log.
    fn packets_base(&mut self) -> u64;

    /// Runs the handler on each of the packets; only this call is timed.
    ///
    /// # Errors
    /// A handler did not return; the text tells how it ended.
    fn run(&mut self, packets: Range<usize>) -> Result<(), String>;
}
