//! Contexts are installed and removed while two threads are under load. Other contexts lose nothing, and nothing leaks. The only
//! test of its program, since it examines the whole process. `spin-bench-installs` does this at a configurable rate.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use common::{image, rule, udp_from};
use rustix::event::{EventfdFlags, eventfd};
use spin_abi::control::{Engine as Kind, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::units::{PlannedWorker, plan};
use spin_engine::cores::{ClusterThread, Receiving, Transaction, WorkerGroup};
use spin_engine::cores::{PollThread, SharedConfig, WorkerLinks};
use spin_engine::install::{Prepared, User};
use spin_engine::settings::{Idle, Limits, Sizes};
use spin_nic::SyntheticSource;
use spin_nic::steering::AcceptAll;
use spin_pspin::counts::Counts;

const CLUSTERS: u32 = 2;
const MACHINE: Machine = Machine { clusters: CLUSTERS, ..Machine::PSPIN };
/// Installs of a known image, and the number of them per install of a new one.
const KNOWN: u32 = 300;
const EACH: u32 = 15;
/// Contexts that are installed and removed together.
const TOGETHER: u16 = 3;
/// `lui t0, 0xabcde` of `new_code.c`.
const MARK: [u8; 4] = 0xabcd_e2b7_u32.to_le_bytes();

/// Two threads with endless packets.
struct Live {
    fleet: WorkerGroup,
    common: SharedConfig,
}

impl Live {
    fn start() -> Self {
        let common = SharedConfig {
            loader: Arc::new(Loader::new(MACHINE, Kind::Jit)),
            sizes: Sizes::default(),
            schedule: Schedule::default(),
            idle: Idle::Sleep,
            go: Arc::default(),
            stop: Arc::new(AtomicBool::new(false)),
            start: Instant::now(),
            ended: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor")),
        };
        let frames: Vec<_> = (0..256).map(|flow| udp_from(1000 + flow, 1, &[7; 30])).collect();
        let cores: Vec<usize> = (0..CLUSTERS as usize).collect();
        let worker = |planned: PlannedWorker| {
            let nic = SyntheticSource::new(&frames, 80, 0).expect("short frames");
            let feed = WorkerLinks::from_nic(Box::new(nic)).expect("a descriptor");
            let worker = PollThread::start_engine(common.clone(), feed, planned.part.clone(), None).expect("a thread");
            ClusterThread { planned, worker }
        };
        let planned = plan(&cores, |_| 0, CLUSTERS, None).expect("one unit");
        let workers = planned.into_iter().map(worker).collect();
        Self { fleet: WorkerGroup::new(workers, Receiving::Each, Arc::new(AcceptAll), Limits::default()), common }
    }

    fn prepare(&self, file: &[u8], port: u16) -> Prepared {
        let install = rule(&format!("udp dport {port}"));
        Prepared::new(install, file, 0, &self.common.loader, &Limits::default()).expect("a fine context")
    }

    fn install(&self, file: &[u8], port: u16) -> u32 {
        self.fleet.install(self.prepare(file, port)).expect("room")
    }

    fn remove(&self, id: u32) {
        self.fleet.remove(id, User(0)).expect("installed");
    }

    /// Installs some contexts at once, and others in their place.
    fn cycle(&self, file: &[u8]) {
        let some = || (0..TOGETHER).map(|port| self.prepare(file, 3 + port)).collect();
        let ids = |installed: Vec<_>| -> Vec<u32> {
            installed.into_iter().map(|id: Result<_, _>| id.expect("room")).collect()
        };
        let first = ids(self.fleet.change(Transaction { installs: some(), ..Transaction::default() }).installed);
        let mut removals: Vec<_> = first.iter().map(|&id| (id, User(0))).collect();
        removals.push((first[0] + 1000, User(0)));
        let changed = self.fleet.change(Transaction { installs: some(), removals, ..Transaction::default() });
        let unknown = changed.removed.iter().position(Result::is_err);
        assert_eq!(unknown, Some(first.len()), "all but the last were there");
        let second = ids(changed.installed);
        assert!(second.iter().all(|id| !first.contains(id)), "ids are never used again");
        let removed = self
            .fleet
            .change(Transaction {
                removals: second.iter().map(|&id| (id, User(0))).collect(),
                ..Transaction::default()
            })
            .removed;
        assert!(removed.iter().all(Result::is_ok), "{removed:?}");
    }

    fn stop(self) -> Counts {
        self.common.stop.store(true, Relaxed);
        let mut sum = Counts::default();
        for thread in self.fleet.workers {
            sum.merge(&thread.worker.join().expect("it ended well").counts);
        }
        sum
    }
}

/// The number of mappings, and the bytes of code that belong to no file. Adjacent mappings may be merged.
fn mappings() -> [usize; 2] {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel tells");
    let translated = |line: &&str| line.contains(" r-xp ") && !line.contains(['/', '[']);
    let bytes = |line: &str| {
        let (range, _) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        Some(usize::from_str_radix(end, 16).ok()? - usize::from_str_radix(start, 16).ok()?)
    };
    [maps.lines().count(), maps.lines().filter(translated).filter_map(bytes).sum()]
}

/// The image of `new_code.c` as number `number`.
fn new_image(number: u32) -> Vec<u8> {
    let mut file = image("new_code").to_vec();
    let at = file.windows(4).position(|word| word == MARK).expect("the instruction is there");
    file[at..at + 4].copy_from_slice(&(number << 12 | 0x2b7).to_le_bytes());
    file
}

#[test]
fn others_lose_nothing_while_contexts_come_and_go() {
    let live = Live::start();
    live.install(&image("empty"), 1);
    live.common.go.store(true, Relaxed);
    let known = image("counter");
    let _in_use = live.install(&known, 2);
    // The first round allocates memory that is kept.
    live.remove(live.install(&new_image(0), 3));
    let before = mappings();
    for number in 1..=KNOWN / (2 * u32::from(TOGETHER)) {
        live.cycle(&known);
        if number.is_multiple_of(EACH / u32::from(TOGETHER)) {
            let id = live.install(&new_image(number), 3);
            assert!(mappings()[1] > before[1], "it was translated");
            live.remove(id);
        }
    }
    let after = mappings();
    // The allocator may have taken a few mappings.
    assert!(after[0] <= before[0] + 16, "{before:?} before, {after:?} after");
    assert_eq!(after[1], before[1], "translations");
    let counts = live.stop();
    let get = |counter| counts.get(counter);
    assert!(get(Counter::RxPackets) > 0);
    let told: Vec<_> = counts.named().filter(|(_, value)| *value > 0).collect();
    assert_eq!(get(Counter::Released), get(Counter::RxPackets), "every packet was processed: {told:?}");
    assert_eq!((get(Counter::PayloadRuns), get(Counter::Faults)), (get(Counter::RxPackets), 0));
}
