//! Several contexts on one thread: whose packets and tasks are next in a turn, by what [`crate::sched::scheduler`] says.

use std::time::Duration;

use crate::cores::helpers::Helpers;
use crate::ingress::Ingress;
use crate::ingress::rx_batch::BATCH;
use crate::ingress::rx_catch_up::LONG_POLL;
use crate::sched::{ALONE_TIME, PollTimer, SHARED_TIME, Sched};
use crate::telemetry::latency::nanoseconds;
use crate::worker::admission::Admission;
use crate::worker::core::Core;
use crate::worker::core::runnable;
use crate::worker::fast_path::run_fast_path;
use crate::worker::runner::TaskRunner;
use crate::worker::task::Progress;
use spin_pspin::ids::{BatchTime, Slot};

/// Frames taken from the NIC at once when few contexts have some: fewer than of [one alone](crate::ingress::rx_batch::BATCH), which they would
/// wait for.
pub(crate) const SHARED_BATCH: usize = 64;
/// Of each of many contexts at least, if all have as many: what they have in a row is run together.
const MIN_PER_CONTEXT: usize = 4;
/// Tasks of a turn when several contexts have some: few, so that those whose tasks are short always have some waiting and get
/// their share of the time, however many packets of others arrive in between.
const SHARED_POLL_TASKS: u32 = 32;
/// Tasks in a row while others take some over: these may be behind a task that they cannot.
const SHORT_BATCH: u32 = 4;

/// Tasks of a context that will do for this turn and the next.
const ENOUGH_BACKLOG: u32 = 2 * SHARED_POLL_TASKS;
/// Of packets of a batch, one in so many is a good part.
const GOOD_FRACTION: usize = 8;
/// Turns from which on a context that others shared the time with before has it to itself: packets come in bursts, and theirs may be
/// behind its own.
const CONTENTION_POLLS: u32 = 4;
/// Tasks that it runs in a turn until then.
const CONTENDED_TASKS: u32 = 16;

/// Frames taken from the NIC at once when so many contexts share the time.
pub(crate) fn shared_batch(contexts: u32) -> usize {
    (contexts as usize * MIN_PER_CONTEXT).clamp(SHARED_BATCH, BATCH)
}

/// One poll iteration: the parts of a worker that it runs on.
pub(crate) struct Poll<'w, C> {
    pub(crate) core: &'w mut Core,
    pub(crate) runner: &'w mut TaskRunner,
    pub(crate) ingress: &'w mut Ingress,
    pub(crate) admission: &'w mut Admission,
    pub(crate) helpers: Option<&'w mut Helpers>,
    pub(crate) clock: &'w C,
}

impl<'w, C: Fn() -> Duration> Poll<'w, C> {
    /// Runs tasks that there is time for. Returns how many packet buffers were released.
    pub(crate) fn run(&mut self, now: BatchTime) -> u64 {
        if self.core.contexts.is_shared() || self.overflows() { self.run_multi(now) } else { self.run_single(now) }
    }

    /// Runs all tasks of the only context, those of the batch's packets too, unless they take too long for one turn. Returns how many packet
    /// buffers were given back.
    fn run_single(&mut self, now: BatchTime) -> u64 {
        let (mut sampled, mut released) = (self.core.telemetry.is_sampled(self.rx_backlog()), 0);
        let (mut left, end) = (self.core.sched.task_budget, Duration::from_nanos(now.time) + ALONE_TIME);
        self.core.sched.timed_out = false;
        loop {
            // One whose HPUs are all taken runs none.
            if let Some(&only) = self.core.table.mpqs.backlogged().first() {
                let progress = self.runner.run_some(self.core, only, left, self.clock, &mut sampled);
                (released, left) = (released + progress.released, left.saturating_sub(progress.tasks));
            }
            let before = self.rx_backlog();
            if left > 0
                && sampled
                && let Some(&only) = self.core.contexts.routes.slots.first()
            {
                let progress = self.run_fast_path(only, left, now);
                (released, left) = (released + progress.released, left.saturating_sub(progress.tasks));
            }
            let over = left == 0 || self.core.sched.timed_out && (self.clock)() > end;
            if over || before == self.rx_backlog() && (self.core.table.mpqs.room() == 0 || !self.admit_next(now)) {
                return released;
            }
        }
    }

    /// A timer of tasks. It reads the clock if somebody asks for the time or polls take long.
    pub(crate) fn timer(&self) -> PollTimer<&'w C> {
        PollTimer::new(
            (self.core.sched.scheduler.costs_time() || self.ingress.rx_catch_up.has_long_polls()).then_some(self.clock),
        )
    }

    /// Frames that were received and not admitted.
    pub(crate) fn rx_backlog(&self) -> usize {
        self.admission.rx_backlog(&self.ingress.inbound)
    }

    /// Admits the next packet. Returns whether another one may be admitted.
    #[inline(always)]
    fn admit_next(&mut self, now: BatchTime) -> bool {
        self.admission.admit_next(self.core, &mut self.ingress.inbound, now)
    }

    /// Queues or drops what is left of the batch, and charges that to its contexts.
    fn admit_batch(&mut self, now: BatchTime) {
        let Self { core, ingress: Ingress { inbound, charges, .. }, admission, clock, .. } = self;
        if !inbound.is_empty() {
            charges.begin(core, *clock);
            charges.count(inbound);
        }
        admission.admit_batch(core, inbound, now);
        charges.charge(core, *clock);
    }

    /// Goes on with parked tasks. Returns how many packet buffers were released.
    pub(crate) fn resume_parked(&mut self) -> u64 {
        if self.core.parked.is_empty() {
            return 0;
        }
        let others = self.has_own_tasks();
        let timer = self.timer();
        self.runner.resume_parked(self.core, self.helpers.as_deref_mut(), others, || timer)
    }

    /// Runs a context's packets of the batch on the fast path, `most` at most.
    fn run_fast_path(&mut self, slot: Slot, most: u32, now: BatchTime) -> Progress {
        if self.admission.stalled.is_some() {
            return Progress::default();
        }
        let (progress, left_over) = run_fast_path(self.core, self.runner, &mut self.ingress.inbound, slot, most, now);
        if let Some(arrival) = left_over {
            self.admission.admit_late(self.core, arrival, now);
        }
        progress
    }

    /// Whether queued tasks wait until more is received than the batch that is there.
    fn should_rx_first(&mut self) -> bool {
        if !self.ingress.rx_catch_up.looks_for_others() {
            return false;
        }
        // A context with nothing queued is found by its packets in the batch.
        let mpqs = &self.core.table.mpqs;
        let others =
            self.core.table.hers_taken() > 0 && self.core.sched.order.slots().iter().any(|slot| mpqs.held(slot.0) == 0);
        self.ingress.rx_catch_up.wait_for_more(others)
    }

    /// Runs tasks of contexts that share the time, and queues what is left of the batch. Returns how many packet buffers were given
    /// back.
    fn run_multi(&mut self, now: BatchTime) -> u64 {
        self.note_order();
        let should_rx_first = self.should_rx_first();
        if self.overflows() {
            self.ingress.low_backlog = false;
            self.admit_batch(now);
            return if should_rx_first { 0 } else { self.run_queued() };
        }
        let ahead = self.run_arrivals(now, should_rx_first);
        self.admit_batch(now);
        let backlogged = self.core.table.mpqs.backlogged();
        let runs_low = backlogged.len() > 1 && backlogged.iter().any(|&owner| self.runs_low(owner));
        // Others' packets are worth its own, unless it is alone.
        let has_room = ahead.expects || ahead.slot.is_some_and(|slot| self.has_room_for_more(slot));
        self.ingress.low_backlog = runs_low || ahead.were_many() && has_room;
        ahead.released + if should_rx_first || self.has_more(&ahead) { 0 } else { self.run_queued() }
    }

    /// Notes which contexts have packets in the batch.
    pub(crate) fn note_order(&mut self) {
        self.core.sched.order.note(&self.ingress.inbound);
    }

    /// Whether a context has few tasks queued, of those that it may have.
    fn runs_low(&self, owner: u32) -> bool {
        self.core.table.mpqs.held(owner) < ENOUGH_BACKLOG.min(self.soft_limit(owner) / 2)
    }

    /// HERs that a context may hold without more ado.
    fn soft_limit(&self, owner: u32) -> u32 {
        self.core.contexts.list[owner as usize].as_ref().map_or(0, |context| context.share.soft_limit)
    }

    /// Whether a context loses none of a batch's packets, nor of those behind it, should few of its tasks run meanwhile.
    fn has_room_for_more(&self, slot: Slot) -> bool {
        let held = self.core.table.mpqs.held(slot.0) as usize;
        held + 2 * SHARED_BATCH <= self.soft_limit(slot.0) as usize
            || self.core.table.mpqs.room() > self.core.table.quota_threshold() + 2 * SHARED_BATCH
    }

    /// Runs contexts on their packets of the batch as these are, the one that is furthest behind first, unless that would put them too far
    /// ahead of others.
    ///
    /// Contexts of which one task took all of a poll are put off while `should_rx_first`.
    fn run_arrivals(&mut self, now: BatchTime, should_rx_first: bool) -> ArrivalStats {
        let mut all = ArrivalStats {
            slot: None,
            tasks: 0,
            released: 0,
            of: self.ingress.inbound.len(),
            expects: false,
            long: false,
        };
        if self.ingress.inbound.is_empty() || self.core.contexts.stalls || self.core.contexts.draining > 0 {
            return all;
        }
        let Sched { order, scheduler, .. } = &mut self.core.sched;
        order.put_in_order(&mut self.ingress.inbound, scheduler);
        let (sampled, timer) = (self.core.telemetry.is_sampled(self.rx_backlog()), self.timer());
        let mut guard = LagGuard { min_vtime: self.core.min_vtime(), timer, sampled };
        for rank in 0..self.core.sched.order.slots().len() {
            let slot = self.core.sched.order.slots()[rank];
            all.expects = self.expects_others(slot, self.core.sched.order.slots().len() > 1);
            if !(should_rx_first && self.core.sched.scheduler.takes_long(slot.0, SHARED_TIME)) {
                self.run_within_lag(slot, now, &mut guard, &mut all);
            }
            if all.expects || self.core.sched.timed_out || guard.timer.is_over() {
                break;
            }
            if self.ingress.inbound.is_next_of(slot) {
                while self.ingress.inbound.is_next_of(slot) && self.core.table.mpqs.room() > 0 && self.admit_next(now) {
                }
                self.core.sched.scheduler.charge_reception(slot.0, nanoseconds(guard.timer.split()));
            }
        }
        all.long = guard.timer.took() >= LONG_POLL;
        all.slot = self
            .core
            .sched
            .order
            .slots()
            .iter()
            .copied()
            .min_by_key(|slot| self.core.sched.scheduler.min_vtime([slot.0]));
        all
    }

    /// Runs a context on its packets, which are the next ones, as long as it keeps pace.
    fn run_within_lag(&mut self, slot: Slot, now: BatchTime, guard: &mut LagGuard<&'w C>, all: &mut ArrivalStats) {
        let mut left = if all.expects { CONTENDED_TASKS } else { SHARED_BATCH as u32 };
        self.core.sched.timed_out = false;
        while self.ingress.inbound.is_next_of(slot)
            && left > 0
            && !guard.timer.is_over()
            && self.within_lag(slot, guard)
        {
            let progress = self.run_next(slot, now, &mut guard.sampled);
            let owed = self.core.sched.scheduler.charge(slot.0, progress.tasks, guard.timer.split());
            guard.timer.defer(owed);
            left = left.saturating_sub(progress.tasks);
            all.tasks += progress.tasks;
            all.released += progress.released;
            if progress.tasks == 0 || self.core.sched.timed_out {
                break;
            }
        }
    }

    /// Whether a context is not too far ahead of others.
    fn within_lag(&self, slot: Slot, guard: &mut LagGuard<&'w C>) -> bool {
        if !self.core.sched.scheduler.within_lag(slot.0, guard.min_vtime, self.core.contexts.linked) {
            // Others may have gone on since.
            guard.min_vtime = self.core.min_vtime();
        }
        self.core.sched.scheduler.within_lag(slot.0, guard.min_vtime, self.core.contexts.linked)
    }

    /// Whether others shared the time with a context that now is the only one in sight.
    fn expects_others(&mut self, slot: Slot, has_rivals: bool) -> bool {
        let alone = !has_rivals && self.core.table.mpqs.backlogged().iter().all(|&owner| owner == slot.0);
        self.core.sched.recent_contention =
            if alone { self.core.sched.recent_contention.saturating_sub(1) } else { CONTENTION_POLLS };
        alone && self.core.sched.recent_contention > 0
    }

    /// Runs some tasks of a context: of those that it has queued, or else on its packets of the batch, straight.
    fn run_next(&mut self, slot: Slot, now: BatchTime, sampled: &mut bool) -> Progress {
        let Some(pick) = self.core.sched.scheduler.pick([slot.0]) else { return Progress::default() };
        let queued = self.core.table.mpqs.held(slot.0) > 0;
        if !queued && (*sampled || !self.queue_next(slot, now)) {
            let progress = self.run_fast_path(slot, pick.tasks, now);
            // The first packet had to be queued: once its task is over, those behind it may run straight.
            if progress.tasks > 0 || self.core.table.mpqs.held(slot.0) == 0 {
                return progress;
            }
        }
        self.runner.run_some(self.core, slot.0, pick.tasks, self.clock, sampled)
    }

    /// Queues the next packet, which is a context's, so that its task is one that can be looked at.
    fn queue_next(&mut self, slot: Slot, now: BatchTime) -> bool {
        self.core.table.mpqs.room() > 0 && self.admit_next(now) && self.core.table.mpqs.held(slot.0) > 0
    }

    /// Whether it still is the turn of the context that was run ahead, and there may be so many more packets of it that the NIC is to be
    /// asked before others' tasks are run: else those have the time that it leaves.
    fn has_more(&self, ahead: &ArrivalStats) -> bool {
        let may_be_more = self.ingress.rx_catch_up.batch_was_full || self.rx_backlog() > 0;
        may_be_more && ahead.were_many() && (ahead.expects || ahead.slot.is_some_and(|slot| self.core.is_next(slot)))
    }

    /// Runs some tasks that contexts have queued, and charges them for theirs. Returns how many packet buffers were given
    /// back.
    fn run_queued(&mut self) -> u64 {
        let (mut sampled, mut timer) = (self.core.telemetry.is_sampled(self.rx_backlog()), self.timer());
        let (overflows, mut all) = (self.overflows(), Progress::default());
        loop {
            let most = match self.core.table.mpqs.backlogged().len() {
                _ if overflows => self.own_part(),
                0 | 1 => SHARED_BATCH as u32,
                _ => SHARED_POLL_TASKS,
            };
            self.share_tasks();
            if all.tasks >= most || timer.is_over() {
                break;
            }
            let Core { sched, parked, table, contexts, .. } = &mut *self.core;
            let runnable = runnable(parked, &table.mpqs, &contexts.list);
            let Some(pick) = sched.scheduler.pick(runnable) else { break };
            let row = if overflows { pick.tasks.min(SHORT_BATCH) } else { pick.tasks };
            let progress =
                self.runner.run_some(self.core, pick.owner, row.min(most - all.tasks), self.clock, &mut sampled);
            let owed = self.core.sched.scheduler.charge(pick.owner, progress.tasks, timer.split());
            timer.defer(owed);
            all.released += progress.released;
            // One whose last task was taken before runs none.
            all.tasks += progress.tasks.max(1);
        }
        all.released
    }
}

/// How far contexts may go on their packets of a batch.
struct LagGuard<C> {
    /// Where the one was that was furthest behind, when that was looked at last.
    min_vtime: u64,
    timer: PollTimer<C>,
    /// The time of a task was taken.
    sampled: bool,
}

/// What [`Poll::run_arrivals`] did.
struct ArrivalStats {
    /// The context that is furthest behind of those with packets in the batch.
    slot: Option<Slot>,
    tasks: u32,
    /// Packet buffers given back.
    released: u64,
    /// Packets of the batch.
    of: usize,
    /// See [`Poll::expects_others`].
    expects: bool,
    /// The tasks took longer than it takes to receive a batch.
    long: bool,
}

impl ArrivalStats {
    /// Whether a good part of the packets were of contexts whose turn it was, or few that took long.
    const fn were_many(&self) -> bool {
        self.tasks > 0 && (self.long || self.tasks as usize * GOOD_FRACTION >= self.of)
    }
}
