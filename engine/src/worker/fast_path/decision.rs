//! Decisions of the fast path on packets.

use hpu_vm::Exit;
use spin_nic::Frame;

use crate::ingress::rx_batch::MatchedPacket;
use spin_pspin::hpu::command::CommandBudget;
use spin_pspin::ids::{MessageRef, Packet};
use spin_pspin::mpq::{MpqId, Task};

/// A packet that need not wait.
pub(super) struct FastPacket {
    pub(super) mpq: MpqId,
    /// The home cluster of its message.
    pub(super) home: u32,
    /// The number by which handlers know its message.
    pub(super) flow: u32,
    /// The number of its message.
    pub(super) message: u64,
    pub(super) place: MessagePosition,
}

impl FastPacket {
    #[inline(always)]
    pub(super) const fn of(mpq: MpqId, message: &MessageRef, place: MessagePosition, flow: u32) -> Self {
        Self { mpq, home: message.home(), flow, message: message.message, place }
    }
}

/// The position of an eligible packet in its message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MessagePosition {
    /// Neither the only packet nor the last one, as most packets are.
    Open,
    /// The only packet. Its message takes no queue: while the task runs, handlers see the number of the queue that is free next.
    Only,
    Last,
}

impl MessagePosition {
    /// The position of a packet whose message has a queue.
    #[inline]
    pub(super) const fn of(end_of_message: bool) -> Self {
        if end_of_message { Self::Last } else { Self::Open }
    }
}

/// The reason why a batch on the fast path ended.
pub(super) enum BatchExit {
    None,
    /// The next packet belongs to this other cluster.
    OtherCluster(u32),
    /// A packet needs a full [admission](crate::worker::admission::Admission::admit).
    MatchedPacket(MatchedPacket),
    /// The last task did not end normally.
    Unusual(Task<MessageRef, Packet>, Exit, CommandBudget),
}

/// The decision on the next packet.
pub(super) enum Decision {
    /// No packet is left, or the next one belongs to another context.
    Nothing,
    Fast(FastPacket),
    Slow(SlowReason),
}

/// The reason why a packet is not eligible for the fast path.
pub(super) enum SlowReason {
    /// No context matched.
    Foreign,
    /// The packet needs a full [admission](crate::worker::admission::Admission::admit).
    Questionable,
    /// The packet has to be queued there.
    Waits(MpqId),
}

/// The result of taking a packet that is not eligible for the fast path.
pub(super) enum SlowResult {
    /// The packet was queued, with nothing before it in its message.
    Queued,
    /// The packet was queued behind another one. Once that one's task has run, the message's next packets need not wait.
    Behind,
    /// No context matched.
    Foreign(Frame),
    /// The packet needs a full [admission](crate::worker::admission::Admission::admit).
    Questionable(MatchedPacket),
}
