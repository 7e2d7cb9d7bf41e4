//! Received packets that a worker has not admitted yet.

pub mod ecn;
pub mod matched;
pub mod rx_batch;
pub(crate) mod rx_catch_up;
pub(crate) mod rx_charges;

use crate::ingress::rx_batch::RxBatch;
use crate::ingress::rx_catch_up::RxCatchUp;
use crate::ingress::rx_charges::RxCharges;

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
