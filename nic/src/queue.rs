//! The trait of all backends: a queue of frames, used in batches by one thread.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use spin_frame::{Frame, TxQueue};

use crate::error::NicError;
use crate::steering::FlowSteering;

/// A source and sink of frames.
///
/// A poll iteration is: receive, process, send, recycle, flush. `receive` and the methods of [`TxQueue`], except
/// `flush_tx`, neither allocate memory, lock, read a clock nor enter the kernel. `flush` does the kernel's part for a
/// whole batch.
///
/// A frame from `receive` or `allocate` goes back to the queue it came from, by `send`, `pass_to_kernel` or `recycle`.
pub trait Queue: TxQueue {
    /// Appends at most `max` received frames to `out`. Returns how many. Never waits. Does not allocate memory while
    /// `out` has capacity.
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize;

    /// Number of frames that `send` took and that the kernel has not yet taken off the transmit ring. Closing the queue
    /// would lose them. 0 when no kernel is between this queue and the other side.
    ///
    /// `flush` reduces the number, so a caller that waits for 0 flushes meanwhile. That wait needs a timeout: a device
    /// that is down keeps the number above 0.
    fn pending(&self) -> usize;

    /// Gives frames to the kernel's network stack, as if the XDP program had passed them. Returns how many the kernel took (`passed`).
    /// The others are lost and counted (`pass_failed`). Recycles all frames of `batch`.
    ///
    /// Meant for few frames: it enters the kernel once per frame. Backends without a kernel below them count and recycle.
    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize;

    /// Transmits the frames that `send` took, reclaims the frames whose transmission has completed, and posts buffers for receiving.
    /// Called once per batch.
    ///
    /// # Errors
    /// When the queue is permanently unusable: device gone, file not writable. A device that is busy or down is no error: the next flush
    /// tries again.
    fn flush(&mut self) -> Result<(), NicError>;

    /// Sleeps until frames may have arrived, `wake` is readable or `timeout` has passed. May return early. Meant for idle times: it
    /// enters the kernel and may allocate memory.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError>;

    /// Whether no further frame can arrive: the capture is at its end, or the peer or device is gone. `wait` notices a device that is
    /// gone, and so does `flush` when it sends. Of the flushes that send nothing, one in many thousand does.
    fn exhausted(&self) -> bool;

    /// Selects the frames that the NIC hands to this queue.
    fn steering(&self) -> Arc<dyn FlowSteering>;

    /// Counters since opening, by name.
    fn counters(&mut self) -> Vec<(&'static str, u64)>;

    /// A description for people: `veth1: native, copy, 1 queue, 4096 x 4096 B UMEM (huge pages)`.
    fn describe(&self) -> String;
}
