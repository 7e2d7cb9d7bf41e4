//! Several contexts on one thread: whose packets and tasks are next in a turn, by what [`crate::schedule`] says.

use std::time::Duration;

use crate::context::Slot;
use crate::inbound::{BATCH, Inbound};
use crate::intake::LONG;
use crate::pipeline::{Engine, Moment};
use crate::schedule::Scheduler;
use crate::tasks::{Done, runnable};

/// Frames taken from the NIC at once when few contexts have some: fewer than of [one alone](crate::inbound::BATCH), which they would
/// wait for.
pub(crate) const SHARED_BATCH: usize = 64;
/// Of each of many contexts at least, if all have as many: what they have in a row is run together.
const EACH: usize = 4;
/// Tasks of a turn when several contexts have some: few, so that those whose tasks are short always have some waiting and get
/// their share of the time, however many packets of others arrive in between.
const SHARED_TURN: u32 = 32;
/// Time of such a turn after which no more of them are begun.
pub(crate) const SHARED_TIME: Duration = Duration::from_micros(200);

/// Tasks in a row while others take some over: these may be behind a task that they cannot.
const ROW: u32 = 4;

/// Tasks of a context that will do for this turn and the next.
const ENOUGH: u32 = 2 * SHARED_TURN;
/// Of packets of a batch, one in so many is a good part.
const GOOD_PART: usize = 8;
/// Turns from which on a context that others shared the time with before has it to itself: packets come in bursts, and theirs may be
/// behind its own.
const COMPANY: u32 = 4;
/// Tasks that it runs in a turn until then.
const ALONE: u32 = 16;

/// Frames taken from the NIC at once when so many contexts share the time.
pub(crate) fn shared_batch(contexts: u32) -> usize {
    (contexts as usize * EACH).clamp(SHARED_BATCH, BATCH)
}

/// The time that tasks of a turn take.
pub(crate) struct Shift<C> {
    /// `None`: nobody asks.
    clock: Option<C>,
    start: Duration,
    last: Duration,
    /// What is put off to the end of the turn.
    later: Duration,
}

impl<C: Fn() -> Duration> Shift<C> {
    pub(crate) fn new(clock: Option<C>) -> Self {
        let start = clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        Self { clock, start, last: start, later: Duration::ZERO }
    }

    /// Since it was called last, or the shift began.
    pub(crate) fn lap(&mut self) -> Duration {
        let now = self.clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.last.saturating_sub(self.start) + self.later > SHARED_TIME
    }

    /// What was run takes so long once the shift is over: that is its time, too.
    fn put_off(&mut self, time: Duration) {
        self.later += time;
    }
}

impl Engine {
    /// A shift whose end is seen, if somebody asks for the time or turns take long.
    pub(crate) fn shift<C: Fn() -> Duration>(&self, clock: C) -> Shift<C> {
        Shift::new((self.scheduler.costs_time() || self.intake.has_long_turns()).then_some(clock))
    }

    /// Runs tasks of contexts that share the time, and queues what is left of the batch. Returns how many packet buffers were given
    /// back.
    pub(crate) fn run_together(&mut self, now: Moment, clock: &impl Fn() -> Duration) -> u64 {
        self.note_ranks();
        let takes_in_more = self.takes_in_more();
        if self.overflows() {
            self.lean = false;
            self.admit_batch(now);
            return if takes_in_more { 0 } else { self.run_shared(clock) };
        }
        let ahead = self.run_ahead(now, takes_in_more, clock);
        self.admit_batch(now);
        let backlogged = self.mpqs.backlogged();
        let runs_low = backlogged.len() > 1 && backlogged.iter().any(|&owner| self.runs_low(owner));
        // Others' packets are worth its own, unless it is alone.
        let has_room = ahead.expects || ahead.slot.is_some_and(|slot| self.has_room_for_more(slot));
        self.lean = runs_low || ahead.were_many() && has_room;
        ahead.released + if takes_in_more || self.has_more(&ahead) { 0 } else { self.run_shared(clock) }
    }

    /// Notes which contexts have packets in the batch.
    pub(crate) fn note_ranks(&mut self) {
        self.ranks.note(&self.inbound);
    }

    /// Whether a context has few tasks queued, of those that it may have.
    fn runs_low(&self, owner: u32) -> bool {
        self.mpqs.held(owner) < ENOUGH.min(self.unquestioned(owner) / 2)
    }

    /// HERs that a context may hold without more ado.
    fn unquestioned(&self, owner: u32) -> u32 {
        self.contexts[owner as usize].as_ref().map_or(0, |context| context.share.unquestioned)
    }

    /// Whether a context loses none of a batch's packets, nor of those behind it, should few of its tasks run meanwhile.
    fn has_room_for_more(&self, slot: Slot) -> bool {
        let held = self.mpqs.held(slot.0) as usize;
        held + 2 * SHARED_BATCH <= self.unquestioned(slot.0) as usize
            || self.mpqs.room() > self.mostly_free() + 2 * SHARED_BATCH
    }

    /// Runs contexts on their packets of the batch as these are, the one that is furthest behind first, unless that would put them too far
    /// ahead of others. Those of which a task took all of a turn are `put_off` while more is taken in.
    fn run_ahead(&mut self, now: Moment, put_off: bool, clock: &impl Fn() -> Duration) -> Ahead {
        let mut all = Ahead { slot: None, tasks: 0, released: 0, of: self.inbound.len(), expects: false, long: false };
        if self.inbound.is_empty() || self.waits || self.retired > 0 {
            return all;
        }
        self.ranks.put_in_order(&mut self.inbound, &self.scheduler);
        let (sampled, shift) = (self.is_sampled(), self.shift(clock));
        let mut pace = Pace { least: self.least(), shift, sampled };
        for rank in 0..self.ranks.slots.len() {
            let slot = self.ranks.slots[rank];
            all.expects = self.expects_others(slot, self.ranks.slots.len() > 1);
            if !(put_off && self.scheduler.takes_long(slot.0, SHARED_TIME)) {
                self.run_at_pace(slot, now, clock, &mut pace, &mut all);
            }
            if all.expects || self.overran || pace.shift.is_over() {
                break;
            }
            while self.inbound.is_next_of(slot) && self.mpqs.room() > 0 && self.admit_next(now) {}
        }
        all.long = pace.shift.last.saturating_sub(pace.shift.start) >= LONG;
        all.slot = self.ranks.slots.iter().copied().min_by_key(|slot| self.scheduler.least([slot.0]));
        all
    }

    /// Runs a context on its packets, which are the next ones, as long as it keeps pace.
    fn run_at_pace<C: Fn() -> Duration>(
        &mut self,
        slot: Slot,
        now: Moment,
        clock: &C,
        pace: &mut Pace<&C>,
        all: &mut Ahead,
    ) {
        let mut left = if all.expects { ALONE } else { SHARED_BATCH as u32 };
        self.overran = false;
        while self.inbound.is_next_of(slot) && left > 0 && !pace.shift.is_over() && self.keeps_pace(slot, pace) {
            let done = self.run_next(slot, now, clock, &mut pace.sampled);
            let owed = self.scheduler.charge(slot.0, done.tasks, pace.shift.lap());
            pace.shift.put_off(owed);
            left = left.saturating_sub(done.tasks);
            all.tasks += done.tasks;
            all.released += done.released;
            if done.tasks == 0 || self.overran {
                break;
            }
        }
    }

    /// Whether a context is not too far ahead of others.
    fn keeps_pace<C>(&self, slot: Slot, pace: &mut Pace<C>) -> bool {
        if !self.scheduler.keeps_pace(slot.0, pace.least, self.linked) {
            // Others may have gone on since.
            pace.least = self.least();
        }
        self.scheduler.keeps_pace(slot.0, pace.least, self.linked)
    }

    /// Where the context is that is furthest behind, of those that have packets or tasks.
    fn least(&self) -> u64 {
        let queued = runnable(&self.parked, &self.mpqs, &self.contexts);
        self.scheduler.least(self.ranks.slots.iter().map(|slot| slot.0).chain(queued))
    }

    /// Whether a context may leave a packet to the kernel that comes behind others of a message which it did not want: that is done at
    /// once, so it is bounded as what runs at once is.
    #[cold]
    pub(crate) fn may_pass(&mut self, slot: Slot) -> bool {
        !self.is_shared() || {
            let least = self.least();
            self.scheduler.keeps_pace(slot.0, least, self.linked) && self.scheduler.pick([slot.0]).is_some()
        }
    }

    /// Whether others shared the time with a context that now is the only one in sight.
    fn expects_others(&mut self, slot: Slot, has_rivals: bool) -> bool {
        let alone = !has_rivals && self.mpqs.backlogged().iter().all(|&owner| owner == slot.0);
        self.company = if alone { self.company.saturating_sub(1) } else { COMPANY };
        alone && self.company > 0
    }

    /// Runs some tasks of a context: of those that it has queued, or else on its packets of the batch, straight.
    fn run_next(&mut self, slot: Slot, now: Moment, clock: &impl Fn() -> Duration, sampled: &mut bool) -> Done {
        let Some(pick) = self.scheduler.pick([slot.0]) else { return Done::default() };
        let queued = self.mpqs.held(slot.0) > 0;
        if !queued && (*sampled || !self.queue_next(slot, now)) {
            let done = self.run_straight(slot, pick.tasks, now);
            // The first packet had to be queued: once its task is over, those behind it may run straight.
            if done.tasks > 0 || self.mpqs.held(slot.0) == 0 {
                return done;
            }
        }
        self.run_some(slot.0, pick.tasks, clock, sampled)
    }

    /// Whether a context comes before all that have tasks.
    pub(crate) fn is_next(&self, slot: Slot) -> bool {
        self.scheduler.is_next(slot.0, runnable(&self.parked, &self.mpqs, &self.contexts))
    }

    /// Queues the next packet, which is a context's, so that its task is one that can be looked at.
    fn queue_next(&mut self, slot: Slot, now: Moment) -> bool {
        self.mpqs.room() > 0 && self.admit_next(now) && self.mpqs.held(slot.0) > 0
    }

    /// Whether it still is the turn of the context that was run ahead, and there may be so many more packets of it that the NIC is to be
    /// asked before others' tasks are run: else those have the time that it leaves.
    fn has_more(&self, ahead: &Ahead) -> bool {
        let may_be_more = self.intake.whole || self.kept_back() > 0;
        may_be_more && ahead.were_many() && (ahead.expects || ahead.slot.is_some_and(|slot| self.is_next(slot)))
    }

    /// Runs some tasks that contexts have queued, and charges them for theirs. Returns how many packet buffers were given
    /// back.
    fn run_shared(&mut self, clock: &impl Fn() -> Duration) -> u64 {
        let (mut sampled, mut shift) = (self.is_sampled(), self.shift(clock));
        let (overflows, mut all) = (self.overflows(), Done::default());
        loop {
            let most = match self.mpqs.backlogged().len() {
                _ if overflows => self.own_part(),
                0 | 1 => SHARED_BATCH as u32,
                _ => SHARED_TURN,
            };
            self.lend();
            if all.tasks >= most || shift.is_over() {
                break;
            }
            let runnable = runnable(&self.parked, &self.mpqs, &self.contexts);
            let Some(pick) = self.scheduler.pick(runnable) else { break };
            let row = if overflows { pick.tasks.min(ROW) } else { pick.tasks };
            let done = self.run_some(pick.owner, row.min(most - all.tasks), clock, &mut sampled);
            let owed = self.scheduler.charge(pick.owner, done.tasks, shift.lap());
            shift.put_off(owed);
            all.released += done.released;
            // One whose last task was taken before runs none.
            all.tasks += done.tasks.max(1);
        }
        all.released
    }
}

/// The contexts of a batch.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    /// The one that is furthest behind first.
    slots: Vec<Slot>,
    /// By slot, of those that are there: the place there.
    places: Vec<Option<u32>>,
}

impl Ranks {
    /// Them.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Notes whose packets there are.
    fn note(&mut self, inbound: &Inbound) {
        let Self { slots, places } = self;
        slots.clear();
        for slot in inbound.slots() {
            let index = slot.0 as usize;
            if places.len() <= index {
                places.resize(index + 1, None);
            }
            if places[index].replace(0).is_none() {
                slots.push(slot);
            }
        }
        slots.iter().for_each(|slot| places[slot.0 as usize] = None);
    }

    /// Puts packets of the same context next to each other, those first whose context is furthest behind.
    fn put_in_order(&mut self, inbound: &mut Inbound, scheduler: &Scheduler) {
        let Self { slots, places } = self;
        if slots.len() > 1 {
            scheduler.sort(slots);
            // Groups of the greatest numbers are the first ones.
            (0..).zip(slots.iter().rev()).for_each(|(place, slot)| places[slot.0 as usize] = Some(place));
            inbound.group(slots.len() as u32, |found, place| match found.gist(place).owner {
                Slot::NOBODY => 0,
                owner => places[owner.0 as usize].unwrap_or(0),
            });
        }
        slots.iter().for_each(|slot| places[slot.0 as usize] = None);
    }
}

/// How far contexts may go on their packets of a batch.
struct Pace<C> {
    /// Where the one was that was furthest behind, when that was looked at last.
    least: u64,
    shift: Shift<C>,
    /// The time of a task was taken.
    sampled: bool,
}

/// What [`Engine::run_ahead`] did.
struct Ahead {
    /// The context that is furthest behind of those with packets in the batch.
    slot: Option<Slot>,
    tasks: u32,
    /// Packet buffers given back.
    released: u64,
    /// Packets of the batch.
    of: usize,
    /// See [`Engine::expects_others`].
    expects: bool,
    /// The tasks took longer than it takes to receive a batch.
    long: bool,
}

impl Ahead {
    /// Whether a good part of the packets were of contexts whose turn it was, or few that took long.
    const fn were_many(&self) -> bool {
        self.tasks > 0 && (self.long || self.tasks as usize * GOOD_PART >= self.of)
    }
}
