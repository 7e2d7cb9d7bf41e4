//! Two threads with bursts of packets, so that each has tasks for the other at times. `SPIN_RACE_PACKETS` is the total number of
//! packets, `SPIN_CHECK_SEED` the first seed.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use fastrand::Rng;
use spin_abi::control::{Checks, Install, Isolation, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::helpers::Helpers;
use spin_engine::install::Prepared;
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Queue, TxQueue, Wakeup};
use spin_pspin::counts::Counts;

use crate::common::Kind;
use crate::messages::{Order, SECOND, SEND, Seen, messages, mixed, number, recorder};
use crate::two::FRAMES;
use spin_testing::from_environment;

/// Default total number of packets.
const ALL: u64 = 100_000;
const CONTEXTS: u8 = 2;
/// Flows of a context that arrive at a thread.
const FLOWS: u16 = 60;

/// The engine of one of the threads, and the far end of its NIC.
struct Side {
    engine: Worker,
    far: MemoryQueue,
    start: Instant,
    rng: Rng,
    sent: Vec<Vec<u8>>,
}

impl Side {
    /// Runs a poll, and takes the frames sent meanwhile.
    fn poll(&mut self) {
        self.engine.poll(|| self.start.elapsed()).expect("memory does not fail");
        let mut batch = Vec::new();
        self.far.receive(&mut batch, FRAMES);
        for frame in batch {
            self.sent.push(frame.to_vec());
            self.far.recycle(frame);
        }
    }

    /// Lets packets arrive in groups, with pauses in which the thread may be idle.
    fn run(&mut self, orders: &[Order]) {
        let mut rest = orders;
        while !rest.is_empty() {
            let (some, others) = rest.split_at(self.rng.usize(1..=300).min(rest.len()));
            for order in some {
                let mut frame = loop {
                    match self.far.allocate() {
                        Some(frame) => break frame,
                        None => self.poll(),
                    }
                };
                frame.fill(&order.frame()).expect("fits a frame");
                self.far.send(&mut vec![frame]);
            }
            self.far.flush().expect("memory does not fail");
            (0..self.rng.u32(..3000)).for_each(|_| self.poll());
            rest = others;
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.engine.statistics().counts.get(counter)
    }
}

/// Two engines of two clusters each, each on a thread of its own, with packets of `seed`.
fn race(seed: u64) -> (u64, Counts) {
    let mut rng = Rng::with_seed(seed);
    let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
    let limits = Limits { watchdog_us: 10_000_000, ..Limits::default() };
    let schedule = [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt][rng.usize(..3)];
    let image = spin_handlers::image("recorder", &["-DONE_ORDER"]);
    let mut parts = [Vec::new(), Vec::new()];
    for context in 0..CONTEXTS {
        let checks = [Checks::Page, Checks::Exact][rng.usize(..2)];
        let isolation = [Isolation::Context, Isolation::Message][rng.usize(..2)];
        let install = Install { checks, isolation, weight: Some(rng.u32(1..4)), ..recorder(context) };
        let mut first = Prepared::new(install, &image, 0, &loader, &limits).expect("a fine context");
        parts[1].push(first.split_off(2));
        parts[0].push(first);
    }
    let orders = [0, SECOND].map(|first| {
        let orders = (0..CONTEXTS).map(|context| {
            let flow = first + u16::from(context) * FLOWS;
            messages(context, flow..flow + FLOWS, &mut rng, true)
        });
        mixed(orders.collect(), &mut Rng::with_seed(seed))
    });
    let wakeups = [(); 2].map(|()| Wakeup::new().expect("an event"));
    let (sent, counts) = (Mutex::new(Vec::new()), Mutex::new(Counts::default()));
    let (begin, through) = (Barrier::new(2), AtomicU32::new(0));
    thread::scope(|scope| {
        for (((index, helpers), parts), orders) in (0..).zip(Helpers::of(&wakeups)).zip(parts).zip(&orders) {
            let (loader, sent, counts, begin, through) = (loader.clone(), &sent, &counts, &begin, &through);
            scope.spawn(move || {
                let (near, far) = pair(FRAMES).expect("a pair");
                let clusters = index * 2..index * 2 + 2;
                let engine = Worker::new(loader, Box::new(near), Sizes::default(), schedule, clusters);
                let engine = engine.expect("a timer").with_helpers(helpers);
                let rng = Rng::with_seed(seed ^ u64::from(index + 1) << 32);
                let mut side = Side { engine, far, start: Instant::now(), rng, sent: Vec::new() };
                parts.into_iter().for_each(|part| _ = side.engine.install(part, &limits).expect("there is room"));
                begin.wait();
                side.run(orders);
                while side.count(Counter::Released) < orders.len() as u64 {
                    side.poll();
                }
                through.fetch_add(1, Release);
                while through.load(Acquire) < 2 {
                    side.poll();
                }
                side.poll();
                assert!(!side.engine.has_tasks() && side.engine.backlog() == 0);
                let home = std::iter::from_fn(|| side.far.allocate()).count();
                assert_eq!(home, FRAMES, "seed {seed}: frames are not at home");
                counts.lock().unwrap_or_else(PoisonError::into_inner).merge(&side.engine.statistics().counts);
                sent.lock().unwrap_or_else(PoisonError::into_inner).append(&mut side.sent);
            });
        }
    });
    let mut sent = sent.into_inner().expect("no thread panicked");
    sent.sort_by_key(|frame| number(frame));
    let orders = orders.concat();
    let mut seen = Seen::default();
    seen.look(&sent, true);
    seen.verify(&orders, seed);
    for order in &orders {
        let asked = [order.sequence == 0, true, order.end].into_iter().zip(order.actions);
        let asked = asked.filter(|&(runs, action)| runs && action == SEND).count();
        assert_eq!(seen.sent.get(&order.instance).map_or(0, |&count| count as usize), asked, "seed {seed}");
    }
    (orders.len() as u64, counts.into_inner().expect("no thread panicked"))
}

#[test]
fn threads_that_lend_to_each_other_keep_messages_in_order() {
    let (all, mut seed) = (from_environment("SPIN_RACE_PACKETS", ALL), from_environment("SPIN_CHECK_SEED", 1));
    let (mut packets, mut sum) = (0, Counts::default());
    while packets < all {
        let (more, counts) = race(seed);
        (packets, seed) = (packets + more, seed + 1);
        sum.merge(&counts);
        assert_eq!(counts.get(Counter::RxPackets), more);
    }
    println!("{packets} packets, {} of them on the other thread", sum.get(Counter::Overflowed));
    assert_eq!(sum.get(Counter::Released), packets);
    assert!(sum.get(Counter::Overflowed) > 0);
}
