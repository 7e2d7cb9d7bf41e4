//! Packets that a worker hands to others.

use std::convert::Infallible;

use spin_abi::counters::Counter;
use spin_nic::Frame;
use spin_pspin::ids::Slot;
use spin_sync::CreditTx;

use crate::context::contexts::Contexts;
use crate::cores::channel_quota::TransitCount;
use crate::cores::packet_meta::MetaTx;
use crate::ingress::matched::Match;
use crate::ingress::rx_batch::{RoutingTable, RxBatch};
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
}

impl Outgoing {
    pub(super) fn new(worker: u16, workers: usize) -> Self {
        let (to, used) = (Vec::with_capacity(workers), Vec::with_capacity(workers));
        Self { worker, routes: RoutingTable::default(), sends: false, to, used, out: 0 }
    }

    /// Sets the routes.
    pub(super) fn set_routes(&mut self, routes: RoutingTable) {
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
            let to = found.slot().and_then(|slot| self.home(slot).handed_to(self.worker, || found.key.hash()));
            let Some((to, tx)) = to.and_then(|to| Some((to, self.to.get_mut(usize::from(to))?.as_mut()?))) else {
                batch.skip(frame);
                continue;
            };
            if !tx.used {
                self.used.push(to);
            }
            let counter = match tx.stage(frame, &found) {
                None => {
                    self.out += 1;
                    Counter::HandedOver
                }
                Some(frame) => {
                    recycle.push(frame);
                    Counter::DropShare
                }
            };
            if let Some(context) = contexts.list.get_mut(found.owner.0 as usize).and_then(Option::as_mut) {
                context.counts.add(counter, 1);
            }
        }
        batch.restore_skipped();
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
