//! Payload tasks that run on other threads' clusters: PsPIN's dispatcher has them go to the least loaded cluster when their home has no
//! room (paper §III-B1).
//!
//! A thread lends tasks to those that have nothing of their own to do: while its own would wait for long, or for an HPU. Message
//! queues stay with their home's thread, and so do frames: a task that has ended elsewhere is fed back here. The other thread charges the
//! task's context for it, and attends to contexts of its own when it is their turn.

use std::time::Duration;

use hpu_vm::Exit;
use spin_abi::control::{Engine as Kind, Placement, RunInfo};
use spin_abi::counters::Counter;
use spin_pspin::hpu::command::{CommandBudget, Commands};
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::ids::{DropReason, Handler, MessageRef, Packet, Slot};
use spin_pspin::mpq::{Stage, Task};

use crate::peers::{Loan, Outcome, Peers, Repaid};
use crate::pipeline::{Engine, context, has_id};
use crate::sharing::{SHARED_BATCH, Shift};
use crate::tasks::{Borrowed, Done, Parts, idle_hpu, parts};

/// Tasks that wait, from which on others may be lent: those that remain keep this thread busy meanwhile.
const ENOUGH: usize = 16;
/// What a task has to take: to hand it over, with a packet that the other core does not have, and to take it back costs somewhat less.
const LONG: Duration = Duration::from_nanos(150);
/// Turns in a row in which there were so many that took so long: once in a while a thread is off its core.
const LASTING: u32 = 4;
/// Others' tasks that are run in a turn, and while there are tasks of this thread.
const HELPED: [u32; 2] = [32, 4];

/// Whether a context's payload tasks may run on other threads. Packets that go on to the kernel stay in order; and tasks that are compared
/// would differ by what others of the context do at the same time.
pub(crate) fn overflows(run: &RunInfo) -> bool {
    run.placement == Placement::Any && !run.verdicts && run.engine != Kind::Check
}

impl Engine {
    /// Has other threads take payload tasks over, and takes theirs.
    #[must_use]
    pub fn with_peers(mut self, peers: Peers) -> Self {
        self.peers = Some(Box::new(peers));
        self
    }

    /// Whether tasks would wait for long here, and not elsewhere.
    #[inline]
    pub(crate) fn overflows(&self) -> bool {
        self.may_overflow && self.peers.as_ref().is_some_and(|peers| peers.loaded >= LASTING && peers.idle() > 0)
    }

    /// Tasks of its own that are run in a turn then: as many as others get of a batch, each.
    pub(crate) fn own_part(&self) -> u32 {
        let threads = 1 + self.peers.as_ref().map_or(0, |peers| peers.idle());
        (SHARED_BATCH / threads).max(1) as u32
    }

    /// Notes how long the tasks of a turn took, after which so many packet buffers were given back, when so many were waiting. Of one in
    /// which tasks were gone on with that wait, nobody can tell.
    #[inline]
    pub(crate) fn note_load(&mut self, waited: usize, released: u64, time: Duration) {
        let Some(peers) = &mut self.peers else { return };
        if released > 0 && self.parked.is_empty() {
            let long = time.as_nanos() >= LONG.as_nanos() * u128::from(released);
            peers.loaded = if long && waited >= ENOUGH { LASTING.min(peers.loaded + 1) } else { 0 };
        }
    }

    /// At the end of a turn that took so many packets in: gives others' tasks back that have ended, and lets them know whether there
    /// was nothing to do here.
    #[inline]
    pub(crate) fn end_loans(&mut self, taken: usize) {
        let has_own = taken > 0 || self.has_own_tasks();
        if let Some(peers) = &mut self.peers {
            peers.give_back();
            peers.announce(!has_own);
        }
    }

    /// Sees to tasks that others had, and to others' tasks. Returns how many packet buffers were given back.
    #[inline]
    pub(crate) fn see_to_loans(&mut self, clock: &impl Fn() -> Duration) -> u64 {
        let Some(peers) = &mut self.peers else { return 0 };
        let lost = peers.take();
        let (came_back, waiting) = (!peers.back.is_empty(), !peers.waiting.is_empty());
        peers.exchanged = came_back || waiting;
        self.counts.add(Counter::DropRemoved, lost);
        let released = if came_back { self.take_back() } else { 0 };
        if waiting {
            self.help(clock);
        }
        released
    }

    /// Feeds tasks back that have ended elsewhere. Those that were not begun are run here.
    #[cold]
    fn take_back(&mut self) -> u64 {
        let Some(peers) = &mut self.peers else { return 0 };
        let (mut back, mut not_run) = (std::mem::take(&mut peers.back), std::mem::take(&mut peers.not_run));
        let mut released = 0;
        for Repaid { loan, outcome } in back.drain(..) {
            let Loan { task, context, .. } = &loan;
            if !has_id(&self.contexts, task.context.slot, *context) {
                self.drop_frame(loan.task.packet.frame, Counter::DropRemoved);
                continue;
            }
            match outcome {
                Outcome::Ended(deferred) => released += u64::from(self.feed_back(loan.task, deferred)),
                Outcome::Abandoned => self.give_up(loan.task),
                Outcome::NotRun => match idle_hpu(&self.contexts, task.context, Stage::Payload) {
                    Some(hpu) => released += self.run_here(loan.task, hpu),
                    None => not_run.push(Repaid { loan, outcome }),
                },
            }
        }
        if let Some(peers) = &mut self.peers {
            // Those are looked at again in the next turn.
            (peers.back, peers.not_run) = (not_run, back);
        }
        released
    }

    /// Runs a task on an HPU of its home or another one's. Returns how many packet buffers were given back.
    pub(crate) fn run_here(&mut self, task: Task<MessageRef, Packet>, hpu: HpuId) -> u64 {
        if hpu.cluster == task.context.home {
            return self.run(task, hpu).into();
        }
        let mut done = Done::default();
        self.run_away(task, hpu, &mut done);
        done.released
    }

    /// Gives a message up, of which another thread gave up a task.
    pub(crate) fn give_up(&mut self, task: Task<MessageRef, Packet>) {
        self.kill(task.mpq, task.context.slot, DropReason::NoRoom);
        self.bury_task(task);
    }

    /// What becomes of a task that was not begun, or has not ended, of a message that was given up.
    pub(crate) fn bury_task(&mut self, task: Task<MessageRef, Packet>) {
        let Task { mpq, stage, context: MessageRef { slot, .. }, packet, .. } = task;
        let why = self.drop_reasons[mpq.0 as usize];
        if self.mpqs.complete(mpq, stage, None).idle {
            self.messages.release(mpq);
        }
        self.bury(slot, why);
        self.dispose(slot, packet, why);
    }

    /// Runs some of others' tasks, those that come before this thread's own.
    #[cold]
    fn help(&mut self, clock: &impl Fn() -> Duration) {
        let (mut at, mut left, mut later) = (0, HELPED[usize::from(self.has_own_tasks())], None);
        let mut shift = self.is_shared().then(|| self.shift(clock));
        while left > 0 && !shift.as_ref().is_some_and(Shift::is_over) {
            let Some((_, Loan { task, context: id, .. })) = self.peers.as_ref().and_then(|peers| peers.waiting.get(at))
            else {
                break;
            };
            let MessageRef { slot, .. } = task.context;
            let known = has_id(&self.contexts, slot, *id);
            if known && (later == Some(slot) || !self.is_turn_of(slot)) {
                (at, later) = (at + 1, Some(slot));
                continue;
            }
            let hpu = if known { self.idle_for(slot) } else { None };
            // What it takes counts from where the others are, however long it had nothing to run here.
            let shared = hpu.is_some() && shift.is_some();
            let picked = if shared { self.scheduler.pick([slot.0]) } else { None };
            let run = self.run_borrowed(at, hpu, picked.map_or(left, |pick| pick.tasks.min(left)));
            left -= run;
            if let Some(shift) = shift.as_mut().filter(|_| picked.is_some()) {
                self.scheduler.charge(slot.0, run, shift.lap());
            }
        }
    }

    /// An HPU of a context on which no task waits.
    fn idle_for(&self, slot: Slot) -> Option<HpuId> {
        self.contexts[slot.0 as usize].as_ref()?.hpus.idle_on_least_loaded()
    }

    /// Whether a context comes before all others that have tasks or packets here.
    fn is_turn_of(&self, slot: Slot) -> bool {
        let mut arrived = self.inbound.slots();
        !self.is_shared() || self.is_next(slot) && arrived.all(|other| self.scheduler.is_next(slot.0, [other.0]))
    }

    /// Runs another thread's task, and those behind it that are of the same context and home, `most` in all; `None`: the context is not
    /// here, or has no HPU. Home is where they wait for one. Returns how many there were.
    fn run_borrowed(&mut self, at: usize, hpu: Option<HpuId>, most: u32) -> u32 {
        let Some((lender, loan)) = self.peers.as_mut().and_then(|peers| peers.waiting.remove(at)) else { return 0 };
        let Some(hpu) = hpu else {
            self.repay(lender, loan, Outcome::NotRun);
            return 1;
        };
        let binding = loan.task.context;
        self.away(binding, hpu, |engine| {
            let here = context(&mut engine.contexts, binding.slot);
            let with_run = here.runs_in_a_row(hpu);
            match here.handler(Stage::Payload).filter(|_| with_run) {
                Some(handler) => engine.run_borrowed_row(lender, loan, handler, hpu, at, most),
                None => engine.run_borrowed_one(lender, loan, hpu),
            }
        })
    }

    fn run_borrowed_one(&mut self, lender: usize, mut loan: Loan, hpu: HpuId) -> u32 {
        let (exit, issued) = self.run_handler(&mut loan.task, hpu, loan.flow, None);
        self.end_borrowed(lender, loan, hpu, exit, issued);
        1
    }

    /// Runs tasks of a handler in a row, the first and those that wait at the place behind it, up to one that does not end as most do.
    fn run_borrowed_row(
        &mut self,
        mut lender: usize,
        mut loan: Loan,
        handler: Handler,
        hpu: HpuId,
        at: usize,
        most: u32,
    ) -> u32 {
        let (id, MessageRef { slot, home, .. }) = (loan.context, loan.task.context);
        let Parts { spec, hpus, host, counts, events, mut printer } =
            parts(context(&mut self.contexts, slot), handler, loan.identity());
        let mut print = |line: &[u8]| printer.print(line);
        let Self { nic, outbound, executor, peers: Some(peers), .. } = self else {
            unreachable!("tasks of others come from peers")
        };
        let mut commands = Commands::new(
            &mut **nic,
            outbound,
            host,
            counts,
            Some(events),
            loan.task.releases_packet,
            CommandBudget::FULL,
        );
        let mut run = 0;
        let unusual = hpus.get(hpu).with_run(executor, &spec, &mut commands, &mut print, |row| {
            let looked_at = row.looked_at();
            loop {
                if let Some((_, next)) = peers.waiting.get(at) {
                    next.task.packet.frame.prefetch_first(looked_at);
                }
                run += 1;
                let returned = row.run_and_finish(loan.identity(), &mut loan.task.packet.frame);
                let issued = row.commands().budget;
                if !returned && row.exit() != Exit::Finished {
                    return Some((lender, loan, row.exit(), issued));
                }
                peers.repay(lender, loan, Outcome::Ended(issued.deferred));
                let is_alike = |(_, next): &(usize, Loan)| {
                    next.context == id && next.task.context.slot == slot && next.task.context.home == home
                };
                if run == most || !peers.waiting.get(at).is_some_and(is_alike) {
                    return None;
                }
                (lender, loan) = peers.waiting.remove(at)?;
                row.commands().begin(loan.task.releases_packet);
            }
        });
        commands.counts.add(Counter::PayloadRuns, run.into());
        commands.counts.add(Counter::Overflowed, u64::from(run) - 1);
        commands.recycle_frames();
        if let Some((lender, mut loan, exit, issued)) = unusual {
            self.see_to(&mut loan.task, hpu, loan.flow, exit);
            self.end_borrowed(lender, loan, hpu, exit, issued);
        }
        run
    }

    /// Gives another thread's task back that has ended, or leaves it where it waits.
    fn end_borrowed(&mut self, lender: usize, loan: Loan, hpu: HpuId, exit: Exit, issued: CommandBudget) {
        if exit == Exit::Parked {
            let Loan { task, context, flow } = loan;
            self.park(task, hpu, issued, Some(Borrowed { lender, context, flow }));
        } else {
            self.repay(lender, loan, Outcome::Ended(issued.deferred));
        }
    }

    /// Gives another thread's task back at the end of the turn.
    pub(crate) fn repay(&mut self, lender: usize, loan: Loan, outcome: Outcome) {
        let Some(peers) = &mut self.peers else { unreachable!("tasks of others come from peers") };
        peers.repay(lender, loan, outcome);
    }

    /// Hands tasks over that would wait for long, or for an HPU.
    #[inline]
    pub(crate) fn lend(&mut self) {
        if self.peers.is_some() && (!self.parked.is_empty() || self.overflows()) {
            self.lend_some();
        }
    }

    /// One of each context at a time, as long as there are some and somebody to take them.
    #[cold]
    fn lend_some(&mut self) {
        let (overflows, mut lent, mut at) = (self.overflows(), false, 0);
        while let Some(to) = self.peers.as_ref().and_then(|peers| peers.least_loaded()) {
            let Some(&owner) = self.mpqs.backlogged().get(at) else {
                if !std::mem::take(&mut lent) {
                    break;
                }
                at = 0;
                continue;
            };
            at += 1;
            let enough = overflows && self.hers_taken() > ENOUGH;
            if let Some(id) = self.may_lend(owner, enough)
                && let Some(task) = self.mpqs.next_task(owner)
            {
                let flow = self.flow(task.context.slot, task.mpq);
                let Some(peers) = &mut self.peers else { break };
                peers.lend(to, Loan { task, context: id, flow });
                lent = true;
            }
        }
        if let Some(peers) = &mut self.peers {
            peers.hand_over();
        }
    }

    /// Whether an owner's next task may run on another thread: it is for payload, on a context that [may overflow](overflows), and there are
    /// `enough` of them, or all HPUs are taken here. Where some of the context came back as they were, others would too. Returns the
    /// context's id.
    fn may_lend(&self, owner: u32, enough: bool) -> Option<u32> {
        let context = self.contexts.get(owner as usize)?.as_ref()?;
        let overflows = overflows(&context.run) && !context.retired;
        let came_back = self.peers.as_ref()?.back.iter().any(|repaid| repaid.loan.context == context.id);
        let (binding, stage) = self.mpqs.peek(owner)?;
        let is_payload = stage == Stage::Payload && context.handler(stage).is_some();
        let wanted =
            overflows && !came_back && is_payload && (enough || idle_hpu(&self.contexts, binding, stage).is_none());
        wanted.then_some(context.id)
    }

    /// Lends no more tasks, and wants none.
    pub(crate) fn stop_lending(&mut self) {
        if let Some(peers) = &mut self.peers {
            peers.stop_lending();
        }
    }

    /// Whether there are tasks of its own to begin.
    fn has_own_tasks(&self) -> bool {
        self.kept_back() > 0 || !self.mpqs.backlogged().is_empty()
    }

    /// Whether the last turn had tasks of others, or they had some of its own.
    pub(crate) fn has_exchanged(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.exchanged)
    }

    /// Whether other threads may still lend tasks.
    pub(crate) fn may_borrow(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.may_borrow())
    }

    /// Whether other threads have tasks of this one, or this one theirs.
    pub(crate) fn has_loans(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.has_loans())
    }
}
