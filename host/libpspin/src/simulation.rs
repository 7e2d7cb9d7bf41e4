//! The simulation: events in virtual time.
//!
//! ```text
//! Arrive ─ the inbound engine takes a packet ─▶ Admit: it is in L2, its HER in its queue
//!   Schedule, once a cycle: a queue's next task to a cluster ─▶ Start: its packet is in L1, an HPU idle; the handler runs
//!     Ended: its commands begin ─▶ Idle: the HPU is free ─▶ Feedback: its commands are complete; the packet may be released
//! ```
//! A handler runs as a whole when it starts, so its memory effects are visible at once. Its duration is computed from
//! its instructions. A handler that polls the same memory is suspended, since it may be waiting for others; Ended is
//! then followed by Resume instead of Idle and Feedback. Events at the same time happen in the order in which they were
//! scheduled, so every run is identical.

use std::collections::VecDeque;
use std::sync::Arc;

use hpu_vm::jit::Executor;
use spin_pspin::hpu::TaskIdentity;
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::mpq::{Her, MessageParams, MpqId, Mpqs, Owned, Stage, Task};

use crate::MACHINE;
use crate::commands::{Issued, Spent, Work};
use crate::conf::Settings;
use crate::dispatch::Dispatcher;
use crate::ec::Context;
use crate::events::Events;
use crate::host::{Access, Host, Times};
use crate::inbox::{Added, Inbox};
use crate::links::Links;
use crate::runner::{LONGEST, Ran, Run, RunEnd, Runner};
use crate::statistics::Totals;
use crate::time::{CYCLE, Picos, cycles, moved};

/// Number of message queues.
pub const QUEUES: u32 = 256;
/// Maximum number of packets waiting in the queues.
const HERS: u32 = 4096;
/// Number of ended handlers that are reported individually.
const FAULTS_TOLD: u64 = 100;

/// Binding of a message.
#[derive(Clone, Copy, Debug)]
struct MessageRef {
    context: u32,
    msgid: u32,
    /// Sequence number of the message, by which messages are told apart by their first packets.
    number: u64,
}

impl Owned for MessageRef {
    /// All messages share one owner, so queues are served round-robin.
    fn owner(&self) -> u32 {
        0
    }
}

/// A packet in L2.
#[derive(Debug)]
struct Packet {
    bytes: Vec<u8>,
    l1_len: usize,
    user: u64,
    nic_arrival: Picos,
    pspin_arrival: Picos,
}

type PacketTask = Task<MessageRef, Packet>;

/// A task on an HPU.
#[derive(Debug)]
struct Running {
    task: PacketTask,
    began: Picos,
    spent: Spent,
    /// Time when all its commands so far are complete.
    complete: Picos,
    /// Cycles until a suspended task is polled again; `None` if the task has ended.
    waits: Option<u64>,
}

#[derive(Debug)]
enum Event {
    Arrive,
    Admit,
    Schedule,
    Start(u32),
    Ended(HpuId, Box<Running>, Vec<Issued>),
    Resume(HpuId, Box<Running>),
    Idle(HpuId, usize),
    Feedback(Box<PacketTask>),
    Leave(Vec<u8>),
    Accessed(Access, usize),
}

/// The inbound engine.
#[derive(Debug, Default)]
struct Inbound {
    pending: VecDeque<Added>,
    /// Packet in progress, and the time when the engine took it.
    current: Option<(Added, Picos)>,
    /// Whether an arrival is scheduled or a packet is in progress.
    busy: bool,
    /// Earliest time of the next packet.
    free: Picos,
    /// Time since when the packet in progress waits for room.
    stalled: Option<Picos>,
    l2_used: usize,
}

/// The scheduler: sends tasks to clusters, one per cycle.
#[derive(Debug, Default)]
struct Scheduler {
    /// A task for which no cluster has room.
    blocked: Option<PacketTask>,
    /// Earliest time of the next task.
    free: Picos,
    /// Whether an [`Event::Schedule`] is pending.
    pending: bool,
}

/// The simulated machine.
pub struct Simulation {
    now: Picos,
    /// Time of the next tick.
    tick: Picos,
    events: Events<Event>,
    inbox: Arc<Inbox>,
    inbound: Inbound,
    mpqs: Mpqs<MessageRef, Packet>,
    scheduler: Scheduler,
    dispatcher: Dispatcher<PacketTask>,
    /// Contexts by id.
    contexts: Vec<Option<Seen>>,
    links: Links,
    /// Packets that were taken from the inbox and are not yet released.
    outstanding: u64,
    messages: u64,
    eos: bool,
    /// Statistics.
    pub totals: Totals,
}

/// A context that has or had packets.
struct Seen {
    context: Arc<Context>,
    /// Runner of the context, made for its first task.
    runner: Option<Runner>,
}

/// Reason why a run returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All packets are processed, and the packet stream has ended.
    Done,
    /// No event is pending until another packet is added.
    Waiting,
}

impl Simulation {
    /// Makes an idle machine.
    #[must_use]
    pub fn new(settings: &Settings, inbox: Arc<Inbox>) -> Self {
        let blank = MessageRef { context: 0, msgid: 0, number: 0 };
        let mut mpqs = Mpqs::new(QUEUES, HERS, MessageParams::payload_only(blank));
        mpqs.add_owner(0);
        Self {
            now: 0,
            tick: 0,
            events: Events::default(),
            inbox,
            inbound: Inbound::default(),
            mpqs,
            scheduler: Scheduler::default(),
            dispatcher: Dispatcher::default(),
            contexts: Vec::new(),
            links: Links::new(settings),
            outstanding: 0,
            messages: 0,
            eos: false,
            totals: Totals::default(),
        }
    }

    /// Processes all pending events.
    pub fn run(&mut self, executor: &Executor, host: &mut impl Host) -> End {
        self.run_until(Picos::MAX, executor, host);
        self.tick = self.tick.max(self.now.div_ceil(CYCLE).saturating_mul(CYCLE));
        if self.eos { End::Done } else { End::Waiting }
    }

    /// Simulates one cycle. Returns whether all packets are processed and the packet stream has ended.
    pub fn tick(&mut self, executor: &Executor, host: &mut impl Host) -> bool {
        let end = self.tick.saturating_add(CYCLE);
        self.now = self.now.max(self.tick);
        self.run_until(end, executor, host);
        self.tick = end;
        self.eos && self.outstanding == 0 && self.events.is_empty()
    }

    fn run_until(&mut self, end: Picos, executor: &Executor, host: &mut impl Host) {
        loop {
            self.take_added();
            let Some((at, event)) = self.events.next(end) else { break };
            self.now = self.now.max(at);
            self.happen(event, executor, host);
        }
    }

    /// Takes the entries that the program has added.
    fn take_added(&mut self) {
        let inbox = self.inbox.clone();
        inbox.change(|waiting| {
            self.outstanding += waiting.packets.len() as u64;
            self.inbound.pending.append(&mut waiting.packets);
            self.eos = waiting.eos;
            for (access, len, user) in waiting.accesses.drain(..) {
                self.access(access, len, user);
            }
        });
        if !self.inbound.busy && !self.inbound.pending.is_empty() {
            self.inbound.busy = true;
            self.events.add(self.now.max(self.inbound.free), Event::Arrive);
        }
    }

    fn access(&mut self, access: Access, len: usize, user: usize) {
        let complete = match access {
            Access::Write => {
                self.totals.master_written += len as u64;
                self.links.master.write(self.now, len)
            }
            Access::Read => {
                self.totals.master_read += len as u64;
                self.links.master.read(self.now, len)
            }
        };
        self.events.add(complete, Event::Accessed(access, user));
    }

    fn happen(&mut self, event: Event, executor: &Executor, host: &mut impl Host) {
        match event {
            Event::Arrive => self.arrive(),
            Event::Admit => self.admit(),
            Event::Schedule => self.schedule(),
            Event::Start(cluster) => self.start(cluster, executor, host),
            Event::Ended(hpu, running, issued) => self.ended(hpu, running, issued),
            Event::Resume(hpu, running) => self.run_task(hpu, running, executor, host),
            Event::Idle(hpu, l1_len) => self.idle(hpu, l1_len),
            Event::Feedback(task) => self.complete_task(*task, host),
            Event::Leave(mut bytes) => {
                self.links.staged -= bytes.len();
                self.totals.left(bytes.len(), self.now);
                host.send(&mut bytes);
            }
            Event::Accessed(access, user) => host.accessed(access, user),
        }
    }

    /// Arrive: the inbound engine takes the next packet.
    fn arrive(&mut self) {
        let Some(added) = self.inbound.pending.pop_front() else {
            self.inbound.busy = false;
            return;
        };
        self.totals.arrived(self.now);
        self.events.add(self.now.saturating_add(moved(added.bytes.len().max(1))), Event::Admit);
        self.inbound.current = Some((added, self.now));
    }

    /// Admit: the packet in progress is in L2. Its HER is queued, or waits for room.
    fn admit(&mut self) {
        let Some((added, nic_arrival)) = self.inbound.current.take() else { return };
        let full = self.inbound.l2_used + added.bytes.len() > MACHINE.l2_packet_size as usize;
        if full || self.mpqs.room() == 0 {
            self.inbound.stalled.get_or_insert(self.now);
            self.inbound.current = Some((added, nic_arrival));
            return;
        }
        if let Some(since) = self.inbound.stalled.take() {
            self.totals.her_stalls += (self.now - since).div_ceil(CYCLE);
        }
        self.inbound.l2_used += added.bytes.len();
        self.inbound.free = self.now.saturating_add(cycles(added.wait_cycles.into()));
        self.inbound.busy = !self.inbound.pending.is_empty();
        if self.inbound.busy {
            self.events.add(self.inbound.free, Event::Arrive);
        }
        self.enqueue(added, nic_arrival);
    }

    fn enqueue(&mut self, added: Added, nic_arrival: Picos) {
        let Added { context, msgid, bytes, l1_len, eom, user, .. } = added;
        self.messages += 1;
        let params = MessageParams {
            header: context.handler(Stage::Header).is_some(),
            completion: context.handler(Stage::Completion).is_some(),
            ..MessageParams::payload_only(MessageRef { context: context.id, msgid, number: self.messages })
        };
        self.know(context);
        let packet = Packet { bytes, l1_len, user, nic_arrival, pspin_arrival: self.now };
        let pushed = self.mpqs.push(MpqId(msgid % QUEUES), Her { params, end_of_message: eom, packet });
        debug_assert!(pushed.is_ok(), "there is room, and no message is killed");
        self.wake_scheduler();
    }

    /// Stores a context until its first task runs.
    fn know(&mut self, context: Arc<Context>) {
        let id = context.id as usize;
        if self.contexts.len() <= id {
            self.contexts.resize_with(id + 1, || None);
        }
        self.contexts[id].get_or_insert(Seen { context, runner: None });
    }

    fn wake_scheduler(&mut self) {
        if !self.scheduler.pending {
            self.scheduler.pending = true;
            self.events.add(self.now.max(self.scheduler.free), Event::Schedule);
        }
    }

    /// Schedule: sends a task to a cluster, one per cycle. While no cluster has room for the first task, none is sent.
    fn schedule(&mut self) {
        self.scheduler.pending = false;
        let Some(task) = self.scheduler.blocked.take().or_else(|| self.mpqs.next_task(0)) else { return };
        let bytes = task.packet.l1_len;
        let Some(cluster) = self.dispatcher.place(home(&task), bytes) else {
            self.scheduler.blocked = Some(task);
            return;
        };
        let copied = self.dispatcher.send(cluster, task, bytes, self.now);
        self.events.add(copied, Event::Start(cluster));
        self.scheduler.free = self.now.saturating_add(CYCLE);
        self.wake_scheduler();
        // A queue may have become empty, which makes room for an arrival.
        self.retry_admission();
    }

    /// Begins as many of a cluster's tasks as possible.
    fn start(&mut self, cluster: u32, executor: &Executor, host: &mut impl Host) {
        let mut started = false;
        while let Some((hpu, task)) = self.dispatcher.start(cluster, self.now) {
            started = true;
            let (began, spent) = (self.now, Spent::default());
            let running = Box::new(Running { task, began, spent, complete: began, waits: None });
            self.run_task(hpu, running, executor, host);
        }
        if started && self.scheduler.blocked.is_some() {
            self.wake_scheduler();
        }
    }

    /// Runs a task that begins, or resumes one.
    fn run_task(&mut self, hpu: HpuId, mut running: Box<Running>, executor: &Executor, host: &mut impl Host) {
        let Running { task, began, spent, waits, .. } = &mut *running;
        let (MessageRef { context, msgid, number }, home) = (task.context, home(task));
        let (stage, identity) = (task.stage, TaskIdentity { flow: task.mpq.0, message: number });
        let Packet { bytes, l1_len, .. } = &mut task.packet;
        let run = Run { stage, identity, home, packet: bytes, l1_len: *l1_len, spent: *spent };
        let Self { contexts, totals, links, now, .. } = self;
        let binding = context as usize;
        let Some(Seen { context, runner }) = contexts.get_mut(binding).and_then(Option::as_mut) else {
            unreachable!("a context is known before it has tasks")
        };
        if runner.get_or_insert_with(|| Runner::new(context.clone(), host)).make(hpu).is_err() {
            // All contexts together share a limited number of HPUs. If freeing idle ones does not help, running the
            // task returns the error.
            contexts.iter_mut().flatten().filter_map(|seen| seen.runner.as_mut()).for_each(Runner::drop_idle);
        }
        let Some(Seen { runner: Some(runner), .. }) = contexts.get_mut(binding).and_then(Option::as_mut) else {
            unreachable!("it was there")
        };
        let paused = waits.take();
        let (mut issued, mut taken) = (Vec::new(), 0);
        match runner.run(executor, hpu, run, host, totals, &mut links.staged) {
            Ok(Some(ran)) => {
                let Ran { printed, end, .. } = ran;
                (taken, issued, *spent) = (ran.cycles, ran.issued, ran.spent);
                printed.iter().for_each(|line| host.print(line));
                let overdue = now.saturating_sub(*began) >= cycles(LONGEST);
                let fault = match end {
                    RunEnd::Ended => None,
                    RunEnd::Fault(fault) => Some(fault),
                    RunEnd::Waits if overdue => Some(runner.abandon(hpu)),
                    RunEnd::Waits => {
                        *waits = Some(pause(paused, taken));
                        None
                    }
                };
                if let Some(fault) = fault {
                    tell(totals, host, || runner.describe(stage, msgid, fault));
                }
            }
            Ok(None) => {}
            Err(error) => tell(totals, host, || format!("{} handler of message {msgid}: {error}", stage.name())),
        }
        let end = self.now.saturating_add(cycles(taken.max(1)));
        self.events.add(end, Event::Ended(hpu, running, issued));
    }

    /// Begins the commands of a handler that has ended or waits. The HPU stays busy until the commands that the handler
    /// waited for are complete.
    fn ended(&mut self, hpu: HpuId, mut running: Box<Running>, issued: Vec<Issued>) {
        let mut end = self.now;
        for Issued { work, waited, .. } in issued {
            let done = self.begin(end, work);
            running.complete = running.complete.max(done);
            if waited {
                end = end.max(done);
            }
        }
        if let Some(pause) = running.waits {
            return self.events.add(end.saturating_add(cycles(pause)), Event::Resume(hpu, running));
        }
        let complete = running.complete.max(end);
        self.events.add(end, Event::Idle(hpu, running.task.packet.l1_len));
        self.events.add(complete, Event::Feedback(Box::new(running.task)));
    }

    /// Begins a command's work. Returns the time when it is complete.
    fn begin(&mut self, at: Picos, work: Work) -> Picos {
        let done = match work {
            Work::Send(bytes, from_host) => {
                let read = if from_host > 0 { self.links.pcie.read(at, from_host) } else { at };
                self.totals.slave_last = self.totals.slave_last.max(if from_host > 0 { read } else { 0 });
                self.totals.send_commands += 1;
                let events = &mut self.events;
                return self.links.outbound.send(read, bytes, |left, packet| events.add(left, Event::Leave(packet)));
            }
            Work::Write(len) => self.links.pcie.write(at, len),
            Work::Read(len) => self.links.pcie.read(at, len),
        };
        self.totals.slave_last = self.totals.slave_last.max(done);
        done
    }

    fn idle(&mut self, hpu: HpuId, l1_len: usize) {
        self.dispatcher.end(hpu, l1_len);
        self.events.add(self.now, Event::Start(hpu.cluster));
        if self.scheduler.blocked.is_some() {
            self.wake_scheduler();
        }
    }

    /// Completes a task: releases its packet, or keeps it for the message's next task.
    fn complete_task(&mut self, task: PacketTask, host: &mut impl Host) {
        let Task { mpq, stage, packet, releases_packet, .. } = task;
        if releases_packet {
            let Packet { bytes, user, nic_arrival, pspin_arrival, .. } = packet;
            let times = Times { nic_arrival, pspin_arrival, feedback: self.now };
            self.totals.released(bytes.len(), times);
            self.outstanding -= 1;
            self.inbound.l2_used -= bytes.len();
            self.mpqs.complete(mpq, stage, None);
            host.released(user, times);
            self.retry_admission();
        } else {
            self.mpqs.complete(mpq, stage, Some(packet));
        }
        self.wake_scheduler();
    }

    /// Retries the admission of the stalled packet.
    fn retry_admission(&mut self) {
        if self.inbound.stalled.is_some() {
            self.admit();
        }
    }
}

/// Returns the cycles until a waiting task is polled again, after `taken` cycles since the last `pause`. The pause
/// grows while the task does little.
fn pause(last: Option<u64>, taken: u64) -> u64 {
    const BUSY: u64 = 100;
    const MOST: u64 = 1000;
    if taken >= BUSY { 0 } else { last.map_or(0, |last| (2 * last + 1).min(MOST)) }
}

/// Returns the home cluster of a task's message.
const fn home(task: &PacketTask) -> u32 {
    task.context.msgid % MACHINE.clusters
}

/// Counts a handler that was ended or could not begin, and reports it.
#[cold]
fn tell(totals: &mut Totals, host: &mut impl Host, what: impl FnOnce() -> String) {
    totals.faults += 1;
    if totals.faults <= FAULTS_TOLD {
        host.report(&what());
    }
    if totals.faults == FAULTS_TOLD {
        host.report("further handlers that are ended are only counted");
    }
}
