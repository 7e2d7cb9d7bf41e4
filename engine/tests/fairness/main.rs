//! What a context gets beside one whose handlers are hostile, in each mode.
//!
//! Threads, their clocks and the NIC are simulated on one thread, so no result depends on the machine. A handler takes the time that the
//! test says: each task of these handlers writes one event, and each event moves the clock of its thread by a fixed cost. While a
//! handler runs on one thread, the others poll until their clocks show the same time.

#[path = "../common/mod.rs"]
mod common;
mod simulation;

use common::image;
use simulation::{Handlers, Mode, RING, Simulation, Stream};

const MICROSECOND: u64 = 1000;
const MILLISECOND: u64 = 1000 * MICROSECOND;
/// How long a handler runs that its watchdog ends.
const LIMIT: u64 = 10 * MILLISECOND;
/// An event of `told`, behind the 42 bytes of headers.
const EVENT: [u8; 6] = [0, 0, 0, 0, 1, 0];

/// The context that is to get its share, and the one that is hostile: their places among those of a simulation.
const NEIGHBOUR: usize = 0;
const HOSTILE: usize = 1;

const MODES: [Mode; 3] = [Mode::RunToCompletion, Mode::LocalShare, Mode::ReceiveOnly];

/// A context that copies its packets, `size` bytes of payload each.
fn told(cost: u64, size: usize) -> Handlers {
    let payload = [EVENT.to_vec(), vec![0; size - EVENT.len()]].concat();
    Handlers { image: image("told"), cost, payload, watchdog_us: None }
}

/// One whose handlers never return.
fn endless() -> Handlers {
    Handlers { image: image("endless_loop"), cost: LIMIT, payload: vec![0; 30], watchdog_us: Some(50) }
}

/// Packets of a context, `interval` apart from `start` on, of some flows.
fn stream(context: usize, flows: &[u16], start: u64, interval: u64, count: u64) -> Stream {
    Stream { context, flows: flows.to_vec(), next: start, interval, left: count }
}

/// Beside handlers that run to their limit, bursts of four fifths of the NIC's ring within such a handler's time arrive whole and are
/// processed.
#[test]
fn bursts_beside_endless_loops_are_received_whole() {
    const BURST: u64 = RING as u64 * 4 / 5;
    const BURSTS: u64 = 4;
    let mut failed = Vec::new();
    for mode in MODES {
        let threads = Simulation::new(mode, [1, 1], [told(MICROSECOND, 30), endless()]).workers();
        // Where loops and bursts are at home.
        for (looping, home) in (0..threads).flat_map(|looping| (0..threads).map(move |home| (looping, home))) {
            let simulation = Simulation::new(mode, [1, 1], [told(MICROSECOND, 30), endless()]);
            let burst_flows = simulation.flows_of(NEIGHBOUR, home, 8);
            let loop_flows = simulation.flows_of(HOSTILE, looping, 1);
            let (start, before) = (simulation.now(), simulation.counts(NEIGHBOUR));
            simulation.send(stream(HOSTILE, &loop_flows, start, LIMIT, 100));
            for burst in 0..BURSTS {
                // At different times of the handlers that run meanwhile.
                let at = start + burst * (70 * MILLISECOND + 1300 * MICROSECOND) + 20 * MILLISECOND;
                simulation.send(stream(NEIGHBOUR, &burst_flows, at, LIMIT * 9 / 10 / BURST, BURST));
            }
            simulation.run_until(start + (BURSTS + 1) * 75 * MILLISECOND);
            let counts = simulation.counts(NEIGHBOUR) - before;
            let (sent, loops) = (BURSTS * BURST, simulation.counts(HOSTILE).run);
            if counts.run != sent || counts.lost != 0 || counts.dropped != 0 || loops < 20 {
                failed.push(format!(
                    "{mode:?}, loops on {looping}, bursts on {home}: {counts:?} of {sent}, {loops} loops"
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A context that has packets enough gets nine tenths at least of what its weight is, of each thread's time.
fn shares_beside(name: &str, hostile: impl Fn() -> Handlers, interval: u64, time: u64) {
    const TASK: u64 = 50 * MICROSECOND;
    let mut failed = Vec::new();
    for mode in MODES {
        for weights in [[1, 1], [1, 1000], [1000, 1]] {
            let simulation = Simulation::new(mode, weights, [told(TASK, 30), hostile()]);
            let threads = simulation.workers() as u64;
            let (start, flows) = (simulation.now(), (1000..1064).collect::<Vec<_>>());
            let interval_of_one = TASK * 4 / 5 / threads;
            simulation.send(stream(NEIGHBOUR, &flows, start, interval_of_one, time / interval_of_one));
            simulation.send(stream(HOSTILE, &flows, start, interval / threads, time * threads / interval));
            simulation.run_until(start + time);
            let sum = f64::from(weights[NEIGHBOUR] + weights[HOSTILE]);
            let fair = f64::from(weights[NEIGHBOUR]) / sum;
            for thread in 0..simulation.workers() {
                let got = simulation.time(thread, NEIGHBOUR) as f64 / time as f64;
                let others = simulation.time(thread, HOSTILE) as f64 / time as f64;
                println!("{name}, {mode:?}, {weights:?}, thread {thread}: {got:.4} of {fair:.4}, {others:.4} hostile");
                if got < 0.9 * fair {
                    failed.push(format!("{name}, {mode:?}, {weights:?}, thread {thread}: {got:.4} of {fair:.4}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn shares_are_kept_beside_loops() {
    shares_beside("loops", endless, 5 * MILLISECOND, 300 * MILLISECOND);
}

#[test]
fn shares_are_kept_beside_faults() {
    let faulting = || Handlers { image: image("null_load"), ..told(50 * MICROSECOND, 30) };
    shares_beside("faults", faulting, 30 * MICROSECOND, 60 * MILLISECOND);
}

#[test]
fn shares_are_kept_beside_large_copies() {
    shares_beside("copies", || told(100 * MICROSECOND, 1400), 60 * MICROSECOND, 60 * MILLISECOND);
}

#[test]
fn shares_are_kept_beside_prints() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fairness/prints.c");
    let prints: std::sync::Arc<[u8]> = spin_handlers::build(source.as_ref()).into();
    let printing = || Handlers { image: prints.clone(), ..told(50 * MICROSECOND, 30) };
    shares_beside("prints", printing, 30 * MICROSECOND, 60 * MILLISECOND);
}

#[test]
fn shares_are_kept_beside_floods() {
    shares_beside("floods", || told(4 * MICROSECOND, 30), 2 * MICROSECOND, 40 * MILLISECOND);
}
