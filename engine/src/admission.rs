//! Admission: whether a matched packet is queued with its message, dropped, or stalls reception.

use spin_abi::control::{Abi, Full};
use spin_abi::counters::Counter;
use spin_abi::events::What;
use spin_matcher::MessageKey;
use spin_nic::Frame;

use crate::context::{Context, Slot};
use crate::ecn;
use crate::found::Found;
use crate::inbound::Arrival;
use crate::ip_view;
use crate::mpq::{Her, MpqId};
use crate::pipeline::{Engine, Gone, Moment, Packet};
use crate::straight::PacketRules;

impl Engine {
    /// The NIC inbound engine: matches the frames of a batch to their contexts and queues them with their messages.
    pub(crate) fn admit_batch(&mut self, now: Moment) {
        while self.table.mpqs.room() > 0 && self.admit_next(now) {}
    }

    /// Takes a frame, if there is one and there is room for it.
    #[inline(always)]
    pub(crate) fn admit_next(&mut self, now: Moment) -> bool {
        if let Some(arrival) = self.admission.stalled.take() {
            self.admit_late(arrival, now);
            return self.admission.stalled.is_none();
        }
        let Some((frame, found)) = self.ingress.inbound.take() else { return false };
        let Found { end_of_message, key, .. } = found;
        match found.slot() {
            Some(slot) => self.admit(frame, slot, &key, end_of_message, now),
            None => self.drop_frame(frame, Counter::DropUnmatched),
        }
        self.admission.stalled.is_none()
    }

    /// Frames that were received and not admitted.
    pub(crate) fn kept_back(&self) -> usize {
        self.ingress.inbound.len() + usize::from(self.admission.stalled.is_some())
    }

    /// Queues a frame with its message.
    #[inline(always)]
    pub(crate) fn admit(&mut self, frame: Frame, slot: Slot, key: &MessageKey, end_of_message: bool, now: Moment) {
        let Context { share, predecessor, run, .. } = self.contexts.get(slot);
        let (fits, own) = (self.table.mpqs.held(slot.0) < share.unquestioned, predecessor.is_none());
        if fits && own {
            self.enqueue(frame, slot, key, end_of_message, now);
        } else if own && run.full == Full::Drop && !self.table.is_mostly_free() {
            // What a context beyond its share has most of, at others' cost.
            self.drop_of(slot, frame, Counter::DropShare);
        } else {
            self.admit_perhaps(Arrival { frame, slot, key: *key, end_of_message }, now);
        }
    }

    /// The same, of one that could not be queued at once.
    #[cold]
    pub(crate) fn admit_late(&mut self, arrival: Arrival, now: Moment) {
        let Arrival { frame, slot, key, end_of_message } = arrival;
        self.admit(frame, slot, &key, end_of_message, now);
    }

    #[cold]
    fn admit_perhaps(&mut self, arrival: Arrival, now: Moment) {
        if let Some(Arrival { frame, slot, key, end_of_message }) = self.question(arrival, now) {
            self.enqueue(frame, slot, &key, end_of_message, now);
        }
    }

    /// Queues a frame for which there is room.
    #[inline(always)]
    fn enqueue(&mut self, mut frame: Frame, slot: Slot, key: &MessageKey, end_of_message: bool, now: Moment) {
        let Some(mpq) = self.queue_for(slot, key, now.time) else {
            return self.lose(slot, frame);
        };
        self.table.admitted += 1;
        let context = self.contexts.get(slot);
        let in_ip_view = context.run.abi == Abi::Pspin && ip_view::enter(&mut frame);
        let latch = PacketRules::of(slot, context).latch(&self.clusters, key, self.table.admitted);
        let her = |frame| {
            let packet = Packet { in_ip_view, ..Packet::new(frame, now.stamp) };
            Her { latch, end_of_message, packet }
        };
        if self.table.mpqs.takes(mpq) {
            self.table.mpqs.put(mpq, her(frame));
            context.counts.add(Counter::Matched, 1);
        } else {
            let refused = self.table.mpqs.refuse(mpq, her(frame));
            self.refuse(mpq, slot, refused);
        }
    }

    /// An arrival for a context that has much of its share of the packet buffer, or all of it, or that has taken the place of
    /// another one, whose message it may be. Returns the arrival if it is to be queued all the same.
    #[cold]
    fn question(&mut self, mut arrival: Arrival, now: Moment) -> Option<Arrival> {
        let matched = arrival.slot;
        arrival.slot = self.begun_by(&arrival);
        let (held, mostly_free, shared) =
            (self.table.mpqs.held(arrival.slot.0), self.table.is_mostly_free(), self.contexts.is_shared());
        let context = self.contexts.get(arrival.slot);
        if held < context.share.unquestioned || mostly_free {
            return Some(arrival);
        }
        let hers = context.share.hers;
        let full = held >= hers;
        match context.run.full {
            Full::Wait if !shared || context.patience.lasts() => {
                self.admission.stalled_on = Some(arrival.slot);
                // Whose message it is is asked anew: that one's may have ended by then.
                arrival.slot = matched;
                self.admission.stalled = Some(arrival);
                return None;
            }
            Full::Mark if !full => {
                let marked = ecn::mark(&mut arrival.frame);
                context.counts.add(Counter::EcnMarked, u64::from(marked));
                return Some(arrival);
            }
            Full::Kill => {
                if let Some(mpq) = self.queue_for(arrival.slot, &arrival.key, now.time) {
                    self.kill(mpq, arrival.slot, Gone::Killed);
                    // While a task of that message is in flight it keeps its place: then the one behind it goes too.
                    let stays = self.table.mpqs.is_dead(mpq) && self.table.mpqs.held(arrival.slot.0) >= hers;
                    if stays && self.table.mpqs.takes(mpq) {
                        self.tell(arrival.slot, mpq, Counter::MessagesKilled, What::Killed);
                        self.table.mpqs.kill_behind(mpq);
                        self.bury(arrival.slot, Gone::Killed);
                    }
                    return Some(arrival);
                }
            }
            Full::Drop | Full::Mark | Full::Wait => {}
        }
        self.drop_of(arrival.slot, arrival.frame, Counter::DropShare);
        None
    }

    /// The context whose message an arrival is: one that was replaced, if the message began there and has not ended.
    fn begun_by(&self, arrival: &Arrival) -> Slot {
        let goes_on = |&old: &Slot| self.table.continues(old, &arrival.key);
        self.contexts.replaced_by(arrival.slot).find(goes_on).unwrap_or(arrival.slot)
    }

    /// The message's queue. When all are taken, an open message that has nothing queued may [give way](Messages::victim).
    #[inline(always)]
    fn queue_for(&mut self, slot: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        self.table.messages.queue(slot, key, now).or_else(|| self.take_over(slot, key, now))
    }

    #[cold]
    fn take_over(&mut self, slot: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        let victim = self.table.eviction_candidate(slot, now)?;
        // One that was killed before it began is nobody's.
        let owner = self.table.mpqs.context(victim).map(|binding| binding.slot);
        if let Some(owner) = owner {
            self.tell_of_end(owner, victim, Counter::MessagesEvicted, What::Evicted);
        }
        let dropped = &mut self.egress.outbound.spent;
        let before = dropped.len();
        self.table.mpqs.reset(victim, |packet| dropped.push(packet.frame));
        let dropped = dropped.len() - before;
        if let Some(owner) = owner {
            self.contexts.get(owner).counts.add(Counter::DropShare, dropped as u64);
        }
        self.table.messages.release(victim);
        self.table.messages.queue(slot, key, now)
    }

    /// No queue is left for a new message of a context, and nobody has more than its share of them.
    #[cold]
    fn lose(&mut self, slot: Slot, frame: Frame) {
        self.egress.recycle(frame);
        let context = self.contexts.get(slot);
        let Some(lost) = context.record_no_queue() else { return };
        let (id, name) = (context.id, context.name.clone());
        let Some((most, held)) = self.table.messages.holder() else { return };
        let Some(most) = self.contexts.list.get(most.0 as usize).and_then(Option::as_ref) else { return };
        let advice = match most.message_timeout {
            None => "if those are left open, its --message-timeout-us ends them".to_owned(),
            Some(timeout) => {
                format!("those left open end after {timeout:?}: less, or more queues (sizes.queues), leaves room")
            }
        };
        tracing::warn!(
            "context {id} ({name}): packet {lost} of a new message is lost: all queues are taken, {held} of them by messages of \
             context {} ({}); {advice}",
            most.id,
            most.name
        );
    }
}
