//! The packet path allocates no memory, and neither does recording latencies. A separate program, since it counts all allocations
//! of a thread.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use common::{Kind, image, rule, udp_from};
use spin_abi::control::Schedule;
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::helpers::Helpers;
use spin_engine::ingress::rx_batch::BATCH;
use spin_engine::install::Prepared;
use spin_engine::settings::{Limits, Sizes};
use spin_engine::telemetry::latency::Latencies;
use spin_engine::worker::Worker;
use spin_nic::{SyntheticSource, Wakeup};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is left to the system's allocator; counting allocates nothing, for the counter is initialised statically.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn packets_take_no_memory() {
    let handlers = [("empty_three", false), ("udp_pingpong", true)];
    for ((handler, sent), clusters) in handlers.into_iter().flat_map(|handler| [(handler, 0..1), (handler, 0..4)]) {
        // The destination ports match also after the handler has swapped the ports. The order of packets alternates between home
        // clusters.
        let frames: Vec<_> = (0..256).map(|flow| udp_from(9 + flow % 16, 9 + flow / 16, &[7; 22])).collect();
        let nic = SyntheticSource::new(&frames, 64, 16).expect("short frames");
        let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
        let (schedule, limits) = (Schedule::default(), Limits::default());
        let mut engine =
            Worker::new(loader.clone(), Box::new(nic), Sizes::default(), schedule, clusters).expect("a timer");
        let prepared = Prepared::new(rule("udp dport 9-24"), &image(handler), 0, &loader, &limits).expect("ours");
        engine.install(prepared, &limits).expect("there is room");
        let mut polls = |count: u32| {
            for _ in 0..count {
                engine.poll(|| Duration::ZERO).expect("memory does not fail");
            }
        };
        polls(100);
        let before = ALLOCATIONS.get();
        assert!(before > 0, "allocations are counted");
        polls(200);
        assert_eq!(ALLOCATIONS.get(), before, "{handler}");
        let (counts, all) = (engine.statistics().counts, 300 * BATCH as u64);
        assert_eq!(counts.get(Counter::Released), all, "{handler}: every turn had its batch");
        assert_eq!(counts.get(Counter::TxPackets), if sent { all } else { 0 });
    }
}

#[test]
fn packets_that_are_lent_take_no_memory() {
    let (loader, limits) = (Arc::new(Loader::new(Machine::PSPIN, Kind::Jit)), Limits::default());
    let mut rest = Prepared::new(rule("udp dport 9-24"), &image("udp_pingpong"), 0, &loader, &limits).expect("ours");
    let parts = [rest.split_off(2), rest].into_iter().rev();
    let wakeups = [(); 2].map(|()| Wakeup::new().expect("an event"));
    let frames: Vec<_> = (0..256).map(|flow| udp_from(9 + flow % 16, 9 + flow / 16, &[7; 22])).collect();
    let mut engines: Vec<_> = Helpers::of(&wakeups)
        .into_iter()
        .zip(parts)
        .zip([(&frames[..], 0..2), (&[], 2..4)])
        .map(|((helpers, part), (frames, clusters))| {
            let nic = Box::new(SyntheticSource::new(frames, 64, 16).expect("short frames"));
            let engine = Worker::new(loader.clone(), nic, Sizes::default(), Schedule::default(), clusters);
            let mut engine = engine.expect("a timer").with_helpers(helpers);
            engine.install(part, &limits).expect("there is room");
            engine
        })
        .collect();
    let now = Cell::new(Duration::ZERO);
    let clock = || {
        now.set(now.get() + Duration::from_micros(100));
        now.get()
    };
    let polls = |engines: &mut [Worker], count: u32| {
        for _ in 0..count {
            engines.iter_mut().for_each(|engine| _ = engine.poll(clock).expect("memory does not fail"));
        }
    };
    let lent = |engines: &[Worker]| engines[1].statistics().counts.get(Counter::Overflowed);
    polls(&mut engines, 100);
    let (warm, before) = (lent(&engines), ALLOCATIONS.get());
    polls(&mut engines, 200);
    assert_eq!(ALLOCATIONS.get(), before);
    assert!(lent(&engines) > warm + 1000, "{} and {warm}", lent(&engines));
}

#[test]
fn recording_takes_no_memory() {
    let before_any = ALLOCATIONS.get();
    let mut latencies = Latencies::default();
    let before = ALLOCATIONS.get();
    assert!(before > before_any, "allocations are counted");
    let mut nanoseconds = 1_u64;
    while let Some(longer) = nanoseconds.checked_mul(3) {
        let elapsed = Duration::from_nanos(nanoseconds);
        latencies.record_total(64, elapsed);
        latencies.sample(elapsed, elapsed);
        nanoseconds = longer;
    }
    latencies.record_total(1 << 62, Duration::MAX);
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!(latencies.infos()[1].count, 40, "3^0 to 3^39 ns");
}
