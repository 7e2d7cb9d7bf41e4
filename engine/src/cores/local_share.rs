//! A distributor with a local share. Its worker matches all packets and keeps those whose home it is. Packets of other home
//! workers are handed over by channels.

use spin_abi::counters::Counter;
use spin_nic::Queue;
use spin_pspin::ids::Slot;

use crate::cores::distributor::Distributor;
use crate::cores::packet_channels::PacketChannels;
use crate::egress::Egress;
use crate::ingress::Ingress;
use crate::ingress::rx_batch::BATCH;
use crate::worker::core::Core;

/// The distributing part of a worker.
#[derive(Debug)]
pub(crate) struct LocalShare {
    pub(crate) distributor: Distributor,
    /// Whether the last poll had work for other threads.
    busy: bool,
    /// Whether more than three quarters of the last batch were the local share.
    mostly_own: bool,
}

impl LocalShare {
    pub(crate) fn new(channels: PacketChannels) -> Self {
        Self { distributor: Distributor::new(channels), busy: false, mostly_own: false }
    }

    /// Takes frames that other workers returned. Recycled ones go to the NIC at once, since it may have no buffers left for
    /// reception.
    #[inline]
    pub(crate) fn take_back(&mut self, core: &mut Core) {
        let Core { egress: Egress { outbound, passing, .. }, nic, .. } = core;
        let returned = [&mut outbound.recycle, &mut outbound.transmit, passing];
        self.busy = self.distributor.channels.take_back(returned) > 0;
        if self.busy {
            outbound.flush(&mut **nic);
        }
    }

    /// Receives so many frames that about `wanted` of them are the local share, and stages the others for their workers. Drops
    /// local ones without a free HER. Returns the number of local ones.
    pub(crate) fn receive(&mut self, core: &mut Core, ingress: &mut Ingress, wanted: usize) -> usize {
        let Self { distributor, busy, mostly_own } = self;
        let mut hers = core.table.mpqs.room();
        let all = if core.contexts.is_shared() && !core.contexts.stalls { usize::MAX } else { hers };
        // If one flow with its home here sends most packets, no more are received than there is time for.
        let wanted = if *mostly_own { wanted } else { distributor.channels.all_for(wanted) };
        let room = wanted.min(all).min(distributor.channels.begin_batch()).min(BATCH);
        if room == 0 {
            core.telemetry.counts.add(Counter::HerStalls, 1);
            return 0;
        }
        let Ingress { inbound, rx_catch_up, charges, .. } = ingress;
        let Core { nic, table, contexts, egress, telemetry, .. } = core;
        let taken = distributor.receive(&mut **nic, inbound, room, &mut telemetry.counts);
        if taken == 0 {
            return 0;
        }
        charges.count(inbound);
        rx_catch_up.batch_was_full = taken == room;
        let (looks, mut first, mut others) = (rx_catch_up.looks_for_others(), None, false);
        *busy = true;
        let handed = |owner: Slot| {
            others |= looks && (*first.get_or_insert(owner) != owner || table.mpqs.held(owner.0) == 0);
        };
        distributor.distribute(inbound, &mut egress.outbound.recycle, handed, |batch, frame, found| {
            if hers == 0 && found.slot().is_some() {
                contexts.get(found.owner).counts.add(Counter::DropShare, 1);
                return Some(frame);
            }
            hers = hers.saturating_sub(1);
            batch.skip(frame);
            None
        });
        rx_catch_up.others |= others;
        inbound.restore_skipped();
        *mostly_own = inbound.len() * 4 > taken * 3;
        inbound.len()
    }

    /// Hands staged packets to the other workers, before tasks run here.
    #[inline]
    pub(crate) fn hand_over(&mut self, nic: &mut dyn Queue) {
        self.distributor.channels.hand_over(|| nic.allocate());
    }

    /// The number of frames that other workers hold.
    pub(crate) fn out(&self) -> usize {
        self.distributor.channels.out()
    }

    /// Whether there is work for other threads, or was in the last poll.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy || self.distributor.channels.has_news()
    }
}
