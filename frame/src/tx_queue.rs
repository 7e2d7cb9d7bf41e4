//! The transmit side of a NIC.

use thiserror::Error;

use crate::frame::Frame;

/// A queue with fewer free frames is [low on buffers](TxQueue::low_on_buffers): each task of a batch may send a copy.
pub const LOW_WATERMARK: usize = 128;

/// The queue can send nothing more: its device is gone, or its file cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the queue can send nothing any more")]
pub struct TxClosed;

/// A pool of frames to send and the queue that sends them. One thread uses it, in batches.
///
/// `allocate`, `send`, `recycle` and `recycle_all` neither allocate memory, lock, read a clock nor enter the kernel.
/// `flush_tx` may enter the kernel, once for a whole batch.
///
/// A frame goes back to the queue it came from, by `send` or `recycle`. The queue drops and counts a frame of another
/// queue (`foreign_frames`). It does not send a frame shorter than an Ethernet header ([`MIN_SEND`](crate::MIN_SEND)) or
/// longer than [`TxQueue::max_frame`]: it recycles and counts such a frame (`tx_invalid`, `tx_oversize`), and sends the
/// others of the batch.
pub trait TxQueue: Send {
    /// Takes an empty frame to fill and send. `None` when all frames are in use.
    fn allocate(&mut self) -> Option<Frame>;

    /// Whether free frames may run out soon, and waiting helps.
    fn low_on_buffers(&self) -> bool {
        false
    }

    /// Moves frames from the front of `batch` to the transmit ring. Returns how many frames left `batch`. The others
    /// stay in order: the ring is full, call again after a flush.
    ///
    /// A queue with several rings, each with frames of its own, skips the frames of a full ring. Frames of one ring never
    /// overtake each other.
    fn send(&mut self, batch: &mut Vec<Frame>) -> usize;

    /// The longest frame that `send` takes, in bytes from the Ethernet header on, without FCS; at most
    /// [`CHUNK`](crate::CHUNK). It never changes.
    fn max_frame(&self) -> usize;

    /// Returns a frame to the pool.
    fn recycle(&mut self, frame: Frame);

    /// Returns all frames of `batch` to the pool.
    #[inline]
    fn recycle_all(&mut self, batch: &mut Vec<Frame>) {
        batch.drain(..).for_each(|frame| self.recycle(frame));
    }

    /// Transmits the frames that `send` took, and frees the frames whose transmission has completed.
    ///
    /// # Errors
    /// When no frame can be sent again. A device that is busy or down is no error: the next flush tries again.
    fn flush_tx(&mut self) -> Result<(), TxClosed>;
}
