//! Several contexts on one thread: whose packets and tasks are next in a turn, by what [`crate::schedule`] says.

use std::time::Duration;

use crate::context::Slot;
use crate::inbound::Found;
use crate::pipeline::{Engine, Moment};
use crate::schedule::Scheduler;
use crate::tasks::{Done, runnable};

/// Frames taken from the NIC at once when several contexts have some: fewer than of [one alone](crate::inbound::BATCH), which they would
/// wait for.
pub(crate) const SHARED_BATCH: usize = 64;
/// Tasks of a turn when several contexts have some: few, so that those whose tasks are short always have some waiting and get
/// their share of the time, however many packets of others arrive in between.
const SHARED_TURN: u32 = 32;
/// Time of such a turn after which no more of them are begun.
const SHARED_TIME: Duration = Duration::from_micros(100);

/// Tasks in a row while others take some over: these may be behind a task that they cannot.
const ROW: u32 = 4;

/// Tasks of a context that will do for this turn and the next.
const ENOUGH: u32 = 2 * SHARED_TURN;
/// Of packets of a batch, one in so many is a good part.
const GOOD_PART: usize = 8;
/// Tasks below which it costs more than it saves to put others' packets aside.
const FEW_TASKS: u32 = 8;
/// Turns from which on a context that others shared the time with before has it to itself: packets come in bursts, and theirs may be
/// behind its own.
const COMPANY: u32 = 4;
/// Tasks that it runs in a turn until then.
const ALONE: u32 = 16;

/// The time that tasks of a turn take.
pub(crate) struct Shift<C> {
    /// `None`: nobody asks.
    clock: Option<C>,
    start: Duration,
    last: Duration,
}

impl<C: Fn() -> Duration> Shift<C> {
    pub(crate) fn new(scheduler: &Scheduler, clock: C) -> Self {
        let clock = scheduler.wants_time().then_some(clock);
        let start = clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        Self { clock, start, last: start }
    }

    /// Since it was called last, or the shift began.
    pub(crate) fn lap(&mut self) -> Duration {
        let now = self.clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.last.saturating_sub(self.start) > SHARED_TIME
    }
}

impl Engine {
    /// Runs tasks of contexts that share the time, and queues what is left of the batch. Returns how many packet buffers were given
    /// back.
    pub(crate) fn run_together(&mut self, now: Moment, clock: &impl Fn() -> Duration) -> u64 {
        if self.overflows() {
            self.lean = false;
            self.admit_batch(now);
            return self.run_shared(clock);
        }
        let ahead = self.run_ahead(now, clock);
        self.admit_batch(now);
        let backlogged = self.mpqs.backlogged();
        let runs_low = backlogged.len() > 1 && backlogged.iter().any(|&owner| self.mpqs.held(owner) < ENOUGH);
        // Others' packets are worth its own, unless it is alone.
        let has_room = ahead.expects || ahead.slot.is_some_and(|slot| self.has_room_for_more(slot));
        self.lean = runs_low || ahead.were_many() && has_room;
        ahead.released + if self.has_more(&ahead) { 0 } else { self.run_shared(clock) }
    }

    /// Whether a context loses none of a batch's packets, nor of those behind it, should few of its tasks run meanwhile.
    fn has_room_for_more(&self, slot: Slot) -> bool {
        let share = self.contexts[slot.0 as usize].as_ref().map_or(0, |context| context.share.unquestioned);
        let held = self.mpqs.held(slot.0) as usize;
        held + 2 * SHARED_BATCH <= share as usize || self.mpqs.room() > self.mostly_free() + 2 * SHARED_BATCH
    }

    /// Runs contexts that have packets in the batch, as long as it is not the turn of one that has not.
    fn run_ahead(&mut self, now: Moment, clock: &impl Fn() -> Duration) -> Ahead {
        let mut all = Ahead { slot: None, tasks: 0, released: 0, of: self.inbound.len(), expects: false };
        if self.inbound.is_empty() {
            return all;
        }
        let (mut sampled, mut shift) = (self.is_sampled(), Shift::new(&self.scheduler, clock));
        self.overran = false;
        while let Some((slot, rival)) = self.ahead() {
            if self.has_more(&all) && !self.is_next(slot, all.slot) {
                break;
            }
            let before = all.tasks;
            all.expects = self.expects_others(slot, rival);
            let most = if all.expects { ALONE } else { SHARED_BATCH as u32 };
            while self.is_next(slot, rival) && all.tasks < most && !shift.is_over() {
                let done = self.run_next(slot, now, clock, &mut sampled);
                self.scheduler.charge(slot.0, done.tasks, shift.lap());
                all.released += done.released;
                all.tasks += done.tasks;
                if done.tasks == 0 || self.overran {
                    break;
                }
            }
            self.inbound.put_back();
            all.slot = Some(slot);
            if all.expects || self.overran || all.tasks - before < FEW_TASKS {
                break;
            }
        }
        all
    }

    /// Whether others shared the time with a context that now is the only one in sight.
    fn expects_others(&mut self, slot: Slot, rival: Option<Slot>) -> bool {
        let alone = rival.is_none() && self.mpqs.backlogged().iter().all(|&owner| owner == slot.0);
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

    /// The context that is furthest behind of those of the next packets, and the next one of these.
    fn ahead(&self) -> Option<(Slot, Option<Slot>)> {
        if self.waiting.is_some() || self.retired > 0 {
            return None;
        }
        let (mut first, mut second) = (None, None);
        let before =
            |slot: Slot, other: Option<Slot>| other.is_none_or(|other| self.scheduler.is_next(slot.0, [other.0]));
        for slot in self.inbound.slots() {
            if first == Some(slot) || second == Some(slot) {
                continue;
            }
            if before(slot, first) {
                (first, second) = (Some(slot), first);
            } else if before(slot, second) {
                second = Some(slot);
            }
            if second.is_some() && self.routes.slots.len() == 2 {
                break;
            }
        }
        first.filter(|&slot| !self.has_parked(slot.0)).map(|slot| (slot, second))
    }

    /// Whether a context comes before all that have tasks, and before a rival.
    pub(crate) fn is_next(&self, slot: Slot, rival: Option<Slot>) -> bool {
        let before_rival = rival.is_none_or(|rival| self.scheduler.is_next(slot.0, [rival.0]));
        before_rival && self.scheduler.is_next(slot.0, runnable(&self.parked, &self.mpqs, &self.contexts))
    }

    /// Queues the next packet of a context, so that its task is one that can be looked at. Those before it are put aside.
    fn queue_next(&mut self, slot: Slot, now: Moment) -> bool {
        while self.mpqs.room() > 0
            && self.waiting.is_none()
            && let Some((frame, &Found { owner, end_of_message, key, .. })) = self.inbound.take()
        {
            if owner == slot {
                self.admit(frame, slot, &key, end_of_message, now);
                return self.mpqs.held(slot.0) > 0;
            }
            self.inbound.put_aside(frame);
        }
        false
    }

    /// Whether it still is the turn of the context that was run ahead, and there may be so many more packets of it that the NIC is to be
    /// asked before others' tasks are run.
    fn has_more(&self, ahead: &Ahead) -> bool {
        ahead.were_many() && (ahead.expects || ahead.slot.is_some_and(|slot| self.is_next(slot, None)))
    }

    /// Runs some tasks that contexts have queued, and charges them for theirs. Returns how many packet buffers were given
    /// back.
    fn run_shared(&mut self, clock: &impl Fn() -> Duration) -> u64 {
        let (mut sampled, mut shift) = (self.is_sampled(), Shift::new(&self.scheduler, clock));
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
            self.scheduler.charge(pick.owner, done.tasks, shift.lap());
            all.released += done.released;
            // One whose last task was taken before runs none.
            all.tasks += done.tasks.max(1);
        }
        all.released
    }
}

/// What [`Engine::run_ahead`] did.
struct Ahead {
    /// The context that was run last.
    slot: Option<Slot>,
    tasks: u32,
    /// Packet buffers given back.
    released: u64,
    /// Packets of the batch.
    of: usize,
    /// See [`Engine::expects_others`].
    expects: bool,
}

impl Ahead {
    /// Whether a good part of the packets were of contexts whose turn it was.
    const fn were_many(&self) -> bool {
        self.tasks > 0 && self.tasks as usize * GOOD_PART >= self.of
    }
}
