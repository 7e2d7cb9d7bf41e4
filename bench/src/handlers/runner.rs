//! What every variant is: memory, a log of commands, and a loop over packets.

use super::command::Log;
use super::memory::Memory;
use super::work::Work;
use std::ops::Range;

/// A way to run one handler on the packets of one [`Work`](super::work::Work).
pub trait Runner {
    /// The memory that the handlers work on.
    fn memory(&mut self) -> Memory<'_>;

    /// The handlers are to see the state that [`Runner::memory`] was given.
    fn publish_state(&mut self) {}

    /// Puts packets where the handlers see them, as they came. Each variant writes them once: what is written twice leaves less of the
    /// second-level cache to the handlers.
    fn place(&mut self, work: &Work, packets: Range<usize>) {
        self.memory().place(work, packets);
    }

    /// [`Runner::memory`] is to show what the handlers left.
    fn collect(&mut self) {}

    /// The commands since it was cleared.
    fn log(&mut self) -> &mut Log;

    /// The address by which those name the first packet window.
    fn packets_base(&mut self) -> u64;

    /// Runs the handler on each of the packets: this is what is timed.
    ///
    /// # Errors
    /// A handler did not return; the text says how it ended.
    fn run(&mut self, packets: Range<usize>) -> Result<(), String>;
}
