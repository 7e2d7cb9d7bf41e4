//! Pipeline mode with a local share: what a worker needs that receives for other threads too. It matches all frames, hands those of
//! messages whose home is another thread over by channels, as a [`Receiver`](crate::cores::receiver::Receiver) does, and keeps its own.

use spin_abi::counters::Counter;
use spin_nic::{Frame, Queue};

use crate::cores::packet_channels::PacketChannels;
use crate::egress::Egress;
use crate::egress::pass_cost::MAX_PASSED;
use crate::ingress::Ingress;
use crate::ingress::rx_batch::{BATCH, RoutingTable};
use crate::worker::core::Core;

/// The distributing part of a worker.
#[derive(Debug)]
pub(crate) struct Spread {
    channels: PacketChannels,
    /// Where frames go, of all threads: to contexts that each of them has.
    pub(crate) routes: RoutingTable,
    /// The last poll had something to do for others.
    busy: bool,
    /// Nearly all of the last batch were its own.
    mostly_own: bool,
    /// Frames that the kernel gets in a poll.
    pub(crate) passed: Vec<Frame>,
}

impl Spread {
    pub(crate) fn new(channels: PacketChannels) -> Self {
        let passed = Vec::with_capacity(MAX_PASSED);
        Self { channels, routes: RoutingTable::default(), busy: false, mostly_own: false, passed }
    }

    /// Takes frames back that others are done with. They go to the NIC at once: it may have none left to hand over.
    #[inline]
    pub(crate) fn take_back(&mut self, core: &mut Core) {
        let Core { egress: Egress { outbound, passing, .. }, nic, .. } = core;
        self.busy = self.channels.take_back([&mut outbound.recycle, &mut outbound.transmit, passing]) > 0;
        if self.busy {
            outbound.flush(&mut **nic);
        }
    }

    /// Receives frames, so many that about `wanted` of them are its own, and stages those of others. Drops its own for which there is no
    /// HER. Returns how many are its own.
    pub(crate) fn receive(&mut self, core: &mut Core, ingress: &mut Ingress, wanted: usize) -> usize {
        let mut hers = core.table.mpqs.room();
        let all = if core.contexts.is_shared() && !core.contexts.stalls { usize::MAX } else { hers };
        // A flow whose home is here may send all there is: then no more is taken than there is time for.
        let wanted = if self.mostly_own { wanted } else { self.channels.all_for(wanted) };
        let room = wanted.min(all).min(self.channels.begin_batch()).min(BATCH);
        if room == 0 {
            core.telemetry.counts.add(Counter::HerStalls, 1);
            return 0;
        }
        let Ingress { inbound, rx_catch_up, charges, .. } = ingress;
        let counts = &mut core.telemetry.counts;
        let taken = inbound.receive(&mut *core.nic, &self.routes, room, counts, |_, _| 0);
        if taken == 0 {
            return 0;
        }
        charges.count(inbound);
        rx_catch_up.batch_was_full = taken == room;
        let (looks, mut first) = (rx_catch_up.looks_for_others(), None);
        self.busy = true;
        while let Some((frame, found)) = inbound.take() {
            match self.channels.channel_of(&found) {
                Some(channel) => {
                    if looks {
                        let several = *first.get_or_insert(found.owner) != found.owner;
                        rx_catch_up.others |= several || core.table.mpqs.held(found.owner.0) == 0;
                    }
                    if channel.admits(found.owner) {
                        channel.stage(frame, &found);
                    } else {
                        core.egress.recycle(frame);
                    }
                }
                None if hers > 0 || found.slot().is_none() => {
                    hers = hers.saturating_sub(1);
                    inbound.skip(frame);
                }
                None => core.drop_of(found.owner, frame, Counter::DropShare),
            }
        }
        inbound.restore_skipped();
        self.mostly_own = inbound.len() * 4 > taken * 3;
        inbound.len()
    }

    /// Hands over what others are to have, before anything is run here.
    #[inline]
    pub(crate) fn hand_over(&mut self, nic: &mut dyn Queue) {
        self.channels.hand_over(|| nic.allocate());
    }

    /// Frames that others have.
    pub(crate) fn out(&self) -> usize {
        self.channels.out()
    }

    /// Whether there is something to do for others, or was in the last poll.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy || self.channels.has_news()
    }
}
