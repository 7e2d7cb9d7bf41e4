//! Payload tasks that run on other threads' clusters. PsPIN's dispatcher sends tasks to the least loaded cluster when their home
//! cluster has no room (paper §III-B1).
//!
//! A thread lends tasks to threads that have no work of their own, while its own tasks would wait for long or for an HPU. Message
//! queues and frames stay with the thread of the home cluster, where tasks that ended elsewhere are completed. The other thread
//! charges the task's context for it, and serves contexts of its own when they are next.

use std::time::Duration;

use hpu_vm::Exit;
use spin_abi::counters::Counter;
use spin_nic::Frame;

use crate::cores::helpers::{Helpers, Outcome, SharedResult, SharedTask};
use crate::sched::PollTimer;
use crate::worker::core::Core;
use crate::worker::core::idle_hpu;
use crate::worker::parked::Borrowed;
use crate::worker::poll::{Poll, SHARED_BATCH};
use crate::worker::run::{TaskRun, TaskSource, run_batch};
use crate::worker::task::{Parts, Progress, parts};
use spin_pspin::hpu::TaskIdentity;
use spin_pspin::hpu::command::{CommandBudget, Commands};
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::hpu::send_rights::Received;
use spin_pspin::ids::{DropReason, Handler, MessageRef, Packet, Slot};
use spin_pspin::mpq::{Stage, Task};

/// Minimum number of waiting tasks before tasks are lent: the rest keep this thread busy meanwhile.
const MIN_BACKLOG: usize = 16;
/// Minimum time of a task that is worth lending. Handing it over, with a packet that the other core does not have in its cache,
/// and taking it back costs somewhat less.
const MIN_TASK_TIME: Duration = Duration::from_nanos(150);
/// Consecutive polls with long tasks and a backlog before tasks are lent. A single long poll may mean that the thread was off its
/// core.
const MIN_LONG_POLLS: u32 = 4;
/// Shared tasks of other threads run per poll: without own tasks, and with own tasks.
const MAX_HELPED: [u32; 2] = [32, 4];

impl<C: Fn() -> Duration> Poll<'_, C> {
    /// Whether tasks would wait for long here, and another thread is idle.
    #[inline]
    pub(crate) fn overflows(&self) -> bool {
        self.core.contexts.may_overflow
            && self.helpers.as_deref().is_some_and(|helpers| helpers.loaded >= MIN_LONG_POLLS && helpers.idle() > 0)
    }

    /// Own tasks per poll while other threads help: an equal part of a batch for each thread.
    pub(crate) fn own_part(&self) -> u32 {
        let threads = 1 + self.helpers.as_deref().map_or(0, |helpers| helpers.idle());
        (SHARED_BATCH / threads).max(1) as u32
    }

    /// Notes the duration of a poll that released `released` packet buffers while `waited` packets were waiting. Polls with
    /// parked tasks do not count, since their time per task is unknown.
    #[inline]
    pub(crate) fn note_load(&mut self, waited: usize, released: u64, time: Duration) {
        let Some(helpers) = self.helpers.as_deref_mut() else { return };
        if released > 0 && self.core.parked.is_empty() {
            let long = time.as_nanos() >= MIN_TASK_TIME.as_nanos() * u128::from(released);
            helpers.loaded = if long && waited >= MIN_BACKLOG { MIN_LONG_POLLS.min(helpers.loaded + 1) } else { 0 };
        }
    }

    /// Returns finished tasks of other threads, and announces whether this thread is idle. `taken` is the number of frames that
    /// the poll processed.
    #[inline]
    pub(crate) fn return_shared_tasks(&mut self, taken: usize) {
        let has_own = taken > 0 || self.has_own_tasks();
        if let Some(helpers) = self.helpers.as_deref_mut() {
            helpers.give_back();
            helpers.announce(!has_own);
        }
    }

    /// Completes own tasks that came back, and runs tasks of other threads. Returns how many packet buffers were released.
    #[inline]
    pub(crate) fn take_shared_tasks(&mut self) -> u64 {
        let Some(helpers) = self.helpers.as_deref_mut() else { return 0 };
        let lost = helpers.take();
        let (came_back, waiting) = (!helpers.back.is_empty(), !helpers.waiting.is_empty());
        helpers.exchanged = came_back || waiting;
        self.core.telemetry.counts.add(Counter::DropRemoved, lost);
        let released = if came_back { self.take_back() } else { 0 };
        if waiting {
            self.help();
        }
        released
    }

    /// Completes tasks that ended on other threads. Runs those that were not begun there.
    #[cold]
    fn take_back(&mut self) -> u64 {
        let Some(helpers) = self.helpers.as_deref_mut() else { return 0 };
        let (mut back, mut not_run) = (std::mem::take(&mut helpers.back), std::mem::take(&mut helpers.not_run));
        let mut released = 0;
        for SharedResult { shared_task, outcome } in back.drain(..) {
            let SharedTask { task, context, .. } = &shared_task;
            if !self.core.contexts.is_current(task.context.slot, *context) {
                self.core.drop_frame(shared_task.task.packet.frame, Counter::DropRemoved);
                continue;
            }
            match outcome {
                Outcome::Ended(deferred) => released += u64::from(self.core.complete_task(shared_task.task, deferred)),
                Outcome::Abandoned => self.give_up(shared_task.task),
                Outcome::NotRun => match idle_hpu(&self.core.contexts.list, task.context, Stage::Payload) {
                    Some(hpu) => released += self.run_here(shared_task.task, hpu),
                    None => not_run.push(SharedResult { shared_task, outcome }),
                },
            }
        }
        if let Some(helpers) = self.helpers.as_deref_mut() {
            // The next poll tries these tasks again.
            (helpers.back, helpers.not_run) = (not_run, back);
        }
        released
    }

    /// Runs a task on an HPU of its home cluster or of another one. Returns how many packet buffers were released.
    pub(crate) fn run_here(&mut self, task: Task<MessageRef, Packet>, hpu: HpuId) -> u64 {
        if hpu.cluster == task.context.home() {
            return self.runner.run(self.core, task, hpu).into();
        }
        let mut progress = Progress::default();
        self.runner.run_away(self.core, task, hpu, &mut progress);
        progress.released
    }

    /// Cancels a message after another thread abandoned one of its tasks.
    pub(crate) fn give_up(&mut self, task: Task<MessageRef, Packet>) {
        if task.context.flow.is_none() {
            self.core.cancel(task.mpq, task.context.slot, DropReason::NoRoom);
        }
        self.bury_task(task);
    }

    /// Completes a task of a cancelled message that was not begun or has not ended, and disposes of its packet.
    pub(crate) fn bury_task(&mut self, task: Task<MessageRef, Packet>) {
        let Task { mpq, stage, context: MessageRef { slot, .. }, packet, .. } = task;
        let why = self.core.table.drop_reasons[mpq.0 as usize];
        if self.core.table.mpqs.complete(mpq, stage, None).idle {
            self.core.table.messages.release(mpq);
        }
        self.core.drain_cancelled(slot, why);
        self.core.dispose(slot, packet, why);
    }

    /// Runs some tasks of other threads, as far as their contexts come before those with own tasks.
    #[cold]
    fn help(&mut self) {
        let (mut at, mut left, mut later) = (0, MAX_HELPED[usize::from(self.has_own_tasks())], None);
        let mut timer = self.core.contexts.is_shared().then(|| self.timer());
        while left > 0 && !timer.as_ref().is_some_and(PollTimer::is_over) {
            let Some((_, SharedTask { task, context: id, .. })) =
                self.helpers.as_deref().and_then(|helpers| helpers.waiting.get(at))
            else {
                break;
            };
            let MessageRef { slot, .. } = task.context;
            let known = self.core.contexts.is_current(slot, *id);
            if known && (later == Some(slot) || !self.is_turn_of(slot)) {
                (at, later) = (at + 1, Some(slot));
                continue;
            }
            let hpu = if known { self.idle_for(slot) } else { None };
            // The pick charges the task from the others' virtual time on, however long its context had nothing to run here.
            let shared = hpu.is_some() && timer.is_some();
            let picked = if shared { self.core.sched.scheduler.pick([slot.0]) } else { None };
            let run = self.run_borrowed(at, hpu, picked.map_or(left, |pick| pick.tasks.min(left)));
            left -= run;
            if let Some(timer) = timer.as_mut().filter(|_| picked.is_some()) {
                self.core.sched.scheduler.charge(slot.0, run, timer.split());
            }
        }
    }

    /// An HPU of a context without a parked task.
    fn idle_for(&self, slot: Slot) -> Option<HpuId> {
        self.core.contexts.list[slot.0 as usize].as_ref()?.hpus.idle_on_least_loaded()
    }

    /// Whether a context comes before all others that have tasks or packets here.
    fn is_turn_of(&self, slot: Slot) -> bool {
        let mut arrived = self.ingress.inbound.slots();
        !self.core.contexts.is_shared()
            || self.core.is_next(slot) && arrived.all(|other| self.core.sched.scheduler.is_next(slot.0, [other.0]))
    }

    /// Runs a task of another thread, and those behind it of the same context and home cluster, up to `most` in all. Without
    /// `hpu` the task is returned: the context is not installed here or has no idle HPU, and tasks wait for HPUs at home. Returns
    /// how many tasks were taken.
    fn run_borrowed(&mut self, at: usize, hpu: Option<HpuId>, most: u32) -> u32 {
        let Some((lender, shared_task)) = self.helpers.as_deref_mut().and_then(|helpers| helpers.waiting.remove(at))
        else {
            return 0;
        };
        let Some(hpu) = hpu else {
            self.return_task(lender, shared_task, Outcome::NotRun);
            return 1;
        };
        let (slot, home) = (shared_task.task.context.slot, shared_task.task.context.home());
        let here = self.core.contexts.get(slot);
        let in_a_row = here.runs_in_a_row(hpu);
        here.begin_away(hpu, home);
        let run = match self.core.contexts.get(slot).handler(Stage::Payload).filter(|_| in_a_row) {
            Some(handler) => self.run_borrowed_row(lender, shared_task, handler, hpu, at, most),
            None => self.run_borrowed_one(lender, shared_task, hpu),
        };
        self.core.contexts.get(slot).end_away(hpu);
        run
    }

    fn run_borrowed_one(&mut self, lender: usize, mut shared_task: SharedTask, hpu: HpuId) -> u32 {
        let (exit, issued) = self.runner.run_handler(self.core, &mut shared_task.task, hpu, shared_task.flow, None);
        self.end_borrowed(lender, shared_task, hpu, exit, issued);
        1
    }

    /// Runs a batch of tasks of one handler: `shared_task`, and those waiting from index `at` on. Stops after a task that does
    /// not end normally.
    fn run_borrowed_row(
        &mut self,
        lender: usize,
        shared_task: SharedTask,
        handler: Handler,
        hpu: HpuId,
        at: usize,
        most: u32,
    ) -> u32 {
        let SharedTask { context: id, task: Task { context: MessageRef { slot, .. }, .. }, .. } = shared_task;
        let home = shared_task.task.context.home();
        let Self { core: Core { contexts, nic, egress, .. }, runner, helpers: Some(helpers), .. } = self else {
            unreachable!("tasks of others come from peers")
        };
        let Parts { spec, hpus, access, counts, events, mut printer } =
            parts(contexts.get(slot), handler, shared_task.identity());
        let mut print = |line: &[u8]| printer.print(line);
        let outbound = &mut egress.outbound;
        let mut commands = Commands::new(
            &mut **nic,
            outbound,
            access,
            counts,
            Some(events),
            shared_task.task.releases_packet,
            CommandBudget::FULL,
        );
        let mut shared = SharedTasks { helpers, slot, home, context: id, at, left: most, unusual: None };
        let hpu_slot = hpus.get(hpu);
        hpu_slot.with_run(&runner.executor, &spec, &mut commands, &mut print, |run| {
            run_batch(run, &mut shared, Some((lender, shared_task)))
        });
        let (run, unusual) = (most - shared.left, shared.unusual);
        commands.counts.add(Counter::PayloadRuns, run.into());
        commands.counts.add(Counter::Overflowed, u64::from(run) - 1);
        commands.recycle_frames();
        if let Some((lender, mut shared_task, exit, issued)) = unusual {
            self.runner.handle_exit(self.core, &mut shared_task.task, hpu, shared_task.flow, exit);
            self.end_borrowed(lender, shared_task, hpu, exit, issued);
        }
        run
    }

    /// Returns a finished task to its lender, or parks it.
    fn end_borrowed(&mut self, lender: usize, shared_task: SharedTask, hpu: HpuId, exit: Exit, issued: CommandBudget) {
        if exit == Exit::Parked {
            let SharedTask { task, context, flow } = shared_task;
            self.runner.park(self.core, task, hpu, issued, Some(Borrowed { lender, context, flow }));
        } else {
            self.return_task(lender, shared_task, Outcome::Ended(issued.deferred));
        }
    }

    /// Stages a task for its return to the lender at the end of the poll.
    pub(crate) fn return_task(&mut self, lender: usize, shared_task: SharedTask, outcome: Outcome) {
        let Some(helpers) = self.helpers.as_deref_mut() else { unreachable!("tasks of others come from peers") };
        helpers.return_task(lender, shared_task, outcome);
    }

    /// Lends tasks that would wait for long or for an HPU.
    #[inline]
    pub(crate) fn share_tasks(&mut self) {
        if self.helpers.is_some() && (!self.core.parked.is_empty() || self.overflows()) {
            self.lend_some();
        }
    }

    /// Lends one task of each context at a time, while there are some and a thread to take them.
    #[cold]
    fn lend_some(&mut self) {
        let (overflows, mut lent, mut at) = (self.overflows(), false, 0);
        while let Some(to) = self.helpers.as_deref().and_then(|helpers| helpers.least_loaded()) {
            let Some(&owner) = self.core.table.mpqs.backlogged().get(at) else {
                if !std::mem::take(&mut lent) {
                    break;
                }
                at = 0;
                continue;
            };
            at += 1;
            let enough = overflows && self.core.table.hers_taken() > MIN_BACKLOG;
            if let Some(id) = self.may_lend(owner, enough)
                && let Some(task) = self.core.table.mpqs.next_task(owner)
            {
                let flow = self.core.flow_of(&task);
                let Some(helpers) = self.helpers.as_deref_mut() else { break };
                helpers.share_tasks(to, SharedTask { task, context: id, flow });
                lent = true;
            }
        }
        if let Some(helpers) = self.helpers.as_deref_mut() {
            helpers.hand_over();
        }
    }

    /// The context's id if an owner's next task may run on another thread. It has to be a payload task of a context that [may
    /// overflow](crate::context::Context::overflows). Also, there have to be `enough` of them, or no idle HPU here. If tasks of
    /// the context came back without having run, no more are lent: others would come back too.
    fn may_lend(&self, owner: u32, enough: bool) -> Option<u32> {
        let context = self.core.contexts.list.get(owner as usize)?.as_ref()?;
        let overflows = context.overflows() && !context.replacement.draining;
        let came_back =
            self.helpers.as_deref()?.back.iter().any(|shared_result| shared_result.shared_task.context == context.id);
        let (binding, stage) = self.core.table.mpqs.peek(owner)?;
        let is_payload = stage == Stage::Payload && context.handler(stage).is_some();
        let wanted = overflows
            && !came_back
            && is_payload
            && (enough || idle_hpu(&self.core.contexts.list, binding, stage).is_none());
        wanted.then_some(context.id)
    }

    /// Whether there are own tasks or packets to begin.
    pub(crate) fn has_own_tasks(&self) -> bool {
        self.rx_backlog() > 0 || !self.core.table.mpqs.backlogged().is_empty()
    }
}

/// Consecutive shared tasks of one context and home cluster.
struct SharedTasks<'s> {
    helpers: &'s mut Helpers,
    slot: Slot,
    home: u32,
    /// The id of the context.
    context: u32,
    /// The index of the next task among the waiting ones.
    at: usize,
    /// The number of tasks that may still be taken.
    left: u32,
    /// A task that needs more than its return: lender, task, exit and command budget.
    unusual: Option<(usize, SharedTask, Exit, CommandBudget)>,
}

impl SharedTasks<'_> {
    /// Whether a task may run in this batch.
    fn is_alike(&self, next: &SharedTask) -> bool {
        next.context == self.context && next.task.context.slot == self.slot && next.task.context.home() == self.home
    }
}

impl TaskSource for SharedTasks<'_> {
    type Taken = (usize, SharedTask);

    fn next(&mut self, run: &mut TaskRun<'_, '_, '_, '_>) -> Option<Self::Taken> {
        let follows = self.left > 0 && self.helpers.waiting.get(self.at).is_some_and(|(_, next)| self.is_alike(next));
        let taken = if follows { self.helpers.waiting.remove(self.at) } else { None };
        taken.inspect(|(_, shared_task)| run.commands().begin(shared_task.task.releases_packet))
    }

    fn begin(&mut self, run: &mut TaskRun<'_, '_, '_, '_>, (_, shared_task): &Self::Taken) -> TaskIdentity {
        run.commands().set_received(|received| *received = Received::kept_in(&shared_task.task.packet.frame));
        if let Some((_, next)) = self.helpers.waiting.get(self.at) {
            next.task.packet.frame.prefetch_first(run.looked_at());
        }
        self.left -= 1;
        shared_task.identity()
    }

    fn frame<'t>(&'t mut self, (_, shared_task): &'t mut Self::Taken) -> &'t mut Frame {
        &mut shared_task.task.packet.frame
    }

    fn ended(&mut self, run: &mut TaskRun<'_, '_, '_, '_>, (lender, shared_task): Self::Taken, returned: bool) -> bool {
        run.finish(returned);
        let issued = run.commands().budget;
        if !returned && run.exit() != Exit::Finished {
            self.unusual = Some((lender, shared_task, run.exit(), issued));
            return false;
        }
        self.helpers.return_task(lender, shared_task, Outcome::Ended(issued.deferred));
        true
    }
}
