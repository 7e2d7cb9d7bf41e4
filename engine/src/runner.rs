//! The thread that runs the handlers of an engine which is another thread's: see [`crate::elsewhere`]. It has the contexts with their HPUs, and
//! of messages only what their tasks bring with them.

use std::time::Duration;

use hpu_vm::Exit;
use spin_abi::counters::Counter;
use spin_abi::verdict::{Fate, Verdict};
use spin_nic::affinity::drop_in_background;
use spin_nic::{Frame, NicError};

use crate::commands::{Commands, Deferred, Issued};
use crate::context::{Context, Handler, Slot};
use crate::errands::{Charge, Errand, Errands, Outcome, Place};
use crate::inbound::BATCH;
use crate::latency::nanoseconds;
use crate::memory::HpuId;
use crate::mpq::{MpqId, Stage, Task};
use crate::pipeline::{Binding, Engine, Packet, context, has_id};
use crate::sharing::Shift;
use crate::tasks::{Done, Parts, idle_hpu, parts, processes, started};

/// Turns in a row that wait for blank frames at the most: the thread that has some may be off its core for milliseconds, in which this one
/// lets others have its own.
const DRY: u32 = 50_000;

/// Tasks of a turn at the most: what is told of them is told at its end, and costs less together, but those that take long are not to wait
/// for each other.
const MOST: usize = 2 * BATCH;

/// What a runner has besides.
#[derive(Debug)]
pub(crate) struct Runner {
    errands: Errands,
    /// What the last task's handler has decided, if that is not what most do.
    verdict: Option<Verdict>,
    /// Turns in a row that waited for blank frames.
    dry: u32,
    /// By queue, of contexts that name their messages: the name.
    names: Vec<u8>,
}

impl Runner {
    /// What handlers know a queue by whose messages have names.
    pub(crate) fn name_of(&self, mpq: MpqId) -> u8 {
        self.names.get(mpq.0 as usize).copied().unwrap_or_default()
    }

    /// Notes what a task's handler has decided.
    pub(crate) fn note(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict).filter(|verdict| verdict.fate() != Fate::Process || verdict.stays_open());
    }

    /// Tasks of a batch that are yet to be begun.
    pub(crate) fn left(&self) -> usize {
        self.errands.left()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.errands.is_over()
    }

    pub(crate) fn has_come(&self) -> bool {
        self.errands.have_come()
    }

    fn name(&mut self, mpq: MpqId, name: u8) {
        let index = mpq.0 as usize;
        self.names.resize(self.names.len().max(index + 1), 0);
        self.names[index] = name;
    }
}

/// Whether a verdict of a stage's handler ends its message: see [`Engine::decide`].
const fn gives_up(stage: Stage, verdict: Verdict) -> bool {
    match stage {
        Stage::Header => !matches!(verdict.fate(), Fate::Process),
        Stage::Payload => matches!(verdict.fate(), Fate::Discard),
        Stage::Completion => false,
    }
}

impl Engine {
    /// Whether another thread's engine may have it run something.
    pub(crate) fn runs_for_another(&self) -> bool {
        self.runner.as_ref().is_some_and(|runner| !runner.is_over())
    }

    /// Has it run the handlers of another thread's engine, which [hands tasks over](Engine::dispatching): its NIC is where frames go back to.
    #[must_use]
    pub fn running_for(mut self, errands: Errands) -> Self {
        self.runner = Some(Box::new(Runner { errands, verdict: None, dry: 0, names: Vec::new() }));
        self
    }

    /// A turn of a runner: a batch of tasks. Returns how many there were.
    ///
    /// # Errors
    /// Never: frames go to another thread.
    pub(crate) fn run_for_another(&mut self, clock: &impl Fn() -> Duration) -> Result<usize, NicError> {
        self.take_translations();
        self.forget_gone();
        let most = MOST.min(self.fitting as usize);
        let taken = self.runner.as_mut().map_or(0, |runner| runner.errands.take(most));
        if taken > 0 || !self.parked.is_empty() {
            let begun = clock();
            self.note_first_arrival(begun);
            let resumed = self.resume_parked(clock);
            let mut shift = self.is_shared().then(|| self.shift(clock));
            let waited = self.run_waiting(&mut shift);
            let released = resumed + waited + if self.is_dry() { 0 } else { self.run_errands(clock, &mut shift) };
            self.unsampled += released;
            self.last_feedback = clock();
            self.note_length(released, self.last_feedback.saturating_sub(begun));
            self.latencies.record_total(released, self.released.before(self.last_feedback));
        }
        let Self { runner: Some(runner), nic, .. } = self else { return Ok(taken) };
        runner.errands.tell(&mut **nic);
        self.send(clock)?;
        if self.news.take() {
            self.ring_doorbells(taken > 0 || self.has_tasks());
        }
        Ok(taken)
    }

    /// Whether to wait for blank frames before more tasks are begun: their sends would fail. Not for long: there may be none, while those that
    /// have them wait for these tasks.
    fn is_dry(&mut self) -> bool {
        let Self { runner: Some(runner), nic, .. } = self else { return false };
        runner.dry = if nic.low_on_buffers() && runner.dry < DRY { runner.dry + 1 } else { 0 };
        if runner.dry > 0 {
            std::thread::yield_now();
        }
        runner.dry > 0
    }

    /// Contexts go when their engine has nothing more of them.
    pub(crate) fn forget_gone(&mut self) {
        while let Some(id) = self.runner.as_mut().and_then(|runner| runner.errands.gone()) {
            if let Some(runner) = &mut self.runner {
                runner.errands.abandon_waiting(id);
            }
            drop_in_background(self.forget_here(id));
        }
    }

    /// Runs the batch of tasks. Returns how many packet buffers were given back.
    fn run_errands<C: Fn() -> Duration>(&mut self, clock: &C, shift: &mut Option<Shift<&C>>) -> u64 {
        let (mut sampled, mut all) = (self.is_sampled(), Done::default());
        while let Some(first) = self.runner.as_ref().and_then(|runner| runner.errands.next()) {
            let before = all.tasks;
            if std::mem::replace(&mut sampled, true) {
                self.run_alike(first, usize::MAX, &mut all);
            } else {
                self.unsampled = 0;
                let start = clock();
                self.latencies.sample_queueing(first.arrived.before(start));
                self.run_alike(first, 1, &mut all);
                self.latencies.sample_handler(clock().saturating_sub(start));
            }
            // Also when no other context is here: the engine may know of one that is not, or no more.
            let took = shift.as_mut().map_or(Duration::ZERO, Shift::lap);
            self.charge(first.row.slot(), all.tasks - before, took);
            if self.nic.low_on_buffers() {
                break;
            }
        }
        all.released
    }

    /// Runs the first task that is here, and those of its row behind it, so many at the most.
    fn run_alike(&mut self, first: Errand, most: usize, done: &mut Done) {
        let (row, slot) = (first.row, first.row.slot());
        if let Some(runner) = &mut self.runner {
            runner.errands.forget_seen(&row);
        }
        if !has_id(&self.contexts, slot, row.context) {
            return self.refuse_first();
        }
        let (hpu, alone) = (HpuId { cluster: row.home(), hpu: 0 }, self.has_parked(slot.0));
        if alone {
            return self.run_first_or_wait(done);
        }
        let context = context(&mut self.contexts, slot);
        let in_a_row = context.runs_in_a_row(hpu);
        match context.handler(row.stage).filter(|_| in_a_row) {
            Some(handler) => self.run_alike_in_a_row(first, handler, hpu, most, done),
            None => {
                if let Some((errand, frame)) = self.take_first() {
                    self.run_errand(errand, frame, hpu, done);
                }
            }
        }
    }

    /// Runs the first task that is here on an HPU that is idle, or has it wait for one, while others of its context do.
    fn run_first_or_wait(&mut self, done: &mut Done) {
        let Some((errand, frame)) = self.take_first() else { return };
        let idle = idle_hpu(&self.contexts, errand.binding(), errand.row.stage);
        let Some(runner) = &mut self.runner else { return };
        match idle.filter(|_| !runner.errands.has_waiting(errand.row.context)) {
            Some(hpu) => self.run_errand(errand, frame, hpu, done),
            None => {
                runner.errands.wait(errand, frame);
                // Others need not wait for it.
                self.charge(errand.row.slot(), 1, Duration::ZERO);
            }
        }
    }

    /// Runs tasks that waited for an HPU and have one now. Returns how many packet buffers were given back.
    fn run_waiting<C: Fn() -> Duration>(&mut self, shift: &mut Option<Shift<C>>) -> u64 {
        let (mut place, mut done) = (0, Done::default());
        while let Some(first) = self.runner.as_ref().and_then(|runner| runner.errands.waiting(place)) {
            let Some(hpu) = idle_hpu(&self.contexts, first.binding(), first.row.stage) else {
                place += 1;
                continue;
            };
            let Some((errand, frame)) = self.runner.as_mut().and_then(|runner| runner.errands.end_wait(place)) else {
                break;
            };
            self.run_errand(errand, frame, hpu, &mut done);
            if let Some(shift) = shift {
                self.charge(first.row.slot(), 0, shift.lap());
            }
        }
        done.released
    }

    /// Takes the first task that is here.
    fn take_first(&mut self) -> Option<(Errand, Frame)> {
        let errands = &mut self.runner.as_mut()?.errands;
        let (errand, (_, frame)) = (errands.next()?, errands.pop(errands.follow_others())?);
        errands.count_begun(1);
        errands.go_on();
        Some((errand, frame))
    }

    fn run_errand(&mut self, errand: Errand, frame: Frame, hpu: HpuId, done: &mut Done) {
        let Some(runner) = &mut self.runner else { return };
        if runner.errands.is_given_up(&errand.own) {
            done.tasks += 1;
            return runner.errands.keep(errand, frame, Outcome::GivenUp);
        }
        if let Some(flow) = errand.flow() {
            runner.name(errand.own.mpq, flow);
        }
        done.tasks += 1;
        done.released += self.run_here(errand.task(frame), hpu);
    }

    /// The first task that is here cannot be begun.
    #[cold]
    fn refuse_first(&mut self) {
        let Some((errand, frame)) = self.take_first() else { return };
        if let Some(runner) = &mut self.runner {
            runner.errands.refuse(errand, frame);
        }
    }

    /// Runs tasks of a row, up to one that does not end as most do.
    fn run_alike_in_a_row(&mut self, first: Errand, handler: Handler, hpu: HpuId, most: usize, done: &mut Done) {
        let Errand { row: kind, arrived, .. } = first;
        let context = context(&mut self.contexts, kind.slot());
        let verdicts = context.run.verdicts;
        let Self { nic, outbound, executor, runner: Some(runner), .. } = self else { return };
        let errands = &mut runner.errands;
        let (spends, next) = (kind.spends(), kind.next());
        let next = next.filter(|_| errands.may_follow(&kind));
        let Parts { job, hpus, host, counts, events, mut printer } = parts(context, handler, first.own.about(&kind));
        let mut print = |line: &[u8]| printer.print(line);
        let mut commands = Commands::new(&mut **nic, outbound, host, counts, Some(events), spends, Issued::NOTHING);
        let follows = errands.follow_others();
        let (mut left, mut given_up) = (errands.here_of_row().min(most), 0);
        let most = left;
        let unusual = hpus.get(hpu).in_a_row(executor, &job, &mut commands, &mut print, |row| {
            let looked_at = row.looked_at();
            if spends && !follows && !verdicts {
                // What most tasks are. Nothing is done with them but to run them and to count: the rest of a tray's row is a slice meanwhile.
                let (mut on_tray, mut ended, mut unusual) = (errands.on_tray(left)?, 0, false);
                while let Some(Place { own, frame }) = on_tray.next(looked_at) {
                    let Some(packet) = frame.as_deref_mut() else { break };
                    let returned = row.runs(own.about(&kind), packet);
                    if returned && row.is_quiet() {
                        ended += 1;
                        continue;
                    }
                    row.finish(returned);
                    unusual = !returned && row.exit() != Exit::Finished;
                    if unusual {
                        break;
                    }
                    ended += 1;
                    let short = row.commands().low_on_buffers();
                    match frame.take_if(|_| row.commands().sends_packet()) {
                        Some(frame) => row.commands().give_back(frame),
                        None => row.commands().begin(true),
                    }
                    if short {
                        break;
                    }
                }
                errands.pass_all(ended);
                left -= ended + usize::from(unusual);
                if !unusual {
                    return None;
                }
                let (own, frame) = errands.pop(false)?;
                return Some((Errand { own, ..first }, frame, row.exit(), row.commands().issued));
            }
            while left > 0 {
                errands.ask_ahead(looked_at);
                left -= 1;
                if verdicts && errands.look(follows).map(|(own, _)| own).is_some_and(|own| errands.is_given_up(&own)) {
                    let (own, frame) = errands.pop(follows)?;
                    errands.keep(Errand { own, ..first }, frame, Outcome::GivenUp);
                    given_up += 1;
                    continue;
                }
                let (own, frame) = errands.look(follows)?;
                let returned = row.returns(own.about(&kind), frame);
                let usual = returned || row.exit() == Exit::Finished;
                if !usual || verdicts && !processes(row.result()) {
                    let exit = if returned { Exit::Returned } else { row.exit() };
                    let (own, frame) = errands.pop(follows)?;
                    return Some((Errand { own, ..first }, frame, exit, row.commands().issued));
                }
                let short = row.commands().low_on_buffers();
                if spends && !follows && !row.commands().sends_packet() {
                    errands.pass();
                    row.commands().begin(true);
                } else if spends && !follows {
                    let frame = errands.pass_without_frame()?;
                    row.commands().give_back(frame);
                } else if spends {
                    match errands.pass_follower(!row.commands().sends_packet()) {
                        Some(frame) => row.commands().give_back(frame),
                        None => row.commands().begin(true),
                    }
                } else {
                    if next.is_some() {
                        errands.follow(follows)?;
                    } else {
                        let (own, frame) = errands.pop(follows)?;
                        errands.keep(Errand { own, ..first }, frame, Outcome::Ended(None));
                    }
                    row.commands().begin(false);
                }
                if short {
                    break;
                }
            }
            None
        });
        let taken = (most - left) as u32;
        let run = taken - given_up;
        let ended = run - u32::from(unusual.is_some());
        errands.count_begun(taken);
        commands.counts.add(started(kind.stage), run.into());
        if spends {
            commands.counts.add(Counter::Released, ended.into());
            if follows {
                errands.tell_ended(&kind, ended, false);
            }
            done.released += u64::from(ended);
            self.released = arrived;
        } else if let Some(next) = next {
            errands.tell_ended(&kind, ended, true);
            errands.line_up(next, arrived);
        }
        errands.go_on();
        commands.recycle_spent();
        done.tasks += taken;
        if let Some((errand, frame, exit, issued)) = unusual {
            done.released += u64::from(self.end_unusual(errand.task(frame), hpu, exit, issued));
        }
    }

    /// Tells the engine whose task it is that it has ended. Returns whether a packet buffer was given back here.
    pub(crate) fn report(&mut self, task: Task<Binding, Packet>, deferred: Option<Deferred>) -> bool {
        let slot = task.context.slot;
        let (errand, frame) = self.errand_of(task);
        let counts = &mut context(&mut self.contexts, slot).counts;
        let Self { runner: Some(runner), nic, outbound, .. } = self else { return false };
        let verdict = runner.verdict.take();
        if verdict.is_some_and(|verdict| gives_up(errand.row.stage, verdict)) {
            runner.errands.give_up(&errand);
        }
        let mut commands = Commands::new(&mut **nic, outbound, None, counts, None, false, Issued::of(deferred));
        if errand.row.spends() && verdict.is_none() {
            self.released = errand.arrived;
            commands.release(frame);
            runner.errands.end(errand.own.mpq);
            runner.errands.tell_ended(&errand.row, 1, false);
            return true;
        }
        if let Some(send) = deferred {
            commands.copy_deferred(send, &frame);
        }
        runner.errands.keep(errand, frame, Outcome::Ended(verdict));
        false
    }

    /// A task waited when its context went.
    pub(crate) fn report_abandoned(&mut self, task: Task<Binding, Packet>) {
        let (errand, frame) = self.errand_of(task);
        if let Some(runner) = &mut self.runner {
            runner.errands.keep(errand, frame, Outcome::Abandoned);
        }
    }

    /// A task as it came here.
    fn errand_of(&mut self, task: Task<Binding, Packet>) -> (Errand, Frame) {
        let Context { id, entry, .. } = context(&mut self.contexts, task.context.slot);
        let name = self.runner.as_ref().map_or(0, |runner| runner.name_of(task.mpq));
        Errand::of(task, *id, entry.key.is_fpspin().then_some(name))
    }

    /// So many tasks of a context were run, and took so long.
    pub(crate) fn charge(&mut self, slot: Slot, tasks: u32, time: Duration) {
        match (&mut self.runner, self.contexts.get(slot.0 as usize)) {
            (Some(runner), Some(Some(context))) => {
                let (context, nanoseconds) = (context.id, nanoseconds(time));
                runner.errands.charge(Charge { slot, context, tasks, nanoseconds });
            }
            (Some(_), _) => {}
            (None, _) => _ = self.scheduler.charge(slot.0, tasks, time),
        }
    }
}
