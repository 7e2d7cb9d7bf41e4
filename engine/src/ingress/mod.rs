//! What a worker received and has not admitted yet.

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
    /// Nothing is taken from the NIC any more.
    pub(crate) closed: bool,
    /// How much to receive after a long poll.
    pub(crate) rx_catch_up: RxCatchUp,
    /// Who is charged for reception.
    pub(crate) charges: RxCharges,
    /// Frames that were queued, run or dropped so far.
    pub(crate) processed: u64,
    /// Batches that were sorted by cluster.
    pub(crate) batches: u32,
    /// A context that shares the time may run out of tasks, and have more packets in the NIC.
    pub(crate) low_backlog: bool,
}
