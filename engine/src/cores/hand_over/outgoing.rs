//! Packets that a worker hands to others.

use std::collections::VecDeque;
use std::convert::Infallible;

use spin_abi::counters::Counter;
use spin_nic::Frame;
use spin_pspin::ids::Slot;
use spin_sync::CreditTx;

use crate::context::Context;
use crate::context::contexts::Contexts;
use crate::cores::channel_quota::TransitCount;
use crate::cores::packet_meta::MetaTx;
use crate::ingress::matched::Match;
use crate::ingress::rx_batch::{BATCH, RoutingTable, RxBatch};
use crate::install::Home;

/// The sender's end of a channel, on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct HandOverTx {
    pub(super) frames: CreditTx<Frame, Infallible, Frame>,
    pub(super) meta: MetaTx,
    pub(super) quota: TransitCount,
    /// Whether packets of this batch are staged.
    pub(super) used: bool,
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

/// Channels of one worker to all others.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The index of the worker.
    worker: u16,
    /// The routes of packets that arrive here, with the homes of contexts. They change after all workers have a new context, and before one
    /// of them loses a removed one.
    pub(super) routes: RoutingTable,
    /// Whether packets that arrive here may be handed to others.
    sends: bool,
    /// The channels, by worker.
    pub(super) to: Vec<Option<HandOverTx>>,
    /// Workers with packets of this batch.
    used: Vec<u16>,
    /// Frames that other workers have.
    pub(super) out: usize,
    /// Packets of contexts with `--full wait` that had no room, in order. While there are some, no other packets are received from the
    /// NIC queue.
    waiting: VecDeque<(Frame, Match)>,
}

impl Outgoing {
    pub(super) fn new(worker: u16, workers: usize) -> Self {
        let (to, used) = (Vec::with_capacity(workers), Vec::with_capacity(workers));
        let waiting = VecDeque::with_capacity(BATCH);
        Self { worker, routes: RoutingTable::default(), sends: false, to, used, out: 0, waiting }
    }

    /// The context whose packets wait for room on a channel.
    #[inline]
    pub(super) fn waits_for(&self) -> Option<Slot> {
        self.waiting.front().map(|(_, found)| found.owner)
    }

    /// Sets the routes. Packets that waited come before those of the batch, and are to be matched again.
    pub(super) fn set_routes(&mut self, routes: RoutingTable, batch: &mut RxBatch) {
        batch.put_back(self.waiting.drain(..).map(|(frame, _)| frame));
        self.sends = routes.homes.iter().any(|home| home.leaves(self.worker));
        self.routes = routes;
    }

    /// Takes frames back that other workers have copied. Returns whether there were some.
    #[cold]
    pub(super) fn take_back(&mut self, recycle: &mut Vec<Frame>) -> bool {
        let before = self.out;
        for tx in self.to.iter_mut().flatten().filter(|tx| tx.frames.has_returns()) {
            self.out -= tx.frames.reclaim(|frame| recycle.push(frame));
        }
        for tx in self.to.iter_mut().flatten().filter(|tx| tx.frames.out() > 0 && tx.frames.is_closed()) {
            // That worker has ended, with these frames.
            self.out -= tx.frames.write_off();
        }
        self.out < before
    }

    /// Takes packets that do not run here out of a batch. Returns whether there may have been some.
    #[inline]
    pub(super) fn distribute(
        &mut self,
        batch: &mut RxBatch,
        contexts: &mut Contexts,
        recycle: &mut Vec<Frame>,
    ) -> bool {
        let some = self.sends && batch.slots().any(|slot| self.home(slot).leaves(self.worker));
        if some {
            self.distribute_some(batch, contexts, recycle);
        }
        some
    }

    fn distribute_some(&mut self, batch: &mut RxBatch, contexts: &mut Contexts, recycle: &mut Vec<Frame>) {
        while let Some((frame, found)) = batch.take() {
            let Some(to) = self.target(&found) else {
                batch.skip(frame);
                continue;
            };
            // Packets of a context stay in order.
            let is_behind = !self.waiting.is_empty() && may_wait(contexts, found.owner);
            let left = if is_behind { Some(frame) } else { self.stage(frame, &found, to, contexts, recycle) };
            self.waiting.extend(left.map(|frame| (frame, found)));
        }
        batch.restore_skipped();
    }

    /// Stages packets that waited for room. Returns whether some still wait.
    #[inline]
    pub(super) fn stage_waiting(&mut self, contexts: &mut Contexts, recycle: &mut Vec<Frame>) -> bool {
        !self.waiting.is_empty() && self.stage_some_waiting(contexts, recycle)
    }

    #[cold]
    fn stage_some_waiting(&mut self, contexts: &mut Contexts, recycle: &mut Vec<Frame>) -> bool {
        while let Some((frame, found)) = self.waiting.pop_front() {
            // Packets that waited under other routes were matched again, so this one has a target.
            let to = self.target(&found).unwrap_or(self.worker);
            if let Some(frame) = self.stage(frame, &found, to, contexts, recycle) {
                self.waiting.push_front((frame, found));
                return true;
            }
        }
        false
    }

    /// The worker that a packet is handed to.
    fn target(&self, found: &Match) -> Option<u16> {
        found.slot().and_then(|slot| self.home(slot).handed_to(self.worker, || found.key.hash()))
    }

    /// Stages a packet for a worker, or drops it if its context may have no more on the channel. Returns it if it is to wait instead.
    fn stage(
        &mut self,
        frame: Frame,
        found: &Match,
        to: u16,
        contexts: &mut Contexts,
        recycle: &mut Vec<Frame>,
    ) -> Option<Frame> {
        let left = match self.to.get_mut(usize::from(to)).and_then(Option::as_mut) {
            None => Some(frame),
            Some(tx) => {
                if !tx.used {
                    self.used.push(to);
                }
                tx.stage(frame, found)
            }
        };
        if left.is_some() && to != self.worker && may_wait(contexts, found.owner) {
            return left;
        }
        let counter = if left.is_some() { Counter::DropShare } else { Counter::HandedOver };
        self.out += usize::from(left.is_none());
        recycle.extend(left);
        if let Some(context) = contexts.list.get_mut(found.owner.0 as usize).and_then(Option::as_mut) {
            context.counts.add(counter, 1);
            context.is_handed_over = true;
        }
        None
    }

    #[inline]
    fn home(&self, slot: Slot) -> Home {
        self.routes.homes.get(slot.0 as usize).copied().unwrap_or(Home::ANYWHERE)
    }

    /// Sends staged packets.
    #[inline]
    pub(super) fn send(&mut self) {
        for to in self.used.drain(..) {
            self.to[usize::from(to)].iter_mut().for_each(HandOverTx::send);
        }
    }
}

/// Whether packets of a context may wait for room.
fn may_wait(contexts: &Contexts, slot: Slot) -> bool {
    contexts.list.get(slot.0 as usize).and_then(Option::as_ref).is_some_and(Context::may_stall)
}
