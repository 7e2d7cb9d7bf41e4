//! A round: two engines, with a thread and a cluster each, the same contexts, and packets of their own. They receive packets
//! themselves, by a channel as in pipeline mode, or from a worker of another unit.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use spin_abi::control::{Engine as Kind, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::Poller;
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_engine::ingress::rx_batch::RoutingTable;
use spin_engine::install::{Prepared, User};
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::Queue;
use spin_pspin::counts::Counts;

use crate::fed::{FedQueue, SharedReceiver};
use crate::handed::{Front, Gated};
use crate::judge::Judge;
use crate::nic::{Nic, Totals};
use crate::policy::{CONTEXTS, Policy, UNHURRIED_US};
use crate::traffic::{FLOWS, Traffic};

/// Engines of a round.
pub const CLUSTERS: u32 = 2;
/// Sizes at which everything is full at times: fewer queues than flows, and fewer HERs than a batch and a share or two.
const SMALL: Sizes = Sizes { queues: 64, hers: 96, dma_chunk: 100 };
/// Sizes at which nothing is lost: a queue for each flow, and most HERs always free.
const AMPLE: Sizes = Sizes { queues: (CONTEXTS * FLOWS) as u32, hers: 4096, dma_chunk: 100 };
/// Frames: more than an engine has room for.
const FRAMES: [usize; 2] = [2048, 8192];
const MACHINE: Machine = Machine { clusters: CLUSTERS, ..Machine::PSPIN };
/// Causes for which an arrived frame is lost, other than handlers' requests.
const LOSSES: [Counter; 8] = [
    Counter::DropUnmatched,
    Counter::DropRemoved,
    Counter::DropShare,
    Counter::DropKilled,
    Counter::DropNoMpq,
    Counter::DropNoHeader,
    Counter::DropVerdict,
    Counter::Passed,
];

/// A round to run.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub schedule: Schedule,
    pub kind: Kind,
    pub seed: u64,
    /// Packets of both engines together.
    pub packets: u64,
}

/// The result of a round.
#[derive(Debug, Default)]
pub struct Outcome {
    pub counts: Counts,
    pub records: u64,
    /// Contexts that lost nothing, by kind: with header, with completion handler, with neither, with verdicts.
    pub exact: [u64; 4],
}

impl Round {
    /// Runs the round.
    ///
    /// # Panics
    /// When a check fails.
    pub fn run(self) -> Outcome {
        let mut rng = Rng::with_seed(self.seed);
        // Packets of a single context need not wait for others, which is another path through the engine.
        let alone = self.seed.is_multiple_of(4);
        let mut policies = Policy::all(alone, self.is_ample(), self.stalls(), &mut rng);
        let channel_share = self.is_fed() && !alone && !self.stalls();
        policies.iter_mut().for_each(|policy| policy.channel_share = channel_share);
        // Every other round removes one context while it has packets in flight.
        let removed = ((self.seed ^ self.seed >> 3) & 1 == 1).then(|| rng.usize(..policies.len()));
        let loader = Arc::new(Loader::new(MACHINE, self.kind));
        let limits = Limits { watchdog_us: UNHURRIED_US, ..Limits::default() };
        let mut parts: Vec<Vec<Prepared>> = (0..CLUSTERS).map(|_| Vec::new()).collect();
        for policy in &policies {
            let image = spin_handlers::image("recorder", &policy.arguments());
            let mut rest = Prepared::new(policy.install.clone(), &image, 0, &loader, &limits).expect("a fine context");
            for (cluster, parts) in (0..).zip(&mut parts) {
                let next = if cluster + 1 < CLUSTERS { Some(rest.split_off(cluster + 1)) } else { None };
                parts.push(rest);
                let Some(next) = next else { break };
                rest = next;
            }
        }
        thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(parts)
                .map(|(cluster, parts)| {
                    let (policies, loader) = (policies.clone(), loader.clone());
                    scope.spawn(move || {
                        let mut half = Half::new(self, policies, &loader, cluster..cluster + 1, parts);
                        half.run(self.packets / u64::from(CLUSTERS), removed);
                        half.verify(removed)
                    })
                })
                .collect();
            let mut sum = Outcome::default();
            for thread in threads {
                let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                sum.counts.merge(&outcome.counts);
                sum.records += outcome.records;
                sum.exact = [0, 1, 2, 3].map(|kind| sum.exact[kind] + outcome.exact[kind]);
            }
            sum
        })
    }

    /// Whether contexts may stall others.
    const fn stalls(self) -> bool {
        !self.is_ample() && self.seed % 8 != 1
    }

    /// Whether a distributor receives.
    fn is_fed(self) -> bool {
        FED.0.contains(&(self.seed % FED.1))
    }

    /// Whether packets arrive in another unit.
    const fn is_handed(self) -> bool {
        matches!(self.seed % 8, 1 | 4 | 6)
    }

    /// Whether there is room for all packets and messages: for a single context, and for several, with or without a distributor.
    const fn is_ample(self) -> bool {
        matches!(self.seed % 8, 2 | 4 | 7)
    }
}

/// Seeds, modulo the second number, of rounds with a distributor: with a single context, and under each schedule.
const FED: ([u64; 4], u64) = ([0, 3, 5, 7], 8);
/// Polls between two checks of an engine's accounts.
const CHECK_PERIOD: u64 = 256;

/// One of the two engines.
struct Half {
    engine: Worker,
    /// The distributor without a local share that receives for it, if any.
    receiver: Option<SharedReceiver>,
    /// The worker of another unit that receives for it, if any.
    front: Option<Front>,
    nic: Nic,
    policies: Vec<Policy>,
    /// Ids of the contexts.
    ids: Vec<u32>,
    /// The clock, in microseconds.
    now: Arc<AtomicU64>,
    polls: u64,
    rng: Rng,
}

impl Half {
    fn new(
        round: Round,
        policies: Vec<Policy>,
        loader: &Arc<Loader>,
        clusters: Range<u32>,
        parts: Vec<Prepared>,
    ) -> Self {
        let seed = round.seed.wrapping_mul(31).wrapping_add(clusters.start.into());
        let judge = Judge::new(policies.clone(), clusters.start);
        let frames = FRAMES[usize::from(round.is_ample())];
        let nic = Nic::new(Traffic::new(policies.clone(), seed), judge, seed ^ 1, frames);
        let sizes = if round.is_ample() { AMPLE } else { SMALL };
        let engine = |nic| {
            let engine = Worker::new(loader.clone(), nic, sizes, round.schedule, clusters.clone());
            engine.expect("handlers can be run")
        };
        let now = Arc::new(AtomicU64::new(0));
        let (mut receiver, mut front) = (None, None);
        let mut engine = if round.is_fed() {
            let (distributor, mut ends) = ReceiveOnly::new(Box::new(nic.clone()), 1, sizes.hers).expect("a channel");
            let shared = SharedReceiver::new(distributor, now.clone());
            let (arrivals, queue) = ends.remove(0);
            let queue = FedQueue { queue, receiver: shared.clone() };
            receiver = Some(shared);
            engine(Box::new(queue) as Box<dyn Queue>).fed_by(arrivals)
        } else if round.is_handed() {
            nic.inside().handed = true;
            let (first, hand_over) = Front::new(loader, nic.clone(), sizes);
            front = Some(first);
            Front::last(engine(Box::new(Gated { nic: nic.clone(), open: Arc::default() })), hand_over)
        } else {
            engine(Box::new(nic.clone()))
        };
        let ids = parts.into_iter().map(|part| engine.link(part, &Limits::default()).expect("room")).collect();
        let mut half =
            Self { engine, receiver, front, nic, policies, ids, now, polls: 0, rng: Rng::with_seed(seed ^ 2) };
        half.set_distribution(half.engine.routes());
        half
    }

    /// Sets the routes of frames from here on.
    fn set_distribution(&mut self, routes: RoutingTable) {
        if let Some(receiver) = &self.receiver {
            receiver.lock().set_routes(routes);
        } else if let Some(front) = &mut self.front {
            front.set_routes(&mut self.engine, routes);
        }
    }

    /// Removes a context, after its routes.
    fn remove(&mut self, id: u32) {
        self.set_distribution(self.engine.routes_without(&[id]).expect("fewer rules"));
        self.engine.unlink(id, User(0)).expect("installed");
    }

    fn poll(&mut self) {
        let pause = match self.rng.u32(..100_000) {
            // Longer than any open message may be idle.
            0 => 11_000_000,
            1..2000 => 1000,
            _ => self.rng.u64(..20),
        };
        self.now.fetch_add(pause, Relaxed);
        if let Some(receiver) = &self.receiver {
            receiver.poll();
        }
        if let Some(front) = &mut self.front {
            front.poll(tick(&self.now));
        }
        self.engine.poll(|| tick(&self.now)).expect("memory does not fail");
        self.polls += 1;
        if self.polls.is_multiple_of(CHECK_PERIOD) {
            self.engine.check_invariants();
        }
    }

    fn run(&mut self, packets: u64, removed: Option<usize>) {
        while self.nic.inside().totals.arrived < packets / 2 {
            self.poll();
        }
        if let Some(context) = removed {
            // Waits until the context has packets queued, if that ever happens, so that their drop is checked.
            while self.engine.hers_held(self.ids[context]) == 0 && self.nic.inside().totals.arrived < packets / 4 * 3 {
                self.poll();
            }
            self.remove(self.ids[context]);
        }
        while self.nic.inside().totals.arrived < packets {
            self.poll();
        }
        self.nic.inside().closed = true;
        while self.is_busy() {
            self.poll();
        }
        self.engine.check_invariants();
        self.nic.inside().judge.close(removed);
    }

    /// Whether packets are in flight.
    fn is_busy(&self) -> bool {
        let out = self.receiver.as_ref().map_or(0, |receiver| receiver.lock().backlog());
        let handed = self.front.as_ref().map_or(0, Front::backlog);
        out + handed > 0 || self.engine.has_pending() || self.engine.has_tasks() || self.engine.backlog() > 0
    }

    /// Compares counters with the records.
    fn verify(&mut self, removed: Option<usize>) -> Outcome {
        let mut counts = self.engine.statistics().counts;
        self.receiver.iter().for_each(|receiver| counts.merge(&receiver.lock().statistics().counts));
        self.front.iter().for_each(|front| counts.merge(&front.counts()));
        let inside = self.nic.inside();
        // A packet that was handed over is sent in the frame that it was copied to.
        let moved = if self.front.is_some() { 0 } else { counts.get(Counter::TxMoved) };
        let passed = if self.front.is_some() { 0 } else { inside.totals.passed };
        assert_eq!(inside.totals.moved, moved, "frames that were sent where they arrived");
        assert_eq!(inside.totals.recycled + moved + passed, inside.totals.arrived);
        verify_sums(&counts, inside.totals, removed.is_some());
        let blank = if self.receiver.is_some() { blank(&mut self.engine) } else { 0 };
        assert_eq!(inside.out(), blank, "frames are not at home");
        let infos = self.engine.context_infos();
        let mut exact = [0; 4];
        for (context, id) in self.ids.iter().enumerate().filter(|(context, _)| Some(*context) != removed) {
            let info = infos.iter().find(|info| info.context == *id).expect("installed");
            let count = |counter: Counter| info.counters.get(counter);
            if inside.judge.verify(context, &count, self.engine.queues_held(*id)) {
                let Policy { header, completion, verdicts, .. } = self.policies[context];
                let kinds = [header, completion, !header && !completion, verdicts];
                exact = [0, 1, 2, 3].map(|kind| exact[kind] + u64::from(kinds[kind]));
            }
        }
        assert_eq!(infos.len(), self.policies.len() - usize::from(removed.is_some()));
        Outcome { counts, records: inside.judge.records, exact }
    }
}

/// The clock of both engines, which advances with each read.
pub fn tick(now: &AtomicU64) -> Duration {
    Duration::from_micros(now.fetch_add(1, Relaxed) + 1)
}

/// The number of unused refills of an engine.
fn blank(engine: &mut Worker) -> usize {
    std::iter::from_fn(|| engine.nic().allocate()).count()
}

/// Checks that every packet was processed, or lost under one cause.
fn verify_sums(counts: &Counts, totals: Totals, removed: bool) {
    let get = |counter| counts.get(counter);
    let lost: u64 = LOSSES.into_iter().map(get).sum();
    let all: Vec<_> = counts.named().collect();
    let about = format!("{totals:?} {all:?}");
    assert_eq!(get(Counter::RxPackets), totals.arrived, "{about}");
    assert_eq!(get(Counter::Released) + lost, totals.arrived, "{about}");
    assert_eq!(get(Counter::Passed), totals.passed, "{about}");
    assert_eq!(get(Counter::TxPackets), totals.moved + totals.copied, "{about}");
    assert_eq!(get(Counter::CommandsSend), get(Counter::TxPackets), "{about}");
    if removed {
        assert!(get(Counter::DropUnmatched) > totals.foreign, "{about}");
    } else {
        assert_eq!((get(Counter::DropUnmatched), get(Counter::DropRemoved)), (totals.foreign, 0), "{about}");
    }
}
