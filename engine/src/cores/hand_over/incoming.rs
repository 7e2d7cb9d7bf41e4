//! Packets that others hand to a worker.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use spin_nic::{Frame, Queue};
use spin_pspin::ids::Slot;
use spin_sync::{CreditRx, ReturnTx};

use crate::cores::channel_quota::QuotaTable;
use crate::cores::packet_meta::MetaRx;
use crate::ingress::matched::Match;
use crate::ingress::rx_batch::{BATCH, RxBatch};
use crate::install::Home;

/// Channels that are looked at in one poll.
const VISITED: usize = 8;

/// The receiver's end of a channel. It is on cache lines of its own: one thread makes the channels of all workers, side by side.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct HandOverRx {
    pub(super) frames: CreditRx<Frame>,
    pub(super) meta: MetaRx,
    pub(super) back: ReturnTx<Infallible, Frame>,
}

/// Channels of all other workers to one.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Whether others may hand packets to this worker.
    pub(super) receives: bool,
    pub(super) from: Vec<HandOverRx>,
    /// The channel that is visited next or now, and the packets of that visit that are still to be taken.
    next: usize,
    left: usize,
    /// Number of rounds of visits. A packet that is on a channel is taken before two more are complete.
    rounds: u64,
    /// Packets that were taken while a context was removed, with their channel.
    kept: VecDeque<(usize, Frame, Match)>,
    /// Contexts' shares of the channels to this worker.
    pub(super) quotas: Arc<QuotaTable>,
    /// Frames for the packets that are taken next.
    own: Vec<Frame>,
}

impl Incoming {
    /// Sets where contexts run.
    pub(super) fn set_homes(&mut self, worker: u16, homes: &[Home]) {
        let others = self.from.len();
        let is_shared = |home: &Home| home.by_key || usize::from(home.workers.count) <= others;
        self.receives = homes.iter().any(|home| home.workers.contains(worker) && is_shared(home));
    }

    /// Takes at most `room` packets of one channel into an empty batch. Returns how many.
    #[inline]
    pub(super) fn receive(&mut self, nic: &mut dyn Queue, batch: &mut RxBatch, room: usize) -> usize {
        if self.receives { self.visit(nic, batch, room.min(BATCH)) } else { 0 }
    }

    fn visit(&mut self, nic: &mut dyn Queue, batch: &mut RxBatch, room: usize) -> usize {
        if !self.kept.is_empty() {
            return self.take_kept(nic, batch, room);
        }
        for _ in 0..VISITED.min(self.from.len()) {
            if self.left == 0 {
                self.left = self.from[self.next].frames.len();
            }
            if self.left > 0 {
                return self.take(nic, batch, room);
            }
            self.leave();
        }
        0
    }

    /// Goes to the next channel.
    const fn leave(&mut self) {
        self.next += 1;
        if self.next == self.from.len() {
            self.next = 0;
            self.rounds += 1;
        }
    }

    /// Takes packets of the channel that is visited.
    fn take(&mut self, nic: &mut dyn Queue, batch: &mut RxBatch, room: usize) -> usize {
        let count = self.allocate(nic, self.left.min(room));
        let Self { from, next, own, .. } = self;
        let HandOverRx { frames, meta, back } = &mut from[*next];
        batch.fill(count, |frame, found| {
            frames.take(count, |other| frame(copy(own, other, back)));
            meta.read(count, found);
        });
        back.send();
        self.left -= count;
        if self.left == 0 {
            self.leave();
        }
        count
    }

    #[cold]
    fn take_kept(&mut self, nic: &mut dyn Queue, batch: &mut RxBatch, room: usize) -> usize {
        let count = self.allocate(nic, self.kept.len().min(room));
        let Self { from, kept, own, .. } = self;
        batch.fill(count, |frame, found| {
            for (channel, other, what) in kept.drain(..count) {
                frame(copy(own, other, &mut from[channel].back));
                found(what);
            }
        });
        from.iter_mut().for_each(|rx| rx.back.send());
        count
    }

    /// Takes up to `most` frames to copy packets to. Returns how many there are.
    fn allocate(&mut self, nic: &mut dyn Queue, most: usize) -> usize {
        self.own.extend(std::iter::from_fn(|| nic.allocate()).take(most));
        self.own.len()
    }

    /// Drops the packets on the channels of a context that goes. Returns how many. No worker matches packets to it any more.
    pub(super) fn drop_of(&mut self, slot: Slot) -> u64 {
        let Self { from, kept, .. } = self;
        for (channel, HandOverRx { frames, meta, .. }) in from.iter_mut().enumerate() {
            let (mut taken, mut found) = (Vec::new(), Vec::new());
            let count = frames.take(frames.len(), |frame| taken.push(frame));
            meta.read(count, |what| found.push(what));
            kept.extend(taken.into_iter().zip(found).map(|(frame, what)| (channel, frame, what)));
        }
        self.left = 0;
        let before = self.kept.len();
        let all = std::mem::take(&mut self.kept);
        for (channel, frame, what) in all {
            if what.owner == slot {
                self.from[channel].back.staged.push(frame);
            } else {
                self.kept.push_back((channel, frame, what));
            }
        }
        self.from.iter_mut().for_each(|rx| rx.back.send());
        (before - self.kept.len()) as u64
    }

    /// The number of rounds of visits after which all packets that are on channels now were taken. `None`: none is there.
    pub(super) fn round_after_all(&self) -> Option<u64> {
        self.has_arrivals().then_some(self.rounds + 2)
    }

    /// Whether that many rounds of visits are complete.
    pub(super) const fn has_completed(&self, rounds: u64) -> bool {
        !self.receives || self.rounds >= rounds
    }

    /// Whether packets wait on channels.
    pub(super) fn has_arrivals(&self) -> bool {
        !self.kept.is_empty() || self.receives && self.from.iter().any(|rx| !rx.frames.is_empty())
    }
}

/// The packet of another worker in an own frame. The other one goes back.
///
/// # Panics
/// When there is no own frame.
fn copy(own: &mut Vec<Frame>, other: Frame, back: &mut ReturnTx<Infallible, Frame>) -> Frame {
    let Some(mut own) = own.pop() else { unreachable!("as many were allocated as are taken") };
    let filled = own.fill(&other);
    debug_assert!(filled.is_ok(), "frames of all queues are as long");
    back.staged.push(other);
    own
}
