//! Packets of a context that has the thread to itself: those that need not wait go straight from the batch to their payload
//! handler, through no queue.

use std::ops::Range;

use hpu_vm::Exit;
use spin_abi::counters::Counter;
use spin_matcher::MessageKey;
use spin_nic::Frame;

use crate::commands::{Commands, Issued};
use crate::context::{Context, Handler, Slot};
use crate::counts::Counts;
use crate::errands::{Own, Row};
use crate::hpu::About;
use crate::inbound::{Arrival, Found, Inbound};
use crate::memory::HpuId;
use crate::messages::Messages;
use crate::mpq::{Her, Latch, MpqId, Mpqs, Stage, Task};
use crate::pipeline::{Binding, Engine, Moment, Packet, context, home};
use crate::tasks::{Done, Parts, parts, processes};

/// What is the same for all of a context's packets.
#[derive(Clone, Copy)]
pub(crate) struct Admission {
    slot: Slot,
    /// HERs that it may hold without more ado.
    unquestioned: u32,
    header: bool,
    completion: bool,
    verdicts: bool,
}

impl Admission {
    /// Of a context that is nobody's successor.
    #[inline]
    pub(crate) fn of(slot: Slot, context: &Context) -> Self {
        let [header, completion] = [Stage::Header, Stage::Completion].map(|stage| context.handler(stage).is_some());
        Self { slot, unquestioned: context.share.unquestioned, header, completion, verdicts: context.run.verdicts }
    }

    /// Whether no other handler than that for payload runs.
    #[inline]
    const fn is_simple(&self) -> bool {
        !self.header && !self.completion
    }

    /// What the message of a packet latches, if it is its first.
    #[inline]
    pub(crate) fn latch(&self, clusters: &Range<u32>, key: &MessageKey, message: u64) -> Latch<Binding> {
        let context = Binding { slot: self.slot, home: home(clusters, key), message };
        Latch { context, header: self.header, completion: self.completion }
    }
}

/// Bytes that a whole batch may copy of each packet and leave near by what was there.
const SHORT: usize = 128;

impl Engine {
    /// Runs the payload handler of a context on its packets of the batch, on so many at the most, and queues those with their messages
    /// that have to wait for another task; up to one that waits behind another, or is another context's. None is taken when tasks of this
    /// context run one at a time only.
    pub(crate) fn run_straight(&mut self, slot: Slot, most: u32, now: Moment) -> Done {
        let mut done = Done::default();
        let Some(handler) = self.straight(slot) else { return done };
        let mut next = self.inbound.next().map(|found| home(&self.clusters, &found.key));
        while let Some(cluster) = next {
            next = self.run_straight_on(slot, handler, cluster, most, now, &mut done);
        }
        done
    }

    /// A context's payload handler, if that runs in a row and nothing is in its way.
    fn straight(&mut self, slot: Slot) -> Option<Handler> {
        let hpu = HpuId { cluster: self.clusters.start, hpu: 0 };
        let is_free = !self.has_parked(slot.0) && self.waiting.is_none();
        if !is_free || self.inbound.is_empty() || self.inbound.len() > self.mpqs.room() {
            return None;
        }
        let context = context(&mut self.contexts, slot);
        let in_a_row = context.runs_in_a_row(hpu) && context.predecessor.is_none();
        context.handler(Stage::Payload).filter(|_| in_a_row)
    }

    /// Runs it on a cluster, up to a packet of another cluster, which is returned.
    fn run_straight_on(
        &mut self,
        slot: Slot,
        handler: Handler,
        cluster: u32,
        most: u32,
        now: Moment,
        done: &mut Done,
    ) -> Option<u32> {
        let hpu = HpuId { cluster, hpu: 0 };
        let context = context(&mut self.contexts, slot);
        let verdicts = context.run.verdicts;
        let admission = Admission::of(slot, context);
        let nobody = About { flow: 0, message: 0 };
        let Parts { job, hpus, host, counts, events, mut printer } = parts(context, handler, nobody);
        let mut print = |line: &[u8]| printer.print(line);
        let Self { nic, outbound, executor, inbound, clusters, messages, mpqs, admitted, counts: own, .. } = self;
        let mut inlet =
            Inlet { inbound, clusters, messages, mpqs, admitted, counts: own, admission, now, looked_at: 0, queued: 0 };
        let mut commands = Commands::new(&mut **nic, outbound, host, counts, Some(events), true, Issued::NOTHING);
        let (mut left, mut messages_done) = (most - done.tasks, 0);
        let most = left;
        let rest = hpus.get(hpu).in_a_row(executor, &job, &mut commands, &mut print, |row| {
            inlet.looked_at = row.looked_at();
            loop {
                let Passing { mut frame, mpq, home, message, place } = match inlet.take::<false>() {
                    Taken::Passing(passing) => passing,
                    Taken::Kept => continue,
                    Taken::Foreign(frame) => {
                        row.commands().outbound.spent.push(frame);
                        continue;
                    }
                    Taken::Nothing | Taken::Behind => return Rest::None,
                    Taken::Questionable(arrival) => return Rest::Arrival(arrival),
                };
                if home != cluster {
                    inlet.inbound.untake(frame);
                    return Rest::Elsewhere(home);
                }
                left -= 1;
                let returned = row.returns(About { flow: mpq.0, message }, &mut frame);
                let usual = returned || row.exit() == Exit::Finished;
                if !usual || verdicts && !processes(row.result()) {
                    let (binding, packet) = (inlet.hold(mpq, place), Packet::new(frame, now.stamp));
                    let task = Task { mpq, stage: Stage::Payload, context: binding, packet, last_use: true };
                    let exit = if returned { Exit::Returned } else { row.exit() };
                    return Rest::Unusual(task, exit, row.commands().issued);
                }
                row.commands().give_back(frame);
                match place {
                    Place::Open => {}
                    Place::Only => messages_done += 1,
                    Place::Last => messages_done += u64::from(inlet.end(mpq)),
                }
                if left == 0 {
                    return Rest::None;
                }
            }
        });
        let queued = inlet.queued;
        let run = u64::from(most - left);
        done.tasks += most - left;
        let usual = run - u64::from(matches!(rest, Rest::Unusual(..)));
        commands.counts.add(Counter::PayloadRuns, run);
        commands.counts.add(Counter::Matched, run + queued);
        commands.counts.add(Counter::Released, usual);
        commands.counts.add(Counter::Messages, messages_done);
        commands.recycle_spent();
        if usual > 0 {
            self.released = now.stamp;
        }
        done.released += usual;
        match rest {
            Rest::None => {}
            Rest::Elsewhere(cluster) => return Some(cluster),
            Rest::Arrival(arrival) => self.admit_late(arrival, now),
            Rest::Unusual(task, exit, issued) => done.released += u64::from(self.end_unusual(task, hpu, exit, issued)),
        }
        None
    }
}

impl Engine {
    /// Hands over the payload tasks of a context's packets of the batch to who runs them, as many as he takes, and queues those packets that
    /// have to wait for another task.
    pub(crate) fn hand_over_straight(&mut self, slot: Slot, now: Moment) {
        if self.waiting.is_some() || self.inbound.is_empty() || self.inbound.len() > self.mpqs.room() {
            return;
        }
        let context = context(&mut self.contexts, slot);
        if !context.is_plain() || context.predecessor.is_some() {
            return;
        }
        let (admission, id) = (Admission::of(slot, context), context.id);
        let Self { outbound, inbound, clusters, messages, mpqs, admitted, counts, elsewhere, .. } = self;
        let Some(elsewhere) = elsewhere else { return };
        let (seen, dispatcher) = (elsewhere.seen(), elsewhere.dispatcher());
        let mut inlet =
            Inlet { inbound, clusters, messages, mpqs, admitted, counts, admission, now, looked_at: 0, queued: 0 };
        let (mut sent, most) = (0, dispatcher.credit());
        let mut row = Row::of_payload(id, Binding { slot, home: 0, message: 0 }, seen);
        let mut in_row = 0;
        let late = loop {
            if sent == most {
                break None;
            }
            match inlet.take::<true>() {
                Taken::Passing(Passing { frame, mpq, home, message, .. }) => {
                    let binding = Binding { slot, home, message };
                    if !row.has(&binding) {
                        dispatcher.stage_row(row, std::mem::take(&mut in_row), now.stamp);
                        row = Row::of_payload(id, binding, seen);
                    }
                    dispatcher.stage_more(Own::of(mpq, message), frame);
                    (in_row, sent) = (in_row + 1, sent + 1);
                }
                Taken::Kept | Taken::Behind => {}
                Taken::Foreign(frame) => outbound.spent.push(frame),
                Taken::Nothing => break None,
                Taken::Questionable(arrival) => break Some(arrival),
            }
        };
        dispatcher.stage_row(row, in_row, now.stamp);
        let matched = sent as u64 + inlet.queued;
        elsewhere.count_out(slot, sent as u32);
        context.counts.add(Counter::Matched, matched);
        if let Some(arrival) = late {
            self.admit_late(arrival, now);
        }
    }
}

/// A packet that need not wait.
struct Passing {
    frame: Frame,
    mpq: MpqId,
    /// The cluster that its message is bound to,
    home: u32,
    /// and its number.
    message: u64,
    place: Place,
}

/// Where in its message a packet is that need not wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Neither of these: most are.
    Open,
    /// The only one: the message takes no queue. It has the one that is free next while its task runs.
    Only,
    Last,
}

/// What there is to do after packets in a row.
enum Rest {
    None,
    /// The next one is this other cluster's.
    Elsewhere(u32),
    /// One that may not be queued without [more ado](Engine::admit).
    Arrival(Arrival),
    /// The last one's task did not end as most do.
    Unusual(Task<Binding, Packet>, Exit, Issued),
}

/// What came of asking for a packet.
enum Taken {
    /// There is none, or it is another context's.
    Nothing,
    Passing(Passing),
    /// One that is queued with its message.
    Kept,
    /// One that is queued behind another: if that had its task now, the message's next packets need not wait.
    Behind,
    /// Nobody's.
    Foreign(Frame),
    /// One that may not be queued without [more ado](Engine::admit).
    Questionable(Arrival),
}

/// An engine's parts that a packet passes on its way in.
struct Inlet<'e> {
    inbound: &'e mut Inbound,
    clusters: &'e Range<u32>,
    messages: &'e mut Messages,
    mpqs: &'e mut Mpqs<Binding, Packet>,
    admitted: &'e mut u64,
    counts: &'e mut Counts,
    admission: Admission,
    now: Moment,
    /// Bytes that a task looks at of its packet.
    looked_at: usize,
    /// How many were queued.
    queued: u64,
}

impl Inlet<'_> {
    /// Asks for what a task is going to look at soon; and anew for its message, if what was copied since the batch arrived has taken its
    /// place near by.
    #[inline]
    fn ask_ahead(&self) {
        let Some((frame, found)) = self.inbound.soon() else { return };
        frame.prefetch_first(self.looked_at);
        if frame.len().min(self.looked_at) > SHORT {
            self.messages.prefetch(found.first);
            self.mpqs.prefetch(found.first);
        }
    }

    /// Takes a packet of the batch. If tasks run `ELSEWHERE`, that of one that need not wait is in flight from here on, and others of its message
    /// may be.
    #[inline(always)]
    fn take<const ELSEWHERE: bool>(&mut self) -> Taken {
        if self.looked_at > 0 {
            self.ask_ahead();
        }
        let Some((frame, found)) = self.inbound.take() else { return Taken::Nothing };
        let Found { owner, end_of_message, chain, first, ref key } = *found;
        let admission = self.admission;
        if owner != admission.slot {
            if owner != Slot::NOBODY {
                self.inbound.untake(frame);
                return Taken::Nothing;
            }
            self.counts.add(Counter::DropUnmatched, 1);
            return Taken::Foreign(frame);
        }
        let arrival = |frame| Arrival { frame, slot: admission.slot, key: *key, end_of_message };
        let (admitted, clusters) = (&mut *self.admitted, self.clusters);
        let mut latch = || {
            *admitted += 1;
            admission.latch(clusters, key, *admitted)
        };
        let mut begins = false;
        debug_assert_eq!(chain as usize, self.messages.chain(owner, key), "all of a batch were sought");
        let mpq = match self.messages.find_in((chain as usize, first), owner, key, self.now.time) {
            Some(mpq) => mpq,
            None if !ELSEWHERE
                && end_of_message
                && admission.is_simple()
                && let Some(mpq) = self.messages.next_free() =>
            {
                let Binding { home, message, .. } = latch().context;
                return Taken::Passing(Passing { frame, mpq, home, message, place: Place::Only });
            }
            // The next one need not wait until it is known that this one has ended, which takes as long as many tasks. Tasks of this kind alone
            // are all handed over at once, in order.
            None if ELSEWHERE && end_of_message && admission.is_simple() && !admission.verdicts => {
                let Some(mpq) = self.messages.begin_unnamed(admission.slot, self.now.time) else {
                    return Taken::Questionable(arrival(frame));
                };
                begins = true;
                mpq
            }
            None => match self.messages.begin(admission.slot, key, self.now.time) {
                Some(mpq) => {
                    begins = true;
                    mpq
                }
                None => return Taken::Questionable(arrival(frame)),
            },
        };
        let passes = if ELSEWHERE {
            self.mpqs.sends(mpq, end_of_message, &mut latch)
        } else {
            self.mpqs.passes(mpq, end_of_message, &mut latch)
        };
        if let Some(Binding { home, message, .. }) = passes {
            let place = if end_of_message { Place::Last } else { Place::Open };
            return Taken::Passing(Passing { frame, mpq, home, message, place });
        }
        if self.mpqs.held(admission.slot.0) >= admission.unquestioned || !self.mpqs.takes(mpq) {
            if begins {
                self.messages.release(mpq);
            }
            return Taken::Questionable(arrival(frame));
        }
        let first = self.mpqs.is_quiescent(mpq);
        let packet = Packet::new(frame, self.now.stamp);
        self.mpqs.put(mpq, Her { latch: latch(), end_of_message, packet });
        self.queued += 1;
        if first { Taken::Kept } else { Taken::Behind }
    }

    /// The task of the packet that was taken last, and that passed, is not over yet. Returns what it is bound to.
    #[cold]
    fn hold(&mut self, mpq: MpqId, place: Place) -> Binding {
        let key = &self.inbound.taken().key;
        let latch = self.admission.latch(self.clusters, key, *self.admitted);
        if place == Place::Only {
            let begun = self.messages.begin(self.admission.slot, key, self.now.time);
            let passes = self.mpqs.passes(mpq, true, || latch);
            debug_assert!(begun == Some(mpq) && passes == Some(latch.context), "the queue is free");
        }
        self.mpqs.hold(mpq, place != Place::Open);
        // That of an only one was the last to be made.
        self.mpqs.context(mpq).unwrap_or(latch.context)
    }

    /// The last packet of a message passed, and its task is over. Returns whether the message is complete.
    fn end(&mut self, mpq: MpqId) -> bool {
        self.mpqs.hold(mpq, true);
        let feedback = self.mpqs.feedback(mpq, Stage::Payload, None);
        if feedback.idle {
            self.messages.release(mpq);
        }
        feedback.message_done
    }
}
