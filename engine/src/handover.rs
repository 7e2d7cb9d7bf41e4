//! Pipeline mode: what the thread that receives and a thread that runs handlers hand to each other.
//!
//! ```text
//! receiver --arrivals--> cluster thread     matched frames
//!          --fresh-----> (its Queue)        empty frames, for copies
//!          <--back------ (its Queue)        each of them again: to recycle, to send, or for the kernel
//! ```
//! That is a [`spin_sync::Lane`] each, with as much credit as there is room for frames.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use spin_nic::steering::Everything;
use spin_nic::{Bell, Frame, NicError, Queue, Steering};

use crate::inbound::Arrival;

/// Empty frames that a cluster thread has at hand: for some batches of handlers that send copies.
const FRESH: usize = 256;

/// A frame that is done with.
#[derive(Debug)]
pub enum Back {
    /// To be filled anew.
    Spent(Frame),
    /// To be sent.
    Outgoing(Frame),
    /// For the kernel's stack.
    Passing(Frame),
}

/// The receiver's end.
pub type Lane = spin_sync::Lane<Arrival, Frame, Back>;

/// The arrivals' end on the cluster's thread.
#[derive(Debug)]
pub struct Arrivals(spin_sync::Arrivals<Arrival>);

/// The NIC as a cluster's thread sees it: frames to send, and where all go in the end.
pub struct LaneQueue {
    frames: spin_sync::Returns<Frame, Back>,
    max_frame: usize,
}

/// A lane for `frames` frames: the receiver's end, whose bell is given, and both of the cluster thread's.
///
/// # Errors
/// When the kernel gives no eventfd.
pub fn lane(frames: usize, max_frame: usize, receiver: Arc<Bell>) -> Result<(Lane, Arrivals, LaneQueue), NicError> {
    let (lane, arrivals, frames) = spin_sync::lane(frames, FRESH, receiver)?;
    Ok((lane, Arrivals(arrivals), LaneQueue { frames, max_frame }))
}

impl Arrivals {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next `count`, which there are.
    #[inline]
    pub fn take(&mut self, count: usize, each: impl FnMut(Arrival)) {
        self.0.take(count, each);
    }

    /// Whether none will come any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// What rings when there are more.
    #[must_use]
    pub const fn bell(&self) -> &Arc<Bell> {
        self.0.bell()
    }
}

/// Frames come through [`Arrivals`]. Rules and counters are the receiver's.
impl Queue for LaneQueue {
    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> usize {
        0
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.frames.blank()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        self.frames.staged.extend(batch.drain(..).map(Back::Outgoing));
        count
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn pending(&self) -> usize {
        0
    }

    fn pass(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        self.frames.staged.extend(batch.drain(..).map(Back::Passing));
        count
    }

    fn recycle(&mut self, frame: Frame) {
        self.frames.staged.push(Back::Spent(frame));
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.frames.give_back();
        if self.frames.has_no_blank() {
            // Whoever asks again at once wants the receiver to have had its turn.
            self.frames.ring();
            std::thread::yield_now();
        }
        Ok(())
    }

    /// For `wake` alone, which is the bell of the [`Arrivals`].
    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        let mut fds: Vec<_> = wake.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(NicError::system("wait for packets", errno)),
        }
    }

    fn exhausted(&self) -> bool {
        self.frames.is_over()
    }

    fn steering(&self) -> Arc<dyn Steering> {
        Arc::new(Everything)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn describe(&self) -> String {
        format!("a lane of {} frames", self.frames.size())
    }
}
