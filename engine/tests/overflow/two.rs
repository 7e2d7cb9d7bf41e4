//! Two engines that poll alternately on one thread, so that runs are reproducible.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use spin_abi::control::{Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::helpers::Helpers;
use spin_engine::install::{Prepared, SendRights};
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Queue, TxQueue, Wakeup};

use crate::common::{Kind, image};

/// Frames of each NIC.
pub const FRAMES: usize = 1024;
/// Causes for which a packet can be lost, other than handlers' requests.
pub const LOSSES: [Counter; 5] =
    [Counter::DropRemoved, Counter::DropUnmatched, Counter::DropShare, Counter::DropKilled, Counter::DropNoMpq];
/// Two engines of two clusters each, and the far ends of their NICs.
pub struct Two {
    pub loader: Arc<Loader>,
    pub engines: [Worker; 2],
    pub far: [MemoryQueue; 2],
    /// The rights to send of contexts that are installed next.
    pub send: SendRights,
    /// The time of their clock in microseconds, and its advance per read.
    pub now: Cell<u64>,
    pub pace: u64,
}

impl Two {
    pub fn new(kind: Kind, schedule: Schedule) -> Self {
        let loader = Arc::new(Loader::new(Machine::PSPIN, kind));
        let wakeups = [(); 2].map(|()| Wakeup::new().expect("an event"));
        let (mut engines, mut ends) = (Vec::new(), Vec::new());
        for (index, helpers) in (0..).zip(Helpers::of(&wakeups)) {
            let (near, far) = pair(FRAMES).expect("a pair");
            let clusters = index * 2..index * 2 + 2;
            let engine = Worker::new(loader.clone(), Box::new(near), Sizes::default(), schedule, clusters);
            engines.push(engine.expect("a timer").with_helpers(helpers));
            ends.push(far);
        }
        let (Ok(engines), Ok(far)) = (engines.try_into(), ends.try_into()) else { unreachable!("two of each") };
        Self { loader, engines, far, send: SendRights::Raw, now: Cell::new(0), pace: 100 }
    }

    pub fn install(&mut self, handler: &str, install: Install) -> u32 {
        self.install_one_by_one(handler, install, |_| {})
    }

    /// Installs a context, and calls `between` after the first engine and before the second.
    pub fn install_one_by_one(&mut self, handler: &str, install: Install, between: impl FnOnce(&mut Self)) -> u32 {
        let limits = Limits { watchdog_us: 10_000_000, ..Limits::default() };
        let mut first = Prepared::new(install, &image(handler), 0, &self.loader, &limits).expect("installs");
        first.restrict(self.send.clone());
        let second = first.split_off(2);
        let id = self.engines[0].install(first, &limits).expect("there is room");
        between(self);
        assert_eq!(self.engines[1].install(second, &limits).expect("there is room"), id);
        id
    }

    pub fn arrive(&mut self, at: usize, frames: &[Vec<u8>]) {
        for bytes in frames {
            let mut frame = self.far[at].allocate().expect("less than the pair holds");
            frame.fill(bytes).expect("fits a frame");
            self.far[at].send(&mut vec![frame]);
        }
        self.far[at].flush().expect("memory does not fail");
    }

    /// Polls one engine. Returns the frames sent meanwhile.
    pub fn poll(&mut self, at: usize) -> Vec<Vec<u8>> {
        let Self { engines, far, now, pace, .. } = self;
        let clock = || {
            now.set(now.get() + *pace);
            Duration::from_micros(now.get())
        };
        engines[at].poll(clock).expect("memory does not fail");
        let (mut batch, mut sent) = (Vec::new(), Vec::new());
        far[at].receive(&mut batch, FRAMES);
        for frame in batch {
            sent.push(frame.to_vec());
            far[at].recycle(frame);
        }
        sent
    }

    pub fn has_tasks(&self) -> bool {
        self.engines.iter().any(|engine| engine.has_tasks() || engine.backlog() > 0)
    }

    /// Polls both until nothing is in flight. Returns the frames sent.
    pub fn settle(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for _ in 0..10_000 {
            let received = self.sum(Counter::RxPackets);
            sent.extend((0..2).flat_map(|at| self.poll(at)));
            if self.sum(Counter::RxPackets) == received && !self.has_tasks() {
                return sent;
            }
        }
        panic!("it does not end");
    }

    /// The number of payload runs of a context on an engine.
    pub fn runs(&self, at: usize, id: u32) -> u64 {
        self.count(at, id, Counter::PayloadRuns)
    }

    /// A context's counter on an engine.
    pub fn count(&self, at: usize, id: u32, counter: Counter) -> u64 {
        let info = self.engines[at].context_infos().into_iter().find(|info| info.context == id).expect("installed");
        info.counters.get(counter)
    }

    pub fn total(&self, counter: Counter) -> [u64; 2] {
        [0, 1].map(|at| self.engines[at].statistics().counts.get(counter))
    }

    pub fn sum(&self, counter: Counter) -> u64 {
        self.total(counter).iter().sum()
    }

    /// Checks that each packet was processed or lost under one cause, and that each frame was released.
    pub fn verify_sums(&mut self) {
        let lost: u64 = LOSSES.into_iter().map(|counter| self.sum(counter)).sum();
        assert_eq!(self.sum(Counter::Released) + lost, self.sum(Counter::RxPackets));
        self.engines.iter().for_each(Worker::check_invariants);
        for far in &mut self.far {
            let all: Vec<_> = std::iter::from_fn(|| far.allocate()).collect();
            assert_eq!(all.len(), FRAMES, "frames are not at home");
            all.into_iter().for_each(|frame| far.recycle(frame));
        }
    }
}
