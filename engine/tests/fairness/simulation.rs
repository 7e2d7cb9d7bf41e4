//! Threads of an engine, each with a clock of its own, and a NIC whose ring overflows.

use std::cell::{Cell, RefCell};
use std::ops::Sub;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use spin_abi::control::{Engine as Kind, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::events::PAGE;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::control::policy::Policy;
use spin_engine::control::policy::grant::Grant;
use spin_engine::control::policy::host::Host;
use spin_engine::control::policy::section::{Keys, Section, Send};
use spin_engine::cores::packet_channels::PacketChannels;
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_engine::install::Prepared;
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::frame::TxClosed;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{FlowSteering, Frame, NicError, Queue, TxQueue, Wakeup};
use spin_shm::Region;

use crate::common::{ROOT, rule, udp_from};

/// Size of the NIC's ring in packets: AF_XDP's default.
pub const RING: usize = 2048;
/// Costs in nanoseconds: of a poll, of a clock read, of a received packet, and of a poll without work.
const POLL: u64 = 200;
const READING: u64 = 50;
pub const RECEIVING: u64 = 100;
const IDLE: u64 = 8000;
/// More frames than can be in flight.
const FRAMES: usize = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    RunToCompletion,
    /// Pipeline mode with a distributor that runs handlers too, with a local share of 75 %.
    LocalShare,
    /// Pipeline mode with a distributor that only receives.
    ReceiveOnly,
}

impl Mode {
    /// The number of threads that run handlers.
    pub const fn workers(self) -> u32 {
        match self {
            Self::RunToCompletion => 1,
            Self::LocalShare | Self::ReceiveOnly => 2,
        }
    }
}

/// The handlers of a context.
#[derive(Clone)]
pub struct Handlers {
    pub image: Arc<[u8]>,
    /// Nanoseconds of each task. Each one writes one event.
    pub cost: u64,
    /// The payload of its packets.
    pub payload: Vec<u8>,
    /// The real timeout of its watchdog.
    pub watchdog_us: Option<u64>,
    /// The rule of packets that end their message. By default each packet does.
    pub eom: Option<&'static str>,
}

/// A context to install.
#[derive(Clone)]
pub struct Tenant {
    pub uid: u32,
    /// The weight that the policy gives the user; of no effect for root.
    pub user_weight: u32,
    pub weight: u32,
    pub handlers: Handlers,
}

/// Packets to come.
pub struct Stream {
    pub context: usize,
    /// Source ports, in turn.
    pub flows: Vec<u16>,
    pub next: u64,
    pub interval: u64,
    pub left: u64,
}

/// The fates of a context's packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub run: u64,
    /// Packets lost by the NIC.
    pub lost: u64,
    /// Packets dropped by the engine and counted for the context.
    pub dropped: u64,
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { run: self.run - before.run, lost: self.lost - before.lost, dropped: self.dropped - before.dropped }
    }
}

/// A NIC that reports how many packets were taken from it.
struct Nic {
    queue: MemoryQueue,
    taken: Arc<AtomicU64>,
}

impl TxQueue for Nic {
    fn allocate(&mut self) -> Option<Frame> {
        self.queue.allocate()
    }

    fn max_frame(&self) -> usize {
        self.queue.max_frame()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.queue.send(batch)
    }

    fn recycle(&mut self, frame: Frame) {
        self.queue.recycle(frame);
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.queue.flush_tx()
    }
}

impl Queue for Nic {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let count = self.queue.receive(out, max);
        self.taken.fetch_add(count as u64, Relaxed);
        count
    }

    fn pending(&self) -> usize {
        self.queue.pending()
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.queue.pass_to_kernel(batch)
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.queue.flush()
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        self.queue.wait(wake, timeout)
    }

    fn exhausted(&self) -> bool {
        self.queue.exhausted()
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        self.queue.steering()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.queue.counters()
    }

    fn describe(&self) -> String {
        self.queue.describe()
    }
}

/// The source of packets.
struct Wire {
    far: MemoryQueue,
    taken: Arc<AtomicU64>,
    sent: u64,
    streams: Vec<Stream>,
    /// Payloads by context.
    payloads: Vec<Vec<u8>>,
    lost: Vec<u64>,
}

impl Wire {
    /// Moves packets with arrival times up to `time` to the NIC, or loses them.
    fn arrive_until(&mut self, time: u64) {
        loop {
            let next = self.streams.iter_mut().filter(|stream| stream.left > 0 && stream.next <= time);
            let Some(stream) = next.min_by_key(|stream| stream.next) else { break };
            let (context, flow) = (stream.context, stream.flows[stream.left as usize % stream.flows.len()]);
            stream.next += stream.interval;
            stream.left -= 1;
            self.arrive(context, flow);
        }
    }

    fn arrive(&mut self, context: usize, flow: u16) {
        if self.sent - self.taken.load(Relaxed) >= RING as u64 {
            self.lost[context] += 1;
            return;
        }
        let mut frame = self.far.allocate().expect("fewer are under way");
        frame.fill(&udp_from(flow, 1 + context as u16, &self.payloads[context])).expect("short");
        assert_eq!(self.far.send(&mut vec![frame]), 1);
        self.sent += 1;
    }
}

/// What a policy allows a user of this weight.
fn grant(uid: u32, weight: u32) -> Grant {
    let keys =
        Keys { rules: Some(vec!["any".to_owned()]), send: Some(Send::Raw), weight: Some(weight), ..Keys::default() };
    let section = Section { user: [(uid.to_string(), keys)].into(), ..Section::default() };
    Policy::new(section).expect("a policy").grant(uid, uid, &Host::Absent)
}

#[allow(clippy::large_enum_variant, reason = "there are few")]
enum Part {
    ReceiveOnly(ReceiveOnly),
    Worker(Worker),
}

struct Thread {
    part: RefCell<Part>,
    /// The number of its first cluster, and of its page of each context's events; none for a thread that only receives.
    cluster: Option<u32>,
    /// Nanoseconds of the thread besides those of its tasks.
    overhead: Cell<u64>,
}

pub struct Simulation {
    threads: Vec<Thread>,
    wire: RefCell<Wire>,
    taken: Arc<AtomicU64>,
    /// The id, events and cost per event of each context.
    contexts: Vec<(u32, Arc<Region>, u64)>,
}

impl Simulation {
    /// Contexts of one user, with these weights: the first one for UDP port 1, the second one for port 2.
    pub fn new(mode: Mode, weights: [u32; 2], handlers: [Handlers; 2]) -> Self {
        let tenant = |(weight, handlers)| Tenant { uid: 0, user_weight: 1, weight, handlers };
        Self::with(mode, &weights.into_iter().zip(handlers).map(tenant).collect::<Vec<_>>())
    }

    /// These contexts, for UDP ports from 1 on.
    pub fn with(mode: Mode, tenants: &[Tenant]) -> Self {
        Self::sized(mode, tenants, Sizes { queues: 1 << 12, ..Sizes::default() })
    }

    /// These contexts, for UDP ports from 1 on, on threads with tables of these sizes.
    pub fn sized(mode: Mode, tenants: &[Tenant], sizes: Sizes) -> Self {
        let (near, far) = pair(FRAMES).expect("a pair");
        let taken = Arc::<AtomicU64>::default();
        let nic = Box::new(Nic { queue: near, taken: taken.clone() });
        let workers = mode.workers();
        let loader = Arc::new(Loader::new(Machine { clusters: workers, ..Machine::PSPIN }, Kind::Jit));
        let engine = |nic: Box<dyn Queue>, cluster: u32| {
            let engine = Worker::new(loader.clone(), nic, sizes, Schedule::Wlbvt, cluster..cluster + 1);
            engine.expect("this thread runs handlers")
        };
        let (receiver, mut engines) = match mode {
            Mode::RunToCompletion => (None, vec![engine(nic, 0)]),
            Mode::LocalShare => {
                let wakeup = Wakeup::new().expect("an event");
                let (channels, mut ends) =
                    PacketChannels::with_local_share(nic.max_frame(), &wakeup, 1, sizes.hers, 75).expect("channels");
                let (arrivals, queue) = ends.remove(0);
                (None, vec![engine(nic, 0).with_local_share(channels), engine(Box::new(queue), 1).fed_by(arrivals)])
            }
            Mode::ReceiveOnly => {
                let (receiver, ends) = ReceiveOnly::new(nic, 2, sizes.hers).expect("channels");
                let fed =
                    |(cluster, (arrivals, queue)): (u32, (_, _))| engine(Box::new(queue), cluster).fed_by(arrivals);
                (Some(receiver), (0..).zip(ends).map(fed).collect())
            }
        };
        let payloads = tenants.iter().map(|tenant| tenant.handlers.payload.clone()).collect();
        let mut contexts = Vec::new();
        let limits = Limits { watchdog_us: 200_000, ..Limits::default() };
        for (port, Tenant { uid, user_weight, weight, handlers }) in (1..).zip(tenants) {
            let install = Install {
                weight: Some(*weight),
                watchdog_us: handlers.watchdog_us,
                host_mem: 4096,
                eom: handlers.eom.map(str::to_owned),
                ..rule(&format!("udp dport {port}"))
            };
            let grant = grant(*uid, *user_weight);
            let mut rest = Prepared::for_user(install, &handlers.image, &grant, &loader, &limits).expect("installs");
            let mut id = 0;
            for (engine, next) in engines.iter_mut().zip(1..) {
                let after = rest.split_off(next.min(workers));
                id = engine.link(std::mem::replace(&mut rest, after), &limits).expect("there is room");
            }
            contexts.push((id, engines[0].event_ring(id, ROOT).expect("installed"), handlers.cost));
        }
        let routes = engines[0].routes();
        let mut threads = Vec::new();
        let thread = |part, cluster| Thread { part: RefCell::new(part), cluster, overhead: Cell::new(0) };
        if let Some(mut receiver) = receiver {
            receiver.set_routes(routes);
            threads.push(thread(Part::ReceiveOnly(receiver), None));
        } else {
            engines[0].set_distribution(routes);
        }
        threads.extend(engines.into_iter().zip(0..).map(|(engine, at)| thread(Part::Worker(engine), Some(at))));
        let payloads = [payloads, vec![vec![0; 30]]].concat();
        let lost = vec![0; payloads.len()];
        let wire = Wire { far, taken: taken.clone(), sent: 0, streams: Vec::new(), payloads, lost };
        Self { threads, wire: RefCell::new(wire), taken, contexts }
    }

    /// The sender of frames that match no context.
    pub fn stranger(&self) -> usize {
        self.contexts.len()
    }

    /// The number of tasks that a context had on a cluster.
    fn tasks(&self, cluster: u32, context: usize) -> u64 {
        let mut count = [0; 8];
        self.contexts[context].1.read(u64::from(cluster) * PAGE, &mut count).expect("a page for each cluster");
        u64::from_le_bytes(count)
    }

    /// Nanoseconds that a context's tasks took on a worker.
    pub fn time(&self, worker: usize, context: usize) -> u64 {
        self.tasks(worker as u32, context) * self.contexts[context].2
    }

    fn now_of(&self, thread: usize) -> u64 {
        let Thread { cluster, overhead, .. } = &self.threads[thread];
        let receiving = if thread == 0 { self.taken.load(Relaxed) * RECEIVING } else { 0 };
        let tasks = |cluster: &u32| (0..self.contexts.len()).map(|at| self.time(*cluster as usize, at)).sum::<u64>();
        overhead.get() + receiving + cluster.as_ref().map_or(0, tasks)
    }

    /// The time that all threads have reached.
    pub fn now(&self) -> u64 {
        (0..self.threads.len()).map(|thread| self.now_of(thread)).min().unwrap_or(0)
    }

    fn passes(&self, thread: usize, time: u64) {
        let overhead = &self.threads[thread].overhead;
        overhead.set(overhead.get() + time);
    }

    /// Reads a thread's clock. The other threads are simulated up to that time first.
    fn clock(&self, thread: usize) -> Duration {
        self.passes(thread, READING);
        let now = self.now_of(thread);
        for other in (0..self.threads.len()).filter(|&other| other != thread) {
            while self.now_of(other) < now && self.poll(other) {}
        }
        Duration::from_nanos(now)
    }

    /// Polls a thread. Returns whether that was possible: it may be in a poll already.
    fn poll(&self, thread: usize) -> bool {
        let Ok(mut part) = self.threads[thread].part.try_borrow_mut() else { return false };
        if thread == 0 {
            let now = self.now_of(0);
            self.wire.borrow_mut().arrive_until(now);
        }
        self.passes(thread, POLL);
        let clock = || self.clock(thread);
        let is_busy = match &mut *part {
            Part::ReceiveOnly(receiver) => receiver.poll(clock).expect("memory does not fail") > 0,
            Part::Worker(engine) => engine.poll(clock).expect("memory does not fail") > 0 || engine.has_tasks(),
        };
        if !is_busy {
            self.passes(thread, IDLE);
        }
        true
    }

    pub fn run_until(&self, end: u64) {
        while self.now() < end {
            self.poll_next();
        }
    }

    /// Polls the thread whose clock is furthest behind.
    pub fn poll_next(&self) {
        let next = (0..self.threads.len()).min_by_key(|&thread| self.now_of(thread)).expect("there is one");
        assert!(self.poll(next), "none is in a poll");
    }

    pub fn send(&self, stream: Stream) {
        self.wire.borrow_mut().streams.push(stream);
    }

    pub fn counts(&self, context: usize) -> Counts {
        let count = |of| self.count(context, of);
        let dropped = count(Counter::DropShare) + count(Counter::DropNoMpq);
        Counts { run: count(Counter::PayloadRuns), lost: self.wire.borrow().lost[context], dropped }
    }

    /// A context's counter, summed over all workers.
    fn count(&self, context: usize, of: Counter) -> u64 {
        self.threads.iter().map(|thread| self.count_of(thread, context, of)).sum()
    }

    /// A context's counter on one thread.
    fn count_of(&self, thread: &Thread, context: usize, of: Counter) -> u64 {
        let Part::Worker(engine) = &*thread.part.borrow() else { return 0 };
        let id = self.contexts[context].0;
        let info = engine.context_infos().into_iter().find(|info| info.context == id).expect("installed");
        info.counters.get(of)
    }

    /// Nanoseconds that a context was charged for reception.
    pub fn rx_time(&self, context: usize) -> u64 {
        self.count(context, Counter::RxTime)
    }

    /// The thread of a worker.
    fn worker(&self, number: usize) -> &Thread {
        self.threads.iter().find(|thread| thread.cluster == Some(number as u32)).expect("a worker")
    }

    /// Nanoseconds that a context was charged on a worker.
    pub fn charged(&self, worker: usize, context: usize) -> u64 {
        self.time(worker, context) + self.count_of(self.worker(worker), context, Counter::RxTime)
    }

    /// Packets that arrive later, or that the NIC holds.
    pub fn waiting(&self) -> u64 {
        let wire = self.wire.borrow();
        wire.streams.iter().map(|stream| stream.left).sum::<u64>() + wire.sent - self.taken.load(Relaxed)
    }

    /// Some counters of all contexts on a worker.
    pub fn counters_on<const N: usize>(&self, worker: usize, of: [Counter; N]) -> Vec<[u64; N]> {
        let Part::Worker(engine) = &*self.worker(worker).part.borrow() else { return Vec::new() };
        let infos = engine.context_infos();
        let info = |id| infos.iter().find(|info| info.context == id).expect("installed");
        let value = |id, of: Counter| info(id).counters.get(of);
        self.contexts.iter().map(|&(id, ..)| of.map(|of| value(id, of))).collect()
    }

    /// The numbers of queues and of packet buffers that a context holds on a worker.
    pub fn held(&self, worker: usize, context: usize) -> (u32, u32) {
        let Part::Worker(engine) = &*self.worker(worker).part.borrow() else { return (0, 0) };
        let id = self.contexts[context].0;
        (engine.queues_held(id), engine.hers_held(id))
    }

    /// Nanoseconds spent on reception of unmatched packets.
    pub fn unmatched_time(&self) -> u64 {
        let times = self.threads.iter().map(|thread| match &*thread.part.borrow() {
            Part::Worker(engine) => engine.statistics().counts.get(Counter::UnmatchedTime),
            Part::ReceiveOnly(_) => 0,
        });
        times.sum()
    }

    /// Packets taken from the NIC.
    pub fn received(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// `count` flows of a context whose home is the given worker.
    pub fn flows_of(&self, context: usize, worker: usize, count: usize) -> Vec<u16> {
        let mut flows = Vec::new();
        for flow in 2000.. {
            if flows.len() == count {
                break;
            }
            let before = self.tasks(worker as u32, context);
            let now = self.threads.iter().enumerate().map(|(at, _)| self.now_of(at)).max().unwrap_or(0);
            self.send(Stream { context, flows: vec![flow], next: now, interval: 1, left: 1 });
            self.run_until(now + self.contexts[context].2 + 200_000);
            if self.tasks(worker as u32, context) > before {
                flows.push(flow);
            }
        }
        flows
    }
}
