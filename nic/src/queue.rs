//! The one trait of all backends: a queue of frames, used in batches by one thread.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::error::NicError;
use crate::frame::Frame;
use crate::steering::Steering;

/// A queue with fewer empty frames is [short](Queue::is_short) of them: a batch's tasks may each send a copy.
pub(crate) const FEW: usize = 128;

/// A source and sink of frames.
///
/// `receive`, `allocate`, `send`, `recycle` and `recycle_all` neither allocate, lock, read a clock nor enter the kernel; `flush`
/// does the kernel's part for a whole batch. A turn of a loop is: receive, process, send, recycle, flush.
///
/// Every frame that came from `receive` or `allocate` goes back by `send`, `pass` or `recycle`, to the queue it came from. A
/// frame of another queue is dropped and counted (`foreign_frames`). One shorter than an Ethernet header
/// ([`crate::frame::MIN_SEND`]) or longer than [`Queue::max_frame`] is not sent but recycled and counted (`tx_invalid`,
/// `tx_oversize`); the others of its batch are sent.
pub trait Queue: Send {
    /// Appends at most `max` received frames to `out` and returns how many. Never waits. Does not allocate while `out`
    /// has capacity.
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize;

    /// An empty frame to fill and send; `None` when all are in use.
    fn allocate(&mut self) -> Option<Frame>;

    /// Whether there may soon be no empty frame, and waiting helps.
    fn is_short(&self) -> bool {
        false
    }

    /// Moves frames from `batch` to the transmit ring, first ones first, and returns how many left `batch`. Frames it
    /// has no room for stay, in order: try again after `flush`. A backend with several rings, each with its own
    /// frames, passes over those of a full one; the frames of one ring never overtake each other.
    fn send(&mut self, batch: &mut Vec<Frame>) -> usize;

    /// The longest frame that `send` takes, in bytes from the Ethernet header on, without FCS; at most
    /// [`crate::frame::CHUNK`]. The same from opening on.
    fn max_frame(&self) -> usize;

    /// Frames that `send` took and that the kernel has not yet taken off the transmit ring: what would be lost by closing
    /// now. 0 when there is no kernel between sending and the other side. `flush` makes it fall, so who waits for 0
    /// flushes meanwhile, with a bound in time: a device that is down keeps it above 0 for as long as it is.
    fn pending(&self) -> usize;

    /// Hands frames on to the kernel's stack as if nobody had taken them, and returns how many it took (`passed`); the others
    /// are lost and counted (`pass_failed`). Recycles all: `batch` is empty afterwards. For few frames: unlike the others of
    /// this trait it enters the kernel, once for each.
    ///
    /// Backends without a kernel below them count and recycle.
    fn pass(&mut self, batch: &mut Vec<Frame>) -> usize;

    /// Gives a frame back.
    fn recycle(&mut self, frame: Frame);

    /// Gives frames back: `batch` is empty afterwards.
    #[inline]
    fn recycle_all(&mut self, batch: &mut Vec<Frame>) {
        batch.drain(..).for_each(|frame| self.recycle(frame));
    }

    /// Once per batch: makes sent frames leave, takes back the frames whose sending is complete, makes room for
    /// receiving.
    ///
    /// # Errors
    /// When the queue is of no use any more (device gone, file not writable). A device that is merely busy or down is
    /// no error: the next flush tries again.
    fn flush(&mut self) -> Result<(), NicError>;

    /// Sleeps until frames may have arrived, `wake` is readable or `timeout` has passed, whichever comes first; may
    /// return early. For idle times: it enters the kernel and may allocate.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError>;

    /// Whether no frame will ever come again: capture at its end, peer or device gone. That a device is gone is noticed
    /// by `wait`, by `flush` when it sends, and by one in many thousand flushes that do not.
    fn exhausted(&self) -> bool;

    /// What decides which frames are handed to this queue.
    fn steering(&self) -> Arc<dyn Steering>;

    /// Counters since opening, by name.
    fn counters(&mut self) -> Vec<(&'static str, u64)>;

    /// What it is, in words: `veth1: native, copy, 1 queue, 4096 x 4096 B UMEM (huge pages)`.
    fn describe(&self) -> String;
}
