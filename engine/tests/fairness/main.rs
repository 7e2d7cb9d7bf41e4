//! The share of a context beside one with hostile handlers, in each mode.
//!
//! Threads, their clocks and the NIC are simulated on one thread, so that results do not depend on the machine. The test
//! determines the run time of handlers: each task writes one event, and each event advances its thread's clock by a fixed cost.
//! While a handler runs on one thread, the others poll until their clocks show the same time.

#[path = "../common/mod.rs"]
mod common;
mod eight_users;
mod simulation;

use std::ops::Range;

use common::image;
use simulation::{Counts, Handlers, Mode, RING, Simulation, Stream, Tenant};

const MICROSECOND: u64 = 1000;
const MILLISECOND: u64 = 1000 * MICROSECOND;
/// The run time of a handler that its watchdog ends.
const LIMIT: u64 = 10 * MILLISECOND;
/// An event of `told`, behind the 42 bytes of headers.
const EVENT: [u8; 6] = [0, 0, 0, 0, 1, 0];

/// Indexes of the context under test and of the hostile one.
const NEIGHBOUR: usize = 0;
const HOSTILE: usize = 1;

/// The first of some users that no system has.
const FIRST_USER: u32 = 3_000_000_000;

const MODES: [Mode; 3] = [Mode::RunToCompletion, Mode::LocalShare, Mode::ReceiveOnly];

/// A context that copies its packets, with `size` bytes of payload each.
fn told(cost: u64, size: usize) -> Handlers {
    let payload = [EVENT.to_vec(), vec![0; size - EVENT.len()]].concat();
    Handlers { image: image("told"), cost, payload, watchdog_us: None, eom: None }
}

/// A context whose handlers never return.
fn endless() -> Handlers {
    Handlers { image: image("endless_loop"), cost: LIMIT, payload: vec![0; 30], watchdog_us: Some(50), eom: None }
}

/// Packets of a context, at intervals of `interval` from `start` on, of some flows.
fn stream(context: usize, flows: &[u16], start: u64, interval: u64, count: u64) -> Stream {
    Stream { context, flows: flows.to_vec(), next: start, interval, left: count }
}

/// Sends bursts of four fifths of the NIC's ring within one hostile handler's time to the `home` worker. Meanwhile, endless loops
/// arrive at the `looping` worker at intervals of `interval`. They begin `before` the first burst. Returns a message if anything
/// was lost.
fn bursts_beside_loops(mode: Mode, looping: usize, home: usize, interval: u64, before: u64) -> Option<String> {
    const BURST: u64 = RING as u64 * 4 / 5;
    const BURSTS: u64 = 4;
    let simulation = Simulation::new(mode, [1, 1], [told(MICROSECOND, 30), endless()]);
    let burst_flows = simulation.flows_of(NEIGHBOUR, home, 8);
    let loop_flows = simulation.flows_of(HOSTILE, looping, 1);
    let (start, probed) = (simulation.now(), simulation.counts(NEIGHBOUR));
    let end = start + before + BURSTS * 30 * MILLISECOND;
    simulation.send(stream(HOSTILE, &loop_flows, start, interval, (end - start) / interval));
    for burst in 0..BURSTS {
        // The bursts come at different times of the running handlers.
        let at = start + before + burst * (23 * MILLISECOND + 300 * MICROSECOND);
        simulation.send(stream(NEIGHBOUR, &burst_flows, at, LIMIT * 9 / 10 / BURST, BURST));
    }
    simulation.run_until(end);
    let (counts, sent) = (simulation.counts(NEIGHBOUR) - probed, BURSTS * BURST);
    let Counts { run: loops, dropped, .. } = simulation.counts(HOSTILE);
    let is_whole = counts.run == sent && counts.lost == 0 && counts.dropped == 0 && loops > 10;
    let what = format!("{mode:?}, loops on {looping}, bursts on {home}: {counts:?} of {sent}");
    println!("{what}; {loops} loops, {dropped} dropped");
    (!is_whole).then_some(what)
}

fn check_bursts(cells: impl Iterator<Item = (Mode, usize, usize)>, interval: u64, before: u64) {
    let failed: Vec<_> =
        cells.filter_map(|(mode, looping, home)| bursts_beside_loops(mode, looping, home, interval, before)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// All pairs of workers, in each mode.
fn homes() -> impl Iterator<Item = (Mode, usize, usize)> {
    MODES.into_iter().flat_map(|mode| {
        let workers = mode.workers() as usize;
        (0..workers * workers).map(move |pair| (mode, pair / workers, pair % workers))
    })
}

#[test]
fn bursts_beside_endless_loops_are_received_whole() {
    // Four times as many packets as there is time for, so that some are always queued.
    check_bursts(homes(), LIMIT / 4, 300 * MILLISECOND);
}

/// Enough packets to fill the worker's channel while one of them runs. The NIC has no room for both, so this excludes workers
/// that receive.
#[test]
fn bursts_beside_a_flood_of_endless_loops_are_received_whole() {
    let receives = |mode, worker| mode != Mode::ReceiveOnly && worker == 0;
    let cells = homes().filter(|&(mode, looping, _)| !receives(mode, looping));
    check_bursts(cells, 5 * MICROSECOND, 20 * MILLISECOND);
}

/// A context with enough packets gets at least nine tenths of its weight's share of each thread's time.
fn shares_beside(name: &str, hostile: impl Fn() -> Handlers, interval: u64, time: u64) {
    const TASK: u64 = 50 * MICROSECOND;
    let mut failed = Vec::new();
    for mode in MODES {
        for weights in [[1, 1], [1, 1000], [1000, 1]] {
            let simulation = Simulation::new(mode, weights, [told(TASK, 30), hostile()]);
            let threads = u64::from(mode.workers());
            let (start, flows) = (simulation.now(), (1000..1064).collect::<Vec<_>>());
            let interval_of_one = TASK * 4 / 5 / threads;
            simulation.send(stream(NEIGHBOUR, &flows, start, interval_of_one, time / interval_of_one));
            simulation.send(stream(HOSTILE, &flows, start, interval / threads, time * threads / interval));
            simulation.run_until(start + time);
            let sum = f64::from(weights[NEIGHBOUR] + weights[HOSTILE]);
            let fair = f64::from(weights[NEIGHBOUR]) / sum;
            for thread in 0..mode.workers() as usize {
                let got = simulation.charged(thread, NEIGHBOUR) as f64 / time as f64;
                let others = simulation.charged(thread, HOSTILE) as f64 / time as f64;
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

/// The part of each thread's time that each of two users gets, and of the packets that run. The first user has one context of
/// weight 1, the second one `contexts` of this weight. Both have more packets than there is time for.
fn parts_of_users(mode: Mode, contexts: usize, weight: u32, task: u64) -> Vec<[f64; 2]> {
    const TIME: u64 = 60 * MILLISECOND;
    let handlers = told(task, 30);
    let one = Tenant { uid: FIRST_USER, user_weight: 1, weight: 1, handlers };
    let others = vec![Tenant { uid: FIRST_USER + 1, weight, ..one.clone() }; contexts];
    let simulation = Simulation::with(mode, &[vec![one], others].concat());
    let (start, flows) = (simulation.now(), (1000..1064).collect::<Vec<_>>());
    let interval = task * 4 / 5 / u64::from(mode.workers());
    simulation.send(stream(0, &flows, start, interval, TIME / interval));
    for context in 1..=contexts {
        let each = interval / 2 * contexts as u64;
        simulation.send(stream(context, &flows, start + interval / 2 * context as u64, each, TIME / each));
    }
    simulation.run_until(start + TIME);
    let users = [0..1, 1..contexts + 1];
    let run = users.clone().map(|contexts| contexts.map(|context| simulation.counts(context).run).sum::<u64>() as f64);
    let parts = (0..mode.workers() as usize).map(|thread| {
        let charged = |contexts: Range<usize>| contexts.map(|at| simulation.charged(thread, at)).sum::<u64>();
        users.clone().map(|contexts| charged(contexts) as f64 / TIME as f64)
    });
    parts.chain([run.map(|own| own / (run[0] + run[1]))]).collect()
}

/// A user's weights and number of contexts take nothing from others.
#[test]
fn users_have_equal_shares_whatever_their_contexts() {
    let mut failed = Vec::new();
    let cases = [(1, 1000, 5 * MICROSECOND), (60, 1, 50 * MICROSECOND), (60, 1000, 5 * MICROSECOND)];
    for (mode, (contexts, weight, task)) in MODES.into_iter().flat_map(|mode| cases.map(|case| (mode, case))) {
        let parts = parts_of_users(mode, contexts, weight, task);
        let what = format!("{mode:?}, {contexts} of weight {weight}, tasks of {task} ns: {parts:.4?}");
        println!("{what}");
        if parts.iter().flatten().any(|&part| part < 0.9 * 0.5) {
            failed.push(what);
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// All users but one have together fourteen times as many packets as there is time for. Those of this one need a tenth of the time.
#[test]
fn the_nic_loses_no_packets_of_a_user_with_few() {
    const TASK: u64 = 20 * MICROSECOND;
    const TIME: u64 = 60 * MILLISECOND;
    for users in [2, 3, 8] {
        let tenant = |uid| Tenant { uid, user_weight: 1, weight: 1, handlers: told(TASK, 30) };
        let tenants: Vec<_> = (FIRST_USER..).take(users).map(tenant).collect();
        let simulation = Simulation::with(Mode::RunToCompletion, &tenants);
        let start = simulation.now();
        let send = |context, interval| {
            let flows = (1000..1008).collect();
            simulation.send(Stream { context, flows, next: start, interval, left: TIME / interval });
        };
        send(0, 10 * TASK);
        (1..users).for_each(|context| send(context, TASK * (users as u64 - 1) / 14));
        simulation.run_until(start + TIME + MILLISECOND);
        let Counts { run, lost, dropped } = simulation.counts(0);
        assert_eq!((run, lost, dropped), (TIME / (10 * TASK), 0, 0), "{users} users");
        let others: Vec<_> = (1..users).map(|context| simulation.counts(context)).collect();
        assert!(others.iter().all(|counts| counts.dropped > 0), "they had more than their shares: {others:?}");
    }
}

/// A context whose packets cost more to receive than to run is charged for reception too.
#[test]
fn reception_is_charged_to_the_context_of_the_packets() {
    const TIME: u64 = 40 * MILLISECOND;
    let simulation = Simulation::new(Mode::RunToCompletion, [1, 1], [told(5 * MICROSECOND, 30), told(50, 30)]);
    let (start, flows) = (simulation.now(), (1000..1064).collect::<Vec<_>>());
    simulation.send(stream(NEIGHBOUR, &flows, start, 4 * MICROSECOND, TIME / (4 * MICROSECOND)));
    simulation.send(stream(HOSTILE, &flows, start, 200, TIME / 200));
    // Frames that match no context are charged to the daemon.
    simulation.send(stream(simulation.stranger(), &flows, start, MICROSECOND, TIME / MICROSECOND));
    simulation.run_until(start + TIME);
    let [neighbour, hostile] = [NEIGHBOUR, HOSTILE].map(|context| {
        let (tasks, rx) = (simulation.time(0, context), simulation.rx_time(context));
        println!("context {context}: tasks {tasks} ns, reception {rx} ns");
        tasks + rx
    });
    assert!(simulation.rx_time(HOSTILE) > simulation.time(0, HOSTILE), "its packets are cheap to run");
    assert!(neighbour * 10 >= hostile * 9, "{neighbour} ns of {hostile}");
    let received = simulation.received();
    let charged = simulation.rx_time(NEIGHBOUR) + simulation.rx_time(HOSTILE) + simulation.unmatched_time();
    assert!(charged >= received * simulation::RECEIVING, "{charged} ns for {received} frames");
    assert!(simulation.unmatched_time() > 0);
}
