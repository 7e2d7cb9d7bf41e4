//! Pipeline mode: what the thread that receives and a thread that runs handlers hand to each other.
//!
//! ```text
//! receiver --arrivals--> cluster thread     frames, and what they were found to be
//!          --fresh-----> (its Queue)        empty frames, for copies
//!          <--back------ (its Queue)        each of them again, and what is to be done with it
//! ```
//! Frames go by a [`spin_sync::Lane`], with as much credit as there is room for; what is known of them is in [`spin_sync::Notes`].

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use spin_matcher::MessageKey;
use spin_nic::frame::TxClosed;
use spin_nic::prefetch_to_write;
use spin_nic::steering::AcceptAll;
use spin_nic::{Bell, FlowSteering, Frame, NicError, Queue, TxQueue};
use spin_sync::{Noted, Notes, notes};

use crate::channel_quota::{DropReader, QuotaTable, TransitCount};
use crate::found::Found;
use crate::toll::Toll;
use spin_pspin::ids::Slot;

/// Blank frames that a task may need: with fewer than that more are waited for before the next one.
const FEW: usize = 16;

/// What is to be done with a frame that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// It is to be filled anew.
    Spent,
    /// It is to be sent.
    Outgoing,
    /// It is for the kernel's stack.
    Passing,
}

/// What a frame was found to be, but for what is behind the first 16 bytes of its key, which few have: what one core writes and another reads
/// costs by the number of its cache lines.
#[derive(Clone, Copy, Debug)]
struct Brief {
    owner: Slot,
    end_of_message: bool,
    length: u8,
    key: [u64; 2],
}

/// The receiver's end.
#[derive(Debug)]
pub struct Lane {
    frames: spin_sync::Lane<Frame, Frame, Frame>,
    found: Notes<Brief>,
    /// Of those that have some, what is behind the first bytes of their keys.
    rest: Notes<[u64; 4]>,
    back: Noted<Back>,
    /// Those that just came back.
    returned: Vec<Frame>,
    quota: TransitCount,
}

/// The arrivals' end on the cluster's thread.
#[derive(Debug)]
pub struct Arrivals {
    frames: spin_sync::Arrivals<Frame>,
    found: Noted<Brief>,
    rest: Noted<[u64; 4]>,
    /// What the receiver dropped, since its context had its share of the lane.
    drops: DropReader,
    /// What a frame costs that goes back for the kernel.
    pub(crate) toll: Arc<Toll>,
}

/// The NIC as a cluster's thread sees it: frames to send, and where all go in the end.
pub struct LaneQueue {
    frames: spin_sync::Returns<Frame, Frame>,
    back: Notes<Back>,
    max_frame: usize,
}

/// A lane for `size` frames, `fresh` of them empty: the receiver's end, and both of the cluster thread's, with the bells of these threads.
#[must_use]
pub fn lane(
    size: usize,
    fresh: usize,
    max_frame: usize,
    receiver: Arc<Bell>,
    cluster: Arc<Bell>,
) -> (Lane, Arrivals, LaneQueue) {
    let (lane, arrivals, frames) = spin_sync::lane(size, fresh, receiver, cluster);
    let ((found, to_find), (rest, to_join), (back, to_heed)) = (notes(size), notes(size), notes(size));
    let quotas = Arc::new(QuotaTable::default());
    let (quota, drops) = (TransitCount::new(quotas.clone(), size), DropReader::new(quotas));
    let lane = Lane { frames: lane, found, rest, back: to_heed, returned: Vec::with_capacity(size), quota };
    let arrivals = Arrivals { frames: arrivals, found: to_find, rest: to_join, drops, toll: Arc::new(Toll::new(1)) };
    (lane, arrivals, LaneQueue::new(frames, back, max_frame))
}

impl Lane {
    /// How many more frames may be staged.
    #[must_use]
    pub fn credit(&self) -> usize {
        self.frames.credit()
    }

    /// How many frames are staged, or on the cluster's thread without being blank.
    #[must_use]
    pub fn out(&self) -> usize {
        self.frames.out() + self.frames.staged.len()
    }

    /// Begins a batch. Returns how many frames may be staged. `None`: any number, of which each has to be [admitted](Lane::admits).
    pub(crate) fn begin_batch(&mut self) -> Option<usize> {
        let Self { frames, quota, .. } = self;
        let credit = frames.credit();
        let staged = frames.staged.len();
        quota.begin_batch(frames.most().saturating_sub(credit), credit, || frames.in_transit() + staged);
        (!quota.is_enforced()).then_some(credit)
    }

    /// Whether a frame of a context may be staged. If not, it is counted as dropped.
    #[inline]
    pub(crate) fn admits(&mut self, slot: Slot) -> bool {
        self.quota.admit(slot)
    }

    /// Has a frame handed over with others.
    #[inline]
    pub fn stage(&mut self, frame: Frame, found: &Found) {
        let ((key, length), rest) = found.key.split();
        let &Found { owner, end_of_message, .. } = found;
        self.frames.staged.push(frame);
        self.found.staged.push(Brief { owner, end_of_message, length, key });
        if let Some(rest) = rest {
            self.rest.staged.push(rest);
        }
    }

    /// Takes those back that are staged.
    pub fn unstage(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.found.staged.clear();
        self.rest.staged.clear();
        self.quota.reset();
        self.frames.staged.drain(..)
    }

    /// Hands over what is staged, as far as there is credit, and blank frames.
    pub fn hand_over(&mut self, blank: impl FnMut() -> Option<Frame>) {
        let ready = self.frames.ready();
        if !self.rest.staged.is_empty() {
            let long = self.found.staged[..ready].iter().filter(|brief| MessageKey::goes_on(brief.length)).count();
            self.rest.write(long);
        }
        self.found.write(ready);
        self.frames.hand_over(blank);
    }

    /// Takes what came back. Returns how many frames.
    pub fn take_back(&mut self, mut each: impl FnMut(Frame, Back)) -> usize {
        let Self { frames, back, returned, .. } = self;
        let count = frames.take_back(|frame| returned.push(frame));
        let mut returned = returned.drain(..);
        back.read(count, |&back| returned.next().into_iter().for_each(|frame| each(frame, back)));
        count
    }

    /// Whether anything came back.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.frames.has_news()
    }
}

impl Arrivals {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes the next `count`, which there are: their frames, then what they were found to be.
    #[inline]
    pub fn take(&mut self, count: usize, frame: impl FnMut(Frame), mut found: impl FnMut(Found)) {
        let count = self.frames.take(count, frame);
        let rest = &mut self.rest;
        self.found.read(count, |brief| {
            let &Brief { owner, end_of_message, length, key } = brief;
            let key = MessageKey::join((key, length), || {
                let mut behind = [0; 4];
                rest.read(1, |&rest| behind = rest);
                behind
            });
            found(Found { owner, end_of_message, key });
        });
    }

    /// Sets the shares of the lane that contexts have, by weight, and whether the receiver drops what is beyond them.
    pub(crate) fn set_quotas(&self, enforced: bool, weights: impl Iterator<Item = (Slot, u32)> + Clone) {
        self.drops.table().set(enforced, weights);
    }

    /// Calls `each` with contexts of which the receiver dropped frames since the last call, and how many.
    #[inline]
    pub(crate) fn read_drops(&mut self, each: impl FnMut(Slot, u64)) {
        self.drops.read(each);
    }

    /// Whether one of the next `most` frames is of a context that `is_wanted`.
    #[cold]
    pub(crate) fn has_any(&mut self, most: usize, is_wanted: impl Fn(Slot) -> bool) -> bool {
        let mut found = false;
        self.found.ahead(most, |briefs| found |= briefs.iter().any(|brief| is_wanted(brief.owner)));
        found
    }

    /// Takes all.
    #[must_use]
    pub fn take_all(&mut self) -> Vec<(Frame, Found)> {
        let (mut frames, mut all) = (Vec::new(), Vec::new());
        self.take(self.len(), |frame| frames.push(frame), |found| all.push(found));
        frames.into_iter().zip(all).collect()
    }

    /// Whether none will come any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.frames.is_over()
    }

    /// What rings when there are more.
    #[must_use]
    pub const fn bell(&self) -> &Arc<Bell> {
        self.frames.bell()
    }
}

impl LaneQueue {
    /// For what is handed over some other way.
    pub(crate) const fn new(frames: spin_sync::Returns<Frame, Frame>, back: Notes<Back>, max_frame: usize) -> Self {
        Self { frames, back, max_frame }
    }

    /// Has frames go back, for what.
    fn stage(&mut self, batch: &mut Vec<Frame>, back: Back) -> usize {
        let count = batch.len();
        self.back.staged.extend(std::iter::repeat_n(back, count));
        self.frames.staged.append(batch);
        count
    }
}

/// Frames come through [`Arrivals`]. Rules and counters are the receiver's.
impl TxQueue for LaneQueue {
    fn allocate(&mut self) -> Option<Frame> {
        self.frames.blank()
    }

    fn low_on_buffers(&self) -> bool {
        self.frames.blanks() < FEW
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.stage(batch, Back::Outgoing)
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn recycle(&mut self, frame: Frame) {
        self.back.staged.push(Back::Spent);
        self.frames.staged.push(frame);
    }

    fn recycle_all(&mut self, batch: &mut Vec<Frame>) {
        self.stage(batch, Back::Spent);
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.flush().map_err(|_| TxClosed)
    }
}

impl Queue for LaneQueue {
    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> usize {
        0
    }

    fn pending(&self) -> usize {
        0
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.stage(batch, Back::Passing)
    }

    fn flush(&mut self) -> Result<(), NicError> {
        let count = self.frames.staged.len();
        self.back.write(count);
        self.frames.give_back();
        if count > 0 {
            // TaskIdentity as many come next. The other thread has just read what was there.
            self.frames.places(count, prefetch_to_write);
            self.back.places(count, prefetch_to_write);
        }
        if self.low_on_buffers() {
            self.frames.ring();
        }
        if self.frames.blanks() == 0 {
            // Whoever asks again at once wants the receiver to have had its turn.
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

    fn steering(&self) -> Arc<dyn FlowSteering> {
        Arc::new(AcceptAll)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn describe(&self) -> String {
        format!("a lane of {} frames", self.frames.size())
    }
}

#[cfg(test)]
mod tests {
    use spin_matcher::{Headers, KeySpec, MessageKey};
    use spin_nic::memory::pair;
    use spin_nic::{Bell, Queue, TxQueue};

    use super::{Back, lane};
    use crate::found::Found;
    use spin_pspin::ids::Slot;

    /// What a frame could be found to be whose message has a long name or a short one.
    fn any_found() -> Found {
        let length = if fastrand::bool() { fastrand::u8(1..=16) } else { fastrand::u8(17..=44) };
        let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(length.into()).collect();
        let spec = format!("frame[0:{length}]").parse::<KeySpec>().expect("a key");
        let (owner, end_of_message) = (Slot(fastrand::u32(..256)), fastrand::bool());
        Found { owner, end_of_message, key: spec.extract(&bytes, &Headers::parse(&bytes)) }
    }

    #[test]
    fn frames_arrive_as_what_they_were_found_to_be_and_come_back_for_what_they_are() {
        const FRESH: usize = 256;
        const SIZE: usize = FRESH + 16;
        let parts = |found: &Found| -> (Slot, bool, MessageKey) { (found.owner, found.end_of_message, found.key) };
        let bell = || Bell::new().expect("an event");
        let (mut nic, _far) = pair(SIZE).expect("frames");
        let (mut lane, mut arrivals, mut queue) = lane(SIZE, FRESH, 2048, bell(), bell());
        let (mut sent, mut returned, mut all) = (Vec::new(), 0, 0);
        while all < 5000 {
            // With what is left of the one before, if there was no credit for it.
            for _ in 0..fastrand::usize(..=lane.credit()) {
                let (mut frame, found) = (nic.allocate().expect("there is credit"), any_found());
                frame.fill(&[fastrand::u8(..); 14]).expect("short");
                sent.push((frame[0], parts(&found)));
                lane.stage(frame, &found);
            }
            lane.hand_over(|| None);
            let count = fastrand::usize(..=arrivals.len());
            let (mut frames, mut found) = (Vec::new(), Vec::new());
            arrivals.take(count, |frame| frames.push(frame), |what| found.push(parts(&what)));
            let arrived: Vec<_> = frames.iter().map(|frame| frame[0]).zip(found).collect();
            assert_eq!(arrived, sent.drain(..count).collect::<Vec<_>>());
            all += count;
            // Back by any of the ways, which the frame itself tells here.
            let mut ways = [const { Vec::new() }; 3];
            frames.into_iter().for_each(|frame| ways[usize::from(frame[0]) % 3].push(frame));
            let [spent, outgoing, passing] = &mut ways;
            if let Some(frame) = spent.pop() {
                queue.recycle(frame);
            }
            queue.recycle_all(spent);
            queue.send(outgoing);
            queue.pass_to_kernel(passing);
            queue.flush().expect("a lane does not fail");
            returned += lane.take_back(|frame, back| {
                assert_eq!(back, [Back::Spent, Back::Outgoing, Back::Passing][usize::from(frame[0]) % 3]);
                nic.recycle(frame);
            });
            assert_eq!(returned, all);
        }
    }
}
