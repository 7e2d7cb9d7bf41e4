//! An engine on one end of a memory pair, with the test on the other end.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etherparse::PacketBuilder;
pub use spin_abi::control::Engine as Kind;
use spin_abi::control::{ContextInfo, FaultInfo, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::events::{Event, RECORD, What};
use spin_abi::map::Machine;
use spin_abi::rules::RuleSet;
use spin_engine::context::loader::Loader;
use spin_engine::cores::hand_over::HandOver;
use spin_engine::cores::packet_channels::PacketChannels;
use spin_engine::ingress::rx_batch::RoutingTable;
use spin_engine::install::{Home, InstallError, Prepared, SendRights, User, WorkerRange};
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::frame::TxClosed;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::steering::AcceptAll;
use spin_nic::{FlowSteering, Frame, NicError, Queue, TxQueue, Wakeup};
use spin_shm::Region;

pub const ROOT: User = User(0);

/// An end of message that no packet of the tests has: their messages stay open.
pub const NO_END: &str = "ether type 0xffff";

pub struct Lab {
    pub engine: Worker,
    /// Whether it receives as in pipeline mode, with all messages in its local share. Set by the environment variable
    /// `SPIN_PIPELINE`.
    pub pipeline: bool,
    /// The worker of another unit at which packets arrive, if the environment variable `SPIN_UNITS` has a number of units. The engine then
    /// is the worker of the last one. With a number and `:own`, packets arrive at the engine itself.
    pub front: Option<Front>,
    pub far: MemoryQueue,
    pub limits: Limits,
    /// The rights to send of contexts that are installed next.
    pub send: SendRights,
    pub loader: Arc<Loader>,
    /// The time of the engine's clock.
    pub now: Duration,
    /// The NIC's behaviour on new rules.
    pub steering: Arc<Moody>,
    /// Longest frame that the NIC sends.
    pub longest: Arc<AtomicUsize>,
    /// Frames that were passed to the kernel.
    pub passed: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A worker that hands all packets to the engine.
pub struct Front {
    worker: Worker,
    far: MemoryQueue,
    /// The channels of other workers.
    others: Vec<HandOver>,
    /// Whether packets arrive at the engine instead.
    is_idle: bool,
}

impl Front {
    /// The first of `units` workers in units of their own. Also returns the channels of the last one.
    fn new(units: usize, frames: usize, loader: &Arc<Loader>, sizes: Sizes) -> (Self, HandOver) {
        let wakeups: Vec<_> = (0..units).map(|_| Wakeup::new().expect("an event")).collect();
        let mut others = HandOver::of(&wakeups);
        let (last, first) = (others.pop().expect("several"), others.remove(0));
        let (near, far) = pair(frames).expect("a pair");
        let clusters = 0..loader.machine.clusters;
        let worker = Worker::new(loader.clone(), Box::new(near), sizes, Schedule::default(), clusters);
        (Self { worker: worker.expect("a timer").with_hand_over(first), far, others, is_idle: false }, last)
    }

    /// Sends the engine's packets there.
    fn lead_to(&mut self, engine: &mut Worker) {
        let workers = WorkerRange { first: self.others.len() as u16 + 1, count: 1 };
        let routes = engine.routes();
        let slots = routes.slots.iter().map(|slot| slot.0 + 1).max().unwrap_or(0);
        let homes = vec![Home { workers, by_key: false }; slots as usize].into();
        let routes = RoutingTable { homes, ..routes };
        self.worker.set_distribution(routes.clone());
        engine.set_distribution(routes);
    }
}

/// The engine's end of the pair, with injected failures.
struct Nic {
    queue: MemoryQueue,
    steering: Arc<Moody>,
    longest: Arc<AtomicUsize>,
    passed: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Injected failures: refused or delayed rules, and frames that leave late.
#[derive(Default)]
pub struct Moody {
    /// Whether new rules are refused.
    pub refuses: AtomicBool,
    /// The number of attempts to set rules.
    pub asked: AtomicUsize,
    /// A lock that delays new rules.
    pub hold: Mutex<()>,
    /// The number of sent frames that do not leave.
    pub stuck: AtomicUsize,
    /// The timeout of the last wait, in microseconds.
    pub patience: AtomicU64,
}

impl FlowSteering for Moody {
    fn set_rules(&self, rules: &RuleSet) -> Result<(), NicError> {
        self.asked.fetch_add(1, Relaxed);
        drop(self.hold.lock().expect("no test panics meanwhile"));
        if self.refuses.load(Relaxed) {
            return Err(NicError::Rules("refused by the test".into()));
        }
        AcceptAll.set_rules(rules)
    }
}

/// A NIC, its far end, and its injected failures.
pub fn moody_nic(frames: usize) -> (Box<dyn Queue>, MemoryQueue, Arc<Moody>) {
    let (queue, far) = pair(frames).expect("a pair");
    let nic = Nic::new(queue);
    let steering = nic.steering.clone();
    (Box::new(nic), far, steering)
}

impl Nic {
    fn new(queue: MemoryQueue) -> Self {
        let longest = Arc::new(AtomicUsize::new(queue.max_frame()));
        Self { queue, steering: Arc::default(), longest, passed: Arc::default() }
    }
}

impl TxQueue for Nic {
    fn allocate(&mut self) -> Option<Frame> {
        self.queue.allocate()
    }

    fn max_frame(&self) -> usize {
        self.longest.load(Relaxed)
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.queue.send(batch)
    }

    fn recycle(&mut self, frame: Frame) {
        self.queue.recycle(frame);
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.flush().map_err(|_| TxClosed)
    }
}

impl Queue for Nic {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        self.queue.receive(out, max)
    }

    fn pending(&self) -> usize {
        self.queue.pending() + self.steering.stuck.load(Relaxed)
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.passed.lock().expect("no test panics meanwhile").extend(batch.iter().map(|frame| frame.to_vec()));
        self.queue.pass_to_kernel(batch)
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.queue.flush()
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        self.steering.patience.store(timeout.as_micros() as u64, Relaxed);
        self.queue.wait(wake, timeout)
    }

    fn exhausted(&self) -> bool {
        self.queue.exhausted()
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        self.steering.clone()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.queue.counters()
    }

    fn describe(&self) -> String {
        self.queue.describe()
    }
}

/// The image of one of the repository's handlers, compiled once.
pub fn image(handler: &str) -> Arc<[u8]> {
    spin_handlers::image(handler, &[])
}

/// Checks that interpreter and translation agree, if they were compared, and that the engine's accounts are consistent.
impl Drop for Lab {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.total(Counter::CheckDifferences), 0, "interpreter and translation agree");
            self.engine.check_invariants();
        }
    }
}

impl Lab {
    pub fn new(kind: Kind) -> Self {
        Self::with(kind, Machine::PSPIN, 256)
    }

    pub fn with(kind: Kind, machine: Machine, frames: usize) -> Self {
        Self::sized(kind, machine, frames, Sizes::default(), Schedule::default())
    }

    pub fn sized(kind: Kind, machine: Machine, frames: usize, sizes: Sizes, schedule: Schedule) -> Self {
        let (queue, far) = pair(frames).expect("a pair");
        let nic = Nic::new(queue);
        let (steering, longest, passed) = (nic.steering.clone(), nic.longest.clone(), nic.passed.clone());
        let loader = Arc::new(Loader::new(machine, kind));
        // Debug builds interpret slowly, and the machine may be busy.
        let limits = Limits { watchdog_us: 200_000, ..Limits::default() };
        let (max_frame, pipeline) = (nic.max_frame(), std::env::var_os("SPIN_PIPELINE").is_some());
        let mut engine =
            Worker::new(loader.clone(), Box::new(nic), sizes, schedule, 0..machine.clusters).expect("a timer");
        if pipeline {
            let wakeup = Wakeup::new().expect("an event");
            let (channels, _) =
                PacketChannels::with_local_share(max_frame, &wakeup, 0, sizes.hers, 75).expect("no channel");
            engine = engine.with_local_share(channels);
        }
        let mut front = None;
        if let Ok(units) = std::env::var("SPIN_UNITS") {
            let (number, own) = units.strip_suffix(":own").map_or((units.as_str(), false), |number| (number, true));
            let number: usize = number.parse().expect("SPIN_UNITS is a number");
            let (mut first, hand_over) = Front::new(number, frames, &loader, sizes);
            engine = engine.in_unit(number as u16 - 1, number as u32 - 1).with_hand_over(hand_over);
            first.is_idle = own;
            front = Some(first);
        }
        let send = SendRights::Raw;
        Self { engine, pipeline, front, far, limits, send, loader, now: Duration::ZERO, steering, longest, passed }
    }

    pub fn try_install(
        &mut self,
        image: &[u8],
        install: Install,
        user: User,
    ) -> Result<(u32, Option<Arc<Region>>), InstallError> {
        let mut prepared = Prepared::new(install, image, user.0, &self.loader, &self.limits)?;
        // Root has no restricted rights, unless a test says so.
        if user != ROOT || self.send.is_restricted() {
            prepared.restrict(self.send.clone());
        }
        let host = prepared.host();
        Ok((self.engine.install(prepared, &self.limits)?, host))
    }

    /// Installs one of the repository's handlers for `rule`.
    pub fn install(&mut self, handler: &str, rule: &str) -> u32 {
        self.install_with(handler, Install { rules: vec![rule.into()], ..Install::default() }).0
    }

    pub fn install_with(&mut self, handler: &str, install: Install) -> (u32, Option<Arc<Region>>) {
        self.try_install(&image(handler), install, ROOT).expect("a handler of ours installs")
    }

    /// Lets frames arrive all at once.
    pub fn arrive(&mut self, frames: &[Vec<u8>]) {
        if let Some(front) = &mut self.front {
            front.lead_to(&mut self.engine);
        }
        let far = match &mut self.front {
            Some(front) if !front.is_idle => &mut front.far,
            _ => &mut self.far,
        };
        let mut batch = Vec::new();
        for bytes in frames {
            let mut frame = far.allocate().expect("the lab sends less than the pair holds");
            frame.fill(bytes).expect("fits a frame");
            batch.push(frame);
        }
        assert_eq!(far.send(&mut batch), frames.len());
        far.flush().expect("memory does not fail");
    }

    /// Lets frames arrive all at once, and returns the frames sent meanwhile.
    pub fn exchange(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.arrive(frames);
        while self.step() > 0 || self.engine.has_tasks() || self.engine.backlog() > 0 || self.is_handing() {}
        self.take_replies()
    }

    /// The sent frames that were not taken yet.
    pub fn take_replies(&mut self) -> Vec<Vec<u8>> {
        let (mut replies, mut batch) = (Vec::new(), Vec::new());
        while self.far.receive(&mut batch, 64) > 0 {
            for frame in batch.drain(..) {
                replies.push(frame.to_vec());
                self.far.recycle(frame);
            }
        }
        replies
    }

    pub fn poll(&mut self) {
        self.step();
    }

    /// Runs a poll. Returns how many packets were processed.
    fn step(&mut self) -> usize {
        if self.pipeline {
            self.engine.set_distribution(self.engine.routes());
        }
        if let Some(front) = &mut self.front {
            front.lead_to(&mut self.engine);
            front.worker.poll(|| self.now).expect("memory does not fail");
        }
        self.engine.poll(|| self.now).expect("memory does not fail")
    }

    /// Whether packets are at the other worker, or on the way from there.
    fn is_handing(&self) -> bool {
        self.front.as_ref().is_some_and(|Front { worker, .. }| worker.has_tasks() || worker.backlog() > 0)
    }

    pub fn total(&self, counter: Counter) -> u64 {
        let front = self.front.as_ref().map_or(0, |front| front.worker.statistics().counts.get(counter));
        front + self.engine.statistics().counts.get(counter)
    }

    pub fn info(&self, id: u32) -> ContextInfo {
        self.engine.context_infos().into_iter().find(|info| info.context == id).expect("installed")
    }

    pub fn count(&self, id: u32, counter: Counter) -> u64 {
        self.info(id).counters.get(counter)
    }

    /// The events of a context's application.
    pub fn events(&self, id: u32) -> Vec<What> {
        let region = self.engine.event_ring(id, ROOT).expect("installed");
        let mut record = [0; RECORD];
        let read = |number| {
            region.read(Event::place(number), &mut record).expect("inside");
            Event::decode(&record, number)
        };
        (0..).map_while(read).map(|event| event.what).collect()
    }

    pub fn faults(&self, id: u32) -> Vec<FaultInfo> {
        self.info(id).faults
    }
}

/// A UDP datagram from 10.0.0.1:1234 to 10.0.0.2:`port`.
pub fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    udp_from(1234, port, payload)
}

pub fn udp_from(source: u16, port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(source, port);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("a vector takes all");
    frame
}

pub fn rule(text: &str) -> Install {
    Install { rules: vec![text.into()], ..Install::default() }
}

/// Payload of a UDP frame without options.
pub fn payload(frame: &[u8]) -> &[u8] {
    &frame[42..]
}
