//! Packets of a context that has the thread to itself: each is taken when no task waits, so that most need not wait either.

use std::ops::Range;

use spin_abi::counters::Counter;
use spin_matcher::MessageKey;

use crate::commands::Commands;
use crate::context::{Context, Slot};
use crate::counts::Counts;
use crate::inbound::{Arrival, Routes};
use crate::messages::Messages;
use crate::mpq::{Her, Latch, Mpqs, Stage, Task};
use crate::pipeline::{Binding, Moment, Packet, Source, home};

/// What is the same for all of a context's packets.
#[derive(Clone, Copy)]
pub(crate) struct Admission {
    slot: Slot,
    /// HERs that it may hold without more ado.
    unquestioned: u32,
    header: bool,
    completion: bool,
}

impl Admission {
    /// Of a context that is nobody's successor.
    #[inline]
    pub(crate) fn of(slot: Slot, context: &Context) -> Self {
        let [header, completion] = [Stage::Header, Stage::Completion].map(|stage| context.handler(stage).is_some());
        Self { slot, unquestioned: context.share.unquestioned, header, completion }
    }

    /// What the message of a packet latches, if it is its first.
    #[inline]
    pub(crate) fn latch(&self, clusters: &Range<u32>, key: &MessageKey, message: u64) -> Latch<Binding> {
        let context = Binding { slot: self.slot, home: home(clusters, key), message };
        Latch { context, header: self.header, completion: self.completion }
    }
}

/// What came of asking for a packet.
pub(crate) enum Taken {
    /// There is none.
    Nothing,
    /// The payload task of one that does not wait.
    Task(Task<Binding, Packet>),
    /// One that is queued with its message, or of no use.
    Seen,
    /// One that may not be queued without [more ado](crate::pipeline::Engine::question).
    Questionable(Arrival, Moment),
}

/// An engine's parts that a packet passes on its way in.
pub(crate) struct Inlet<'e> {
    pub(crate) source: &'e mut Source,
    pub(crate) routes: &'e Routes,
    pub(crate) clusters: &'e Range<u32>,
    pub(crate) messages: &'e mut Messages,
    pub(crate) mpqs: &'e mut Mpqs<Binding, Packet>,
    pub(crate) admitted: &'e mut u64,
    pub(crate) handed: &'e mut usize,
    pub(crate) counts: &'e mut Counts,
    pub(crate) admission: Admission,
    /// When the batch arrived; `None`: no packet is taken.
    pub(crate) open: Option<Moment>,
    pub(crate) key: MessageKey,
}

impl Inlet<'_> {
    /// The context's next task: one that waits, else that of the batch's next packets.
    #[inline(always)]
    pub(crate) fn next_task(&mut self, commands: &mut Commands<'_>) -> Taken {
        loop {
            if let Some(task) = self.mpqs.next_task(self.admission.slot.0) {
                return Taken::Task(task);
            }
            match self.take(commands) {
                Taken::Seen => {}
                taken => return taken,
            }
        }
    }

    /// Takes a packet of the batch.
    #[inline(always)]
    fn take(&mut self, commands: &mut Commands<'_>) -> Taken {
        let Some(now) = self.open else { return Taken::Nothing };
        debug_assert!(self.mpqs.room() > 0, "where no task waits, or is parked, no HER does");
        let Some((frame, found)) = self.source.take(self.routes, self.handed, &mut self.key) else {
            return Taken::Nothing;
        };
        let Some((_, end_of_message)) = found else {
            self.counts.add(Counter::DropUnmatched, 1);
            commands.nic.recycle(frame);
            return Taken::Seen;
        };
        let Self { admission, key, .. } = self;
        let slot = admission.slot;
        let arrival = |frame| Arrival { frame, slot, key: *key, end_of_message };
        let Some(mpq) = self.messages.queue(slot, key, now.time) else {
            return Taken::Questionable(arrival(frame), now);
        };
        let message = *self.admitted + 1;
        let latch = || admission.latch(self.clusters, key, message);
        let packet = |frame| Packet { frame, arrived: now.stamp, passes: false };
        if let Some(context) = self.mpqs.pass(mpq, end_of_message, latch) {
            *self.admitted = message;
            commands.counts.add(Counter::Matched, 1);
            let packet = packet(frame);
            return Taken::Task(Task { mpq, stage: Stage::Payload, context, packet, last_use: true });
        }
        if self.mpqs.held(slot.0) >= admission.unquestioned || !self.mpqs.takes(mpq) {
            return Taken::Questionable(arrival(frame), now);
        }
        self.mpqs.put(mpq, Her { latch: latch(), end_of_message, packet: packet(frame) });
        *self.admitted = message;
        commands.counts.add(Counter::Matched, 1);
        Taken::Seen
    }
}
