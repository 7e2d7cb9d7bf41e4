//! Pipeline mode: what the thread that receives and a thread that runs handlers hand to each other.
//!
//! ```text
//! receiver --arrivals--> cluster thread     matched frames
//!          --fresh-----> (its Queue)        empty frames, for copies
//!          <--back------ (its Queue)        each of them again: to recycle, to send, or for the kernel
//! ```
//! A lane has room for so many frames. The receiver counts those that are out, so that no ring is ever full: that is the
//! cluster thread's credit.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rtrb::chunks::ChunkError;
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use spin_abi::rules::Test;
use spin_nic::{Bell, Frame, NicError, Queue};

use crate::inbound::{Arrival, BATCH};

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
pub struct Lane {
    arrivals: Producer<Arrival>,
    /// Matched, and yet to be handed over: a batch at a time.
    pub staged: Vec<Arrival>,
    fresh: Producer<Frame>,
    back: Consumer<Back>,
    /// Frames that may go out.
    credit: usize,
    bell: Arc<Bell>,
}

/// The arrivals' end on the cluster's thread.
#[derive(Debug)]
pub struct Arrivals {
    ring: Consumer<Arrival>,
    /// Taken from the ring before their turn.
    kept: VecDeque<Arrival>,
    bell: Arc<Bell>,
}

/// The NIC as a cluster's thread sees it: frames to send, and where all go in the end.
pub struct LaneQueue {
    fresh: Consumer<Frame>,
    back: Producer<Back>,
    /// To be given back with the rest of the batch.
    batch: Vec<Back>,
    /// The receiver's.
    bell: Arc<Bell>,
    max_frame: usize,
}

/// A lane for `frames` frames: the receiver's end, whose bell is given, and both of the cluster thread's.
///
/// # Errors
/// When the kernel gives no eventfd.
pub fn lane(frames: usize, max_frame: usize, receiver: Arc<Bell>) -> Result<(Lane, Arrivals, LaneQueue), NicError> {
    let bell = Bell::new()?;
    let (arrivals, ring) = RingBuffer::new(frames);
    let (fresh_in, fresh_out) = RingBuffer::new(FRESH);
    let (back_in, back_out) = RingBuffer::new(frames);
    let lane = Lane {
        arrivals,
        staged: Vec::with_capacity(frames),
        fresh: fresh_in,
        back: back_out,
        credit: frames,
        bell: bell.clone(),
    };
    let queue =
        LaneQueue { fresh: fresh_out, back: back_in, batch: Vec::with_capacity(frames), bell: receiver, max_frame };
    Ok((lane, Arrivals { ring, kept: VecDeque::new(), bell }, queue))
}

impl Lane {
    /// Frames that may be staged.
    #[must_use]
    pub const fn credit(&self) -> usize {
        self.credit.saturating_sub(self.staged.len())
    }

    /// Frames that the cluster's thread has, but for fresh ones that it did not take.
    #[must_use]
    pub fn out(&self) -> usize {
        let capacity = self.arrivals.buffer().capacity();
        capacity - self.credit - (FRESH - self.fresh.slots())
    }

    /// Hands over what is staged, as far as there is credit, and fresh frames.
    pub fn hand_over(&mut self, mut allocate: impl FnMut() -> Option<Frame>) {
        let before = self.credit;
        let count = self.staged.len().min(self.credit);
        if let Ok(chunk) = self.arrivals.write_chunk_uninit(count) {
            self.credit -= chunk.fill_from_iter(self.staged.drain(..count));
        }
        // A whole batch of them at a time.
        if self.fresh.slots() >= FRESH / 2 {
            while self.credit > 0 && self.fresh.slots() > 0 {
                let Some(frame) = allocate() else { break };
                // There is room, see above.
                let _ = self.fresh.push(frame);
                self.credit -= 1;
            }
        }
        if self.credit != before {
            self.bell.ring();
        }
    }

    /// Takes what came back.
    pub fn take_back(&mut self, each: impl FnMut(Back)) {
        let slots = self.back.slots();
        match self.back.read_chunk(slots) {
            Ok(chunk) => chunk.into_iter().for_each(each),
            Err(ChunkError::TooFewSlots(_)) => return,
        }
        self.credit += slots;
    }

    /// Whether anything came back.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.back.is_empty()
    }
}

impl Arrivals {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len() + self.ring.slots()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next one. A batch is taken from the ring at a time: what both threads look at is written once for all of it.
    #[inline]
    pub fn pop(&mut self) -> Option<Arrival> {
        if self.kept.is_empty() {
            let count = self.ring.slots().min(BATCH);
            self.kept.extend(self.ring.read_chunk(count).ok()?);
            // Another core has looked at them.
            self.kept.iter().for_each(|arrival| arrival.frame.prefetch());
        }
        self.kept.pop_front()
    }

    /// Takes out those that `gone` holds for.
    pub fn take(&mut self, gone: impl Fn(&Arrival) -> bool) -> Vec<Arrival> {
        while let Ok(arrival) = self.ring.pop() {
            self.kept.push_back(arrival);
        }
        let (taken, kept) = std::mem::take(&mut self.kept).into_iter().partition(gone);
        self.kept = kept;
        let taken: VecDeque<Arrival> = taken;
        taken.into()
    }

    /// Whether none will come any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ring.is_abandoned() && self.is_empty()
    }

    /// What rings when there are more.
    #[must_use]
    pub const fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

impl LaneQueue {
    /// Gives the frames of a batch back, if there are some.
    fn give_back(&mut self) {
        let count = self.batch.len();
        if count == 0 {
            return;
        }
        // A lane has room for all its frames.
        match self.back.write_chunk_uninit(count) {
            Ok(chunk) => _ = chunk.fill_from_iter(self.batch.drain(..)),
            Err(ChunkError::TooFewSlots(room)) => unreachable!("{count} frames come back, {room} are out"),
        }
        self.bell.ring();
    }
}

/// Frames come through [`Arrivals`]. Rules and counters are the receiver's.
impl Queue for LaneQueue {
    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> usize {
        0
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.fresh.pop().ok()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        self.batch.extend(batch.drain(..).map(Back::Outgoing));
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
        self.batch.extend(batch.drain(..).map(Back::Passing));
        count
    }

    fn recycle(&mut self, frame: Frame) {
        self.batch.push(Back::Spent(frame));
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.give_back();
        if self.fresh.is_empty() {
            // Whoever asks again at once wants the receiver to have had its turn.
            self.bell.ring();
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
        self.back.is_abandoned()
    }

    fn set_rules(&mut self, _: &[Test]) -> Result<(), NicError> {
        Ok(())
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn describe(&self) -> String {
        format!("a lane of {} frames", self.back.buffer().capacity())
    }
}
