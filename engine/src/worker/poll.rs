//! One poll of several contexts on one thread: which packets and tasks run next, according to [`crate::sched::scheduler`].

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

/// Frames per receive while few contexts share the thread. Fewer than [`BATCH`] for a single one, since contexts wait for each
/// other.
pub(crate) const SHARED_BATCH: usize = 64;
/// Frames per receive for each of many contexts, on average: consecutive packets of one context run together.
const MIN_PER_CONTEXT: usize = 4;
/// Tasks per poll while several contexts have tasks queued. With few, contexts with short tasks always have some queued and get
/// their share of the time, however many packets of others arrive in between.
const SHARED_POLL_TASKS: u32 = 32;
/// Tasks per batch while other threads take tasks over: lendable tasks may be queued behind one that cannot be lent.
const SHORT_BATCH: u32 = 4;

/// Queued tasks of a context that suffice for this poll and the next.
const ENOUGH_BACKLOG: u32 = 2 * SHARED_POLL_TASKS;
/// Divisor: this fraction of a batch's packets is a significant part.
const GOOD_FRACTION: usize = 8;
/// Polls until a context that shared the time is considered alone. Packets come in bursts, and those of others may be behind its
/// own.
const CONTENTION_POLLS: u32 = 4;
/// Tasks that such a context runs per poll until then.
const CONTENDED_TASKS: u32 = 16;

/// The number of frames per receive while `contexts` contexts share the time.
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
    /// Runs the tasks that there is time for. Returns how many packet buffers were released.
    pub(crate) fn run(&mut self, now: BatchTime) -> u64 {
        if self.core.contexts.is_shared() || self.overflows() { self.run_multi(now) } else { self.run_single(now) }
    }

    /// Runs all tasks of the only context, including those of the batch's packets, within the time of one poll. Returns how many
    /// packet buffers were released.
    fn run_single(&mut self, now: BatchTime) -> u64 {
        let (mut sampled, mut released) = (self.core.telemetry.is_sampled(self.rx_backlog()), 0);
        let (mut left, end) = (self.core.sched.task_budget, Duration::from_nanos(now.time) + ALONE_TIME);
        self.core.sched.timed_out = false;
        loop {
            // A context whose HPUs are all taken runs no task.
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

    /// A timer of tasks. It reads the clock only if tasks cost time or polls take long.
    pub(crate) fn timer(&self) -> PollTimer<&'w C> {
        PollTimer::new(
            (self.core.sched.scheduler.costs_time() || self.ingress.rx_catch_up.has_long_polls()).then_some(self.clock),
        )
    }

    /// The number of frames received and not admitted.
    pub(crate) fn rx_backlog(&self) -> usize {
        self.admission.rx_backlog(&self.ingress.inbound)
    }

    /// Admits the next packet. Returns whether another one may be admitted.
    #[inline(always)]
    fn admit_next(&mut self, now: BatchTime) -> bool {
        self.admission.admit_next(self.core, &mut self.ingress.inbound, now)
    }

    /// Queues or drops the rest of the batch, and charges its contexts for that.
    fn admit_batch(&mut self, now: BatchTime) {
        let Self { core, ingress: Ingress { inbound, charges, .. }, admission, clock, .. } = self;
        if !inbound.is_empty() {
            charges.begin(core, *clock);
            charges.count(inbound);
        }
        admission.admit_batch(core, inbound, now);
        charges.charge(core, *clock);
    }

    /// Resumes parked tasks. Returns how many packet buffers were released.
    pub(crate) fn resume_parked(&mut self) -> u64 {
        if self.core.parked.is_empty() {
            return 0;
        }
        let others = self.has_own_tasks();
        let timer = self.timer();
        self.runner.resume_parked(self.core, self.helpers.as_deref_mut(), others, || timer)
    }

    /// Runs up to `most` of a context's packets of the batch on the fast path.
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

    /// Whether queued tasks wait until more than the current batch is received.
    fn should_rx_first(&mut self) -> bool {
        if !self.ingress.rx_catch_up.looks_for_others() {
            return false;
        }
        // A context that has packets in the batch and nothing queued counts as another one.
        let mpqs = &self.core.table.mpqs;
        let others =
            self.core.table.hers_taken() > 0 && self.core.sched.order.slots().iter().any(|slot| mpqs.held(slot.0) == 0);
        self.ingress.rx_catch_up.wait_for_more(others)
    }

    /// Runs tasks of contexts that share the time, and queues the rest of the batch. Returns how many packet buffers were
    /// released.
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
        let runs_low = self.any_runs_low();
        // While packets of others are expected, receiving them is worth some drops of this context's own.
        let has_room = ahead.expects || ahead.slot.is_some_and(|slot| self.has_room_for_more(slot));
        self.ingress.low_backlog = runs_low || ahead.were_many() && has_room;
        ahead.released + if should_rx_first || self.has_more(&ahead) { 0 } else { self.run_queued() }
    }

    /// Notes which contexts have packets in the batch.
    pub(crate) fn note_order(&mut self) {
        self.core.sched.order.note(&self.ingress.inbound);
    }

    /// Whether one of several contexts may run out of tasks: of those with queued tasks, or of those with packets in the batch. The
    /// latter may have more packets in the NIC, behind those of contexts that have more than they can run.
    fn any_runs_low(&self) -> bool {
        let backlogged = self.core.table.mpqs.backlogged();
        let arrived = self.core.sched.order.slots().iter().map(|slot| slot.0);
        backlogged.len() > 1 && backlogged.iter().copied().chain(arrived).any(|owner| self.runs_low(owner))
    }

    /// Whether a context has few tasks queued, relative to its limit.
    fn runs_low(&self, owner: u32) -> bool {
        self.core.table.mpqs.held(owner) < ENOUGH_BACKLOG.min(self.soft_limit(owner) / 2)
    }

    /// The number of HERs that a context may hold without its `--full` policy being consulted.
    fn soft_limit(&self, owner: u32) -> u32 {
        self.core.contexts.list[owner as usize].as_ref().map_or(0, |context| context.share.soft_limit)
    }

    /// Whether a context would lose no packets of a full batch and the one behind it if few of its tasks ran meanwhile.
    fn has_room_for_more(&self, slot: Slot) -> bool {
        let held = self.core.table.mpqs.held(slot.0) as usize;
        held + 2 * SHARED_BATCH <= self.soft_limit(slot.0) as usize
            || self.core.table.mpqs.room() > self.core.table.quota_threshold() + 2 * SHARED_BATCH
    }

    /// Runs the batch's packets on arrival, those of the context that is furthest behind first, within the lag bound.
    ///
    /// While `should_rx_first`, contexts that [may wait](Poll::may_wait) are skipped.
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
        self.core.note_backlog();
        let mut guard = LagGuard { timer, sampled };
        for rank in 0..self.core.sched.order.slots().len() {
            let slot = self.core.sched.order.slots()[rank];
            all.expects = self.expects_others(slot, self.core.sched.order.slots().len() > 1);
            if !(should_rx_first && self.may_wait(slot)) {
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
        all.slot =
            self.core.sched.order.slots().iter().copied().min_by_key(|slot| self.core.sched.scheduler.vtimes(slot.0));
        all
    }

    /// Whether a context's packets may wait until more is received: it has tasks queued, or tasks of 200 µs ([`SHARED_TIME`]) or more.
    fn may_wait(&self, slot: Slot) -> bool {
        self.core.table.mpqs.held(slot.0) > 0 || self.core.sched.scheduler.takes_long(slot.0, SHARED_TIME)
    }

    /// Runs a context's packets, which are the next ones of the batch, as long as it is within the lag bound.
    fn run_within_lag(&mut self, slot: Slot, now: BatchTime, guard: &mut LagGuard<&'w C>, all: &mut ArrivalStats) {
        let mut left = if all.expects { CONTENDED_TASKS } else { SHARED_BATCH as u32 };
        self.core.sched.timed_out = false;
        while self.ingress.inbound.is_next_of(slot) && left > 0 && !guard.timer.is_over() && self.core.within_lag(slot)
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

    /// Whether a context is the only one with packets or tasks, but shared the time until recently.
    fn expects_others(&mut self, slot: Slot, has_rivals: bool) -> bool {
        let alone = !has_rivals && self.core.table.mpqs.backlogged().iter().all(|&owner| owner == slot.0);
        self.core.sched.recent_contention =
            if alone { self.core.sched.recent_contention.saturating_sub(1) } else { CONTENTION_POLLS };
        alone && self.core.sched.recent_contention > 0
    }

    /// Runs some tasks of a context: the queued ones, or else its packets of the batch on the fast path.
    fn run_next(&mut self, slot: Slot, now: BatchTime, sampled: &mut bool) -> Progress {
        let Some(pick) = self.core.sched.scheduler.pick([slot.0]) else { return Progress::default() };
        let queued = self.core.table.mpqs.held(slot.0) > 0;
        if !queued && (*sampled || !self.queue_next(slot, now)) {
            let progress = self.run_fast_path(slot, pick.tasks, now);
            // The first packet had to be queued. After its task, the packets behind it may take the fast path.
            if progress.tasks > 0 || self.core.table.mpqs.held(slot.0) == 0 {
                return progress;
            }
        }
        self.runner.run_some(self.core, slot.0, pick.tasks, self.clock, sampled)
    }

    /// Queues the next packet, which belongs to the context `slot`, so that its task can be timed.
    fn queue_next(&mut self, slot: Slot, now: BatchTime) -> bool {
        self.core.table.mpqs.room() > 0 && self.admit_next(now) && self.core.table.mpqs.held(slot.0) > 0
    }

    /// Whether the context that ran ahead is still next, and probably has more packets in the NIC. The NIC is then polled before
    /// tasks of others run. Otherwise those get the time that it leaves.
    fn has_more(&self, ahead: &ArrivalStats) -> bool {
        let may_be_more = self.ingress.rx_catch_up.batch_was_full || self.rx_backlog() > 0;
        may_be_more && ahead.were_many() && (ahead.expects || ahead.slot.is_some_and(|slot| self.core.is_next(slot)))
    }

    /// Runs some queued tasks, and charges their contexts. Returns how many packet buffers were released.
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
            // A context whose last task is gone by then runs none. It counts as one task, so that the loop ends.
            all.tasks += progress.tasks.max(1);
        }
        all.released
    }
}

/// The bound on how long contexts may run ahead on packets of a batch.
struct LagGuard<C> {
    timer: PollTimer<C>,
    /// Whether a task was timed recently enough.
    sampled: bool,
}

/// The result of [`Poll::run_arrivals`].
struct ArrivalStats {
    /// The context that is furthest behind among those with packets in the batch.
    slot: Option<Slot>,
    tasks: u32,
    /// The number of packet buffers released.
    released: u64,
    /// The number of packets in the batch.
    of: usize,
    /// The result of [`Poll::expects_others`].
    expects: bool,
    /// Whether the tasks took at least [`LONG_POLL`], which is longer than it takes to receive a batch.
    long: bool,
}

impl ArrivalStats {
    /// Whether the tasks were a significant part of the batch's packets, or took long.
    const fn were_many(&self) -> bool {
        self.tasks > 0 && (self.long || self.tasks as usize * GOOD_FRACTION >= self.of)
    }
}
