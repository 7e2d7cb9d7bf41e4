//! Contexts are installed, removed and replaced while their tasks are on other threads.

use std::ops::Range;

use fastrand::Rng;
use spin_abi::control::{Install, Schedule};
use spin_abi::counters::Counter;

use crate::common::{Kind, ROOT, rule, udp_from};
use crate::messages::{Seen, arrive, messages, mixed, recorder, run};
use crate::two::Two;

/// The thread that removes a context first, and whether the other thread polls in between.
#[test]
fn contexts_go_while_their_tasks_are_elsewhere() {
    let mut dropped = 0;
    for seed in 1..40 {
        let mut rng = Rng::with_seed(seed);
        let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
        let ids = [0, 1].map(|context| two.install("recorder", recorder(context)));
        let orders = [0, 1]
            .map(|context| messages(context, u16::from(context) * 100..u16::from(context) * 100 + 30, &mut rng, false));
        let [_, stays] = [0, 1].map(|context: usize| orders[context].len() as u64);
        let mixed = mixed(orders.into(), &mut rng);
        arrive(&mut two, &mixed);
        let mut seen = Seen::default();
        for _ in 0..rng.u32(10..60) {
            let sent = two.poll(rng.usize(..2));
            seen.look(&sent, true);
        }
        let first = rng.usize(..2);
        for at in [first, 1 - first] {
            two.engines[at].remove(ids[0], ROOT).expect("installed");
            for _ in 0..rng.u32(..4) {
                let sent = two.poll(rng.usize(..2));
                seen.look(&sent, true);
            }
        }
        seen.look(&two.settle(), true);
        let processed: u32 = seen.messages.range((100, 0)..).flat_map(|(_, runs)| runs.payloads.values()).sum();
        assert_eq!(u64::from(processed), stays, "seed {seed}: the other one loses nothing");
        assert!(seen.messages.values().all(|runs| runs.payloads.values().all(|&count| count == 1)), "seed {seed}");
        dropped += two.sum(Counter::DropRemoved);
        two.verify_sums();
    }
    assert!(dropped > 0);
}

#[test]
fn a_task_does_not_run_for_a_context_that_took_its_slot() {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    let old = two.install("recorder", recorder(0));
    two.poll(1);
    let orders = messages(0, 0..60, &mut Rng::with_seed(1), false);
    arrive(&mut two, &orders);
    // The other thread has seen none of the tasks that the first one lends.
    (0..10).for_each(|_| drop(two.poll(0)));
    for engine in &mut two.engines {
        engine.remove(old, ROOT).expect("installed");
    }
    let new = two.install("recorder", recorder(0));
    let run = two.sum(Counter::PayloadRuns);
    let arrived = two.sum(Counter::RxPackets);
    two.settle();
    assert!(two.sum(Counter::DropRemoved) > 0 && new != old);
    let rest = two.sum(Counter::RxPackets) - arrived;
    assert_eq!((two.sum(Counter::PayloadRuns) - run, two.sum(Counter::Matched) > 0), (rest, true));
    two.verify_sums();
}

#[test]
fn tasks_of_a_context_that_the_other_thread_has_not_got_yet_run_at_home() {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    // Several contexts share the time there.
    (0..2).for_each(|context| _ = two.install("recorder", recorder(context)));
    let (mut rng, mut seen) = (Rng::with_seed(1), Seen::default());
    let orders = messages(2, 0..60, &mut rng, false);
    two.poll(1);
    two.install_one_by_one("recorder", recorder(2), |two| {
        run(two, &orders, &mut rng, &mut seen, |_, _| {});
    });
    assert_eq!((two.sum(Counter::Overflowed), two.sum(Counter::Released)), (0, orders.len() as u64));
    assert!(orders.iter().all(|order| seen.messages[&(order.flow, order.message)].payloads[&order.sequence] == 1));
    two.verify_sums();
}

/// Each thread removes the replaced context at a different time.
#[test]
fn contexts_are_replaced_while_their_tasks_are_elsewhere() {
    let mut away = 0;
    for seed in 1..40 {
        let mut rng = Rng::with_seed(seed);
        let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
        let mut old = two.install("recorder", recorder(0));
        let orders = messages(0, 0..60, &mut rng, false);
        let (mut seen, mut polls) = (Seen::default(), rng.fork());
        run(&mut two, &orders, &mut rng, &mut seen, |two, seen| {
            let install = Install { replaces: Some(old), ..recorder(0) };
            old = two.install_one_by_one("recorder", install, |two| {
                (0..polls.u32(..10)).for_each(|_| seen.look(&two.poll(polls.usize(..2)), true));
            });
        });
        assert_eq!(two.sum(Counter::Released), orders.len() as u64, "seed {seed}: nothing is lost");
        seen.verify(&orders, seed);
        away += two.sum(Counter::Overflowed);
        two.verify_sums();
    }
    assert!(away > 0);
}

#[test]
fn what_was_given_up_elsewhere_is_not_run_again() {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    let ids = [1, 2].map(|port| two.install("meet", Install { hpus: Some(2), ..rule(&format!("udp dport {port}")) }));
    two.poll(1);
    // Tasks of the first context do not wait, since each is its own partner. One that runs on the other thread does.
    let packets = |port: u16, depends_on: u8, flows: Range<u16>| {
        flows.map(move |flow| udp_from(flow, port, &[[1, depends_on].as_slice(), &[0; 30]].concat()))
    };
    two.arrive(0, &packets(1, 1, 0..500).collect::<Vec<_>>());
    for _ in 0..100 {
        if two.total(Counter::Overflowed)[1] > 0 {
            break;
        }
        (0..2).for_each(|at| drop(two.poll(at)));
    }
    let (mut arrived, mut polls) = (500, 0);
    // A task that the system interrupts while it polls is parked too, for others of its thread. Fewer tasks then run on the other
    // thread.
    while two.count(1, ids[1], Counter::Parked) == 0 && polls < 1000 {
        if polls % 100 == 0 {
            let first = 1000 + polls;
            let waiting = packets(2, 99, first..first + 3);
            two.arrive(0, &waiting.chain(packets(1, 1, 0..300)).collect::<Vec<_>>());
            arrived += 303;
        }
        (0..2).for_each(|at| drop(two.poll(at)));
        polls += 1;
    }
    assert!(two.count(1, ids[1], Counter::Parked) > 0, "one waits elsewhere");
    two.engines[1].remove(ids[1], ROOT).expect("installed");
    (0..50).for_each(|at| drop(two.poll(at % 2)));
    let lost = two.sum(Counter::DropKilled);
    assert!(lost > 0 && two.sum(Counter::MessagesKilled) == lost, "its message is given up");
    let (runs, ended) = (two.sum(Counter::PayloadRuns), two.sum(Counter::Released) + lost);
    assert!((ended..=arrived).contains(&runs), "{ended} ended and {arrived} arrived, but {runs} ran");
    two.engines[0].remove(ids[1], ROOT).expect("installed");
    two.settle();
    two.verify_sums();
}
