//! Packets of a context that has the thread to itself: those that need not wait go straight from the batch to their payload
//! handler, through no queue.

use std::ops::Range;

use hpu_vm::Exit;
use spin_abi::counters::Counter;
use spin_matcher::MessageKey;
use spin_nic::Frame;
use spin_pspin::counts::Counts;
use spin_pspin::hpu::TaskIdentity;
use spin_pspin::hpu::command::{CommandBudget, Commands};
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::ids::{BatchTime, Handler, MessageRef, Packet, Slot};
use spin_pspin::mpq::{Her, MessageParams, MpqId, Mpqs, Stage, Task};

use crate::context::Context;
use crate::found::{Found, Gist};
use crate::inbound::{Arrival, Inbound, SOON};
use crate::messages::Messages;
use crate::pipeline::{Engine, context, home};
use crate::tasks::{Done, Parts, parts, processes};

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

    /// Whether no other handler than that for payload runs.
    #[inline]
    const fn is_simple(&self) -> bool {
        !self.header && !self.completion
    }

    /// What the message of a packet latches, if it is its first.
    #[inline]
    pub(crate) fn params(&self, clusters: &Range<u32>, key: &MessageKey, message: u64) -> MessageParams<MessageRef> {
        let context = MessageRef { slot: self.slot, home: home(clusters, key), message };
        MessageParams { context, header: self.header, completion: self.completion }
    }
}

/// Bytes that a whole batch may copy of each packet and leave near by what was there.
const SHORT: usize = 128;

impl Engine {
    /// Runs the payload handler of a context on its packets of the batch, on so many at the most, and queues those with their messages
    /// that have to wait for another task; up to one that waits behind another, or is another context's. None is taken when tasks of this
    /// context run one at a time only.
    pub(crate) fn run_straight(&mut self, slot: Slot, most: u32, now: BatchTime) -> Done {
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
        let with_run = context.runs_in_a_row(hpu) && context.predecessor.is_none();
        context.handler(Stage::Payload).filter(|_| with_run)
    }

    /// Runs it on a cluster, up to a packet of another cluster, which is returned.
    fn run_straight_on(
        &mut self,
        slot: Slot,
        handler: Handler,
        cluster: u32,
        most: u32,
        now: BatchTime,
        done: &mut Done,
    ) -> Option<u32> {
        let hpu = HpuId { cluster, hpu: 0 };
        let context = context(&mut self.contexts, slot);
        let verdicts = context.run.verdicts;
        let admission = Admission::of(slot, context);
        let nobody = TaskIdentity { flow: 0, message: 0 };
        let Parts { spec, hpus, host, counts, events, mut printer } = parts(context, handler, nobody);
        let mut print = |line: &[u8]| printer.print(line);
        let Self { nic, outbound, executor, inbound, clusters, messages, mpqs, admitted, counts: own, .. } = self;
        let (at, stop) = (inbound.len(), inbound.len().saturating_sub((most - done.tasks) as usize));
        let row = InRow { at, stop, passed: 0, queued: 0, looked_at: 0 };
        let mut inlet = Inlet { inbound, clusters, messages, mpqs, admitted, counts: own, admission, now, row };
        let mut commands = Commands::new(&mut **nic, outbound, host, counts, Some(events), true, CommandBudget::FULL);
        // There is something to see to when a task is over. The NIC may need frames before the row ends.
        let (watched, mut messages_done) = (verdicts || commands.nic.low_on_buffers(), 0);
        let rest = hpus.get(hpu).with_run(executor, &spec, &mut commands, &mut print, |row| {
            inlet.row.looked_at = row.looked_at();
            loop {
                let Passing { mpq, home, message, place } = match inlet.look() {
                    Look::Passing(passing) => passing,
                    Look::Nothing => return Rest::None,
                    Look::Other(other) => {
                        inlet.spend(&mut row.commands().outbound.recycle);
                        match inlet.take(other) {
                            Taken::Kept => continue,
                            Taken::Foreign(frame) => {
                                row.commands().outbound.recycle.push(frame);
                                continue;
                            }
                            Taken::Behind => return Rest::None,
                            Taken::Questionable(arrival) => return Rest::Arrival(arrival),
                        }
                    }
                };
                if home != cluster {
                    return Rest::Elsewhere(home);
                }
                let returned = row.run_task(TaskIdentity { flow: mpq.0, message }, inlet.frame());
                if returned && !watched && row.had_no_effects() {
                    inlet.pass();
                } else {
                    row.finish(returned);
                    let usual = returned || row.exit() == Exit::Finished;
                    inlet.spend(&mut row.commands().outbound.recycle);
                    let frame = inlet.take_passing();
                    if !usual || verdicts && !processes(row.result()) {
                        let (binding, packet) = (inlet.hold(mpq, place), Packet::new(frame, now.timestamp));
                        let task = Task { mpq, stage: Stage::Payload, context: binding, packet, releases_packet: true };
                        let exit = if returned { Exit::Returned } else { row.exit() };
                        return Rest::Unusual(task, exit, row.commands().budget);
                    }
                    row.commands().release_frame(frame);
                }
                if place != Place::Open {
                    messages_done += u64::from(place == Place::Only || inlet.end(mpq));
                }
            }
        });
        inlet.spend(&mut commands.outbound.recycle);
        let InRow { queued, passed: run, .. } = inlet.row;
        done.tasks += run as u32;
        let usual = run - u64::from(matches!(rest, Rest::Unusual(..)));
        commands.counts.add(Counter::PayloadRuns, run);
        commands.counts.add(Counter::Matched, run + queued);
        commands.counts.add(Counter::Released, usual);
        commands.counts.add(Counter::Messages, messages_done);
        commands.recycle_frames();
        if usual > 0 {
            self.released = now.timestamp;
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

/// A packet that need not wait.
struct Passing {
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

impl Place {
    /// In a message that has a queue.
    #[inline]
    const fn of(end_of_message: bool) -> Self {
        if end_of_message { Self::Last } else { Self::Open }
    }
}

/// What there is to do after packets in a row.
enum Rest {
    None,
    /// The next one is this other cluster's.
    Elsewhere(u32),
    /// One that may not be queued without [more ado](Engine::admit).
    Arrival(Arrival),
    /// The last one's task did not end as most do.
    Unusual(Task<MessageRef, Packet>, Exit, CommandBudget),
}

/// What the next packet is.
enum Look {
    /// There is none, or it is another context's.
    Nothing,
    Passing(Passing),
    Other(Other),
}

/// What a packet is that does not pass.
enum Other {
    /// Nobody's.
    Foreign,
    /// One that may not be queued without [more ado](Engine::admit).
    Questionable,
    /// One that is to be queued there.
    Waits(MpqId),
}

/// What came of taking a packet that does not pass.
enum Taken {
    /// It is queued with its message.
    Kept,
    /// It is queued behind another: if that had its task now, the message's next packets need not wait.
    Behind,
    /// It is nobody's.
    Foreign(Frame),
    /// It may not be queued without [more ado](Engine::admit).
    Questionable(Arrival),
}

/// How far packets are that pass in a row. What is done with stays where it is among the batch's frames until the row ends, or another one
/// is taken from there: moving many at once takes a few instructions each.
struct InRow {
    /// Place of the packet that was looked at last: those in front of it are next, it and those behind it are done with.
    at: usize,
    /// Place of the last one that is looked at.
    stop: usize,
    /// How many passed.
    passed: u64,
    /// How many were queued.
    queued: u64,
    /// Bytes that a task looks at of its packet.
    looked_at: usize,
}

/// An engine's parts that a packet passes on its way in.
struct Inlet<'e> {
    inbound: &'e mut Inbound,
    clusters: &'e Range<u32>,
    messages: &'e mut Messages,
    mpqs: &'e mut Mpqs<MessageRef, Packet>,
    admitted: &'e mut u64,
    counts: &'e mut Counts,
    admission: Admission,
    now: BatchTime,
    row: InRow,
}

impl Inlet<'_> {
    /// Asks for what a task is going to look at soon; and anew for its message, if what was copied since the batch arrived has taken its
    /// place near by.
    #[inline]
    fn ask_ahead(&self) {
        let Some((frame, found)) = self.row.at.checked_sub(1 + SOON).map(|place| self.inbound.at(place)) else {
            return;
        };
        frame.prefetch_first(self.row.looked_at);
        if frame.len().min(self.row.looked_at) > SHORT && found.first != MpqId::NONE {
            self.messages.prefetch(found.first);
            self.mpqs.prefetch(found.first);
        }
    }

    /// Looks at the next packet of the batch.
    #[inline(always)]
    fn look(&mut self) -> Look {
        if self.row.looked_at > 0 {
            self.ask_ahead();
        }
        if self.row.at == self.row.stop {
            return Look::Nothing;
        }
        let place = self.row.at - 1;
        let gist @ &Gist { owner, end_of_message, first, .. } = self.inbound.found().gist(place);
        let (head, rest) = (gist.head(), || self.inbound.found().rest(place));
        if owner != self.admission.slot {
            return self.look_closer();
        }
        if self.messages.holds(first, owner, head, rest, self.now.time) {
            if let Some(MessageRef { home, message, .. }) = self.mpqs.try_inline_next(first, end_of_message) {
                return Look::Passing(Passing { mpq: first, home, message, place: Place::of(end_of_message) });
            }
        } else if first == MpqId::NONE
            && end_of_message
            && self.messages.begun() == self.inbound.begun()
            && let Some(passing) = self.only()
        {
            return Look::Passing(passing);
        }
        self.look_closer()
    }

    /// The packet that was looked at, which is all of its message, if no other handler has to run on it than that for payload.
    #[inline(always)]
    fn only(&mut self) -> Option<Passing> {
        let mpq = self.messages.next_free().filter(|_| self.admission.is_simple())?;
        *self.admitted += 1;
        let key = &self.inbound.found().key(self.row.at - 1);
        let MessageRef { home, message, .. } = self.admission.params(self.clusters, key, *self.admitted).context;
        Some(Passing { mpq, home, message, place: Place::Only })
    }

    /// The same as [`Self::look`] of any packet. Most go on with messages that nothing is in the way of.
    #[inline(never)]
    fn look_closer(&mut self) -> Look {
        let place = self.row.at - 1;
        let &Gist { owner, end_of_message, chain, first, .. } = self.inbound.found().gist(place);
        let key = &self.inbound.found().key(place);
        let (slot, now) = (self.admission.slot, self.now.time);
        if owner != slot {
            return if owner == Slot::NOBODY { Look::Other(Other::Foreign) } else { Look::Nothing };
        }
        debug_assert_eq!(chain as usize, self.messages.chain(owner, key), "all of a batch were sought");
        let found = self.messages.find_in((chain as usize, first), owner, key, now);
        if found.is_none()
            && end_of_message
            && let Some(passing) = self.only()
        {
            return Look::Passing(passing);
        }
        let mpq = found.or_else(|| self.messages.begin_in(chain as usize, slot, key, now));
        let Some(mpq) = mpq else { return Look::Other(Other::Questionable) };
        let params = || {
            *self.admitted += 1;
            self.admission.params(self.clusters, key, *self.admitted)
        };
        if let Some(MessageRef { home, message, .. }) = self.mpqs.try_inline(mpq, end_of_message, params) {
            return Look::Passing(Passing { mpq, home, message, place: Place::of(end_of_message) });
        }
        if self.mpqs.held(slot.0) >= self.admission.unquestioned || !self.mpqs.accepts(mpq) {
            if found.is_none() {
                self.messages.release(mpq);
            }
            return Look::Other(Other::Questionable);
        }
        Look::Other(Other::Waits(mpq))
    }

    /// Takes a packet that was looked at and does not pass. Those in front of it were [given back](Self::spend).
    fn take(&mut self, other: Other) -> Taken {
        let frame = self.next();
        let Found { end_of_message, key, .. } = self.inbound.taken();
        match other {
            Other::Foreign => {
                self.counts.add(Counter::DropUnmatched, 1);
                Taken::Foreign(frame)
            }
            Other::Questionable => {
                Taken::Questionable(Arrival { frame, slot: self.admission.slot, key, end_of_message })
            }
            Other::Waits(mpq) => {
                let first = self.mpqs.is_quiescent(mpq);
                *self.admitted += 1;
                let params = self.admission.params(self.clusters, &key, *self.admitted);
                let packet = Packet::new(frame, self.now.timestamp);
                self.mpqs.put(mpq, Her { params, end_of_message, packet });
                self.row.queued += 1;
                if first { Taken::Kept } else { Taken::Behind }
            }
        }
    }

    /// The frame of the packet that was looked at.
    #[inline(always)]
    fn frame(&mut self) -> &mut Frame {
        self.inbound.frame(self.row.at - 1)
    }

    /// The packet that was looked at has passed.
    #[inline(always)]
    const fn pass(&mut self) {
        self.row.at -= 1;
    }

    /// Gives back the frames of those that passed and are still there.
    #[inline(always)]
    fn spend(&mut self, spent: &mut Vec<Frame>) {
        if self.row.at < self.inbound.len() {
            self.spend_all(spent);
        }
    }

    #[inline(never)]
    fn spend_all(&mut self, spent: &mut Vec<Frame>) {
        self.row.passed += (self.inbound.len() - self.row.at) as u64;
        self.inbound.spend(self.row.at, spent);
    }

    /// Takes the frame of one that passes. Those in front of it were [given back](Self::spend).
    #[inline]
    fn take_passing(&mut self) -> Frame {
        self.row.passed += 1;
        self.next()
    }

    #[inline]
    fn next(&mut self) -> Frame {
        debug_assert_eq!(self.row.at, self.inbound.len(), "those that passed were given back");
        self.row.at -= 1;
        let Some((frame, _)) = self.inbound.take() else { unreachable!("one was looked at") };
        frame
    }

    /// The task of the packet that was taken last, and that passed, is not over yet. Returns what it is bound to.
    #[cold]
    fn hold(&mut self, mpq: MpqId, place: Place) -> MessageRef {
        let key = &self.inbound.taken().key;
        let params = self.admission.params(self.clusters, key, *self.admitted);
        if place == Place::Only {
            let begun = self.messages.begin(self.admission.slot, key, self.now.time);
            let passes = self.mpqs.try_inline(mpq, true, || params);
            debug_assert!(begun == Some(mpq) && passes == Some(params.context), "the queue is free");
        }
        self.mpqs.begin_inline(mpq, place != Place::Open);
        // That of an only one was the last to be made.
        self.mpqs.context(mpq).unwrap_or(params.context)
    }

    /// The last packet of a message passed, and its task is over. Returns whether the message is complete.
    fn end(&mut self, mpq: MpqId) -> bool {
        let feedback = self.mpqs.end_inline(mpq);
        if feedback.idle {
            self.messages.release_from(self.inbound.found().gist(self.row.at).chain as usize, mpq);
        }
        feedback.message_done
    }
}
