//! Packets that arrive at a worker of run-to-completion mode, and run on another one: their context runs in another unit, or the key
//! chooses the worker of their message.
//!
//! ```text
//! worker at whose queue they arrive --packets--> worker that runs them     frames, and what they matched
//!                                   <--frames--- copies them first         the frames again
//! ```
//! The receiver copies each packet to a frame of its own NIC queue. It writes no line of the sender's frame, and sends and recycles its own
//! frames as it does those of its own queue. Each ordered pair of workers has a channel. Packets beyond their context's share of a channel are
//! dropped. Those of a context with `--full wait` wait there, and the sender's NIC queue with them, for as long as the context has
//! [credit](crate::sched::stall_credit). The sender takes other workers' packets meanwhile, so that two workers never wait for each other.
//!
//! `outgoing`: packets for others; `incoming`: packets of others.

mod incoming;
mod outgoing;

use std::sync::Arc;

use spin_abi::counters::Counter;
use spin_nic::{Frame, Wakeup};
use spin_pspin::ids::Slot;
use spin_sync::{PeerStatus, credit_channel};

use crate::context::contexts::Contexts;
use crate::cores::channel_quota::TransitCount;
use crate::cores::packet_meta::packet_meta;
use crate::ingress::Ingress;
use crate::ingress::rx_batch::{BATCH, RoutingTable, RxBatch};
use crate::sched::weights::Part;
use crate::worker::core::Core;
use incoming::{HandOverRx, Incoming};
use outgoing::{HandOverTx, Outgoing};

/// Packets in transit on a channel: as many as are received at once, so that one visit takes all that are there.
const SIZE: usize = BATCH;
/// Packets in transit up to which contexts' shares of a channel are not enforced.
const UNCOUNTED: usize = SIZE / 4;

/// Channels of one worker from and to all others.
#[derive(Debug)]
pub struct HandOver {
    /// The index of the worker.
    worker: u16,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Whether channels come before the NIC queue in this poll.
    channels_first: bool,
    /// Whether the last packets came from another worker.
    pub(crate) were_handed: bool,
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
                all[from].outgoing.to.push(None);
                continue;
            }
            let (tx, frames, back) = credit_channel(SIZE, 0, wakeups[from].clone(), wakeups[to].clone());
            let ((meta, meta_rx), peer) = (packet_meta(SIZE), all[from].status.clone());
            let quota = TransitCount::new(all[to].incoming.quotas.clone(), SIZE, UNCOUNTED);
            all[from].outgoing.to.push(Some(HandOverTx { frames: tx, meta, quota, used: false }));
            all[to].incoming.from.push(HandOverRx { frames, meta: meta_rx, back });
            all[to].peers.push(peer);
        }
        all
    }

    fn alone(worker: usize, workers: usize) -> Self {
        let worker = u16::try_from(worker).expect("fewer workers");
        Self {
            worker,
            outgoing: Outgoing::new(worker, workers),
            incoming: Incoming::default(),
            channels_first: false,
            were_handed: false,
            busy: false,
            ending: false,
            status: Arc::default(),
            peers: Vec::with_capacity(workers),
        }
    }

    /// Sets the routes of packets that arrive, and matches those of a batch by them: they may belong to another context now.
    pub(crate) fn set_routes(
        &mut self,
        routes: RoutingTable,
        inbound: &mut RxBatch,
        contexts: &mut Contexts,
        recycle: &mut Vec<Frame>,
    ) {
        self.incoming.set_homes(self.worker, &routes.homes);
        self.outgoing.set_routes(routes, inbound);
        inbound.find(&self.outgoing.routes, |_, _| 0);
        self.outgoing.distribute(inbound, contexts, recycle);
        self.outgoing.send();
    }

    /// Sets the contexts' shares of the channels to this worker, and whether senders enforce them.
    pub(crate) fn set_quotas(&self, enforced: bool, parts: impl Iterator<Item = (Slot, Part)>) {
        self.incoming.quotas.set(enforced, parts);
    }

    /// Takes frames back that other workers have copied.
    #[inline]
    pub(crate) fn take_back(&mut self, recycle: &mut Vec<Frame>) {
        self.busy = self.outgoing.out > 0 && self.outgoing.take_back(recycle);
    }

    /// Receives at most `room` packets that run here, from the NIC queue or another worker, which take turns. Returns how many.
    pub(crate) fn receive(&mut self, core: &mut Core, ingress: &mut Ingress, room: usize) -> usize {
        self.were_handed = true;
        self.channels_first = !self.channels_first;
        if self.channels_first {
            let handed = self.receive_handed(core, ingress, room);
            if handed > 0 {
                return handed;
            }
        }
        if self.outgoing.stage_waiting(&mut core.contexts, &mut core.egress.outbound.recycle) {
            core.telemetry.counts.add(Counter::HerStalls, 1);
            return self.receive_handed(core, ingress, room);
        }
        let arrived = ingress.receive(core, &self.outgoing.routes, room);
        if arrived == 0 {
            if self.ending {
                // The others need not wait for packets of this worker.
                self.status.stop_lending();
            }
            return self.receive_handed(core, ingress, room);
        }
        self.were_handed = false;
        let Core { contexts, egress, .. } = core;
        self.busy |= self.outgoing.distribute(&mut ingress.inbound, contexts, &mut egress.outbound.recycle);
        ingress.inbound.len()
    }

    /// The context whose packets wait for room on a channel, and keep the NIC queue waiting.
    #[inline]
    pub(crate) fn waits_for(&self) -> Option<Slot> {
        self.outgoing.waits_for()
    }

    /// Takes packets that another worker handed over. Drops those of contexts that are gone.
    fn receive_handed(&mut self, core: &mut Core, ingress: &mut Ingress, room: usize) -> usize {
        let Ingress { inbound, charges, .. } = ingress;
        if self.incoming.receive(&mut *core.nic, inbound, room) == 0 {
            return 0;
        }
        let runs = |slot: Slot| core.contexts.runs_here(slot);
        if !inbound.slots().all(runs) {
            let gone = inbound.retain(Vec::new(), |slot| !runs(slot));
            core.telemetry.counts.add(Counter::DropRemoved, gone.len() as u64);
            core.egress.outbound.recycle.extend(gone);
        }
        charges.count(inbound);
        inbound.len()
    }

    /// Sends staged packets.
    #[inline]
    pub(crate) fn send(&mut self) {
        self.outgoing.send();
    }

    /// Drops the packets on the channels of a context that goes. Returns how many. No worker matches packets to it any more.
    pub(crate) fn drop_of(&mut self, slot: Slot) -> u64 {
        self.incoming.drop_of(slot)
    }

    /// The number of rounds of visits after which all packets that are on channels now were taken. `None`: none may be there.
    pub(crate) fn round_after_all(&self) -> Option<u64> {
        self.incoming.round_after_all()
    }

    /// Whether that many rounds of visits are complete.
    pub(crate) const fn has_completed(&self, rounds: u64) -> bool {
        self.incoming.has_completed(rounds)
    }

    /// The number of frames that other workers have.
    pub(crate) const fn out(&self) -> usize {
        self.outgoing.out
    }

    /// Whether packets or frames wait on channels.
    pub(crate) fn has_pending(&self) -> bool {
        let Outgoing { to, out, .. } = &self.outgoing;
        self.has_arrivals() || *out > 0 && to.iter().flatten().any(|tx| tx.frames.has_returns())
    }

    /// Whether packets wait on channels.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.incoming.has_arrivals()
    }

    /// Prepares the end of the worker.
    pub(crate) const fn end(&mut self) {
        self.ending = true;
    }

    /// Whether others may still hand packets over.
    pub(crate) fn may_receive(&self) -> bool {
        self.incoming.receives && self.peers.iter().any(|peer| peer.lends())
    }
}

#[cfg(test)]
mod tests {
    use super::{HandOverRx, HandOverTx};

    /// One thread makes the ends of all channels, side by side.
    #[test]
    fn each_end_of_a_channel_is_on_lines_of_its_own() {
        spin_testing::assert_lines!(HandOverTx {
            frames: "the sender",
            meta: "the sender",
            quota: "the sender",
            used: "the sender"
        });
        spin_testing::assert_lines!(HandOverRx { frames: "the receiver", meta: "the receiver", back: "the receiver" });
    }
}
