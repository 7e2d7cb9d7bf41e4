//! Cancelling messages, and emptying queues.

use super::Mpqs;
use super::state::{Queue, State};
use super::types::{Her, MpqId, NONE, Owned, Rejected};

impl<C: Copy + Owned, P> Mpqs<C, P> {
    /// Reason why the queue does not [accept](Mpqs::accepts) a HER: there is no room, or its message was cancelled.
    #[cold]
    pub fn reject(&mut self, mpq: MpqId, her: Her<C, P>) -> Rejected<P> {
        let queue = &mut self.queues[mpq.0 as usize];
        let behind = queue.rejecting;
        let current = queue.is_cancelled() && !queue.end_seen;
        if !behind && !current {
            return Rejected::Full(her.packet);
        }
        queue.rejecting &= !her.end_of_message;
        if current {
            queue.end_seen = her.end_of_message;
            // All queued HERs belong to this message. HERs behind its end belong to later messages.
            if let Some(last) = self.pool.get_mut(queue.tail) {
                last.end_of_message = her.end_of_message;
            }
        }
        if her.end_of_message && queue.state == State::Cancelled {
            self.end_message(mpq);
        }
        Rejected::Cancelled { packet: her.packet, behind, idle: self.queues[mpq.0 as usize].state == State::Free }
    }

    /// Cancels the message whose packets arrive behind a cancelled one that has ended. [`Mpqs::pop_cancelled`] returns its queued
    /// packets. Later ones are rejected up to its end.
    ///
    /// # Panics
    /// When there is no such message.
    pub fn cancel_next(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        assert!(
            queue.state == State::Cancelling && queue.end_seen && !queue.rejecting,
            "nothing arrives behind a cancelled message"
        );
        let (mut before, mut first) = (NONE, queue.head);
        let next = |at: u32| self.pool.get(at).map(|slot| (slot.end_of_message, slot.next));
        for _ in 0..queue.length {
            (before, first) = (first, next(first).map_or(NONE, |(_, next)| next));
        }
        // HERs of the last message are those behind the last end.
        let mut at = first;
        while let Some((end, next)) = next(at) {
            if end {
                (before, first) = (at, next);
            }
            at = next;
        }
        match self.pool.get_mut(before) {
            Some(slot) => slot.next = NONE,
            None => queue.head = NONE,
        }
        (queue.tail, queue.rejecting) = (before, true);
        while let Some((next, context, packet)) = self.pool.free_unlinked(first) {
            self.owners.remove_her(&context);
            self.cancelled.extend(packet);
            first = next;
        }
    }

    /// Cancels the current message of a queue, or the one that is about to begin there. All its packets up to its end are cancelled,
    /// including those that have not arrived. The message is not kept open, unless [`Mpqs::keep_open`] is called again.
    /// [`Mpqs::pop_cancelled`] returns its queued packets as soon as no task of it is in flight. Returns whether the queue is empty.
    pub fn cancel(&mut self, mpq: MpqId) -> bool {
        if self.is_cancelled(mpq) {
            return false;
        }
        // A queue in its owner's list counts as ready.
        self.owners.unlist(&mut self.queues, mpq);
        let queue = &mut self.queues[mpq.0 as usize];
        if queue.state == State::Waiting {
            // Its HERs up to the first end are those of the message.
            queue.length = 0;
            self.count_hers(mpq);
        }
        let queue = &mut self.queues[mpq.0 as usize];
        let retained = matches!(queue.state, State::PayloadDraining | State::Completion)
            && queue.params.is_some_and(|params| params.completion);
        // From here on `length` counts the HERs that have a slot in the queue.
        queue.length += u32::from(retained);
        queue.state = State::Cancelling;
        queue.kept_open = false;
        if queue.in_flight == 0 {
            self.drain_cancelled(mpq);
        }
        self.queues[mpq.0 as usize].state == State::Free
    }

    /// Ends the current message of a queue after its queued packets, as if no more packets of it would arrive. The message has no
    /// handler but the payload handler. Returns whether the queue is empty.
    pub fn close(&mut self, mpq: MpqId) -> bool {
        let queue = &mut self.queues[mpq.0 as usize];
        (queue.kept_open, queue.rejecting) = (false, false);
        if queue.head == NONE && queue.in_flight == 0 {
            *queue = Queue::new();
            return true;
        }
        // The last HER is of this message, or of a later one of the queue, which ends there too.
        if let Some(last) = self.pool.get_mut(queue.tail) {
            last.end_of_message = true;
        } else if queue.state == State::Payload {
            queue.state = State::PayloadDraining;
        }
        queue.end_seen = true;
        false
    }

    /// Whether the current message of a queue is cancelled.
    #[must_use]
    pub fn is_cancelled(&self, mpq: MpqId) -> bool {
        self.queues[mpq.0 as usize].is_cancelled()
    }

    /// A packet of a cancelled message.
    #[inline]
    pub fn pop_cancelled(&mut self) -> Option<P> {
        self.cancelled.pop()
    }

    /// Moves the packets of a cancelled message without tasks in flight to `cancelled`.
    pub(super) fn drain_cancelled(&mut self, mpq: MpqId) {
        for _ in 0..std::mem::take(&mut self.queues[mpq.0 as usize].length) {
            if let Some(packet) = self.pop(mpq) {
                self.cancelled.push(packet);
            }
        }
        let queue = &mut self.queues[mpq.0 as usize];
        if queue.end_seen {
            self.end_message(mpq);
        } else {
            queue.state = State::Cancelled;
        }
    }

    /// Empties a queue and makes it Free. `sink` gets its packets.
    ///
    /// # Panics
    /// When a task of this queue is in flight; its packet would have no slot to return to.
    pub fn reset(&mut self, mpq: MpqId, sink: impl FnMut(P)) {
        assert!(self.queues[mpq.0 as usize].in_flight == 0, "reset of a queue with tasks in flight");
        self.abandon(mpq, sink);
    }

    /// [`reset`](Mpqs::reset) for a queue that may have tasks in flight. Do not [complete](Mpqs::complete) them afterwards.
    pub fn abandon(&mut self, mpq: MpqId, mut sink: impl FnMut(P)) {
        while self.queues[mpq.0 as usize].head != NONE {
            if let Some(packet) = self.pop(mpq) {
                sink(packet);
            }
        }
        self.owners.unlist(&mut self.queues, mpq);
        self.queues[mpq.0 as usize] = Queue::new();
    }

    /// Frees the slot at the head of a queue. Returns its packet, unless a task owns the packet.
    fn pop(&mut self, mpq: MpqId) -> Option<P> {
        let slot = self.pool.free_head(&mut self.queues[mpq.0 as usize])?;
        self.owners.remove_her(&slot.params.context);
        slot.packet.take()
    }
}
