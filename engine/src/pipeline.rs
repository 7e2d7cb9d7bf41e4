//! The packet's way, top to bottom, on one thread: receive → match → order → run → act → feed back → send. The handlers' part
//! is in [`crate::tasks`].

use std::cell::RefCell;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use hpu_vm::jit::{Executor, TrapError};
use spin_abi::control::{Abi, Full, Schedule};
use spin_abi::counters::Counter;
use spin_abi::events::{Event, What};
use spin_abi::map::Machine;
use spin_matcher::MessageKey;
use spin_nic::{Frame, NicError, Queue};

use crate::commands::{Commands, Deferred, Issued, Outbound};
use crate::config::Sizes;
use crate::context::{Context, Slot};
use crate::counts::Counts;
use crate::descriptor::News;
use crate::ecn;
use crate::found::Found;
use crate::handover::Arrivals;
use crate::inbound::{Arrival, BATCH, Inbound, Routes};
use crate::intake::Intake;
use crate::ip_view;
use crate::latency::{Latencies, nanoseconds};
use crate::loader::Loader;
use crate::messages::Messages;
use crate::mpq::{Her, Latch, MpqId, Mpqs, Owned, Refused, Stage, Task};
use crate::peers::Peers;
use crate::schedule::Scheduler;
use crate::sharing::{Ranks, shared_batch};
use crate::spread::Spread;
use crate::stamp::Stamp;
use crate::statistics::Statistics;
use crate::straight::Admission;
use crate::tasks::Parked;
use crate::toll::Toll;
use crate::translator::Translator;
use crate::vigil::Vigil;

/// Frames taken at least, while there is room: some may be for contexts that have nothing to do.
const FEW: usize = 8;
/// Queues looked at in a turn for messages that wait too long: some, and at the most as many as some tens of microseconds are enough for,
const MONITORED: [u64; 2] = [16, 8192];
/// so that each is looked at as often as this.
const MONITORING: Duration = Duration::from_millis(100);
/// Frames staged for sending above which nothing more is received: the NIC has to catch up first.
pub(crate) const TRANSMIT_BACKLOG: usize = 256;

/// What a message is bound to from its first packet to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its context.
    pub slot: Slot,
    /// The cluster whose L1 its handlers share.
    pub home: u32,
    /// Its number among all messages.
    pub message: u64,
}

/// A frame that is queued with its message.
#[derive(Debug)]
pub struct Packet {
    /// The frame.
    pub frame: Frame,
    /// When it arrived.
    pub arrived: Stamp,
    /// Where it goes by its handler's verdict, if not back to the NIC.
    pub(crate) gone: Option<Gone>,
    /// Its headers are as PsPIN's handlers have them.
    pub in_ip_view: bool,
}

impl Packet {
    /// One of which nothing is known yet.
    #[inline]
    #[must_use]
    pub const fn new(frame: Frame, arrived: Stamp) -> Self {
        Self { frame, arrived, gone: None, in_ip_view: false }
    }
}

/// Where the packets of a message go that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// There was no room for it.
    Killed,
    /// A handler did not want it.
    Dropped,
    /// A handler left it to the kernel.
    Passed,
}

impl Owned for Binding {
    fn owner(&self) -> u32 {
        self.slot.0
    }
}

/// When a batch arrived.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// In nanoseconds.
    pub(crate) time: u64,
    pub(crate) stamp: Stamp,
}

thread_local! {
    /// A thread has one executor, whatever the number of its engines.
    static EXECUTOR: RefCell<Weak<Executor>> = const { RefCell::new(Weak::new()) };
}

fn executor() -> Result<Rc<Executor>, TrapError> {
    EXECUTOR.with_borrow_mut(|known| match known.upgrade() {
        Some(executor) => Ok(executor),
        None => {
            let executor = Rc::new(Executor::new()?);
            *known = Rc::downgrade(&executor);
            Ok(executor)
        }
    })
}

/// One thread's engine: NIC queue, message queues and contexts with their HPUs, all owned by it alone.
pub struct Engine {
    pub(crate) machine: Machine,
    /// Its clusters, of the machine's.
    pub(crate) clusters: Range<u32>,
    pub(crate) nic: Box<dyn Queue>,
    /// Packets come from another thread, which receives and matches them (pipeline mode).
    pub(crate) arrivals: Option<Arrivals>,
    /// It receives for other threads too: see [`crate::spread`].
    pub(crate) spread: Option<Box<Spread>>,
    /// Other threads take tasks over: see [`crate::overflow`].
    pub(crate) peers: Option<Box<Peers>>,
    /// Those that are yet to be queued.
    pub(crate) inbound: Inbound,
    /// Nothing is taken from the NIC any more.
    pub(crate) closed: bool,
    /// An arrival for which there is no room yet, and before which nothing else is taken.
    pub(crate) waiting: Option<Arrival>,
    /// The context that has none: it may be one that was replaced, with the arrival's message.
    pub(crate) waits_for: Option<Slot>,
    /// To the contexts, in order of installation, which is the order of priority.
    pub(crate) routes: Routes,
    /// By slot.
    pub(crate) contexts: Vec<Option<Context>>,
    /// Id of the context installed last.
    pub(crate) next_id: u32,
    pub(crate) messages: Messages,
    pub(crate) mpqs: Mpqs<Binding, Packet>,
    /// By queue: why its message was given up, if it was.
    pub(crate) gone: Box<[Gone]>,
    pub(crate) scheduler: Scheduler,
    /// HERs that there is room for.
    pub(crate) hers: u32,
    /// Tasks that wait on their HPUs.
    pub(crate) parked: Vec<Parked>,
    /// The one of them that is looked at next.
    pub(crate) next_parked: usize,
    /// Contexts whose messages may time out,
    pub(crate) timeouts: u32,
    /// and when that was looked at last.
    monitored: Duration,
    /// Contexts that are here, whether or not frames are led to them.
    pub(crate) linked: u32,
    /// Those of them that go with their last message.
    pub(crate) retired: u32,
    /// Those of them that gave way to others: see [`Context::heir`].
    pub(crate) heirs: u32,
    /// Batches may be taken in another order: see [`Engine::share_buffer`](crate::install).
    pub(crate) in_any_order: bool,
    /// Some context's tasks may run on other threads.
    pub(crate) may_overflow: bool,
    /// Some context has others wait for room.
    pub(crate) waits: bool,
    /// The contexts of a batch that several have packets in.
    pub(crate) ranks: Ranks,
    /// How many were taken [cluster by cluster](Engine::group).
    batches: u32,
    /// Numbers taken so far, by all packets that could be their messages' first.
    pub(crate) admitted: u64,
    /// Frames that were queued, run or dropped so far, of those that were received.
    pub(crate) taken_in: u64,
    pub(crate) executor: Rc<Executor>,
    vigil: Vigil,
    pub(crate) translator: Translator,
    pub(crate) outbound: Outbound,
    /// Frames for the kernel,
    pub(crate) passing: Vec<Frame>,
    /// and what each of them costs its context.
    pub(crate) toll: Arc<Toll>,
    pub(crate) counts: Counts,
    pub(crate) latencies: Latencies,
    /// Packet buffers given back since the time of a task was taken.
    pub(crate) unsampled: u64,
    /// When the packet arrived whose buffer was given back last.
    pub(crate) released: Stamp,
    /// A task took all the time that it may.
    pub(crate) overran: bool,
    /// Tasks of a context that is alone that a turn has time for.
    pub(crate) fitting: u32,
    /// A context that shares the time may run out of tasks, and have more packets in the NIC.
    pub(crate) lean: bool,
    pub(crate) intake: Intake,
    /// Turns for which others are [expected](crate::sharing) to have packets behind those of the only one that has some.
    pub(crate) company: u32,
    /// Applications are to be woken.
    pub(crate) news: News,
    first_arrival: Option<Duration>,
    pub(crate) last_feedback: Duration,
}

impl Engine {
    /// An engine without contexts for `clusters` of the machine, to be run on this thread. Contexts are
    /// [prepared](crate::install::Prepared) by `loader`.
    ///
    /// # Errors
    /// When this thread cannot run handlers.
    ///
    /// # Panics
    /// When there is no cluster.
    pub fn new(
        loader: Arc<Loader>,
        nic: Box<dyn Queue>,
        sizes: Sizes,
        schedule: Schedule,
        clusters: Range<u32>,
    ) -> Result<Self, TrapError> {
        assert!(!clusters.is_empty(), "a thread has a cluster at least");
        let machine = loader.machine;
        Ok(Self {
            machine,
            // Each thread has numbers of its own: tasks of several threads' messages may run on one HPU.
            admitted: u64::from(clusters.start) << 48,
            clusters,
            nic,
            arrivals: None,
            spread: None,
            peers: None,
            inbound: Inbound::default(),
            closed: false,
            waiting: None,
            waits_for: None,
            routes: Routes::default(),
            contexts: Vec::new(),
            next_id: 0,
            messages: Messages::new(sizes.queues),
            mpqs: Mpqs::new(
                sizes.queues,
                sizes.hers,
                Latch { context: Binding { slot: Slot(0), home: 0, message: 0 }, header: false, completion: false },
            ),
            gone: vec![Gone::Killed; sizes.queues as usize].into(),
            scheduler: Scheduler::new(schedule),
            hers: sizes.hers,
            parked: Vec::new(),
            next_parked: 0,
            timeouts: 0,
            monitored: Duration::ZERO,
            linked: 0,
            retired: 0,
            heirs: 0,
            in_any_order: true,
            may_overflow: false,
            waits: false,
            ranks: Ranks::default(),
            batches: 0,
            taken_in: 0,
            executor: executor()?,
            vigil: Vigil::default(),
            translator: Translator::new(loader),
            outbound: Outbound::with_capacity(
                TRANSMIT_BACKLOG + BATCH * 4,
                sizes.hers as usize + BATCH,
                sizes.dma_chunk,
            ),
            passing: Vec::with_capacity(BATCH),
            toll: Arc::new(Toll::new(1)),
            counts: Counts::default(),
            latencies: Latencies::default(),
            unsampled: u64::from(u32::MAX),
            released: Stamp::at(Duration::ZERO),
            overran: false,
            fitting: u32::MAX,
            lean: false,
            intake: Intake::default(),
            company: 0,
            news: News::default(),
            first_arrival: None,
            last_feedback: Duration::ZERO,
        })
    }

    /// Has its packets come from another thread: `nic` takes them back, and gives frames to send.
    #[must_use]
    pub fn fed_by(mut self, arrivals: Arrivals) -> Self {
        self.toll = arrivals.toll.clone();
        self.arrivals = Some(arrivals);
        self
    }

    /// One turn: a batch of packets from the NIC to the last of their handlers, or as many tasks as fair shares between
    /// contexts allow at a time. `clock` tells the time since some fixed moment; it is read a few times a batch, never per
    /// packet. Returns how many frames were taken in.
    ///
    /// # Errors
    /// When the NIC is of no use any more.
    pub fn turn(&mut self, clock: impl Fn() -> Duration) -> Result<usize, NicError> {
        self.vigil.keep(self.last_feedback, &clock, || self.executor.look_at_others());
        self.take_translations();
        self.take_back_frames();
        let mut taken = self.receive();
        self.hand_over();
        let returned = self.see_to_loans(&clock);
        if taken > 0 || returned > 0 || self.has_tasks() {
            let arrival = clock();
            self.note_first_arrival(arrival);
            let (before, waited) = (self.kept_back(), self.hers_taken() + self.kept_back());
            let now = Moment { time: nanoseconds(arrival), stamp: Stamp::at(arrival) };
            let (kept, before_that) = (self.kept_waiting(), self.last_feedback);
            let resumed = self.resume_parked(&clock);
            self.lend();
            let run = self.run_some_tasks(now, &clock);
            let released = returned + resumed + run;
            taken = before - self.kept_back();
            self.taken_in += taken as u64;
            self.unsampled += released;
            self.last_feedback = clock();
            let [turn, since] = [arrival, before_that].map(|start| self.last_feedback.saturating_sub(start));
            self.intake.note_turn(turn, since);
            self.note_length(released, turn);
            if self.waits {
                self.charge_waits(kept, turn, since);
            }
            self.note_load(waited, run, turn);
            // As if all of the batch had waited as long as its last one.
            self.latencies.record_total(released, self.released.before(self.last_feedback));
            self.end_overdue(self.last_feedback);
        } else if self.timeouts > 0 {
            self.end_overdue(clock());
        }
        if self.retired > 0 {
            self.end_drained();
        }
        self.end_loans(taken);
        self.send(&clock)?;
        if self.news.take() {
            self.ring_doorbells(taken > 0 || self.has_tasks());
        }
        Ok(taken)
    }

    /// Runs tasks that there is time for in a turn. Returns how many packet buffers were given back.
    fn run_some_tasks(&mut self, now: Moment, clock: &impl Fn() -> Duration) -> u64 {
        if self.is_shared() || self.overflows() { self.run_together(now, clock) } else { self.run_alone(now, clock) }
    }

    pub(crate) fn note_first_arrival(&mut self, time: Duration) {
        self.first_arrival.get_or_insert(time);
    }

    /// Wakes the applications that sleep until they are told something. While there is work their news may wait for more.
    #[cold]
    pub(crate) fn ring_doorbells(&mut self, busy: bool) {
        let now = busy.then_some(self.last_feedback);
        self.contexts.iter_mut().flatten().for_each(|context| context.descriptor.ring(now));
    }

    /// Whether there is something to do without that anything arrives.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        let queued = self.kept_back() > 0 || !self.mpqs.backlogged().is_empty();
        queued || !self.parked.is_empty() || self.has_loans()
    }

    /// HERs that there are.
    pub(crate) fn hers_taken(&self) -> usize {
        self.hers as usize - self.mpqs.room()
    }

    /// Takes a batch from the NIC, as much as there is room for. Returns how many frames there are to admit.
    fn receive(&mut self) -> usize {
        self.intake.whole = false;
        if !self.inbound.is_empty() {
            // Kept back: since then rules may have changed, and others' arrivals joined them.
            self.inbound.seek_chains(&self.messages);
            self.inbound.seek(&self.messages, &self.mpqs);
        }
        let room = self.room_for(self.wanted());
        if room == 0 || self.waiting.is_some() || self.outbound.transmit.len() >= TRANSMIT_BACKLOG {
            self.counts.add(Counter::HerStalls, 1);
            return 0;
        }
        if !self.inbound.is_empty() {
            // What an arrival that waited kept back comes first.
            return self.inbound.len();
        }
        let taken = match &mut self.arrivals {
            Some(arrivals) => self.inbound.take_over(arrivals, room.min(BATCH)),
            None if self.closed => 0,
            None if self.spread.is_some() => self.receive_and_spread(room),
            None => {
                let messages = &self.messages;
                let chain = |slot: Slot, key: &MessageKey| messages.ask_for_chain(slot, key);
                self.inbound.receive(&mut *self.nic, &self.routes, room, &mut self.counts, chain)
            }
        };
        self.intake.whole |= taken >= room.min(BATCH);
        if self.heirs > 0 {
            self.hand_down();
        }
        if self.heirs > 0 || self.arrivals.is_some() || self.spread.is_some() {
            // They are others' now, or another thread has found them.
            self.inbound.seek_chains(&self.messages);
        }
        self.inbound.seek(&self.messages, &self.mpqs);
        if taken > 1 && self.in_any_order && self.clusters.len() > 1 {
            self.group();
        }
        taken
    }

    /// Has the batch's tasks run in a row on each cluster. Another cluster's are the first each time: room may not last for all.
    fn group(&mut self) {
        let Self { clusters, inbound, batches, .. } = self;
        let (start, count) = (clusters.start, clusters.end - clusters.start);
        *batches = batches.wrapping_add(1);
        inbound.group(count, |found, place| match found.gist(place).owner {
            Slot::NOBODY => 0,
            _ => (home(clusters, &found.key(place)) - start).wrapping_add(*batches) % count,
        });
    }

    /// How many frames are worth taking: few more than there is work for, since what contexts could not hold would be lost, where
    /// the NIC can keep it. But as many as possible while one of several contexts may run out of it.
    fn wanted(&self) -> usize {
        let most = if self.is_shared() { shared_batch(self.linked) } else { BATCH };
        if self.lean || self.intake.is_wanted() {
            return most;
        }
        most.saturating_sub(self.hers_taken()).max(FEW)
    }

    /// Whether several contexts share the thread's time.
    pub(crate) fn is_shared(&self) -> bool {
        self.linked > 1
    }

    /// The NIC inbound engine: matches the frames of a batch to their contexts and queues them with their messages.
    pub(crate) fn admit_batch(&mut self, now: Moment) {
        while self.mpqs.room() > 0 && self.admit_next(now) {}
    }

    /// Takes a frame, if there is one and there is room for it.
    #[inline(always)]
    pub(crate) fn admit_next(&mut self, now: Moment) -> bool {
        if let Some(arrival) = self.waiting.take() {
            self.admit_late(arrival, now);
            return self.waiting.is_none();
        }
        let Some((frame, found)) = self.inbound.take() else { return false };
        let Found { end_of_message, key, .. } = found;
        match found.slot() {
            Some(slot) => self.admit(frame, slot, &key, end_of_message, now),
            None => self.drop_frame(frame, Counter::DropUnmatched),
        }
        self.waiting.is_none()
    }

    /// Frames that were received and not admitted.
    pub(crate) fn kept_back(&self) -> usize {
        self.inbound.len() + usize::from(self.waiting.is_some())
    }

    /// Queues a frame with its message.
    #[inline(always)]
    pub(crate) fn admit(&mut self, frame: Frame, slot: Slot, key: &MessageKey, end_of_message: bool, now: Moment) {
        let Context { share, predecessor, run, .. } = context(&mut self.contexts, slot);
        let (fits, own) = (self.mpqs.held(slot.0) < share.unquestioned, predecessor.is_none());
        if fits && own {
            self.enqueue(frame, slot, key, end_of_message, now);
        } else if own && run.full == Full::Drop && !self.is_mostly_free() {
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
        self.admitted += 1;
        let context = context(&mut self.contexts, slot);
        let in_ip_view = context.run.abi == Abi::Pspin && ip_view::enter(&mut frame);
        let latch = Admission::of(slot, context).latch(&self.clusters, key, self.admitted);
        let her = |frame| {
            let packet = Packet { in_ip_view, ..Packet::new(frame, now.stamp) };
            Her { latch, end_of_message, packet }
        };
        if self.mpqs.takes(mpq) {
            self.mpqs.put(mpq, her(frame));
            context.counts.add(Counter::Matched, 1);
        } else {
            let refused = self.mpqs.refuse(mpq, her(frame));
            self.refuse(mpq, slot, refused);
        }
    }

    /// An arrival for a context that has much of its share of the packet buffer, or all of it, or that has taken the place of
    /// another one, whose message it may be. Returns the arrival if it is to be queued all the same.
    #[cold]
    fn question(&mut self, mut arrival: Arrival, now: Moment) -> Option<Arrival> {
        let matched = arrival.slot;
        arrival.slot = self.begun_by(&arrival);
        let (held, mostly_free, shared) = (self.mpqs.held(arrival.slot.0), self.is_mostly_free(), self.is_shared());
        let context = context(&mut self.contexts, arrival.slot);
        if held < context.share.unquestioned || mostly_free {
            return Some(arrival);
        }
        let hers = context.share.hers;
        let full = held >= hers;
        match context.run.full {
            Full::Wait if !shared || context.patience.lasts() => {
                self.waits_for = Some(arrival.slot);
                // Whose message it is is asked anew: that one's may have ended by then.
                arrival.slot = matched;
                self.waiting = Some(arrival);
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
                    let stays = self.mpqs.is_dead(mpq) && self.mpqs.held(arrival.slot.0) >= hers;
                    if stays && self.mpqs.takes(mpq) {
                        self.tell(arrival.slot, mpq, Counter::MessagesKilled, What::Killed);
                        self.mpqs.kill_behind(mpq);
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

    /// While most of the packet buffer is free, nobody is kept from a part of it: contexts that are idle cost others nothing.
    const fn is_mostly_free(&self) -> bool {
        self.mpqs.room() > self.mostly_free()
    }

    /// Room for so many HERs and more is most of the packet buffer.
    pub(crate) const fn mostly_free(&self) -> usize {
        self.hers as usize / 4 * 3
    }

    /// The context whose message an arrival is: one that was replaced, if the message began there and has not ended.
    fn begun_by(&self, arrival: &Arrival) -> Slot {
        let goes_on = |&old: &Slot| self.messages.queue_of(old, &arrival.key).is_some_and(|mpq| self.mpqs.goes_on(mpq));
        self.replaced_by(arrival.slot).find(goes_on).unwrap_or(arrival.slot)
    }

    /// The contexts that one replaces, and those that these do, the latest first.
    pub(crate) fn replaced_by(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        let predecessor = |slot: Slot| self.contexts[slot.0 as usize].as_ref().and_then(|context| context.predecessor);
        std::iter::successors(predecessor(slot), move |&slot| predecessor(slot))
    }

    /// Gives up a message, with what is still to come of it.
    pub(crate) fn kill(&mut self, mpq: MpqId, slot: Slot, why: Gone) {
        if self.mpqs.is_dead(mpq) {
            return;
        }
        if why == Gone::Killed {
            self.tell(slot, mpq, Counter::MessagesKilled, What::Killed);
        }
        self.gone[mpq.0 as usize] = why;
        if self.mpqs.kill(mpq) {
            self.messages.release(mpq);
        }
        self.bury(slot, why);
    }

    /// Counts what happens to a message, and tells its application.
    pub(crate) fn tell(&mut self, slot: Slot, mpq: MpqId, counter: Counter, what: What) {
        let flow = self.flow(slot, mpq);
        let context = context(&mut self.contexts, slot);
        context.counts.add(counter, 1);
        context.descriptor.tell(Event { flow, what });
    }

    /// The same of a message that ends before its time; not of one that was given up, of which all was said then.
    pub(crate) fn tell_of_end(&mut self, slot: Slot, mpq: MpqId, counter: Counter, what: What) {
        if !self.mpqs.is_dead(mpq) {
            self.tell(slot, mpq, counter, what);
        }
    }

    /// What a context knows the queue of its message by: the message's number where messages are named as FPsPIN does it.
    pub(crate) fn flow(&mut self, slot: Slot, mpq: MpqId) -> u32 {
        let numbered = context(&mut self.contexts, slot).entry.key.is_fpspin();
        if numbered { self.messages.key(mpq).first_byte().into() } else { mpq.0 }
    }

    /// What becomes of the packets of a message that was given up, but for those of which a handler has decided.
    pub(crate) fn bury(&mut self, slot: Slot, why: Gone) {
        while let Some(packet) = self.mpqs.take_dead() {
            let why = packet.gone.unwrap_or(why);
            self.dispose(slot, packet, why);
        }
    }

    /// What becomes of a packet of a message that was given up.
    pub(crate) fn dispose(&mut self, slot: Slot, packet: Packet, why: Gone) {
        let counts = &mut context(&mut self.contexts, slot).counts;
        match why {
            Gone::Killed => counts.add(Counter::DropKilled, 1),
            Gone::Dropped => {
                counts.add(Counter::DropVerdict, 1);
                counts.add(Counter::DropVerdictBytes, packet.frame.len() as u64);
            }
            Gone::Passed => {
                counts.add(Counter::Passed, 1);
                if self.is_shared() {
                    self.scheduler.owe(slot.0, self.toll.charge());
                }
                return pass(&mut self.passing, packet);
            }
        }
        self.nic.recycle(packet.frame);
    }

    /// A packet that its queue did not take.
    #[cold]
    fn refuse(&mut self, mpq: MpqId, slot: Slot, refused: Refused<Packet>) {
        match refused {
            // A batch is never larger than the room for HERs.
            Refused::Full(packet) => self.drop_of(slot, packet.frame, Counter::DropShare),
            Refused::Killed { packet, behind, idle } => {
                let why = if behind { Gone::Killed } else { self.gone[mpq.0 as usize] };
                if why == Gone::Passed && !self.may_pass(slot) {
                    self.drop_of(slot, packet.frame, Counter::DropShare);
                } else {
                    self.dispose(slot, packet, why);
                }
                if idle {
                    self.messages.release(mpq);
                }
            }
        }
    }

    /// The message's queue. When all are taken, an open message that has nothing queued may [give way](Messages::victim).
    #[inline(always)]
    fn queue_for(&mut self, slot: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        self.messages.queue(slot, key, now).or_else(|| self.take_over(slot, key, now))
    }

    #[cold]
    fn take_over(&mut self, slot: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        let idle = self.messages.victim(slot, now, |mpq| self.mpqs.is_quiescent(mpq));
        let victim = idle.or_else(|| self.queued_victim(slot))?;
        // One that was killed before it began is nobody's.
        let owner = self.mpqs.context(victim).map(|binding| binding.slot);
        if let Some(owner) = owner {
            self.tell_of_end(owner, victim, Counter::MessagesEvicted, What::Evicted);
        }
        let dropped = &mut self.outbound.spent;
        let before = dropped.len();
        self.mpqs.reset(victim, |packet| dropped.push(packet.frame));
        let dropped = dropped.len() - before;
        if let Some(owner) = owner {
            context(&mut self.contexts, owner).counts.add(Counter::DropShare, dropped as u64);
        }
        self.messages.release(victim);
        self.messages.queue(slot, key, now)
    }

    /// No queue is left for a new message of a context, and nobody has more than its share of them.
    #[cold]
    fn lose(&mut self, slot: Slot, frame: Frame) {
        self.outbound.spent.push(frame);
        let context = context(&mut self.contexts, slot);
        let Some(lost) = context.record_no_queue() else { return };
        let (id, name) = (context.id, context.name.clone());
        let Some((most, held)) = self.messages.holder() else { return };
        let Some(most) = self.contexts.get(most.0 as usize).and_then(Option::as_ref) else { return };
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

    /// A message that has packets queued may give way too, or a context that is slow would keep all others out.
    fn queued_victim(&self, slot: Slot) -> Option<MpqId> {
        let greediest = self.messages.greediest(slot)?;
        self.mpqs.next_to_begin(greediest.0)
    }

    /// Monitoring: looks at some queues, and ends the open messages among them whose next packet has not come for longer
    /// than their contexts allow: by a tenth of a second at the most, if there are no more queues than are looked at in a turn, and turns are
    /// as many (a thread that sleeps takes ten a second).
    /// Their completion handlers do not run: they are not complete.
    fn end_overdue(&mut self, now: Duration) {
        if self.timeouts == 0 {
            return;
        }
        let since = now.saturating_sub(std::mem::replace(&mut self.monitored, now)).min(MONITORING);
        let due = self.messages.queues() * nanoseconds(since) / nanoseconds(MONITORING);
        let [least, most] = MONITORED;
        for _ in 0..due.clamp(least, most) {
            let contexts = &self.contexts;
            let timeout = |slot: Slot| contexts[slot.0 as usize].as_ref()?.message_timeout.map(nanoseconds);
            let overdue = self.messages.overdue(nanoseconds(now), timeout).filter(|&mpq| self.mpqs.is_quiescent(mpq));
            let Some(mpq) = overdue else { continue };
            if let Some(binding) = self.mpqs.context(mpq) {
                self.tell_of_end(binding.slot, mpq, Counter::MessagesTimedOut, What::TimedOut);
            }
            self.end(mpq);
        }
    }

    /// Frees the queue of an open message that has nothing queued.
    fn end(&mut self, mpq: MpqId) {
        self.mpqs.reset(mpq, |_| unreachable!("a quiescent queue holds no packet"));
        self.messages.release(mpq);
    }

    /// Feeds a task that has ended back. Returns whether a packet buffer was given back.
    #[inline]
    pub(crate) fn feed_back(&mut self, task: Task<Binding, Packet>, deferred: Option<Deferred>) -> bool {
        let Task { mpq, stage, context: binding, packet, last_use } = task;
        let dying = self.mpqs.is_dead(mpq);
        let kept = if last_use {
            self.release(packet, binding.slot, deferred);
            None
        } else {
            Some(packet)
        };
        self.move_on(mpq, binding.slot, stage, kept);
        if dying {
            self.bury(binding.slot, self.gone[mpq.0 as usize]);
        }
        last_use
    }

    /// Moves a queue on when a task of its message has ended.
    #[inline(always)]
    pub(crate) fn move_on(&mut self, mpq: MpqId, slot: Slot, stage: Stage, packet: Option<Packet>) {
        let feedback = self.mpqs.feedback(mpq, stage, packet);
        if feedback.message_done {
            context(&mut self.contexts, slot).counts.add(Counter::Messages, 1);
        }
        if feedback.idle {
            self.messages.release(mpq);
        }
    }

    /// Gives a packet's buffer back to the NIC: as the frame to send, if its handler wanted that, else to be filled anew.
    fn release(&mut self, packet: Packet, slot: Slot, deferred: Option<Deferred>) {
        self.released = packet.arrived;
        let counts = &mut context(&mut self.contexts, slot).counts;
        let (nic, outbound) = (&mut *self.nic, &mut self.outbound);
        let mut commands = Commands::new(nic, outbound, None, counts, None, false, Issued::of(deferred));
        let Some(why) = packet.gone else { return commands.release(packet.frame) };
        if let Some(send) = deferred {
            commands.copy_deferred(send, &packet.frame);
        }
        self.dispose(slot, packet, why);
    }

    /// The NIC outbound engine: hands staged frames over; what the NIC has no room for stays staged.
    pub(crate) fn send(&mut self, clock: &impl Fn() -> Duration) -> Result<(), NicError> {
        if !self.passing.is_empty() {
            self.pass(clock);
        }
        self.outbound.leave(&mut *self.nic);
        self.nic.flush()
    }

    /// Hands on what is the kernel's.
    #[cold]
    fn pass(&mut self, clock: &impl Fn() -> Duration) {
        let Self { nic, passing, toll, counts, .. } = self;
        match (&self.arrivals, &mut self.spread) {
            // The thread that these come from does it, and knows how long it takes.
            (Some(_), _) => _ = nic.pass_to_kernel(passing),
            (None, Some(spread)) => {
                counts.add(Counter::DropShare, toll.pass_some(&mut **nic, passing, spread.passed(), clock));
            }
            (None, None) => {
                let took = toll.pass(&mut **nic, passing, clock);
                self.intake.note_turn(took, Duration::ZERO);
            }
        }
    }

    #[cold]
    pub(crate) fn drop_frame(&mut self, frame: Frame, cause: Counter) {
        self.counts.add(cause, 1);
        self.outbound.spent.push(frame);
    }

    /// Drops a context's frame.
    pub(crate) fn drop_of(&mut self, slot: Slot, frame: Frame, cause: Counter) {
        context(&mut self.contexts, slot).counts.add(cause, 1);
        self.outbound.spent.push(frame);
    }

    /// Frames that handlers sent and that have not left: staged here, or in the NIC's transmit ring; and those that other threads have.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.out_on_lanes() + self.passing.len() + self.unsent()
    }

    /// Those that have not left.
    pub(crate) fn unsent(&self) -> usize {
        self.outbound.transmit.len() + self.nic.pending()
    }

    /// Frames received so far, for other threads too.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.counts.get(Counter::RxPackets)
    }

    /// The statistics block so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut counts = self.counts.clone();
        for context in self.contexts.iter().flatten() {
            counts.merge(&context.counts);
        }
        let active = self.last_feedback.saturating_sub(self.first_arrival.unwrap_or_default());
        Statistics { counts, latencies: self.latencies.clone(), active }
    }
}

/// The cluster on which a message's tasks run: the paper's home cluster.
#[inline]
pub(crate) fn home(clusters: &Range<u32>, key: &MessageKey) -> u32 {
    match clusters.end - clusters.start {
        1 => clusters.start,
        count => clusters.start + key.hash() % count,
    }
}

/// Lists a frame that a context had for the kernel.
fn pass(passing: &mut Vec<Frame>, mut packet: Packet) {
    if packet.in_ip_view {
        ip_view::leave(&mut packet.frame);
    }
    passing.push(packet.frame);
}

/// A context that matched or has messages is installed: removal empties both first.
pub(crate) fn context(contexts: &mut [Option<Context>], slot: Slot) -> &mut Context {
    let Some(context) = &mut contexts[slot.0 as usize] else { unreachable!("{slot:?} is installed") };
    context
}

/// Whether a slot has the context with this id: slots are taken again.
pub(crate) fn has_id(contexts: &[Option<Context>], slot: Slot, id: u32) -> bool {
    contexts.get(slot.0 as usize).and_then(Option::as_ref).is_some_and(|context| context.id == id)
}
