//! Open messages, the queues (MPQs) they hold, and the room for packets in them.

pub mod messages;

use std::time::Duration;

use spin_matcher::MessageKey;

use crate::message::messages::Messages;
use crate::settings::Sizes;
use crate::telemetry::latency::nanoseconds;
use spin_pspin::ids::{DropReason, MessageRef, Packet, Slot};
use spin_pspin::mpq::{MessageParams, MpqId, Mpqs, Stage};

/// Queues examined for expired messages in one poll: at least, and at most (some tens of microseconds).
const EXAMINED: [u64; 2] = [16, 8192];
/// Each queue is examined as often as this, if [`EXAMINED`] allows.
const EXAMINE_PERIOD: Duration = Duration::from_millis(100);

/// The message table of a worker.
pub(crate) struct MessageTable {
    pub(crate) messages: Messages,
    pub(crate) mpqs: Mpqs<MessageRef, Packet>,
    /// By queue: why its message was cancelled, if it was.
    pub(crate) drop_reasons: Box<[DropReason]>,
    /// Sequence number of the latest packet that may have been its message's first.
    pub(crate) admitted: u64,
    /// HERs that there is room for.
    pub(crate) hers: u32,
    /// When queues were last examined for expired messages.
    examined: Duration,
}

impl MessageTable {
    /// An empty table of a worker whose first cluster is this.
    pub(crate) fn new(sizes: Sizes, cluster: u32) -> Self {
        let nobody = MessageRef { slot: Slot(0), home: 0, message: 0 };
        Self {
            messages: Messages::new(sizes.queues),
            mpqs: Mpqs::new(
                sizes.queues,
                sizes.hers,
                MessageParams { context: nobody, header: false, completion: false },
            ),
            drop_reasons: vec![DropReason::NoRoom; sizes.queues as usize].into(),
            // Each worker has numbers of its own: tasks of several workers' messages may run on one HPU.
            admitted: u64::from(cluster) << 48,
            hers: sizes.hers,
            examined: Duration::ZERO,
        }
    }

    /// HERs in use.
    pub(crate) fn hers_taken(&self) -> usize {
        self.hers as usize - self.mpqs.room()
    }

    /// Free HERs that are most of the packet buffer.
    pub(crate) const fn quota_threshold(&self) -> usize {
        self.hers as usize / 4 * 3
    }

    /// Whether most of the packet buffer is free. No context is kept to its share then: idle contexts cost others nothing.
    pub(crate) const fn below_quota_threshold(&self) -> bool {
        self.mpqs.room() > self.quota_threshold()
    }

    /// Prefetches the queues of a batch's messages. With `again`, their buckets are not known yet.
    pub(crate) fn prefetch(&self, inbound: &mut crate::ingress::rx_batch::RxBatch, again: bool) {
        if again {
            inbound.prefetch_buckets(&self.messages);
        }
        inbound.prefetch_entries(&self.messages, &self.mpqs);
    }

    /// By what handlers know a queue: the message id where messages are numbered as FPsPIN does.
    pub(crate) fn flow(&self, mpq: MpqId, numbered: bool) -> u32 {
        if numbered { self.messages.key(mpq).first_byte().into() } else { mpq.0 }
    }

    /// Whether a context has the open message of this key, and that goes on.
    pub(crate) fn continues(&self, slot: Slot, key: &MessageKey) -> bool {
        self.messages.queue_of(slot, key).is_some_and(|mpq| self.mpqs.is_message_open(mpq))
    }

    /// A task of a message has ended. Returns whether the message is complete.
    #[inline(always)]
    pub(crate) fn complete(&mut self, mpq: MpqId, stage: Stage, packet: Option<Packet>) -> bool {
        let feedback = self.mpqs.complete(mpq, stage, packet);
        if feedback.idle {
            self.messages.release(mpq);
        }
        feedback.message_done
    }

    /// Cancels a message, with its packets to come.
    pub(crate) fn cancel(&mut self, mpq: MpqId, why: DropReason) {
        self.drop_reasons[mpq.0 as usize] = why;
        if self.mpqs.cancel(mpq) {
            self.messages.release(mpq);
        }
    }

    /// Frees the queue of an open message that has nothing queued.
    pub(crate) fn expire(&mut self, mpq: MpqId) {
        self.mpqs.reset(mpq, |_| unreachable!("a quiescent queue holds no packet"));
        self.messages.release(mpq);
    }

    /// How many queues to examine for expired messages, by the time since that was done last.
    pub(crate) fn examine_count(&mut self, now: Duration) -> u64 {
        let since = now.saturating_sub(std::mem::replace(&mut self.examined, now)).min(EXAMINE_PERIOD);
        let due = self.messages.queues() * nanoseconds(since) / nanoseconds(EXAMINE_PERIOD);
        let [least, most] = EXAMINED;
        due.clamp(least, most)
    }

    /// Examines the next queue. Returns it if its message has nothing queued and waited longer than its context's `timeout`.
    pub(crate) fn next_expired(&mut self, now: u64, timeout: impl Fn(Slot) -> Option<u64>) -> Option<MpqId> {
        self.messages.next_expired(now, timeout).filter(|&mpq| self.mpqs.is_quiescent(mpq))
    }

    /// The queue that gives way to a new message of a context when all are taken: an open message with nothing queued, or a queued
    /// one of the largest owner, so that a slow context does not keep others out.
    pub(crate) fn eviction_candidate(&mut self, slot: Slot, now: u64) -> Option<MpqId> {
        let Self { messages, mpqs, .. } = self;
        let idle = messages.eviction_candidate(slot, now, |mpq| mpqs.is_quiescent(mpq));
        idle.or_else(|| mpqs.next_to_begin(messages.most_over_quota(slot)?.0))
    }
}
