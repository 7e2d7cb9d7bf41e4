//! The end of packets and messages: completion, cancellation, expiry, and drops.

use std::time::Duration;

use spin_abi::counters::Counter;
use spin_abi::events::{Event, What};
use spin_nic::Frame;

use crate::context::header_rule::HEADER_TIMEOUT;
use crate::context::{Context, Matching};
use crate::telemetry::latency::nanoseconds;
use crate::worker::core::Core;
use spin_pspin::hpu::command::{Access, CommandBudget, Commands, DeferredSend};
use spin_pspin::hpu::ip_view;
use spin_pspin::hpu::send_rights::Received;
use spin_pspin::ids::{DropReason, MessageRef, Packet, Slot};
use spin_pspin::mpq::{MpqId, Rejected, Stage, Task};

impl Core {
    /// Cancels a message, including its packets that have not arrived yet.
    pub(crate) fn cancel(&mut self, mpq: MpqId, slot: Slot, why: DropReason) {
        if self.table.mpqs.is_cancelled(mpq) {
            return;
        }
        if why == DropReason::NoRoom {
            self.emit_event(slot, mpq, Counter::MessagesKilled, What::Killed);
        }
        self.table.cancel(mpq, why);
        self.drain_cancelled(slot, why);
    }

    /// Counts an event of a message and reports it to the application.
    pub(crate) fn emit_event(&mut self, slot: Slot, mpq: MpqId, counter: Counter, what: What) {
        let flow = self.flow(slot, mpq);
        let context = self.contexts.get(slot);
        context.counts.add(counter, 1);
        context.event_ring.emit_event(Event { flow, what });
    }

    /// Reports a message that ends early, unless it was cancelled: then the event was reported at that time.
    pub(crate) fn emit_end(&mut self, slot: Slot, mpq: MpqId, counter: Counter, what: What) {
        if !self.table.mpqs.is_cancelled(mpq) {
            self.emit_event(slot, mpq, counter, what);
        }
    }

    /// The number by which handlers know a task's message.
    pub(crate) fn flow_of(&mut self, task: &Task<MessageRef, Packet>) -> u32 {
        match task.context.flow {
            Some(flow) if self.is_numbered(task.context.slot) => flow.into(),
            Some(_) => self.table.flows.message(&task.context, task.mpq),
            None => self.flow(task.context.slot, task.mpq),
        }
    }

    /// The number by which handlers know a message's queue.
    fn flow(&mut self, slot: Slot, mpq: MpqId) -> u32 {
        let numbered = self.is_numbered(slot);
        self.table.flow(mpq, numbered)
    }

    /// Whether handlers know messages by FPsPIN's message ids.
    fn is_numbered(&mut self, slot: Slot) -> bool {
        self.contexts.get(slot).matching.entry.entry().key.is_fpspin()
    }

    /// Disposes of the queued packets of cancelled messages. A packet's own drop reason, set by a verdict, takes precedence over
    /// `why`.
    pub(crate) fn drain_cancelled(&mut self, slot: Slot, why: DropReason) {
        while let Some(packet) = self.table.mpqs.pop_cancelled() {
            let why = packet.drop_reason.unwrap_or(why);
            self.dispose(slot, packet, why);
        }
    }

    /// Disposes of a packet that no handler will process: drops it, or passes it to the kernel.
    pub(crate) fn dispose(&mut self, slot: Slot, mut packet: Packet, mut why: DropReason) {
        let Context { counts, matching: Matching { send, .. }, .. } = self.contexts.get(slot);
        if why == DropReason::Passed && send.is_restricted() && !is_as_received(&mut packet) {
            // The host would take it for a packet from outside, and might send it on.
            counts.add(Counter::PassForbidden, 1);
            why = DropReason::Dropped;
        }
        match why {
            DropReason::NoRoom => counts.add(Counter::DropKilled, 1),
            DropReason::Dropped => {
                counts.add(Counter::DropVerdict, 1);
                counts.add(Counter::DropVerdictBytes, packet.frame.len() as u64);
            }
            DropReason::Passed => {
                counts.add(Counter::Passed, 1);
                if self.contexts.is_shared() {
                    self.sched.scheduler.charge_deferred(slot.0, self.egress.pass_cost.estimate());
                }
                return self.egress.punt(packet);
            }
        }
        self.nic.recycle(packet.frame);
    }

    /// Handles a packet that its queue did not take.
    #[cold]
    pub(crate) fn reject(&mut self, mpq: MpqId, slot: Slot, refused: Rejected<Packet>) {
        match refused {
            // A batch is never larger than the number of free HERs.
            Rejected::Full(packet) => self.drop_of(slot, packet.frame, Counter::DropShare),
            Rejected::Cancelled { packet, behind, idle } => {
                let why = if behind { DropReason::NoRoom } else { self.table.drop_reasons[mpq.0 as usize] };
                if why == DropReason::Passed && !self.may_pass(slot) {
                    self.drop_of(slot, packet.frame, Counter::DropShare);
                } else {
                    self.dispose(slot, packet, why);
                }
                if idle {
                    self.table.messages.release(mpq);
                }
            }
        }
    }

    /// Ends open messages that have received nothing for longer than their context's timeout. Examines some queues per poll, so
    /// that each one is examined ten times a second, unless there are more than one poll has time for. A sleeping thread polls
    /// ten times a second. The completion handlers of these messages do not run, since the messages are incomplete.
    pub(crate) fn expire_messages(&mut self, now: Duration) {
        if self.contexts.timeouts == 0 {
            return;
        }
        for _ in 0..self.table.examine_count(now) {
            let contexts = &self.contexts.list;
            let timeout = |slot: Slot| {
                let context = contexts[slot.0 as usize].as_ref()?;
                let for_header = context.matching.header.as_ref().map(|_| HEADER_TIMEOUT);
                context.message_timeout.or(for_header).map(nanoseconds)
            };
            if let Some(mpq) = self.table.next_expired(nanoseconds(now), timeout) {
                self.expire(mpq);
            }
        }
    }

    /// Ends a message that has been idle for too long. Without a message timeout, only one that waits for its header ends.
    fn expire(&mut self, mpq: MpqId) {
        let timeout = self.table.mpqs.context(mpq).map(|binding| self.contexts.get(binding.slot).message_timeout);
        if timeout == Some(None) && self.table.mpqs.waiting(mpq).is_none() {
            return;
        }
        self.end_early(mpq, Counter::MessagesTimedOut, What::TimedOut, Counter::DropNoHeader);
    }

    /// Ends a message that has no task in flight, and frees its queue. Counts the end, and its packets as `lost`.
    #[cold]
    pub(crate) fn end_early(&mut self, mpq: MpqId, counter: Counter, what: What, lost: Counter) {
        // A message that was cancelled before it began has no owner.
        let owner = self.table.mpqs.context(mpq).map(|binding| binding.slot);
        if let Some(owner) = owner {
            self.emit_end(owner, mpq, counter, what);
        }
        let dropped = &mut self.egress.outbound.recycle;
        let before = dropped.len();
        self.table.free_queue(mpq, |packet| dropped.push(packet.frame));
        let dropped = dropped.len() - before;
        if let Some(owner) = owner {
            self.contexts.get(owner).counts.add(lost, dropped as u64);
        }
    }

    /// Completes a task that has ended. Returns whether a packet buffer was released.
    #[inline]
    pub(crate) fn complete_task(&mut self, task: Task<MessageRef, Packet>, deferred: Option<DeferredSend>) -> bool {
        let Task { mpq, stage, context: binding, packet, releases_packet } = task;
        let dying = self.table.mpqs.is_cancelled(mpq);
        let kept = if releases_packet {
            self.release(packet, binding.slot, deferred);
            None
        } else {
            Some(packet)
        };
        self.move_on(mpq, binding.slot, stage, kept);
        if dying {
            self.drain_cancelled(binding.slot, self.table.drop_reasons[mpq.0 as usize]);
        }
        releases_packet
    }

    /// Advances the queue of a message after one of its tasks.
    #[inline(always)]
    pub(crate) fn move_on(&mut self, mpq: MpqId, slot: Slot, stage: Stage, packet: Option<Packet>) {
        if self.table.complete(mpq, stage, packet) {
            self.contexts.get(slot).counts.add(Counter::Messages, 1);
        }
    }

    /// Releases a packet's buffer to the NIC. Its frame is sent if the handler deferred a send of it, and received into again
    /// otherwise.
    fn release(&mut self, packet: Packet, slot: Slot, deferred: Option<DeferredSend>) {
        self.telemetry.note_released(slot, 1, packet.arrived);
        let Context { counts, matching: Matching { send, .. }, .. } = self.contexts.get(slot);
        let (nic, outbound) = (&mut *self.nic, &mut self.egress.outbound);
        let (access, budget) = (Access { host: None, send }, CommandBudget::used(deferred));
        let mut commands = Commands::new(nic, outbound, access, counts, None, false, budget);
        commands.set_received(|received| *received = Received::kept_in(&packet.frame));
        let Some(why) = packet.drop_reason else { return commands.release(packet.frame) };
        if let Some(send) = deferred {
            commands.copy_deferred(send, &packet.frame);
        }
        self.dispose(slot, packet, why);
    }

    #[cold]
    pub(crate) fn drop_frame(&mut self, frame: Frame, cause: Counter) {
        self.telemetry.counts.add(cause, 1);
        self.egress.recycle(frame);
    }

    /// Drops a frame that belongs to a context.
    pub(crate) fn drop_of(&mut self, slot: Slot, frame: Frame, cause: Counter) {
        self.contexts.get(slot).counts.add(cause, 1);
        self.egress.recycle(frame);
    }
}

/// Restores the headers of a packet, and returns whether handlers left its addresses, ports and tags as they were.
fn is_as_received(packet: &mut Packet) -> bool {
    let received = Received::kept_in(&packet.frame);
    if std::mem::take(&mut packet.in_pspin_view) {
        ip_view::to_wire(&mut packet.frame);
    }
    received.is_still(&packet.frame)
}
