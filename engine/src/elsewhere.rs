//! Pipeline mode with one thread that runs handlers: the engine on the thread that receives. It has the message queues and says whose turn it is,
//! and hands each task over; see [`crate::runner`] for who runs them.
//!
//! So the other thread has nothing to do but that. Where several threads run handlers they take this work from the one that receives, which
//! is the bottleneck then: see [`crate::receiver`].

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use spin_abi::counters::Counter;
use spin_nic::Frame;

use crate::context::Slot;
use crate::errands::{Dispatcher, Ended, Errand, GoesOn, Kept, Outcome};
use crate::handover::Back;
use crate::memory::saturate;
use crate::mpq::MpqId;
use crate::pipeline::{Binding, Engine, Moment, context, has_id};
use crate::schedule::Pick;
use crate::sharing::SHARED_TIME;
use crate::tasks::runnable;

/// Tasks that a context may have handed over however many others there are, while so many more could be.
const EACH: u32 = 8;
const ROOMY: usize = Dispatcher::tasks() as usize / 4;
/// Tasks that are handed over again in a turn, of those that could not be begun.
const AGAIN: usize = 4;
/// Tasks that the runner has at least while several contexts have some: it is not to wait for more.
const ENOUGH: usize = 16;
/// Tasks that are handed over together: the runner is not to wait until all are found.
const PORTION: usize = 64;
/// How many reports ahead a queue is asked for.
const AHEAD: usize = 8;

/// What an engine has whose tasks another thread runs.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    dispatcher: Dispatcher,
    /// Tasks that could not be begun.
    not_run: VecDeque<(Errand, Frame)>,
    /// By slot: tasks that the runner has.
    out: Vec<u32>,
    /// Of how many tasks that were kept this engine knows.
    seen: u32,
    /// Of how many rows was told that they have ended.
    told: u32,
    /// Room for what comes back.
    kept: Vec<(Kept, Frame)>,
    ended: Vec<Ended>,
    ended_of: Vec<MpqId>,
    /// The last turn had something come back.
    busy: bool,
}

impl Engine {
    /// Has another thread run its handlers: see [`Engine::running_for`].
    #[must_use]
    pub fn dispatching(mut self, dispatcher: Dispatcher) -> Self {
        let most = Dispatcher::most();
        for list in [&mut self.outbound.transmit, &mut self.outbound.spent] {
            list.reserve(list.capacity() + most);
        }
        self.elsewhere = Some(Box::new(Elsewhere {
            dispatcher,
            not_run: VecDeque::with_capacity(most),
            out: Vec::new(),
            seen: 0,
            told: 0,
            kept: Vec::with_capacity(most),
            ended: Vec::with_capacity(3 * most),
            ended_of: Vec::with_capacity(3 * most),
            busy: false,
        }));
        self
    }

    /// Whether another thread runs its tasks.
    #[inline]
    pub(crate) const fn runs_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// The clusters on which it runs handlers itself.
    pub(crate) fn own_clusters(&self) -> Range<u32> {
        let Range { start, end } = self.clusters;
        start..if self.runs_elsewhere() { start } else { end }
    }

    /// How many more tasks may be handed over.
    pub(crate) fn errands_left(&self) -> usize {
        self.elsewhere.as_ref().map_or(usize::MAX, |elsewhere| elsewhere.dispatcher.credit())
    }

    /// Frames that the runner has, or that wait to be handed over again.
    pub(crate) fn out_on_errands(&self) -> usize {
        let out = |elsewhere: &Elsewhere| elsewhere.dispatcher.out() + elsewhere.not_run.len();
        self.elsewhere.as_deref().map_or(0, out)
    }

    /// Whether tasks have come back, or did in the last turn.
    pub(crate) fn has_come_back(&self) -> bool {
        self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.busy || elsewhere.dispatcher.has_news())
    }

    /// Has the runner forget a context that is not in any slot here.
    pub(crate) fn forget_elsewhere(&mut self, id: u32) {
        self.elsewhere.iter_mut().for_each(|elsewhere| elsewhere.dispatcher.forget(id));
    }

    /// Hands nothing over again of a context that has gone, and expects nothing of it.
    pub(crate) fn clear_elsewhere(&mut self, slot: Slot, id: u32) {
        let Some(elsewhere) = &mut self.elsewhere else { return };
        self.scheduler.expect_nothing(slot.0);
        elsewhere.out[slot.0 as usize] = 0;
        for _ in 0..elsewhere.not_run.len() {
            match elsewhere.not_run.pop_front() {
                Some((errand, frame)) if errand.row.context == id => {
                    self.counts.add(Counter::DropRemoved, 1);
                    self.nic.recycle(frame);
                }
                other => elsewhere.not_run.extend(other),
            }
        }
    }

    /// Feeds tasks back that have ended. Returns how many frames came back.
    pub(crate) fn take_back_tasks(&mut self) -> usize {
        let Self { elsewhere: Some(elsewhere), outbound, scheduler, contexts, nic, .. } = self else { return 0 };
        let Elsewhere { dispatcher, kept, ended, ended_of, .. } = &mut **elsewhere;
        let each = |frame, back| match back {
            Back::Outgoing => outbound.transmit.push(frame),
            Back::Spent | Back::Passing => outbound.spent.push(frame),
        };
        let count = dispatcher.take_back(each, kept, ended, ended_of, |charge| {
            if has_id(contexts, charge.slot, charge.context) {
                scheduler.settle(charge.slot.0, charge.tasks, Duration::from_nanos(charge.nanoseconds));
            }
        });
        nic.recycle_all(&mut outbound.spent);
        elsewhere.busy = count > 0;
        let is_news = count > 0 || !elsewhere.ended.is_empty();
        // It may be short of blank ones.
        self.let_go();
        if is_news {
            self.feed_all_back();
        }
        count
    }

    /// Feeds back what has come back, in order: a verdict on a message comes before its end, and a task after that which it followed.
    fn feed_all_back(&mut self) {
        let Some(elsewhere) = &mut self.elsewhere else { return };
        let (mut ended, mut of) = (std::mem::take(&mut elsewhere.ended), std::mem::take(&mut elsewhere.ended_of));
        let (mut kept, mut told) = (std::mem::take(&mut elsewhere.kept), elsewhere.told);
        elsewhere.told = told.wrapping_add(saturate(ended.len() as u64));
        let (mut rows, mut all) = (ended.iter(), &of[..]);
        let mut next = |engine: &mut Self| {
            let Some(row) = rows.next() else { return false };
            let (own, rest) = all.split_at(row.count as usize);
            all = rest;
            if has_id(&engine.contexts, row.slot(), row.context) {
                engine.feed_back_row(row, own);
            }
            true
        };
        elsewhere.seen = elsewhere.seen.wrapping_add(saturate(kept.len() as u64));
        for (task, frame) in kept.drain(..) {
            while told != task.after && next(self) {
                told = told.wrapping_add(1);
            }
            self.take_in(task, frame);
        }
        while next(self) {}
        ended.clear();
        of.clear();
        if let Some(elsewhere) = &mut self.elsewhere {
            (elsewhere.ended, elsewhere.ended_of, elsewhere.kept) = (ended, of, kept);
        }
    }

    fn feed_back_row(&mut self, row: &Ended, of: &[MpqId]) {
        let slot = row.slot();
        of.iter().take(AHEAD).for_each(|&mpq| self.mpqs.prefetch(mpq));
        let mut later = of.iter().skip(AHEAD);
        if !row.go_on {
            self.count_back(slot, row.count);
        }
        for &mpq in of {
            later.next().into_iter().for_each(|&mpq| self.mpqs.prefetch(mpq));
            if row.go_on {
                self.mpqs.go_on(mpq);
                continue;
            }
            let dying = self.mpqs.is_dead(mpq);
            self.move_on(mpq, slot, row.stage, None);
            if dying {
                self.bury(slot, self.gone[mpq.0 as usize]);
            }
        }
    }

    /// Feeds a task back whose packet is here again, or has it wait until it can be begun.
    #[cold]
    fn take_in(&mut self, Kept { errand, outcome, .. }: Kept, frame: Frame) {
        if !has_id(&self.contexts, errand.row.slot(), errand.row.context) {
            return self.drop_frame(frame, Counter::DropRemoved);
        }
        self.count_back(errand.row.slot(), 1);
        match outcome {
            Outcome::NotRun => {
                if let Some(elsewhere) = &mut self.elsewhere {
                    elsewhere.not_run.push_back((errand, frame));
                }
            }
            Outcome::Abandoned => self.give_up(errand.task(frame)),
            Outcome::GivenUp => self.bury_task(errand.task(frame)),
            Outcome::Ended(verdict) => {
                let mut task = errand.task(frame);
                if let Some(verdict) = verdict {
                    self.decide(&mut task, verdict);
                }
                self.feed_back(task, None);
            }
        }
    }

    /// Some of a context's tasks are here again.
    fn count_back(&mut self, slot: Slot, count: u32) {
        if let Some(elsewhere) = &mut self.elsewhere {
            let out = &mut elsewhere.out[slot.0 as usize];
            *out -= count;
            if *out == 0 && !elsewhere.has_not_run(slot.0) {
                self.scheduler.expect_nothing(slot.0);
            }
        }
    }

    /// Hands over what is to be run next.
    pub(crate) fn hand_over_tasks(&mut self, now: Moment) {
        self.hand_over_again();
        if self.is_shared() {
            self.hand_over_in_turn(now);
        } else {
            self.hand_over_all(now);
        }
    }

    /// Lets the runner have what is staged, and blank frames.
    fn let_go(&mut self) {
        if let Self { elsewhere: Some(elsewhere), nic, .. } = self {
            elsewhere.dispatcher.hand_over(|| nic.allocate());
        }
    }

    /// Some of the tasks that could not be begun: the runner may have their contexts now.
    fn hand_over_again(&mut self) {
        for _ in 0..AGAIN.min(self.errands_left()) {
            let Some(elsewhere) = &mut self.elsewhere else { return };
            let Some((mut errand, frame)) = elsewhere.not_run.pop_front() else { return };
            if self.mpqs.is_dead(errand.own.mpq) {
                self.bury_task(errand.task(frame));
                continue;
            }
            errand.see(elsewhere.seen);
            elsewhere.count_out(errand.row.slot(), 1);
            elsewhere.dispatcher.stage(errand, frame);
        }
    }

    /// Those of the only context, as many as the runner takes.
    fn hand_over_all(&mut self, now: Moment) {
        loop {
            let picked = self.pick_elsewhere();
            let queued = picked.map_or(0, |pick| self.hand_over_queued(pick.owner, PORTION));
            let before = self.kept_back();
            let only = self.routes.slots.first().copied().filter(|&only| !self.has_to_wait(only.0));
            if let Some(only) = only {
                self.hand_over_straight(only, now);
            }
            self.let_go();
            let same = queued == 0 && before == self.kept_back();
            if self.errands_left() == 0 || same && (self.mpqs.room() == 0 || !self.admit_next(now)) {
                break;
            }
        }
    }

    /// Those of contexts that share the time, as long as the runner would not be busy for long with what it has.
    fn hand_over_in_turn(&mut self, now: Moment) {
        self.note_ranks();
        self.admit_batch(now);
        while self.out_on_errands() < ENOUGH || self.scheduler.expected() < SHARED_TIME {
            let left = self.errands_left();
            let Some(Pick { owner, tasks }) = self.pick_elsewhere().filter(|_| left > 0) else { break };
            let handed_over = self.hand_over_queued(owner, tasks as usize);
            self.scheduler.expect(owner, handed_over);
        }
        self.let_go();
    }

    /// Whose tasks are next, of those of which none waits to be begun, and which have not their part of the way: if their HPUs are taken, they
    /// would keep others' from being handed over.
    fn pick_elsewhere(&mut self) -> Option<Pick> {
        let part = (Dispatcher::tasks() / self.linked.max(1)).max(1);
        let most = if self.errands_left() >= ROOMY { part.max(EACH) } else { part };
        let Self { scheduler, parked, mpqs, contexts, elsewhere: Some(elsewhere), .. } = self else { return None };
        let may = |&owner: &u32| !elsewhere.has_not_run(owner) && elsewhere.out[owner as usize] < most;
        scheduler.pick(runnable(parked, mpqs, contexts).filter(may))
    }

    /// Whether tasks wait that could not be begun.
    pub(crate) fn has_to_hand_over_again(&self) -> bool {
        self.elsewhere.as_ref().is_some_and(|elsewhere| !elsewhere.not_run.is_empty())
    }

    /// Whether a task of a context waits to be begun.
    fn has_to_wait(&self, owner: u32) -> bool {
        self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.has_not_run(owner))
    }

    /// Hands over queued tasks of a context, so many at the most. Returns how many.
    fn hand_over_queued(&mut self, owner: u32, most: usize) -> u32 {
        let mut count = 0;
        for _ in 0..self.errands_left().min(most) {
            let Some(task) = self.mpqs.next_task(owner) else { break };
            let Binding { slot, .. } = task.context;
            let Self { contexts, messages, mpqs, elsewhere: Some(elsewhere), .. } = self else { break };
            let context = context(contexts, slot);
            let name = context.entry.key.is_fpspin().then(|| messages.key(task.mpq).first_byte());
            let next = mpqs.next_of_packet(&task).filter(|_| context.goes_on_elsewhere());
            let (mut errand, frame) = Errand::of(task, context.id, name);
            errand.see(elsewhere.seen);
            if let Some(completes) = next {
                let goes_on = if completes { GoesOn::ToCompletion } else { GoesOn::ToPayload };
                errand.may_go_on(goes_on);
            }
            elsewhere.count_out(slot, 1);
            elsewhere.dispatcher.stage(errand, frame);
            count += 1;
        }
        count
    }

    /// Makes room for what there is to know of a context.
    pub(crate) fn add_elsewhere(&mut self, slot: Slot) {
        if let Some(elsewhere) = &mut self.elsewhere {
            let slots = elsewhere.out.len().max(slot.0 as usize + 1);
            elsewhere.out.resize(slots, 0);
        }
    }
}

impl Elsewhere {
    /// Whether a task of a context waits to be begun.
    fn has_not_run(&self, owner: u32) -> bool {
        self.not_run.iter().any(|(errand, _)| errand.row.slot().0 == owner)
    }

    /// Of how many tasks that were kept the engine knows.
    pub(crate) const fn seen(&self) -> u32 {
        self.seen
    }

    /// Some of a context's tasks are handed over.
    #[inline]
    pub(crate) fn count_out(&mut self, slot: Slot, count: u32) {
        self.out[slot.0 as usize] += count;
    }

    /// The way to the runner.
    pub(crate) const fn dispatcher(&mut self) -> &mut Dispatcher {
        &mut self.dispatcher
    }
}
