//! Value types of the message queues.

use hpu_vm::Kind;

/// Index of a HER's slot in the pool, or [`NONE`].
pub(super) type HerIndex = u32;

/// No slot, or no queue: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// Index of a message processing queue. Handlers know it as the flow id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MpqId(pub u32);

impl MpqId {
    /// No queue.
    pub const NONE: Self = Self(u32::MAX);
}

/// A stage of a message; each has a handler of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Stage of the first packet, before any payload handler.
    Header,
    /// Stage of every packet.
    Payload,
    /// Stage of the last packet, after every payload handler.
    Completion,
}

impl Stage {
    /// Name for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Payload => "payload",
            Self::Completion => "completion",
        }
    }

    /// Kind of the image's handler that runs in this stage.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Header => Kind::Header,
            Self::Payload => Kind::Payload,
            Self::Completion => Kind::Completion,
        }
    }
}

/// A context whose messages have an owner. Each owner has a ready list of its own.
pub trait Owned {
    /// Index of the owner, registered by [`Mpqs::add_owner`](super::Mpqs::add_owner).
    fn owner(&self) -> u32;
}

/// Parameters of a message, fixed by its first HER, or of a queue of single packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageParams<C> {
    /// The execution context.
    pub context: C,
    /// Whether the context has a header handler.
    pub header: bool,
    /// Whether the context has a completion handler.
    pub completion: bool,
    /// Whether the queue is for packets that are messages of their own. It orders their starts, and never ends. A task has its own HER's
    /// context.
    pub per_packet: bool,
    /// Whether this packet is not its message's header, and the context has a rule that says which packets are. Its message waits for the
    /// header. Of this packet alone, not of the message.
    pub early: bool,
}

impl<C> MessageParams<C> {
    /// A message with no handler but the payload handler.
    pub const fn payload_only(context: C) -> Self {
        Self { context, header: false, completion: false, per_packet: false, early: false }
    }
}

/// Handler execution request: a packet that waits for its handlers.
#[derive(Debug)]
pub struct Her<C, P> {
    /// Parameters of the message. Ignored unless this HER is the message's first.
    pub params: MessageParams<C>,
    /// Whether the packet is the last of its message.
    pub end_of_message: bool,
    /// The packet.
    pub packet: P,
}

/// A handler to run.
#[derive(Debug)]
pub struct Task<C, P> {
    /// Queue of the message.
    pub mpq: MpqId,
    /// Stage of the message.
    pub stage: Stage,
    /// Context of the message.
    pub context: C,
    /// The packet. The task owns it until [`Mpqs::complete`](super::Mpqs::complete).
    pub packet: P,
    /// Whether no later task needs the packet, so that this task releases the frame.
    pub releases_packet: bool,
}

/// State of a queue after a completed task.
#[derive(Debug, PartialEq, Eq)]
pub struct Completed {
    /// Whether the message is complete.
    pub message_done: bool,
    /// Whether the queue is empty and can serve another message key.
    pub idle: bool,
}

/// Reason why a HER was not queued, with its packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Rejected<P> {
    /// There is no [room](super::Mpqs::room): the inbound engine has to wait.
    Full(P),
    /// The message was cancelled.
    Cancelled {
        /// The packet.
        packet: P,
        /// Whether the message was [next](super::Mpqs::cancel_next) behind the current one when it was cancelled.
        behind: bool,
        /// Whether the packet was the last of its message and the queue is empty.
        idle: bool,
    },
}
