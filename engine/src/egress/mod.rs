//! Outgoing frames of a worker: to send, to recycle, and for the kernel.

pub mod pass_cost;

use std::sync::Arc;
use std::time::Duration;

use spin_nic::{Frame, NicError, Queue};

use crate::egress::pass_cost::PassCost;
use crate::ingress::rx_batch::BATCH;
use crate::settings::Sizes;
use spin_pspin::hpu::command::Outbound;
use spin_pspin::hpu::ip_view;
use spin_pspin::ids::Packet;

/// Number of staged frames to send at which reception pauses: the NIC has to catch up first.
pub(crate) const TRANSMIT_BACKLOG: usize = 256;

/// Frames on their way out of a worker.
pub(crate) struct Egress {
    pub(crate) outbound: Outbound,
    /// Frames for the kernel.
    pub(crate) passing: Vec<Frame>,
    /// The cost that a context is charged for each of these frames.
    pub(crate) pass_cost: Arc<PassCost>,
}

impl Egress {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let outbound =
            Outbound::with_capacity(TRANSMIT_BACKLOG + BATCH * 4, sizes.hers as usize + BATCH, sizes.dma_chunk);
        Self { outbound, passing: Vec::with_capacity(BATCH), pass_cost: Arc::new(PassCost::new(1)) }
    }

    /// Makes room for `more` frames that other threads may return in one poll.
    pub(crate) fn reserve(&mut self, more: usize) {
        for list in [&mut self.outbound.transmit, &mut self.outbound.recycle, &mut self.passing] {
            list.reserve(list.capacity() + more);
        }
    }

    /// Stages a packet for the kernel, with its headers restored.
    pub(crate) fn punt(&mut self, mut packet: Packet) {
        if packet.in_pspin_view {
            ip_view::to_wire(&mut packet.frame);
        }
        self.passing.push(packet.frame);
    }

    /// Stages a frame for its return to the NIC at the end of the poll.
    #[inline]
    pub(crate) fn recycle(&mut self, frame: Frame) {
        self.outbound.recycle.push(frame);
    }

    /// Hands staged frames to the NIC. Frames that it has no room for stay staged.
    pub(crate) fn flush(&mut self, nic: &mut dyn Queue) -> Result<(), NicError> {
        self.outbound.flush(nic);
        nic.flush()
    }

    /// Passes all staged packets to the kernel. Returns how long that took.
    #[cold]
    pub(crate) fn pass_to_kernel(&mut self, nic: &mut dyn Queue, clock: &impl Fn() -> Duration) -> Duration {
        self.pass_cost.pass(nic, &mut self.passing, clock)
    }

    /// The number of frames staged here or in the NIC's transmit ring.
    pub(crate) fn unsent(&self, nic: &dyn Queue) -> usize {
        self.outbound.transmit.len() + nic.pending()
    }

    /// Whether so many frames wait for the NIC that reception pauses.
    pub(crate) fn is_full(&self) -> bool {
        self.outbound.transmit.len() >= TRANSMIT_BACKLOG
    }
}
