//! Running tasks: on their message's home cluster, or on another cluster with an idle HPU; parking them, and handling verdicts
//! and faults.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hpu_vm::Exit;
use hpu_vm::jit::{Executor, TrapError};
use spin_abi::control::{Abi, Placement};
use spin_abi::counters::Counter;
use spin_abi::events::{Event, What};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::Machine;
use spin_abi::verdict::{Fate, Verdict};

use crate::context::Context;
use crate::context::contexts::Contexts;
use crate::context::loader::Loader;
use crate::context::translator::Translator;
use crate::message::MessageTable;
use crate::worker::core::Core;
use crate::worker::parked::ResumePoint;
use crate::worker::run::{Queued, QueuedEnd, run_batch};
use crate::worker::task::{Parts, Progress, about, parts, started};
use crate::worker::watchdog_poll::WatchdogPoll;
use spin_pspin::hpu::TaskIdentity;
use spin_pspin::hpu::command::{CommandBudget, Commands};
use spin_pspin::hpu::ip_view::Link;
use spin_pspin::hpu::memory::{HpuId, cluster_of};
use spin_pspin::hpu::send_rights::Received;
use spin_pspin::hpu::shadow::Difference;
use spin_pspin::ids::{DropReason, MessageRef, Packet, Slot};
use spin_pspin::mpq::{Stage, Task};

/// The executor of a worker's tasks, and the state of its parked tasks.
pub(crate) struct TaskRunner {
    pub(crate) executor: Rc<Executor>,
    watchdogs: WatchdogPoll,
    /// The index of the parked task that is resumed next.
    pub(crate) next_parked: usize,
    translator: Translator,
}

thread_local! {
    /// A thread has one executor, whatever the number of its workers.
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

impl TaskRunner {
    pub(crate) fn new(loader: Arc<Loader>) -> Result<Self, TrapError> {
        Ok(Self {
            executor: executor()?,
            watchdogs: WatchdogPoll::default(),
            next_parked: 0,
            translator: Translator::new(loader),
        })
    }

    /// Polls the other threads' watchdogs when that is due. `ended` is the time when tasks last ended.
    #[inline]
    pub(crate) fn watch(&mut self, ended: Duration, clock: &impl Fn() -> Duration) {
        self.watchdogs.keep(ended, clock, || self.executor.poll_peers());
    }

    /// Installs requested translations in their contexts, if these still exist.
    #[inline]
    pub(crate) fn take_translations(&mut self, contexts: &mut Contexts) {
        while let Some(made) = self.translator.made() {
            let mut contexts = contexts.list.iter_mut().flatten();
            if let Some(context) = contexts.find(|context| context.id == made.context) {
                context.program.translation = made.translation;
            }
        }
    }
}

impl TaskRunner {
    /// Runs at most `most` tasks of a context. Stops after a task that reached its time limit. Times one task, unless one was
    /// `sampled` already.
    pub(crate) fn run_some(
        &mut self,
        core: &mut Core,
        owner: u32,
        most: u32,
        clock: &impl Fn() -> Duration,
        sampled: &mut bool,
    ) -> Progress {
        let (mut progress, mut next) = (Progress::default(), None);
        core.sched.timed_out = false;
        while progress.tasks < most && !core.sched.timed_out {
            let Some((hpu, alone)) = core.place(owner, next.as_ref()) else { break };
            let Some(task) = next.take().or_else(|| core.table.mpqs.next_task(owner)) else { break };
            let home = task.context.home();
            let hpu = hpu.unwrap_or(HpuId { cluster: home, hpu: 0 });
            if hpu.cluster != home {
                self.run_away(core, task, hpu, &mut progress);
            } else if std::mem::replace(sampled, true) {
                next = self.run_row(core, task, hpu, if alone { 1 } else { most - progress.tasks }, &mut progress);
            } else {
                self.sample(core, task, hpu, clock, &mut progress);
            }
        }
        progress
    }

    /// Runs one task on another cluster than its message's home.
    #[cold]
    pub(crate) fn run_away(
        &mut self,
        core: &mut Core,
        task: Task<MessageRef, Packet>,
        hpu: HpuId,
        progress: &mut Progress,
    ) {
        let (slot, home) = (task.context.slot, task.context.home());
        progress.tasks += 1;
        core.contexts.get(slot).begin_away(hpu, home);
        progress.released += u64::from(self.run(core, task, hpu));
        core.contexts.get(slot).end_away(hpu);
    }

    /// Runs one task and measures its time.
    #[inline(never)]
    fn sample(
        &mut self,
        core: &mut Core,
        task: Task<MessageRef, Packet>,
        hpu: HpuId,
        clock: &impl Fn() -> Duration,
        progress: &mut Progress,
    ) {
        core.telemetry.unsampled = 0;
        let start = clock();
        let (slot, queueing) = (task.context.slot, task.packet.arrived.before(start));
        self.run_row(core, task, hpu, 1, progress);
        core.telemetry.sample(slot, queueing, clock().saturating_sub(start));
    }

    /// Runs a batch of at most `most` tasks: `first`, and those behind it of the same handler and cluster. Stops after a task
    /// that does not end normally. Returns a task that was taken and is another handler's.
    fn run_row(
        &mut self,
        core: &mut Core,
        first: Task<MessageRef, Packet>,
        hpu: HpuId,
        most: u32,
        progress: &mut Progress,
    ) -> Option<Task<MessageRef, Packet>> {
        let (stage, slot, home) = (first.stage, first.context.slot, first.context.home());
        let context = core.contexts.get(slot);
        let in_a_row = context.runs_in_a_row(hpu);
        let Some(handler) = context.handler(stage).filter(|_| in_a_row) else {
            progress.tasks += 1;
            progress.released += u64::from(self.run(core, first, hpu));
            return None;
        };
        let verdicts = context.run.verdicts;
        let Parts { spec, hpus, access, counts, events, mut printer } =
            parts(context, handler, about(&first, &core.table.flows));
        let mut print = |line: &[u8]| printer.print(line);
        let Core { nic, egress, telemetry, table: MessageTable { messages, mpqs, flows, .. }, .. } = core;
        let (outbound, released_last) = (&mut egress.outbound, first.packet.arrived);
        let releases_packet = first.releases_packet;
        let mut commands =
            Commands::new(&mut **nic, outbound, access, counts, Some(events), releases_packet, CommandBudget::FULL);
        let mut queued = Queued {
            mpqs,
            messages,
            flows: *flows,
            released_last,
            slot,
            home,
            stage,
            verdicts,
            left: most,
            looked_at: 0,
            released: 0,
            end: QueuedEnd::Drained,
        };
        hpus.get(hpu).with_run(&self.executor, &spec, &mut commands, &mut print, |run| {
            queued.looked_at = run.looked_at();
            run_batch(run, &mut queued, Some(first));
        });
        let Queued { left, released, released_last, end, .. } = queued;
        commands.recycle_frames();
        if released > 0 {
            telemetry.note_released(slot, released, released_last);
        }
        progress.tasks += most - left;
        progress.released += released;
        match end {
            QueuedEnd::Drained => None,
            QueuedEnd::Other(task) => Some(task),
            QueuedEnd::Unusual(task, exit, issued) => {
                progress.released += u64::from(self.end_unusual(core, task, hpu, exit, issued));
                None
            }
        }
    }

    /// Handles the last task of a batch, which did not end normally. Returns whether a packet buffer was released.
    #[cold]
    pub(crate) fn end_unusual(
        &mut self,
        core: &mut Core,
        mut task: Task<MessageRef, Packet>,
        hpu: HpuId,
        exit: Exit,
        issued: CommandBudget,
    ) -> bool {
        let flow = core.flow_of(&task);
        self.handle_exit(core, &mut task, hpu, flow, exit);
        self.leave(core, task, hpu, exit, issued)
    }

    /// Runs one task outside a batch, and completes or parks it. Returns whether a packet buffer was released.
    #[inline(never)]
    pub(crate) fn run(&mut self, core: &mut Core, mut task: Task<MessageRef, Packet>, hpu: HpuId) -> bool {
        let flow = core.flow_of(&task);
        let (exit, issued) = self.run_handler(core, &mut task, hpu, flow, None);
        self.leave(core, task, hpu, exit, issued)
    }

    /// Completes a task that ended, or parks it. Returns whether a packet buffer was released.
    fn leave(
        &mut self,
        core: &mut Core,
        task: Task<MessageRef, Packet>,
        hpu: HpuId,
        exit: Exit,
        issued: CommandBudget,
    ) -> bool {
        if exit == Exit::Parked {
            self.park(core, task, hpu, issued, None);
            return false;
        }
        core.complete_task(task, issued.deferred)
    }

    /// Runs the context's handler for a stage, or resumes it.
    #[inline]
    pub(crate) fn run_handler(
        &mut self,
        core: &mut Core,
        task: &mut Task<MessageRef, Packet>,
        hpu: HpuId,
        flow: u32,
        begun: Option<ResumePoint<'_>>,
    ) -> (Exit, CommandBudget) {
        let (stage, slot, releases_packet) = (task.stage, task.context.slot, task.releases_packet);
        let context = core.contexts.get(slot);
        let Some(handler) = context.handler(stage) else { return (Exit::Returned, CommandBudget::FULL) };
        if begun.is_none() {
            context.counts.add(started(stage), 1);
        }
        let link = (context.run.abi == Abi::Pspin).then(|| Link::of(&task.packet.frame));
        let identity = TaskIdentity { flow, message: task.context.message };
        let Parts { mut spec, hpus, access, counts, events, mut printer } = parts(context, handler, identity);
        let mut issued = CommandBudget::FULL;
        if let Some(begun) = begun {
            (spec.translation, issued) = (begun.translation, begun.issued);
        }
        let (nic, outbound) = (&mut *core.nic, &mut core.egress.outbound);
        let mut commands = Commands::new(nic, outbound, access, counts, Some(events), releases_packet, issued);
        commands.set_received(|received| *received = Received::kept_in(&task.packet.frame));
        let packet = &mut task.packet.frame[link.as_ref().map_or(0, Link::len)..];
        commands.link = link;
        let mut print = |line: &[u8]| printer.print(line);
        let ended = hpus.get(hpu).run(&self.executor, spec, packet, &mut commands, &mut print);
        let issued = commands.budget;
        self.handle_exit(core, task, hpu, flow, ended.exit);
        if let Some(difference) = ended.difference {
            report(core.contexts.get(slot), stage, &difference);
        }
        (ended.exit, issued)
    }

    /// Applies the verdict that a handler returned, or records its fault.
    pub(crate) fn handle_exit(
        &mut self,
        core: &mut Core,
        task: &mut Task<MessageRef, Packet>,
        hpu: HpuId,
        flow: u32,
        exit: Exit,
    ) {
        match exit {
            Exit::Returned if core.contexts.get(task.context.slot).run.verdicts => self.apply_verdict(core, task, hpu),
            Exit::Returned | Exit::Finished | Exit::Parked => {}
            Exit::Fault(fault) => {
                core.sched.timed_out |= fault.cause.is_limit();
                self.note_fault(core, flow, task.stage, task.context, hpu, fault);
            }
        }
    }

    /// Applies a handler's verdict. The task's completion then drops or passes its packet.
    fn apply_verdict(&mut self, core: &mut Core, task: &mut Task<MessageRef, Packet>, hpu: HpuId) {
        let slot = task.context.slot;
        let context = core.contexts.get(slot);
        let Some(verdict) = Verdict::from_code(context.hpus.get(hpu).result()) else {
            return context.counts.add(Counter::BadVerdicts, 1);
        };
        // A draining context was replaced: its messages have to end.
        let per_packet = task.context.flow.is_some();
        let stays_open = verdict.stays_open() && !context.replacement.draining && !per_packet;
        match (task.stage, verdict.fate()) {
            (_, Fate::Process) | (Stage::Completion, _) => {}
            (Stage::Payload, Fate::Pass) => task.packet.drop_reason = Some(DropReason::Passed),
            (Stage::Header, Fate::Pass) => core.cancel(task.mpq, slot, DropReason::Passed),
            (Stage::Header | Stage::Payload, Fate::Discard) => {
                task.packet.drop_reason = Some(DropReason::Dropped);
                // In packet mode, the rest of the message is empty.
                if !per_packet {
                    core.cancel(task.mpq, slot, DropReason::Dropped);
                }
            }
        }
        if stays_open {
            core.table.mpqs.keep_open(task.mpq);
        }
    }

    #[cold]
    fn note_fault(&mut self, core: &mut Core, flow: u32, stage: Stage, binding: MessageRef, hpu: HpuId, fault: Fault) {
        let unit = core.part.unit;
        let context = core.contexts.get(binding.slot);
        context.counts.add(Counter::Faults, 1);
        let note = remote_l1(&core.machine, context, binding.home(), fault);
        context.record_fault(unit, stage, fault, note, context.counts.get(Counter::Faults));
        context.event_ring.emit_event(Event { flow, what: What::Fault { stage: stage as u32, fault } });
        self.handle_devices(core, binding.slot, hpu);
    }

    /// Discards a translation that took device addresses for memory. The context is interpreted until a new translation is ready.
    fn handle_devices(&mut self, core: &mut Core, slot: Slot, hpu: HpuId) {
        let context = core.contexts.get(slot);
        let touched = context.hpus.get(hpu).device_touched();
        if !touched || context.program.options.any_device {
            return;
        }
        context.program.image.any_device.store(true, Relaxed);
        context.program.options.any_device = true;
        context.program.translation =
            Err("they access devices at computed addresses; a translation for that is being made".into());
        self.translator.request(context.id, &context.label.name, &context.program);
    }
}

/// A note for a fault on another cluster's L1, if the context's placement puts that L1 out of reach.
fn remote_l1(machine: &Machine, context: &Context, home: u32, fault: Fault) -> Option<String> {
    let refused = matches!(fault.cause, Cause::LoadAccess | Cause::StoreAccess);
    let cluster = cluster_of(machine, fault.address).filter(|&cluster| refused && cluster != home)?;
    let home_only = context.run.placement == Placement::Home;
    home_only.then(|| format!("remote L1: cluster {cluster}'s, out of reach of cluster {home} with placement home"))
}

/// Reports a difference between interpreter and translation.
#[cold]
fn report(context: &mut Context, stage: Stage, difference: &Difference) {
    context.counts.add(Counter::CheckDifferences, 1);
    let (id, name) = (context.id, &context.label.name);
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
