//! Open messages, the queues (MPQs) they hold, and the room for packets in them.

pub(crate) mod flow_numbers;
pub mod messages;

use std::ops::Range;
use std::time::Duration;

use spin_matcher::MessageKey;

use crate::message::flow_numbers::FlowNumbers;
use crate::message::messages::Messages;
use crate::settings::Sizes;
use crate::telemetry::latency::nanoseconds;
use spin_pspin::ids::{DropReason, MessageRef, Packet, Slot};
use spin_pspin::mpq::{MessageParams, MpqId, Mpqs, Stage};

/// Minimum and maximum number of queues examined for expired messages in one poll. The maximum takes some tens of microseconds.
const EXAMINED: [u64; 2] = [16, 8192];
/// The period in which each queue is examined, as far as [`EXAMINED`] allows.
const EXAMINE_PERIOD: Duration = Duration::from_millis(100);

/// Packets of one message that may wait for its header.
const MAX_EARLY: u32 = 64;

/// The message table of a worker.
pub(crate) struct MessageTable {
    pub(crate) messages: Messages,
    pub(crate) mpqs: Mpqs<MessageRef, Packet>,
    /// The reason why a queue's message was cancelled, if it was.
    pub(crate) drop_reasons: Vec<DropReason>,
    /// The sequence number of the latest packet that may have been the first of its message.
    pub(crate) admitted: u64,
    /// The total number of HERs.
    pub(crate) hers: u32,
    /// The numbers by which handlers know the queues.
    pub(crate) flows: FlowNumbers,
    /// The clusters of the worker.
    clusters: Range<u32>,
    /// The time when queues were last examined for expired messages.
    examined: Duration,
}

impl MessageTable {
    /// An empty table of a worker with these clusters of a unit, which has `of`.
    pub(crate) fn new(sizes: Sizes, clusters: Range<u32>, of: u32) -> Self {
        let (queues, flows) = (sizes.queues, FlowNumbers::new(sizes.queues, &clusters, of));
        let nobody = MessageRef { slot: Slot(0), home: 0, message: 0, flow: None };
        Self {
            messages: Messages::new(queues, flows.pspin()),
            mpqs: Mpqs::new(queues, sizes.hers, MessageParams::payload_only(nobody)),
            drop_reasons: vec![DropReason::NoRoom; queues as usize],
            // Workers use disjoint number ranges: tasks of several workers' messages may run on one HPU.
            admitted: u64::from(clusters.start) << 48,
            flows,
            clusters,
            hers: sizes.hers,
            examined: Duration::ZERO,
        }
    }

    /// Makes room for a context of a user, and its queues for packet mode. `pspin`: its messages take only queues with PsPIN's numbers.
    pub(crate) fn add_context(&mut self, slot: Slot, user: u32, pspin: bool) {
        self.messages.add_context(slot, user, pspin);
        self.mpqs.add_owner(slot.0);
        let next = self.packet_queues(Slot(slot.0 + 1)).start;
        self.mpqs.grow(next);
        self.drop_reasons.resize(self.drop_reasons.len().max(next as usize), DropReason::NoRoom);
    }

    /// The queues of a context in packet mode, one for each cluster. They are the context's own: messages cannot hold them.
    pub(crate) fn packet_queues(&self, slot: Slot) -> Range<u32> {
        let (count, clusters) = (self.messages.queues() as u32, self.clusters.end - self.clusters.start);
        let first = count + slot.0 * clusters;
        first..first + clusters
    }

    /// The queue of a context in packet mode for packets with this home cluster.
    #[inline]
    pub(crate) fn packet_queue(&self, slot: Slot, home: u32) -> MpqId {
        MpqId(self.packet_queues(slot).start + home - self.clusters.start)
    }

    /// Whether a context has a task that runs or is queued, or an open message.
    pub(crate) fn is_in_use(&self, slot: Slot) -> bool {
        let in_use = |mpq| !self.mpqs.is_quiescent(MpqId(mpq));
        self.messages.held(slot) > 0 || self.packet_queues(slot).any(in_use)
    }

    /// The queues that a context has: those of its messages, and those for packet mode.
    pub(crate) fn queues_of(&self, slot: Slot) -> Vec<MpqId> {
        self.messages.of_context(slot).chain(self.packet_queues(slot).map(MpqId)).collect()
    }

    /// Ends the open messages of a context after their queued packets.
    pub(crate) fn close_messages(&mut self, slot: Slot) {
        for mpq in self.messages.of_context(slot).collect::<Vec<_>>() {
            if self.mpqs.close(mpq) {
                self.messages.release(mpq);
            }
        }
    }

    /// Frees the queues of a context's messages, which are empty.
    pub(crate) fn release_messages(&mut self, slot: Slot) {
        for mpq in self.messages.of_context(slot).collect::<Vec<_>>() {
            self.messages.release(mpq);
        }
    }

    /// The number of HERs in use.
    pub(crate) fn hers_taken(&self) -> usize {
        self.hers as usize - self.mpqs.room()
    }

    /// The number of free HERs above which quotas are not enforced: three quarters of all.
    pub(crate) const fn quota_threshold(&self) -> usize {
        self.hers as usize / 4 * 3
    }

    /// Whether most of the packet buffer is free. Quotas are not enforced then, so that idle contexts cost others nothing.
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

    /// The number by which handlers know a message's queue. With FPsPIN's message keys, this is the message id.
    pub(crate) fn flow(&self, mpq: MpqId, numbered: bool) -> u32 {
        if numbered { self.messages.key(mpq).first_byte().into() } else { self.flows.queue(mpq) }
    }

    /// Whether a context has an open message with this key that may still receive packets.
    pub(crate) fn continues(&self, slot: Slot, key: &MessageKey) -> bool {
        self.messages.queue_of(slot, key).is_some_and(|mpq| self.mpqs.is_message_open(mpq))
    }

    /// Completes a task of a message. Returns whether the message is complete.
    #[inline(always)]
    pub(crate) fn complete(&mut self, mpq: MpqId, stage: Stage, packet: Option<Packet>) -> bool {
        let feedback = self.mpqs.complete(mpq, stage, packet);
        if feedback.idle {
            self.messages.release(mpq);
        }
        feedback.message_done
    }

    /// Cancels a message, including its packets to come.
    pub(crate) fn cancel(&mut self, mpq: MpqId, why: DropReason) {
        self.drop_reasons[mpq.0 as usize] = why;
        if self.mpqs.cancel(mpq) {
            self.messages.release(mpq);
        }
    }

    /// Frees the queue of a message that has no task in flight. `sink` gets its packets.
    pub(crate) fn free_queue(&mut self, mpq: MpqId, sink: impl FnMut(Packet)) {
        self.mpqs.reset(mpq, sink);
        self.messages.release(mpq);
    }

    /// Whether a packet that arrived before its message's header may wait for it. `fits`: the context has room for it.
    pub(crate) fn may_wait(&self, slot: Slot, key: &MessageKey, fits: bool) -> bool {
        let waiting = self.messages.queue_of(slot, key).and_then(|mpq| self.mpqs.waiting(mpq)).unwrap_or(0);
        fits && waiting < MAX_EARLY
    }

    /// Whether the header of a packet's message has arrived, and the message's end has not.
    pub(crate) fn has_header(&self, slot: Slot, key: &MessageKey) -> bool {
        let open = |mpq: &MpqId| self.mpqs.is_message_open(*mpq) && self.mpqs.waiting(*mpq).is_none();
        self.messages.queue_of(slot, key).as_ref().is_some_and(open)
    }

    /// The number of queues to examine for expired messages, by the time since the last examination.
    pub(crate) fn examine_count(&mut self, now: Duration) -> u64 {
        let since = now.saturating_sub(std::mem::replace(&mut self.examined, now)).min(EXAMINE_PERIOD);
        let due = self.messages.queues() * nanoseconds(since) / nanoseconds(EXAMINE_PERIOD);
        let [least, most] = EXAMINED;
        due.clamp(least, most)
    }

    /// Examines the next queue. Returns it if its message has been idle for longer than its context's `timeout`, and either has nothing
    /// queued or waits for its header.
    pub(crate) fn next_expired(&mut self, now: u64, timeout: impl Fn(Slot) -> Option<u64>) -> Option<MpqId> {
        self.messages.next_expired(now, timeout).filter(|&mpq| self.mpqs.is_idle(mpq))
    }

    /// The queue to evict for a new message of a context when all are taken. This is an open message with nothing queued, one that waits
    /// for its header, or else a queued message of the largest user's largest context without a task in flight. A slow context
    /// therefore does not keep others out.
    pub(crate) fn eviction_candidate(&mut self, slot: Slot, now: u64) -> Option<MpqId> {
        let Self { messages, mpqs, .. } = self;
        let idle = messages.eviction_candidate(slot, now, |mpq| mpqs.is_idle(mpq));
        idle.or_else(|| {
            mpqs.next_to_begin(messages.most_over_quota(slot)?.0).filter(|&mpq| messages.may_take(slot, mpq))
        })
    }
}
