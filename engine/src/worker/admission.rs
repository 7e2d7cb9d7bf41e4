//! Admission: a matched packet is queued with its message, dropped, or stalls reception.

use std::time::Duration;

use spin_abi::control::{Abi, Early, Full};
use spin_abi::counters::Counter;
use spin_abi::events::What;
use spin_matcher::MessageKey;
use spin_nic::Frame;

use crate::context::packet_rules::PacketRules;
use crate::context::{Context, Replacement};
use crate::ingress::ecn;
use crate::ingress::matched::Match;
use crate::ingress::rx_batch::{MatchedPacket, RxBatch};
use crate::sched::Sched;
use crate::worker::core::Core;
use spin_pspin::hpu::ip_view;
use spin_pspin::hpu::send_rights::Received;
use spin_pspin::ids::{BatchTime, DropReason, Packet, Slot};
use spin_pspin::mpq::{Her, MessageParams, MpqId};

/// The admission state: at most one packet for which its context has no room. Nothing else is received before that packet.
#[derive(Default)]
pub(crate) struct Admission {
    /// The packet that stalls reception.
    pub(crate) stalled: Option<MatchedPacket>,
    /// The context that has no room. If the packet belongs to a message of a replaced context, that context.
    pub(crate) stalled_on: Option<Slot>,
}

impl Admission {
    /// The number of frames received and not admitted: those of the batch, and the stalled one.
    #[inline]
    pub(crate) fn rx_backlog(&self, inbound: &RxBatch) -> usize {
        inbound.len() + usize::from(self.stalled.is_some())
    }

    /// The context for which others wait in this poll, if any. `for_channel`: the one whose packets wait for room on a channel.
    pub(crate) fn stall(&self, core: &Core, for_channel: Option<Slot>) -> Option<Stall> {
        let slot = self.stalled_on.filter(|_| self.stalled.is_some()).or(for_channel)?;
        core.contexts.is_shared().then(|| Stall { slot, service: core.sched.scheduler.service(slot.0) })
    }

    /// Queues the packets of a batch with their messages (PsPIN's NIC inbound engine), while there are free HERs.
    pub(crate) fn admit_batch(&mut self, core: &mut Core, inbound: &mut RxBatch, now: BatchTime) {
        while core.table.mpqs.room() > 0 && self.admit_next(core, inbound, now) {}
    }

    /// Admits the stalled packet or else the next one of the batch. The caller has checked that an HER is free. Returns whether
    /// another packet may be admitted.
    #[inline(always)]
    pub(crate) fn admit_next(&mut self, core: &mut Core, inbound: &mut RxBatch, now: BatchTime) -> bool {
        if let Some(arrival) = self.stalled.take() {
            self.admit_late(core, arrival, now);
            return self.stalled.is_none();
        }
        let Some((frame, found)) = inbound.take() else { return false };
        let Match { end_of_message, key, .. } = found;
        match found.slot() {
            Some(slot) => self.admit(core, frame, slot, &key, end_of_message, now),
            None => core.drop_frame(frame, Counter::DropUnmatched),
        }
        self.stalled.is_none()
    }

    /// Queues a frame with its message, or applies the context's `--full` policy.
    #[inline(always)]
    pub(crate) fn admit(
        &mut self,
        core: &mut Core,
        frame: Frame,
        slot: Slot,
        key: &MessageKey,
        end_of_message: bool,
        now: BatchTime,
    ) {
        let Context { share, replacement: Replacement { predecessor, .. }, run, .. } = core.contexts.get(slot);
        let (fits, own) = (core.table.mpqs.held(slot.0) < share.soft_limit, predecessor.is_none());
        if fits && own {
            enqueue(core, frame, slot, key, end_of_message, now);
        } else if own && run.full == Full::Drop && !core.table.below_quota_threshold() {
            // Not left to the cold path: most packets of a context beyond its share end here, and their time is lost for others.
            core.drop_of(slot, frame, Counter::DropShare);
        } else {
            self.admit_over_quota(core, MatchedPacket { frame, slot, key: *key, end_of_message }, now);
        }
    }

    /// Admits a packet that could not be queued at once.
    #[cold]
    pub(crate) fn admit_late(&mut self, core: &mut Core, arrival: MatchedPacket, now: BatchTime) {
        let MatchedPacket { frame, slot, key, end_of_message } = arrival;
        self.admit(core, frame, slot, &key, end_of_message, now);
    }

    #[cold]
    fn admit_over_quota(&mut self, core: &mut Core, arrival: MatchedPacket, now: BatchTime) {
        if let Some(MatchedPacket { frame, slot, key, end_of_message }) = self.apply_full_policy(core, arrival, now) {
            enqueue(core, frame, slot, &key, end_of_message, now);
        }
    }

    /// Decides on a packet of a context that has used much or all of its share of the packet buffer. Also handles contexts that
    /// replaced another one, to whose message the packet may belong. Returns the packet if it is to be queued.
    #[cold]
    fn apply_full_policy(
        &mut self,
        core: &mut Core,
        mut arrival: MatchedPacket,
        now: BatchTime,
    ) -> Option<MatchedPacket> {
        let matched = arrival.slot;
        arrival.slot = begun_by(core, &arrival);
        let (held, quota_threshold) = (core.table.mpqs.held(arrival.slot.0), core.table.below_quota_threshold());
        let context = core.contexts.get(arrival.slot);
        if held < context.share.soft_limit || quota_threshold {
            return Some(arrival);
        }
        let hers = context.share.hers;
        let full = held >= hers;
        match context.run.full {
            Full::Wait if context.may_stall() => {
                self.stalled_on = Some(arrival.slot);
                // The packet's context is determined again later: the message of a replaced context may have ended by then.
                arrival.slot = matched;
                self.stalled = Some(arrival);
                return None;
            }
            Full::Mark if !full => {
                let marked = ecn::mark(&mut arrival.frame);
                context.counts.add(Counter::EcnMarked, u64::from(marked));
                return Some(arrival);
            }
            Full::Kill if !context.matching.is_per_packet() => {
                if let Some(mpq) = queue_for(core, arrival.slot, &arrival.key, now.time) {
                    core.cancel(mpq, arrival.slot, DropReason::NoRoom);
                    // A message with a task in flight keeps its room. In that case the message behind it is cancelled too.
                    let stays = core.table.mpqs.is_cancelled(mpq) && core.table.mpqs.held(arrival.slot.0) >= hers;
                    if stays && core.table.mpqs.accepts(mpq) {
                        core.emit_event(arrival.slot, mpq, Counter::MessagesKilled, What::Killed);
                        core.table.mpqs.cancel_next(mpq);
                        core.drain_cancelled(arrival.slot, DropReason::NoRoom);
                    }
                    return Some(arrival);
                }
            }
            Full::Drop | Full::Mark | Full::Wait | Full::Kill => {}
        }
        core.drop_of(arrival.slot, arrival.frame, Counter::DropShare);
        None
    }
}

/// Queues a frame. The caller has checked that there is room.
#[inline(always)]
fn enqueue(core: &mut Core, mut frame: Frame, slot: Slot, key: &MessageKey, end_of_message: bool, now: BatchTime) {
    let context = core.contexts.get(slot);
    let rules = PacketRules::of(slot, context);
    let early = match &context.matching.header {
        None => false,
        Some(_) => match before_header(core, slot, key, &frame) {
            Some(early) => early,
            None => return core.drop_of(slot, frame, Counter::DropNoHeader),
        },
    };
    let params = MessageParams { early, ..rules.params(&core.clusters, key, core.table.admitted + 1) };
    let mpq = if rules.is_per_packet() {
        core.table.packet_queue(slot, params.context.home())
    } else {
        let Some(mpq) = queue_for(core, slot, key, now.time) else {
            return drop_no_queue(core, slot, frame);
        };
        mpq
    };
    core.table.admitted += 1;
    let context = core.contexts.get(slot);
    // PsPIN's view changes headers, and the bounds of the frame, on which its spare bytes depend.
    let received = context.matching.send.is_restricted().then(|| Received::of(&frame));
    let in_pspin_view = context.run.abi == Abi::Pspin && ip_view::to_pspin_view(&mut frame);
    if let Some(received) = received {
        received.keep_in(&mut frame);
    }
    let her = |frame| {
        let packet = Packet { in_pspin_view, ..Packet::new(frame, now.timestamp) };
        Her { params, end_of_message, packet }
    };
    if core.table.mpqs.accepts(mpq) {
        core.table.mpqs.put(mpq, her(frame));
        context.counts.add(Counter::Matched, 1);
    } else {
        let refused = core.table.mpqs.reject(mpq, her(frame));
        core.reject(mpq, slot, refused);
    }
}

/// Whether a packet of a context with a header rule arrived before its message's header. `None`: it may not wait.
#[cold]
fn before_header(core: &mut Core, slot: Slot, key: &MessageKey, frame: &[u8]) -> Option<bool> {
    let held = core.table.mpqs.held(slot.0);
    let context = core.contexts.get(slot);
    let rule = context.matching.header.as_ref()?;
    if rule.is_header(frame) || core.table.has_header(slot, key) {
        return Some(false);
    }
    // The other half is left for headers.
    let fits = rule.early == Early::Wait && held < context.share.soft_limit / 2;
    core.table.may_wait(slot, key, fits).then_some(true)
}

/// The context to whose message a packet belongs. This is a replaced context if the message began there and has not ended.
fn begun_by(core: &Core, arrival: &MatchedPacket) -> Slot {
    let goes_on = |&old: &Slot| core.table.continues(old, &arrival.key);
    core.contexts.replaced_by(arrival.slot).find(goes_on).unwrap_or(arrival.slot)
}

/// The queue of a message. When all queues are taken, an open message with nothing queued may be evicted.
#[inline(always)]
fn queue_for(core: &mut Core, slot: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
    core.table.messages.queue(slot, key, now).or_else(|| take_over(core, slot, key, now))
}

#[cold]
fn take_over(core: &mut Core, slot: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
    let evicted = core.table.eviction_candidate(slot, now)?;
    core.end_early(evicted, Counter::MessagesEvicted, What::Evicted, Counter::DropShare);
    core.table.messages.queue(slot, key, now)
}

/// Drops a packet of a new message: no queue is left, and no context has more than its share of them.
#[cold]
fn drop_no_queue(core: &mut Core, slot: Slot, frame: Frame) {
    core.egress.recycle(frame);
    let context = core.contexts.get(slot);
    let Some(lost) = context.record_no_queue() else { return };
    let (id, name) = (context.id, context.label.name.clone());
    let Some((most, held)) = core.table.messages.largest_owner() else { return };
    let Some(most) = core.contexts.list.get(most.0 as usize).and_then(Option::as_ref) else { return };
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
        most.label.name
    );
}

/// The context for which others wait, and the time that it was charged for at the start of the poll.
#[derive(Clone, Copy)]
pub(crate) struct Stall {
    slot: Slot,
    service: Duration,
}

/// Charges the context that stalled reception in a poll for that poll. All other contexts with `--full wait` repay debt by the
/// time `since` the previous poll ended.
#[cold]
pub(crate) fn charge_waits(core: &mut Core, stall: Option<Stall>, poll: Duration, since: Duration) {
    let Core { sched: Sched { scheduler, .. }, contexts, .. } = core;
    if let Some(Stall { slot, service }) = stall {
        let own = scheduler.service(slot.0).saturating_sub(service);
        scheduler.charge(slot.0, 0, poll.saturating_sub(own));
    }
    for (number, context) in (0..).zip(&mut contexts.list) {
        let Some(context) = context.as_mut().filter(|context| context.run.full == Full::Wait) else { continue };
        match stall {
            Some(Stall { slot: Slot(stall), .. }) if stall == number => context.share.stall_credit.debit(poll),
            _ => context.share.stall_credit.repay(since),
        }
    }
}
