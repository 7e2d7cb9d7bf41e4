//! The packet's way, top to bottom, on one thread: receive → match → order → run → act → feed back → send.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hpu_vm::Exit;
use hpu_vm::jit::{Executor, TrapError};
use spin_abi::control::Placement;
use spin_abi::counters::Counter;
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::Machine;
use spin_matcher::{Headers, MessageKey, Table};
use spin_nic::{Frame, NicError, Queue};

use crate::check::Difference;
use crate::commands::{Commands, Deferred, stage};
use crate::config::Sizes;
use crate::context::{Context, LINES_PRINTED, Slot};
use crate::counts::Counts;
use crate::hpu::Job;
use crate::latency::Latencies;
use crate::loader::Loader;
use crate::memory::cluster_of;
use crate::messages::Messages;
use crate::mpq::{Her, Latch, MpqId, Mpqs, Stage, Task};
use crate::statistics::Statistics;
use crate::translator::Translator;

/// Frames taken from the NIC at once.
const BATCH: usize = 64;
/// Queues looked at in a turn for messages that wait too long.
const QUEUES_MONITORED: u32 = 16;
/// How many frames ahead the next one's headers are asked for: far enough for memory to answer, near enough to be there
/// still.
const AHEAD: usize = 8;
/// Frames staged for sending above which nothing more is received: the NIC has to catch up first.
const TRANSMIT_BACKLOG: usize = 256;

/// What a message is bound to from its first packet to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its context.
    pub slot: Slot,
    /// The cluster whose L1 its handlers share.
    pub home: u32,
    /// Its number among all messages.
    pub message: u64,
}

thread_local! {
    /// A thread has one executor, whatever the number of its engines.
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

/// One thread's engine: NIC queue, message queues and contexts with their HPUs, all owned by it alone.
pub struct Engine {
    pub(crate) machine: Machine,
    /// Its clusters, of the machine's.
    pub(crate) clusters: Range<u32>,
    pub(crate) nic: Box<dyn Queue>,
    pub(crate) table: Table,
    /// By slot.
    pub(crate) contexts: Vec<Option<Context>>,
    /// Occupied slots in order of installation, which is the order of priority.
    pub(crate) order: Vec<Slot>,
    /// Id of the context installed last.
    pub(crate) next_id: u32,
    pub(crate) messages: Messages,
    pub(crate) mpqs: Mpqs<Binding, Frame>,
    /// Contexts whose messages may time out.
    pub(crate) timeouts: u32,
    /// Frames admitted so far: each could be a message's first.
    admitted: u64,
    executor: Rc<Executor>,
    translator: Translator,
    received: Vec<Frame>,
    transmit: Vec<Frame>,
    pub(crate) counts: Counts,
    latencies: Latencies,
    first_arrival: Option<Duration>,
    last_feedback: Duration,
}

impl Engine {
    /// An engine without contexts for `clusters` of the machine, to be run on this thread. Contexts are
    /// [prepared](crate::install::Prepared) by `loader`.
    ///
    /// # Errors
    /// When this thread cannot run handlers.
    ///
    /// # Panics
    /// When there is no cluster.
    pub fn new(
        loader: Arc<Loader>,
        nic: Box<dyn Queue>,
        sizes: Sizes,
        clusters: Range<u32>,
    ) -> Result<Self, TrapError> {
        assert!(!clusters.is_empty(), "a thread has a cluster at least");
        let machine = loader.machine;
        Ok(Self {
            machine,
            clusters,
            nic,
            table: Table::default(),
            contexts: Vec::new(),
            order: Vec::new(),
            next_id: 0,
            messages: Messages::new(sizes.queues),
            mpqs: Mpqs::new(
                sizes.queues,
                sizes.hers,
                Latch { context: Binding { slot: Slot(0), home: 0, message: 0 }, header: false, completion: false },
            ),
            timeouts: 0,
            admitted: 0,
            executor: executor()?,
            translator: Translator::new(loader),
            received: Vec::with_capacity(BATCH),
            transmit: Vec::with_capacity(TRANSMIT_BACKLOG + BATCH * 4),
            counts: Counts::default(),
            latencies: Latencies::default(),
            first_arrival: None,
            last_feedback: Duration::ZERO,
        })
    }

    /// One turn: a batch of packets from the NIC to the last of their handlers. `clock` tells the time since some fixed
    /// moment; it is read twice a batch, never per packet. Returns how many frames arrived.
    ///
    /// # Errors
    /// When the NIC is of no use any more.
    pub fn turn(&mut self, clock: impl Fn() -> Duration) -> Result<usize, NicError> {
        self.take_translations();
        let arrived = self.receive();
        if arrived > 0 {
            let arrival = clock();
            self.first_arrival.get_or_insert(arrival);
            let mut received = std::mem::take(&mut self.received);
            received.iter().take(AHEAD).for_each(Frame::prefetch);
            let mut arrived = received.drain(..);
            while let Some(frame) = arrived.next() {
                if let Some(later) = arrived.as_slice().get(AHEAD) {
                    later.prefetch();
                }
                self.admit(frame, arrival);
            }
            drop(arrived);
            self.received = received;
            let mut released = 0;
            while let Some(task) = self.mpqs.next_task() {
                released += u64::from(self.run(task));
            }
            self.last_feedback = clock();
            self.latencies.record_total(released, self.last_feedback.saturating_sub(arrival));
            self.end_overdue(self.last_feedback);
        } else if self.timeouts > 0 {
            self.end_overdue(clock());
        }
        self.send()?;
        Ok(arrived)
    }

    /// Takes a batch from the NIC, as much as there is room for.
    fn receive(&mut self) -> usize {
        let room = self.mpqs.room().min(BATCH);
        if room == 0 || self.transmit.len() >= TRANSMIT_BACKLOG {
            self.counts.add(Counter::HerStalls, 1);
            return 0;
        }
        let arrived = self.nic.receive(&mut self.received, room);
        self.counts.add(Counter::RxPackets, arrived as u64);
        arrived
    }

    /// The NIC inbound engine: matches a frame to its context and queues it with its message.
    fn admit(&mut self, frame: Frame, arrival: Duration) {
        self.counts.add(Counter::RxBytes, frame.len() as u64);
        let headers = Headers::parse(&frame);
        let Some(found) = self.table.match_frame(&frame, &headers) else {
            return self.drop_frame(frame, Counter::DropUnmatched);
        };
        let slot = self.order[found.index];
        let Some(mpq) = self.queue_for(slot, found.key, arrival) else {
            return self.drop_frame(frame, Counter::DropNoMpq);
        };
        self.admitted += 1;
        let context = context(&mut self.contexts, slot);
        context.counts.add(Counter::Matched, 1);
        let latch = Latch {
            context: Binding { slot, home: home(&self.clusters, &found.key), message: self.admitted },
            header: context.handler(Stage::Header).is_some(),
            completion: context.handler(Stage::Completion).is_some(),
        };
        let her = Her { latch, end_of_message: found.eom, packet: frame };
        let queued = self.mpqs.push(mpq, her);
        debug_assert!(queued.is_ok(), "a batch is never larger than the room for HERs");
    }

    /// The message's queue. When all are taken, an open message that has nothing queued may [give way](Messages::victim).
    fn queue_for(&mut self, slot: Slot, key: MessageKey, now: Duration) -> Option<MpqId> {
        if let Some(mpq) = self.messages.queue(slot, &key, now) {
            return Some(mpq);
        }
        let victim = self.messages.victim(slot, now, |mpq| self.mpqs.is_quiescent(mpq))?;
        if let Some(binding) = self.mpqs.context(victim) {
            context(&mut self.contexts, binding.slot).counts.add(Counter::MessagesEvicted, 1);
        }
        self.end(victim);
        self.messages.queue(slot, &key, now)
    }

    /// Monitoring: looks at some queues, and ends the open messages among them whose next packet has not come for longer
    /// than their contexts allow. Their completion handlers do not run: they are not complete.
    fn end_overdue(&mut self, now: Duration) {
        if self.timeouts == 0 {
            return;
        }
        for _ in 0..QUEUES_MONITORED {
            let contexts = &self.contexts;
            let timeout = |slot: Slot| contexts[slot.0 as usize].as_ref()?.message_timeout;
            let overdue = self.messages.overdue(now, timeout).filter(|&mpq| self.mpqs.is_quiescent(mpq));
            let Some(mpq) = overdue else { continue };
            if let Some(binding) = self.mpqs.context(mpq) {
                context(&mut self.contexts, binding.slot).counts.add(Counter::MessagesTimedOut, 1);
            }
            self.end(mpq);
        }
    }

    /// Frees the queue of an open message that has nothing queued.
    fn end(&mut self, mpq: MpqId) {
        self.mpqs.reset(mpq, |_| unreachable!("a quiescent queue holds no packet"));
        self.messages.release(mpq);
    }

    /// Runs one task and feeds it back. Returns whether a packet buffer was given back.
    fn run(&mut self, task: Task<Binding, Frame>) -> bool {
        let Task { mpq, stage, context: binding, packet: mut frame, last_use } = task;
        let deferred = self.run_handler(mpq, stage, binding, &mut frame, last_use);
        let feedback = if last_use {
            self.release(frame, binding.slot, deferred);
            self.mpqs.feedback(mpq, stage, None)
        } else {
            self.mpqs.feedback(mpq, stage, Some(frame))
        };
        if feedback.message_done {
            context(&mut self.contexts, binding.slot).counts.add(Counter::Messages, 1);
        }
        if feedback.idle {
            self.messages.release(mpq);
        }
        last_use
    }

    /// Runs the context's handler for a stage on its home cluster, if it has one.
    fn run_handler(
        &mut self,
        mpq: MpqId,
        stage: Stage,
        binding: Binding,
        frame: &mut Frame,
        last_use: bool,
    ) -> Option<Deferred> {
        let context = context(&mut self.contexts, binding.slot);
        let handler = context.handler(stage)?;
        context.counts.add(started(stage), 1);
        let job = Job {
            handler,
            flow: mpq.0,
            message: binding.message,
            l1_bytes: context.l1_bytes,
            image: &context.image.image,
            translation: context.translation.as_deref(),
            limits: context.limits,
            isolation: context.run.isolation,
        };
        let mut commands =
            Commands::new(&mut *self.nic, &mut self.transmit, context.host.as_ref(), &mut context.counts, last_use);
        let (id, name, lines_left) = (context.id, &context.name, &mut context.lines_left);
        let mut print = |line: &[u8]| print_line(id, name, lines_left, line);
        let ended = context.hpus.on(binding.home).run(&self.executor, job, frame, &mut commands, &mut print);
        let deferred = commands.deferred;
        if let Some(fault) = ended.fault {
            context.counts.add(Counter::Faults, 1);
            let note = remote_l1(&self.machine, context, binding.home, fault);
            context.record_fault(stage, fault, note);
            self.see_to_devices(binding);
        }
        if let Some(difference) = ended.difference {
            let context = self::context(&mut self.contexts, binding.slot);
            report(context, stage, &difference);
        }
        deferred
    }

    /// A context whose image turned out to touch devices at addresses that its translation took for memory is interpreted
    /// until there is another translation.
    fn see_to_devices(&mut self, binding: Binding) {
        let context = context(&mut self.contexts, binding.slot);
        let touched = context.hpus.on(binding.home).device_touched();
        if !touched || context.options.any_device {
            return;
        }
        context.image.any_device.store(true, Relaxed);
        context.options.any_device = true;
        context.translation = None;
        self.translator.request(context.id, context.image.clone(), context.options);
    }

    /// Hands translations that were asked for to their contexts, if these are still there.
    fn take_translations(&mut self) {
        while let Some(made) = self.translator.made() {
            let mut contexts = self.contexts.iter_mut().flatten();
            if let Some(context) = contexts.find(|context| context.id == made.context) {
                context.translation = made.translation;
            }
        }
    }

    /// Gives a packet's buffer back to the NIC: as the frame to send, if its handler wanted that, else to be filled anew.
    fn release(&mut self, mut frame: Frame, slot: Slot, deferred: Option<Deferred>) {
        let counts = &mut context(&mut self.contexts, slot).counts;
        counts.add(Counter::Released, 1);
        match deferred {
            Some(send) if frame.trim(send.offset as usize, send.length as usize).is_ok() => {
                counts.add(Counter::TxMoved, 1);
                stage(&mut self.transmit, counts, frame);
            }
            _ => self.nic.recycle(frame),
        }
    }

    /// The NIC outbound engine: hands staged frames over; what the NIC has no room for stays staged.
    fn send(&mut self) -> Result<(), NicError> {
        self.nic.send(&mut self.transmit);
        self.nic.flush()
    }

    fn drop_frame(&mut self, frame: Frame, cause: Counter) {
        self.counts.add(cause, 1);
        self.nic.recycle(frame);
    }

    /// Frames that handlers sent and that have not left: staged here, or in the NIC's transmit ring.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.transmit.len() + self.nic.pending()
    }

    /// The statistics block so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut counts = self.counts.clone();
        for context in self.contexts.iter().flatten() {
            counts.merge(&context.counts);
        }
        let active = self.last_feedback.saturating_sub(self.first_arrival.unwrap_or_default());
        Statistics { counts, latencies: self.latencies.clone(), active }
    }
}

/// The cluster on which a message's tasks run: the paper's home cluster.
#[inline]
fn home(clusters: &Range<u32>, key: &MessageKey) -> u32 {
    match clusters.end - clusters.start {
        1 => clusters.start,
        count => clusters.start + key.hash() % count,
    }
}

const fn started(stage: Stage) -> Counter {
    match stage {
        Stage::Header => Counter::HeaderRuns,
        Stage::Payload => Counter::PayloadRuns,
        Stage::Completion => Counter::CompletionRuns,
    }
}

/// A context that matched or has messages is installed: removal empties both first.
fn context(contexts: &mut [Option<Context>], slot: Slot) -> &mut Context {
    let Some(context) = &mut contexts[slot.0 as usize] else { unreachable!("{slot:?} is installed") };
    context
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

/// What a handler prints goes to the log, as long as its context has lines left.
fn print_line(id: u32, name: &str, lines_left: &mut u32, line: &[u8]) {
    match lines_left {
        0 => return,
        1 => tracing::warn!("context {id} ({name}) has printed {LINES_PRINTED} lines; no more are shown"),
        _ => tracing::info!("context {id} ({name}): {}", String::from_utf8_lossy(line).escape_debug()),
    }
    *lines_left -= 1;
}
