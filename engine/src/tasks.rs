//! Tasks: running handlers on their message's home cluster, or where there is an HPU, leaving them where they wait, and what comes of
//! it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hpu_vm::Exit;
use hpu_vm::jit::Translation;
use spin_abi::control::{Abi, Placement};
use spin_abi::counters::Counter;
use spin_abi::events::{Event, What};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::Machine;
use spin_abi::verdict::{Fate, Verdict};
use spin_pspin::counts::Counts;
use spin_pspin::host_memory::HostMemory;
use spin_pspin::hpu::command::{CommandBudget, Commands};
use spin_pspin::hpu::ip_view::Link;
use spin_pspin::hpu::memory::{HpuId, cluster_of};
use spin_pspin::hpu::shadow::Difference;
use spin_pspin::hpu::{Hpus, TaskIdentity, TaskSpec};
use spin_pspin::ids::{BatchTime, DropReason, Handler, MessageRef, Packet, Slot};
use spin_pspin::mpq::{Mpqs, Stage, Task};

use crate::context::{Context, LINES_PRINTED};
use crate::descriptor::Descriptor;
use crate::latency::nanoseconds;
use crate::peers::{Loan, Outcome};
use crate::pipeline::{Engine, context};

/// The time of one packet's task is taken of so many: where packets come one by one, each would wait for the clock else.
const SAMPLE_OF: u64 = 16;
/// And of so many batches at the least: it takes as long as some packets do.
const SAMPLE_OF_BATCHES: u64 = 8;

/// For so long tasks of a context that is alone are run in a turn: who asks something of its thread waits meanwhile.
const ALONE_TIME: Duration = Duration::from_millis(1);

/// Tasks that wait which are looked at in a turn while others have packets: it takes as long as some of these do.
const LOOKED_AT: usize = 4;

/// A task that waits on its HPU.
pub(crate) struct Parked {
    pub(crate) task: Task<MessageRef, Packet>,
    hpu: HpuId,
    issued: CommandBudget,
    /// The one that it was begun with: registers and place are as that keeps them.
    translation: Option<Arc<Translation>>,
    /// It is another thread's.
    borrowed: Option<Borrowed>,
}

/// Whose task it is that another thread's engine has: see [`crate::overflow`].
#[derive(Clone, Copy)]
pub(crate) struct Borrowed {
    /// Of the thread's peers.
    pub(crate) lender: usize,
    /// Id of its context.
    pub(crate) context: u32,
    /// What handlers know its queue by.
    pub(crate) flow: u32,
}

impl Borrowed {
    /// What was lent, with the task that it was.
    const fn loan(self, task: Task<MessageRef, Packet>) -> Loan {
        Loan { task, context: self.context, flow: self.flow }
    }
}

impl Engine {
    /// Runs all tasks of the only context, those of the batch's packets too, unless they take too long for one turn. Returns how many packet
    /// buffers were given back.
    pub(crate) fn run_alone(&mut self, now: BatchTime, clock: &impl Fn() -> Duration) -> u64 {
        let (mut sampled, mut released) = (self.is_sampled(), 0);
        let (mut left, end) = (self.fitting, Duration::from_nanos(now.time) + ALONE_TIME);
        self.overran = false;
        loop {
            // One whose HPUs are all taken runs none.
            if let Some(&only) = self.mpqs.backlogged().first() {
                let done = self.run_some(only, left, clock, &mut sampled);
                (released, left) = (released + done.released, left.saturating_sub(done.tasks));
            }
            let before = self.kept_back();
            if left > 0
                && sampled
                && let Some(&only) = self.routes.slots.first()
            {
                let done = self.run_straight(only, left, now);
                (released, left) = (released + done.released, left.saturating_sub(done.tasks));
            }
            let over = left == 0 || self.overran && clock() > end;
            if over || before == self.kept_back() && (self.mpqs.room() == 0 || !self.admit_next(now)) {
                return released;
            }
        }
    }

    /// A turn with so many tasks took so long: that says how many fit in one, until one takes another time.
    pub(crate) fn note_length(&mut self, tasks: u64, turn: Duration) {
        if tasks > 0 {
            let fitting = nanoseconds(ALONE_TIME).saturating_mul(tasks) / nanoseconds(turn).max(1);
            self.fitting = u32::try_from(fitting.max(1)).unwrap_or(u32::MAX);
        }
    }

    /// Whether the time of a task was taken of so few packets ago that none is taken now.
    pub(crate) fn is_sampled(&self) -> bool {
        self.unsampled < SAMPLE_OF.max(self.kept_back() as u64 * SAMPLE_OF_BATCHES)
    }

    /// Runs at most so many tasks of a context, and none behind one that took all the time it may. The time of one is taken, unless
    /// one was `sampled` before.
    pub(crate) fn run_some(
        &mut self,
        owner: u32,
        most: u32,
        clock: &impl Fn() -> Duration,
        sampled: &mut bool,
    ) -> Done {
        let (mut done, mut next) = (Done::default(), None);
        self.overran = false;
        while done.tasks < most && !self.overran {
            let Some((hpu, alone)) = self.place(owner, next.as_ref()) else { break };
            let Some(task) = next.take().or_else(|| self.mpqs.next_task(owner)) else { break };
            let home = task.context.home;
            let hpu = hpu.unwrap_or(HpuId { cluster: home, hpu: 0 });
            if hpu.cluster != home {
                self.run_away(task, hpu, &mut done);
            } else if std::mem::replace(sampled, true) {
                next = self.run_row(task, hpu, if alone { 1 } else { most - done.tasks }, &mut done);
            } else {
                self.sample(task, hpu, clock, &mut done);
            }
        }
        done
    }

    /// Where an owner's next task can run: `None` when the HPUs of its cluster are taken, and it may not overflow to others (PsPIN
    /// paper §III-B1). While tasks wait on HPUs, others of their context run one at a time: which HPU is idle is for each to see.
    fn place(&self, owner: u32, next: Option<&Task<MessageRef, Packet>>) -> Option<(Option<HpuId>, bool)> {
        if !self.has_parked(owner) {
            return Some((None, false));
        }
        debug_assert!(next.is_none(), "nothing is taken beforehand while tasks wait");
        let Some((binding, stage)) = self.mpqs.peek(owner) else { return Some((None, true)) };
        let hpu = idle_hpu(&self.contexts, binding, stage)?;
        Some((Some(hpu), true))
    }

    /// Whether tasks of a context wait on their HPUs.
    #[inline]
    pub(crate) fn has_parked(&self, owner: u32) -> bool {
        self.parked.iter().any(|parked| parked.task.context.slot.0 == owner)
    }

    /// Runs one task on another cluster than its message's home.
    #[cold]
    pub(crate) fn run_away(&mut self, task: Task<MessageRef, Packet>, hpu: HpuId, done: &mut Done) {
        let binding = task.context;
        done.tasks += 1;
        done.released += u64::from(self.away(binding, hpu, |engine| engine.run(task, hpu)));
    }

    /// Has a payload task run on another cluster than its message's home.
    pub(crate) fn away<R>(&mut self, binding: MessageRef, hpu: HpuId, run: impl FnOnce(&mut Self) -> R) -> R {
        let MessageRef { slot, home, .. } = binding;
        let here = context(&mut self.contexts, slot);
        here.counts.add(Counter::Overflowed, u64::from(here.handler(Stage::Payload).is_some()));
        here.hpus.get(hpu).set_home(home);
        let result = run(self);
        context(&mut self.contexts, slot).hpus.get(hpu).set_home(hpu.cluster);
        result
    }

    /// Runs one task, and takes its time.
    #[inline(never)]
    fn sample(&mut self, task: Task<MessageRef, Packet>, hpu: HpuId, clock: &impl Fn() -> Duration, done: &mut Done) {
        self.unsampled = 0;
        let start = clock();
        self.latencies.sample_queueing(task.packet.arrived.before(start));
        self.run_row(task, hpu, 1, done);
        self.latencies.sample_handler(clock().saturating_sub(start));
    }

    /// Runs a task, and at most `most` in all: those behind it too, as long as they are of the same handler on the same cluster
    /// and end as most do. Returns the next one if it was taken and is another handler's.
    fn run_row(
        &mut self,
        first: Task<MessageRef, Packet>,
        hpu: HpuId,
        most: u32,
        done: &mut Done,
    ) -> Option<Task<MessageRef, Packet>> {
        let (stage, MessageRef { slot, home, .. }) = (first.stage, first.context);
        let context = context(&mut self.contexts, slot);
        let with_run = context.runs_in_a_row(hpu);
        let Some(handler) = context.handler(stage).filter(|_| with_run) else {
            done.tasks += 1;
            done.released += u64::from(self.run(first, hpu));
            return None;
        };
        let verdicts = context.run.verdicts;
        let Parts { spec, hpus, host, counts, events, mut printer } = parts(context, handler, identity(&first));
        let mut print = |line: &[u8]| printer.print(line);
        let Self { nic, outbound, released, executor, messages, mpqs, .. } = self;
        let mut commands =
            Commands::new(&mut **nic, outbound, host, counts, Some(events), first.releases_packet, CommandBudget::FULL);
        let (mut task, mut left) = (first, most);
        let ended = hpus.get(hpu).with_run(executor, &spec, &mut commands, &mut print, |row| {
            let looked_at = row.looked_at();
            loop {
                row.commands().counts.add(started(stage), 1);
                // What has waited for long is far away: it is asked for while this task runs.
                if let Some(next) = mpqs.next_packet(slot.0) {
                    next.frame.prefetch_first(looked_at);
                }
                let returned = row.run_and_finish(identity(&task), &mut task.packet.frame);
                left -= 1;
                let usual = (returned || row.exit() == Exit::Finished) && task.packet.drop_reason.is_none();
                if !usual || verdicts && !processes(row.result()) {
                    let exit = if returned { Exit::Returned } else { row.exit() };
                    return Next::Unusual(task, exit, row.commands().budget);
                }
                let Task { mpq, packet, releases_packet, .. } = task;
                let kept = if releases_packet {
                    *released = packet.arrived;
                    done.released += 1;
                    row.commands().release(packet.frame);
                    None
                } else {
                    Some(packet)
                };
                let feedback = mpqs.complete(mpq, stage, kept);
                if feedback.message_done {
                    row.commands().counts.add(Counter::Messages, 1);
                }
                if feedback.idle {
                    messages.release(mpq);
                }
                if left == 0 {
                    return Next::None;
                }
                let Some(next) = mpqs.next_task(slot.0) else { return Next::None };
                if next.stage != stage || next.context.home != home {
                    return Next::Other(next);
                }
                task = next;
                row.commands().begin(task.releases_packet);
            }
        });
        commands.recycle_frames();
        done.tasks += most - left;
        match ended {
            Next::None => None,
            Next::Other(task) => Some(task),
            Next::Unusual(task, exit, issued) => {
                done.released += u64::from(self.end_unusual(task, hpu, exit, issued));
                None
            }
        }
    }

    /// Does what there is to do after the task in a row that did not end as most do. Returns whether a packet buffer was given back.
    #[cold]
    pub(crate) fn end_unusual(
        &mut self,
        mut task: Task<MessageRef, Packet>,
        hpu: HpuId,
        exit: Exit,
        issued: CommandBudget,
    ) -> bool {
        let flow = self.flow(task.context.slot, task.mpq);
        self.see_to(&mut task, hpu, flow, exit);
        self.leave(task, hpu, exit, issued)
    }

    /// Runs one task on its own, and feeds it back unless it waits. Returns whether a packet buffer was given back.
    #[inline(never)]
    pub(crate) fn run(&mut self, mut task: Task<MessageRef, Packet>, hpu: HpuId) -> bool {
        let flow = self.flow(task.context.slot, task.mpq);
        let (exit, issued) = self.run_handler(&mut task, hpu, flow, None);
        self.leave(task, hpu, exit, issued)
    }

    /// Feeds a task that ended back, or leaves it where it waits. Returns whether a packet buffer was given back.
    fn leave(&mut self, task: Task<MessageRef, Packet>, hpu: HpuId, exit: Exit, issued: CommandBudget) -> bool {
        if exit == Exit::Parked {
            self.park(task, hpu, issued, None);
            return false;
        }
        self.feed_back(task, issued.deferred)
    }

    #[cold]
    pub(crate) fn park(
        &mut self,
        task: Task<MessageRef, Packet>,
        hpu: HpuId,
        issued: CommandBudget,
        borrowed: Option<Borrowed>,
    ) {
        let issued = self.send_off(&task, hpu, issued);
        let context = context(&mut self.contexts, task.context.slot);
        context.counts.add(Counter::Parked, 1);
        self.parked.push(Parked { task, hpu, issued, translation: context.translation.clone(), borrowed });
    }

    /// What a task waits for may come of the frame that it sent: that leaves now, as a copy, if it was put off.
    fn send_off(&mut self, task: &Task<MessageRef, Packet>, hpu: HpuId, mut issued: CommandBudget) -> CommandBudget {
        let Some(send) = issued.deferred.take() else { return issued };
        let Context { counts, hpus, .. } = context(&mut self.contexts, task.context.slot);
        let (nic, outbound) = (&mut *self.nic, &mut self.outbound);
        let mut commands = Commands::new(nic, outbound, None, counts, None, false, CommandBudget::FULL);
        hpus.get(hpu).set_status(send.handle, commands.copy_deferred(send, &task.packet.frame));
        issued
    }

    /// Goes on with tasks that wait, at the expense of their contexts: with each of them, or with [some](LOOKED_AT), those that are next,
    /// while others have packets. Returns how many packet buffers were given back.
    pub(crate) fn resume_parked(&mut self, clock: &impl Fn() -> Duration) -> u64 {
        let others = self.kept_back() > 0 || !self.mpqs.backlogged().is_empty();
        let most = if others { LOOKED_AT } else { usize::MAX };
        let (mut released, mut index) = (0, self.next_parked);
        let shares = !self.parked.is_empty() && self.is_shared();
        let mut shift = shares.then(|| self.shift(clock));
        for _ in 0..self.parked.len().min(most) {
            index = if index < self.parked.len() { index } else { 0 };
            let mut parked = self.parked.swap_remove(index);
            let begun = Begun { issued: parked.issued, translation: parked.translation.as_deref() };
            let MessageRef { slot, .. } = parked.task.context;
            let flow = parked.borrowed.map_or_else(|| self.flow(slot, parked.task.mpq), |borrowed| borrowed.flow);
            let (exit, issued) = self.run_handler(&mut parked.task, parked.hpu, flow, Some(begun));
            if let Some(shift) = &mut shift {
                self.scheduler.charge(slot.0, 0, shift.lap());
            }
            if exit != Exit::Parked {
                match parked.borrowed {
                    None => released += u64::from(self.feed_back(parked.task, issued.deferred)),
                    Some(borrowed) => {
                        self.repay(borrowed.lender, borrowed.loan(parked.task), Outcome::Ended(issued.deferred));
                    }
                }
                continue;
            }
            let issued = self.send_off(&parked.task, parked.hpu, issued);
            self.parked.push(Parked { issued, ..parked });
            let last = self.parked.len() - 1;
            self.parked.swap(index, last);
            index += 1;
        }
        self.next_parked = index;
        released
    }

    /// Gives up the tasks of a context that wait. Its queues are to be abandoned next.
    pub(crate) fn abandon_parked(&mut self, slot: Slot) {
        let theirs = self.parked.extract_if(.., |parked| parked.task.context.slot == slot);
        for Parked { task, hpu, borrowed, .. } in theirs.collect::<Vec<_>>() {
            context(&mut self.contexts, slot).hpus.get(hpu).abandon();
            match borrowed {
                // It is not complete.
                None => self.drop_frame(task.packet.frame, Counter::DropRemoved),
                Some(borrowed) => self.repay(borrowed.lender, borrowed.loan(task), Outcome::Abandoned),
            }
        }
    }

    /// Runs the context's handler for a stage, or goes on with it.
    #[inline]
    pub(crate) fn run_handler(
        &mut self,
        task: &mut Task<MessageRef, Packet>,
        hpu: HpuId,
        flow: u32,
        begun: Option<Begun<'_>>,
    ) -> (Exit, CommandBudget) {
        let (stage, slot, releases_packet) = (task.stage, task.context.slot, task.releases_packet);
        let context = context(&mut self.contexts, slot);
        let Some(handler) = context.handler(stage) else { return (Exit::Returned, CommandBudget::FULL) };
        if begun.is_none() {
            context.counts.add(started(stage), 1);
        }
        let link = (context.run.abi == Abi::Pspin).then(|| Link::of(&task.packet.frame));
        let Parts { mut spec, hpus, host, counts, events, mut printer } = parts(context, handler, identity(task));
        spec.identity.flow = flow;
        let mut issued = CommandBudget::FULL;
        if let Some(begun) = begun {
            (spec.translation, issued) = (begun.translation, begun.issued);
        }
        let (nic, outbound) = (&mut *self.nic, &mut self.outbound);
        let packet = &mut task.packet.frame[link.as_ref().map_or(0, Link::len)..];
        let mut commands = Commands::new(nic, outbound, host, counts, Some(events), releases_packet, issued);
        commands.link = link;
        let mut print = |line: &[u8]| printer.print(line);
        let ended = hpus.get(hpu).run(&self.executor, spec, packet, &mut commands, &mut print);
        let issued = commands.budget;
        self.see_to(task, hpu, flow, ended.exit);
        if let Some(difference) = ended.difference {
            report(self::context(&mut self.contexts, slot), stage, &difference);
        }
        (ended.exit, issued)
    }

    /// Heeds what a handler returned, and notes its fault.
    pub(crate) fn see_to(&mut self, task: &mut Task<MessageRef, Packet>, hpu: HpuId, flow: u32, exit: Exit) {
        match exit {
            Exit::Returned if context(&mut self.contexts, task.context.slot).run.verdicts => self.heed(task, hpu),
            Exit::Returned | Exit::Finished | Exit::Parked => {}
            Exit::Fault(fault) => {
                self.overran |= fault.cause == Cause::Watchdog;
                self.note_fault(flow, task.stage, task.context, hpu, fault);
            }
        }
    }

    /// Does what a handler's verdict says. Of the packet that the handler had, feedback sees to it.
    fn heed(&mut self, task: &mut Task<MessageRef, Packet>, hpu: HpuId) {
        let slot = task.context.slot;
        let context = context(&mut self.contexts, slot);
        let Some(verdict) = Verdict::from_code(context.hpus.get(hpu).result()) else {
            return context.counts.add(Counter::BadVerdicts, 1);
        };
        // Another has taken the context's place: its messages are to end.
        let stays_open = verdict.stays_open() && !context.retired;
        match (task.stage, verdict.fate()) {
            (_, Fate::Process) | (Stage::Completion, _) => {}
            (Stage::Payload, Fate::Pass) => task.packet.drop_reason = Some(DropReason::Passed),
            (Stage::Header, Fate::Pass) => self.kill(task.mpq, slot, DropReason::Passed),
            (Stage::Header | Stage::Payload, Fate::Discard) => {
                task.packet.drop_reason = Some(DropReason::Dropped);
                self.kill(task.mpq, slot, DropReason::Dropped);
            }
        }
        if stays_open {
            self.mpqs.keep_open(task.mpq);
        }
    }

    #[cold]
    fn note_fault(&mut self, flow: u32, stage: Stage, binding: MessageRef, hpu: HpuId, fault: Fault) {
        let context = context(&mut self.contexts, binding.slot);
        context.counts.add(Counter::Faults, 1);
        let note = remote_l1(&self.machine, context, binding.home, fault);
        context.record_fault(stage, fault, note);
        context.descriptor.tell(Event { flow, what: What::Fault { stage: stage as u32, fault } });
        self.see_to_devices(binding.slot, hpu);
    }

    /// A context whose image turned out to touch devices at addresses that its translation took for memory is interpreted
    /// until there is another translation.
    fn see_to_devices(&mut self, slot: Slot, hpu: HpuId) {
        let context = context(&mut self.contexts, slot);
        let touched = context.hpus.get(hpu).device_touched();
        if !touched || context.options.any_device {
            return;
        }
        context.image.any_device.store(true, Relaxed);
        context.options.any_device = true;
        context.translation = None;
        self.translator.request(context.id, context.image.clone(), context.options);
    }

    /// Hands translations that were asked for to their contexts, if these are still there.
    pub(crate) fn take_translations(&mut self) {
        while let Some(made) = self.translator.made() {
            let mut contexts = self.contexts.iter_mut().flatten();
            if let Some(context) = contexts.find(|context| context.id == made.context) {
                context.translation = made.translation;
            }
        }
    }
}

/// How far a task that waits has come.
#[derive(Clone, Copy)]
pub(crate) struct Begun<'b> {
    issued: CommandBudget,
    translation: Option<&'b Translation>,
}

/// What there is to do after tasks in a row.
enum Next {
    None,
    /// A task of another handler.
    Other(Task<MessageRef, Packet>),
    /// The last one, with what becomes of it.
    Unusual(Task<MessageRef, Packet>, Exit, CommandBudget),
}

/// What a context's task runs with, each part on its own.
pub(crate) struct Parts<'c> {
    pub(crate) spec: TaskSpec<'c>,
    pub(crate) hpus: &'c mut Hpus,
    pub(crate) host: Option<&'c HostMemory>,
    pub(crate) counts: &'c mut Counts,
    pub(crate) events: &'c mut Descriptor,
    pub(crate) printer: Printer<'c>,
}

#[inline]
pub(crate) fn parts(context: &mut Context, handler: Handler, identity: TaskIdentity) -> Parts<'_> {
    let Context { hpus, host, counts, image, translation, run, l1_bytes, limits, id, name, lines_left, .. } = context;
    let events = &mut context.descriptor;
    let spec = TaskSpec {
        handler,
        identity,
        l1_bytes: *l1_bytes,
        image: &image.image,
        translation: translation.as_deref(),
        limits: *limits,
        host: host.as_ref().map(HostMemory::bytes),
        isolation: run.isolation,
    };
    Parts { spec, hpus, host: host.as_ref(), counts, events, printer: Printer { id: *id, name, lines_left } }
}

/// An HPU on which a task could run: one of its home cluster, or of another if it may overflow there.
pub(crate) fn idle_hpu(contexts: &[Option<Context>], binding: MessageRef, stage: Stage) -> Option<HpuId> {
    let context = contexts[binding.slot.0 as usize].as_ref()?;
    let overflows = stage == Stage::Payload && context.run.placement == Placement::Any;
    context.hpus.idle(binding.home).or_else(|| context.hpus.idle_on_least_loaded().filter(|_| overflows))
}

/// Owners that have tasks, and an HPU for the next one: which tasks that wait may have taken.
#[inline]
pub(crate) fn runnable<'e>(
    parked: &'e [Parked],
    mpqs: &'e Mpqs<MessageRef, Packet>,
    contexts: &'e [Option<Context>],
) -> impl Iterator<Item = u32> + 'e {
    let blocked = move |&owner: &u32| {
        let is_taken = |(binding, stage)| idle_hpu(contexts, binding, stage).is_none();
        !parked.is_empty() && mpqs.peek(owner).is_some_and(is_taken)
    };
    mpqs.backlogged().iter().copied().filter(move |owner| !blocked(owner))
}

/// The message of a task.
#[inline]
const fn identity(task: &Task<MessageRef, Packet>) -> TaskIdentity {
    TaskIdentity { flow: task.mpq.0, message: task.context.message }
}

/// Whether a handler's verdict is that all goes on as without verdicts.
#[inline]
pub(crate) fn processes(code: u32) -> bool {
    Verdict::from_code(code).is_some_and(|verdict| verdict.fate() == Fate::Process && !verdict.stays_open())
}

/// What became of some tasks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    /// How many were run.
    pub(crate) tasks: u32,
    /// How many packet buffers were given back.
    pub(crate) released: u64,
}

pub(crate) const fn started(stage: Stage) -> Counter {
    match stage {
        Stage::Header => Counter::HeaderRuns,
        Stage::Payload => Counter::PayloadRuns,
        Stage::Completion => Counter::CompletionRuns,
    }
}

/// What is to be said of a fault on another cluster's L1, which a context may have asked not to reach.
fn remote_l1(machine: &Machine, context: &Context, home: u32, fault: Fault) -> Option<String> {
    let refused = matches!(fault.cause, Cause::LoadAccess | Cause::StoreAccess);
    let cluster = cluster_of(machine, fault.address).filter(|&cluster| refused && cluster != home)?;
    let home_only = context.run.placement == Placement::Home;
    home_only.then(|| format!("remote L1: cluster {cluster}'s, out of reach of cluster {home} with placement home"))
}

/// Interpreter and translation disagree.
#[cold]
fn report(context: &mut Context, stage: Stage, difference: &Difference) {
    context.counts.add(Counter::CheckDifferences, 1);
    let (id, name) = (context.id, &context.name);
    let pc = match difference {
        Difference::Exit { translated: Exit::Fault(fault), .. } => Some(fault.pc),
        _ => context.handler(stage).map(|handler| handler.address),
    };
    let place = context.place(stage, pc);
    tracing::error!(
        "context {id} ({name}): interpreter and translation differ in {} handler, {place} (pc {:#010x}): {difference}",
        stage.name(),
        pc.unwrap_or(0),
    );
}

/// Prints what a context's handlers print.
pub(crate) struct Printer<'c> {
    id: u32,
    name: &'c str,
    lines_left: &'c mut u32,
}

impl Printer<'_> {
    /// To the log, as long as the context has lines left.
    pub(crate) fn print(&mut self, line: &[u8]) {
        let Self { id, name, lines_left } = self;
        match **lines_left {
            0 => return,
            1 => tracing::warn!("context {id} ({name}) has printed {LINES_PRINTED} lines; no more are shown"),
            _ => tracing::info!("context {id} ({name}): {}", String::from_utf8_lossy(line).escape_debug()),
        }
        **lines_left -= 1;
    }
}
