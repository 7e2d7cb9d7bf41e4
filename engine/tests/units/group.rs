//! A group of threads with a NIC queue each, whose far ends the test has.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use spin_abi::control::{Engine as Kind, Install};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::units::plan;
use spin_engine::cores::{ClusterThread, PollThread, Receiving, SharedConfig, WorkerGroup, WorkerLinks};
use spin_engine::install::Prepared;
use spin_engine::settings::{Idle, Limits, Sizes};
use spin_engine::telemetry::statistics::Statistics;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::steering::AcceptAll;
use spin_nic::{Queue, TxQueue};

use crate::threads::all_threads;

/// Frames of a thread.
pub const FRAMES: usize = 4096;
/// Longest wait for what has to happen.
const LONGEST: Duration = Duration::from_secs(60);

/// A running group.
pub struct Group {
    pub group: WorkerGroup,
    pub common: SharedConfig,
    /// The far ends of the NIC queues, by worker.
    pub far: Vec<MemoryQueue>,
    pub limits: Limits,
}

impl Group {
    /// `threads` threads of `units` units.
    pub fn new(threads: usize, units: u32) -> Self {
        Self::with(threads, units, Loader::new(Machine::PSPIN, Kind::Jit))
    }

    pub fn with(threads: usize, units: u32, loader: Loader) -> Self {
        let (machine, sizes) = (loader.machine, Sizes::default());
        let loader = Arc::new(loader.with_units(units, sizes.queues));
        let common = SharedConfig { loader, sizes, ..all_threads(Idle::Adaptive) };
        let cores: Vec<usize> = (0..threads).collect();
        let planned = plan(&cores, |_| 0, machine.clusters, Some(units)).expect("a possible number");
        let (mut links, mut far) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (near, end) = pair(FRAMES).expect("a pair");
            links.push(WorkerLinks::from_nic(Box::new(near)).expect("a descriptor"));
            far.push(end);
        }
        WorkerLinks::connect(&mut links, &planned);
        let start = |(planned, links): (_, WorkerLinks)| {
            let planned: spin_engine::cores::units::PlannedWorker = planned;
            let worker = PollThread::start_engine(common.clone(), links, planned.part.clone(), None);
            ClusterThread { planned, worker: worker.expect("a thread") }
        };
        let workers = planned.into_iter().zip(links).map(start).collect();
        let limits = Limits { watchdog_us: 10_000_000, ..Limits::default() };
        let group = WorkerGroup::new(workers, Receiving::Each, Arc::new(AcceptAll), limits);
        Self { group, common, far, limits }
    }

    pub fn prepare(&self, handler: &str, install: Install) -> Prepared {
        let image = spin_handlers::image(handler, &[]);
        Prepared::new(install, &image, 0, &self.common.loader, &self.limits).expect("a fine context")
    }

    pub fn install(&self, handler: &str, install: Install) -> u32 {
        self.group.install(self.prepare(handler, install)).expect("there is room")
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.group.all(move |engine| engine.statistics().counts.get(counter)).into_iter().sum()
    }

    /// A context's sum of a counter over all threads.
    pub fn count_of(&self, context: u32, counter: Counter) -> u64 {
        let counts = self.group.all(move |engine| {
            let of = engine.context_infos().into_iter().find(|info| info.context == context);
            of.map_or(0, |info| info.counters.get(counter))
        });
        counts.into_iter().sum()
    }

    /// Counters of each thread.
    pub fn counts(&self, counter: Counter) -> Vec<u64> {
        self.group.all(move |engine| engine.statistics().counts.get(counter))
    }

    /// Waits until a counter of all threads has a value.
    pub fn await_count(&self, counter: Counter, value: u64) {
        let deadline = Instant::now() + LONGEST;
        while self.count(counter) < value {
            let all: Vec<_> = self
                .group
                .all(|engine| engine.statistics().counts.named().filter(|(_, value)| *value > 0).collect::<Vec<_>>());
            assert!(Instant::now() < deadline, "{counter:?} stays below {value}: {all:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops the threads. Returns the sum of their statistics.
    pub fn stop(self) -> (Statistics, Vec<MemoryQueue>) {
        self.common.stop.store(true, Relaxed);
        let (statistics, ended) = self.group.finish();
        ended.expect("memory does not fail");
        (statistics, self.far)
    }
}

/// Lets frames arrive at a queue. Waits for free ones, and recycles what was sent meanwhile: `reply` sees it.
pub fn arrive(far: &mut MemoryQueue, frames: impl Iterator<Item = Vec<u8>>, mut reply: impl FnMut(&[u8])) {
    let deadline = Instant::now() + LONGEST;
    for bytes in frames {
        let mut frame = loop {
            if let Some(frame) = far.allocate() {
                break frame;
            }
            far.flush().expect("memory does not fail");
            take_replies(far, &mut reply);
            assert!(Instant::now() < deadline, "no frame returns");
            std::thread::yield_now();
        };
        frame.fill(&bytes).expect("fits a frame");
        far.send(&mut vec![frame]);
    }
    far.flush().expect("memory does not fail");
}

/// Takes the frames that were sent.
pub fn take_replies(far: &mut MemoryQueue, mut reply: impl FnMut(&[u8])) {
    let mut batch = Vec::new();
    while far.receive(&mut batch, 64) > 0 {
        for frame in batch.drain(..) {
            reply(&frame);
            far.recycle(frame);
        }
    }
}
