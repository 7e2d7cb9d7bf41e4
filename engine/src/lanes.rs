//! The lanes from a thread that receives to the threads that run handlers.

use std::sync::Arc;

use spin_nic::{Bell, Frame, NicError};
use spin_pspin::hpu::memory::saturate;

use crate::found::Found;
use crate::handover::{Arrivals, Back, Lane, LaneQueue, lane};
use crate::inbound::BATCH;
use crate::toll::Toll;

/// Frames on each lane at a time, beyond those that its thread has room for and empty ones: batches on their way in both directions. What
/// contexts there leave waiting takes none of these, so one that is slow keeps nobody else's from arriving.
const ON_THE_WAY: usize = 2 * BATCH;
/// And frames that wait on each lane while its thread runs a long handler, if several contexts share it: half as many again as the NIC's ring
/// has by default, so that one of two contexts of the same weight has room for four fifths of a ring beside a flood of the other's.
const WAITING: usize = 3072;
/// Empty ones: for some batches of handlers that send copies.
const FRESH: usize = 256;
/// Where none come while the receiving thread runs tasks of its own; and of all lanes together, since that thread needs some too.
const FRESH_SPREAD: usize = 512;
const FRESH_IN_ALL: usize = 768;
/// A thread's share of the messages, in percent.
const SHARE: usize = 100;

/// Lanes to some threads.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Frames on each at a time.
    length: usize,
    /// The receiving thread's messages, in percent of another thread's share.
    own: usize,
    /// What a frame costs that any of these threads leaves to the kernel: the receiving one hands it over.
    toll: Arc<Toll>,
}

/// What each of these threads needs.
pub type Ends = Vec<(Arrivals, LaneQueue)>;

impl Lanes {
    /// To `threads` threads, which have all messages and room for so many HERs each, from the one with this `bell`. No frame is longer
    /// than `max_frame`.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(max_frame: usize, bell: &Arc<Bell>, threads: usize, hers: u32) -> Result<(Self, Ends), NicError> {
        Self::with(FRESH, max_frame, bell, threads, hers, Toll::new(saturate(threads as u64)))
    }

    /// To `others`, where the receiving thread runs handlers too, for `local_share` percent of another thread's share of the messages.
    ///
    /// # Errors
    /// As [`Lanes::new`].
    pub fn spreading(
        max_frame: usize,
        bell: &Arc<Bell>,
        others: usize,
        hers: u32,
        local_share: u32,
    ) -> Result<(Self, Ends), NicError> {
        let fresh = FRESH_SPREAD.min(FRESH_IN_ALL / others.max(1));
        let toll = Toll::new(saturate(others as u64 + 1));
        let (lanes, ends) = Self::with(fresh, max_frame, bell, others, hers, toll)?;
        Ok((Self { own: local_share as usize, ..lanes }, ends))
    }

    fn with(
        fresh: usize,
        max_frame: usize,
        bell: &Arc<Bell>,
        threads: usize,
        hers: u32,
        toll: Toll,
    ) -> Result<(Self, Ends), NicError> {
        let (mut lanes, mut ends, toll) = (Vec::new(), Vec::new(), Arc::new(toll));
        let length = Self::length(hers, fresh);
        for _ in 0..threads {
            let (own, mut arrivals, queue) = lane(length, fresh, max_frame, bell.clone(), Bell::new()?);
            arrivals.toll = toll.clone();
            lanes.push(own);
            ends.push((arrivals, queue));
        }
        Ok((Self { lanes, length, own: 0, toll }, ends))
    }

    /// What a frame costs that is handed on to the kernel.
    #[must_use]
    pub const fn toll(&self) -> &Arc<Toll> {
        &self.toll
    }

    /// The most frames that lanes to so many `threads` may have at a time.
    #[must_use]
    pub const fn most(threads: usize, hers: u32) -> usize {
        threads * Self::length(hers, FRESH_SPREAD)
    }

    const fn length(hers: u32, fresh: usize) -> usize {
        hers as usize + ON_THE_WAY + WAITING + fresh
    }

    /// The lane to the thread of a frame's message; `None`: that is the one that receives, or the frame is nobody's. By other bits of the hash
    /// than the home cluster among those of a thread.
    #[inline]
    pub fn lane_of(&mut self, found: &Found) -> Option<&mut Lane> {
        found.slot()?;
        let part = ((found.key.hash() >> 16) as usize * self.shares()) >> 16;
        let others = part.checked_sub(self.own)?;
        self.lanes.get_mut(others / SHARE)
    }

    /// Of how many frames about `own` are the receiving thread's own, if it has some.
    #[must_use]
    pub fn all_for(&self, own: usize) -> usize {
        own * self.shares() / self.own.max(1)
    }

    /// All threads' shares, in percent of one.
    const fn shares(&self) -> usize {
        SHARE * self.lanes.len() + self.own
    }

    /// Begins a batch. Returns how many frames may be received. A lane that is full stops reception only for a context that is alone, or that
    /// has others wait: where several share it, what is beyond a context's part of it is [not admitted](Lane::admits).
    #[must_use]
    pub fn begin_batch(&mut self) -> usize {
        let room = self.lanes.iter_mut().filter_map(Lane::begin_batch).map(|credit| credit.saturating_sub(WAITING));
        room.min().unwrap_or(usize::MAX)
    }

    /// Takes what came back: spent frames, outgoing ones, and those that pass. Returns how many.
    pub fn take_back(&mut self, [spent, outgoing, passing]: [&mut Vec<Frame>; 3]) -> usize {
        let mut each = |frame, back| match back {
            Back::Spent => spent.push(frame),
            Back::Outgoing => outgoing.push(frame),
            Back::Passing => passing.push(frame),
        };
        self.lanes.iter_mut().map(|lane| lane.take_back(&mut each)).sum()
    }

    /// Hands over what is staged, and blank frames.
    pub fn hand_over(&mut self, mut blank: impl FnMut() -> Option<Frame>) {
        self.lanes.iter_mut().for_each(|lane| lane.hand_over(&mut blank));
    }

    /// Takes those back that are staged.
    pub fn unstage(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.lanes.iter_mut().flat_map(Lane::unstage)
    }

    /// How many frames are on the way, or on the other threads without being blank.
    #[must_use]
    pub fn out(&self) -> usize {
        self.lanes.iter().map(Lane::out).sum()
    }

    /// Whether anything came back.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.lanes.iter().any(Lane::has_news)
    }

    /// How many frames may come back at once.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.length * self.lanes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use spin_nic::{Bell, TxQueue};

    use super::Lanes;
    use crate::toll::Toll;

    /// They share one thread's time out, each without knowledge of the others.
    #[test]
    fn each_thread_charges_for_all_whose_frames_are_handed_on_by_one() {
        let bell = Bell::new().expect("an event");
        let pipeline = Lanes::new(2048, &bell, 3, 64).expect("lanes");
        let spread = Lanes::spreading(2048, &bell, 3, 64, 75).expect("lanes");
        for ((lanes, ends), sharing) in [(pipeline, 3), (spread, 4)] {
            assert_eq!(lanes.toll().charge(), Toll::new(1).charge() * sharing);
            assert!(ends.iter().all(|(arrivals, _)| Arc::ptr_eq(&arrivals.toll, lanes.toll())));
            // What the one measures is what they charge.
            let now = std::cell::Cell::new(Duration::ZERO);
            let (mut nic, _far) = spin_nic::memory::pair(4).expect("a pair");
            let mut frames = Vec::from_iter(nic.allocate());
            lanes.toll().pass(&mut nic, &mut frames, || now.replace(now.get() + Duration::from_micros(90)));
            assert_eq!(
                ends[0].0.toll.charge(),
                (Toll::new(1).charge() * 7 / 8 + Duration::from_micros(90) / 8) * sharing
            );
        }
    }
}
