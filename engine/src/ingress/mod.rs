//! Received packets that a worker has not admitted yet.

pub mod ecn;
pub mod matched;
pub mod rx_batch;
pub(crate) mod rx_catch_up;
pub(crate) mod rx_charges;

use spin_matcher::MessageKey;
use spin_nic::Queue;
use spin_pspin::ids::Slot;

use crate::context::contexts::Contexts;
use crate::ingress::rx_batch::{RoutingTable, RxBatch};
use crate::ingress::rx_catch_up::RxCatchUp;
use crate::ingress::rx_charges::RxCharges;
use crate::message::MessageTable;
use crate::telemetry::Telemetry;
use crate::worker::core::Core;

/// The receive side of a worker.
#[derive(Default)]
pub(crate) struct Ingress {
    /// Matched packets that are yet to be queued or run.
    pub(crate) inbound: RxBatch,
    /// Whether reception has ended.
    pub(crate) closed: bool,
    /// The amount to receive after a long poll.
    pub(crate) rx_catch_up: RxCatchUp,
    /// The charges for reception, by context.
    pub(crate) charges: RxCharges,
    /// The number of frames queued, run or dropped.
    pub(crate) processed: u64,
    /// The number of batches sorted by cluster.
    pub(crate) batches: u32,
    /// Whether a context that shares the time may run out of tasks while the NIC has more of its packets.
    pub(crate) low_backlog: bool,
}

impl Ingress {
    /// Receives a batch of at most `room` packets from the NIC queue, and matches it by the worker's own routes. Returns how many.
    #[inline]
    pub(crate) fn receive_own(&mut self, core: &mut Core, room: usize) -> usize {
        let Core { nic, table, contexts: Contexts { routes, .. }, telemetry, .. } = core;
        self.receive_by(routes, &mut **nic, table, telemetry, room)
    }

    /// Receives packets as [`Ingress::receive_own`] does, by other `routes`.
    #[inline]
    pub(crate) fn receive(&mut self, core: &mut Core, routes: &RoutingTable, room: usize) -> usize {
        let Core { nic, table, telemetry, .. } = core;
        self.receive_by(routes, &mut **nic, table, telemetry, room)
    }

    #[inline]
    fn receive_by(
        &mut self,
        routes: &RoutingTable,
        nic: &mut dyn Queue,
        table: &MessageTable,
        telemetry: &mut Telemetry,
        room: usize,
    ) -> usize {
        if self.closed {
            return 0;
        }
        let bucket = |slot: Slot, key: &MessageKey| table.messages.prefetch_bucket(slot, key);
        let taken = self.inbound.receive(nic, routes, room, &mut telemetry.counts, bucket);
        self.charges.count(&self.inbound);
        taken
    }
}
