//! Packets that arrive at a worker of run-to-completion mode, and run on another one: their context runs in another unit, or the key
//! chooses the worker of their message.
//!
//! ```text
//! worker at whose queue they arrive --packets--> worker that runs them     frames, and what they matched
//!                                   <--frames--- copies them first         the frames again
//! ```
//! The receiver copies each packet to a frame of its own NIC queue. It writes no line of the sender's frame, and sends and recycles its own
//! frames as it does those of its own queue. Each ordered pair of workers has a channel. A sender never waits for room: packets beyond their
//! context's share of a channel are dropped.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use spin_abi::counters::Counter;
use spin_nic::{Frame, Queue, Wakeup};
use spin_pspin::ids::Slot;
use spin_sync::{CreditRx, CreditTx, PeerStatus, ReturnTx, credit_channel};

use crate::context::contexts::Contexts;
use crate::cores::channel_quota::{QuotaTable, TransitCount};
use crate::cores::packet_meta::{MetaRx, MetaTx, packet_meta};
use crate::ingress::matched::Match;
use crate::ingress::rx_batch::{BATCH, RoutingTable, RxBatch};
use crate::install::Home;
use crate::sched::weights::Part;

/// Packets in transit on a channel: as many as are received at once, so that one visit takes all that are there.
const SIZE: usize = BATCH;
/// Packets in transit up to which contexts' shares of a channel are not enforced.
const UNCOUNTED: usize = SIZE / 4;
/// Channels that are looked at in one poll.
const VISITED: usize = 8;

/// The sender's end of a channel.
#[derive(Debug)]
struct HandOverTx {
    frames: CreditTx<Frame, Infallible, Frame>,
    meta: MetaTx,
    quota: TransitCount,
    /// Whether packets of this batch are staged.
    used: bool,
}

impl HandOverTx {
    /// Stages a packet. Returns its frame if its context may have no more on the channel.
    fn stage(&mut self, frame: Frame, found: &Match) -> Option<Frame> {
        if !std::mem::replace(&mut self.used, true) {
            let Self { frames, quota, .. } = self;
            let credit = frames.credit();
            quota.begin_batch(frames.capacity() - credit, credit, || frames.in_transit());
        }
        if self.frames.credit() == 0 || !self.quota.admit(found.owner) {
            return Some(frame);
        }
        self.frames.staged.push(frame);
        self.meta.stage(found);
        None
    }

    fn send(&mut self) {
        self.used = false;
        self.meta.write(self.frames.ready());
        self.frames.send(|| None);
    }
}

/// The receiver's end of a channel.
#[derive(Debug)]
struct HandOverRx {
    frames: CreditRx<Frame>,
    meta: MetaRx,
    back: ReturnTx<Infallible, Frame>,
}

/// Channels of one worker from and to all others.
#[derive(Debug)]
pub struct HandOver {
    /// The index of the worker.
    worker: u16,
    /// The routes of packets that arrive here, with the homes of contexts. They change after all workers have a new context, and before one
    /// of them loses a removed one.
    pub(crate) routes: RoutingTable,
    /// Whether packets that arrive here may be handed to others, and theirs to this worker.
    sends: bool,
    receives: bool,
    /// Channels to the others, by worker.
    to: Vec<Option<HandOverTx>>,
    /// Workers with packets of this batch.
    used: Vec<u16>,
    /// Frames that other workers have.
    out: usize,
    from: Vec<HandOverRx>,
    /// The channel that is visited next or now, and the packets of that visit that are still to be taken.
    next: usize,
    left: usize,
    /// Number of rounds of visits. A packet that is on a channel is taken before two more are complete.
    rounds: u64,
    /// Packets that were taken while a context was removed, with their channel.
    kept: VecDeque<(usize, Frame, Match)>,
    /// Contexts' shares of the channels to this worker.
    quotas: Arc<QuotaTable>,
    /// Frames for the packets that are taken next.
    own: Vec<Frame>,
    /// Whether channels come before the NIC queue in this poll.
    channels_first: bool,
    /// Whether there was work for other workers in the last poll.
    pub(crate) busy: bool,
    /// Whether the worker is to end, and says so once nothing arrives any more.
    ending: bool,
    status: Arc<PeerStatus>,
    peers: Vec<Arc<PeerStatus>>,
}

impl HandOver {
    /// Connects all workers, which sleep on these wake-ups.
    ///
    /// # Panics
    /// With more than 65,535 workers.
    #[must_use]
    pub fn of(wakeups: &[Arc<Wakeup>]) -> Vec<Self> {
        let mut all: Vec<Self> = (0..wakeups.len()).map(|worker| Self::alone(worker, wakeups.len())).collect();
        let workers = 0..all.len();
        for (from, to) in workers.clone().flat_map(|from| workers.clone().map(move |to| (from, to))) {
            if from == to {
                all[from].to.push(None);
                continue;
            }
            let (tx, frames, back) = credit_channel(SIZE, 0, wakeups[from].clone(), wakeups[to].clone());
            let ((meta, meta_rx), quotas, peer) = (packet_meta(SIZE), all[to].quotas.clone(), all[from].status.clone());
            let quota = TransitCount::new(quotas, SIZE, UNCOUNTED);
            all[from].to.push(Some(HandOverTx { frames: tx, meta, quota, used: false }));
            all[to].from.push(HandOverRx { frames, meta: meta_rx, back });
            all[to].peers.push(peer);
        }
        all
    }

    fn alone(worker: usize, workers: usize) -> Self {
        Self {
            worker: u16::try_from(worker).expect("fewer workers"),
            routes: RoutingTable::default(),
            sends: false,
            receives: false,
            to: Vec::with_capacity(workers),
            used: Vec::with_capacity(workers),
            out: 0,
            from: Vec::with_capacity(workers),
            next: 0,
            left: 0,
            rounds: 0,
            kept: VecDeque::new(),
            quotas: Arc::default(),
            own: Vec::with_capacity(BATCH),
            channels_first: false,
            busy: false,
            ending: false,
            status: Arc::default(),
            peers: Vec::with_capacity(workers),
        }
    }

    /// Sets the routes.
    pub(crate) fn set_routes(&mut self, routes: RoutingTable) {
        let (worker, others) = (self.worker, self.from.len());
        let homes = &routes.homes;
        self.sends = homes.iter().any(|home| home.leaves(worker));
        let is_shared = |home: &Home| home.by_key || usize::from(home.workers.count) <= others;
        self.receives = homes.iter().any(|home| home.workers.contains(worker) && is_shared(home));
        self.routes = routes;
    }

    /// Sets the contexts' shares of the channels to this worker, and whether senders enforce them.
    pub(crate) fn set_quotas(&self, enforced: bool, parts: impl Iterator<Item = (Slot, Part)>) {
        self.quotas.set(enforced, parts);
    }

    /// Takes frames back that other workers have copied.
    #[inline]
    pub(crate) fn take_back(&mut self, recycle: &mut Vec<Frame>) {
        self.busy = false;
        if self.out > 0 {
            self.take_all_back(recycle);
        }
    }

    #[cold]
    fn take_all_back(&mut self, recycle: &mut Vec<Frame>) {
        for tx in self.to.iter_mut().flatten().filter(|tx| tx.frames.has_returns()) {
            self.out -= tx.frames.reclaim(|frame| recycle.push(frame));
            self.busy = true;
        }
        for tx in self.to.iter_mut().flatten().filter(|tx| tx.frames.out() > 0 && tx.frames.is_closed()) {
            // That worker has ended, with these frames.
            self.out -= tx.frames.write_off();
        }
    }

    /// Takes packets that do not run here out of a batch.
    #[inline]
    pub(crate) fn distribute(&mut self, batch: &mut RxBatch, contexts: &mut Contexts, recycle: &mut Vec<Frame>) {
        if self.sends && batch.slots().any(|slot| self.home(slot).leaves(self.worker)) {
            self.distribute_some(batch, contexts, recycle);
        }
    }

    fn distribute_some(&mut self, batch: &mut RxBatch, contexts: &mut Contexts, recycle: &mut Vec<Frame>) {
        while let Some((frame, found)) = batch.take() {
            let to = found.slot().and_then(|slot| self.home(slot).handed_to(self.worker, || found.key.hash()));
            let Some((to, tx)) = to.and_then(|to| Some((to, self.to.get_mut(usize::from(to))?.as_mut()?))) else {
                batch.skip(frame);
                continue;
            };
            if !tx.used {
                self.used.push(to);
            }
            let counts = &mut contexts.get(found.owner).counts;
            match tx.stage(frame, &found) {
                None => {
                    self.out += 1;
                    counts.add(Counter::HandedOver, 1);
                }
                Some(frame) => {
                    counts.add(Counter::DropShare, 1);
                    recycle.push(frame);
                }
            }
        }
        batch.restore_skipped();
        self.busy = true;
    }

    #[inline]
    fn home(&self, slot: Slot) -> Home {
        self.routes.homes.get(slot.0 as usize).copied().unwrap_or(Home::ANYWHERE)
    }

    /// Sends staged packets.
    #[inline]
    pub(crate) fn send(&mut self) {
        for to in self.used.drain(..) {
            self.to[usize::from(to)].iter_mut().for_each(HandOverTx::send);
        }
    }

    /// Whether channels come before the NIC queue in this poll: they take turns.
    #[inline]
    pub(crate) const fn are_channels_first(&mut self) -> bool {
        self.channels_first = !self.channels_first;
        self.receives && self.channels_first
    }

    /// Takes at most `room` packets of one channel into an empty batch. Returns how many.
    #[inline]
    pub(crate) fn receive(&mut self, nic: &mut dyn Queue, batch: &mut RxBatch, room: usize) -> usize {
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
    pub(crate) fn drop_of(&mut self, slot: Slot) -> u64 {
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

    /// The number of rounds of visits after which all packets that are on channels now were taken. `None`: none may be there.
    pub(crate) fn round_after_all(&self) -> Option<u64> {
        self.receives.then_some(self.rounds + 2)
    }

    /// Whether that many rounds of visits are complete.
    pub(crate) const fn has_completed(&self, rounds: u64) -> bool {
        !self.receives || self.rounds >= rounds
    }

    /// The number of frames that other workers have.
    pub(crate) const fn out(&self) -> usize {
        self.out
    }

    /// Whether packets or frames wait on channels.
    pub(crate) fn has_pending(&self) -> bool {
        self.has_arrivals() || self.out > 0 && self.to.iter().flatten().any(|tx| tx.frames.has_returns())
    }

    /// Whether packets wait on channels.
    pub(crate) fn has_arrivals(&self) -> bool {
        !self.kept.is_empty() || self.receives && self.from.iter().any(|rx| !rx.frames.is_empty())
    }

    /// Prepares the end: see [`HandOver::note_quiet`].
    pub(crate) const fn end(&mut self) {
        self.ending = true;
    }

    /// Says to the others, if the worker is to end, that no more packets will come: its NIC queue had none.
    #[inline]
    pub(crate) fn note_quiet(&self) {
        if self.ending {
            self.status.stop_lending();
        }
    }

    /// Whether others may still hand packets over.
    pub(crate) fn may_receive(&self) -> bool {
        self.receives && self.peers.iter().any(|peer| peer.lends())
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
