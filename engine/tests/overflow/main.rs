//! Payload tasks on other threads' clusters.
//!
//! * `two`: two engines that poll alternately.
//! * `messages`: packets, and records of handlers.
//! * `contexts`: contexts are installed and removed meanwhile.
//! * `racing`: two threads, each with packets at times.
//! * `rights`: what tasks on other threads may send.
//! * `shares`: the cost of helping for others, and its accounts.
//! * `stopping`: threads end.

#[path = "../common/mod.rs"]
mod common;
mod contexts;
#[path = "../common/hostile.rs"]
mod hostile;
mod messages;
mod racing;
mod rights;
mod shares;
mod stopping;
#[path = "../common/threads.rs"]
mod threads;
mod two;

use common::{Kind, ROOT, rule, udp_from};
use fastrand::Rng;
use messages::{ORDER, SEND, Seen, messages, mixed, recorder, run};
use spin_abi::control::{Checks, Install, Isolation, Placement, Schedule};
use spin_abi::counters::Counter;
use two::Two;

#[test]
fn messages_stay_in_order_wherever_their_tasks_run() {
    let mut lent = 0;
    for (seed, kind) in (1..9).zip([Kind::Jit, Kind::Interp].into_iter().cycle()) {
        let mut rng = Rng::with_seed(seed);
        let mut two = Two::new(kind, [Schedule::RoundRobin, Schedule::Wlbvt][rng.usize(..2)]);
        let contexts = rng.u8(1..3);
        let mut orders = Vec::new();
        for context in 0..contexts {
            let checks = [Checks::Page, Checks::Exact][rng.usize(..2)];
            let isolation = [Isolation::Context, Isolation::Message][rng.usize(..2)];
            two.install("recorder", Install { checks, isolation, ..recorder(context) });
            let flows = u16::from(context) * 100..u16::from(context) * 100 + 60;
            orders.push(messages(context, flows, &mut rng, true));
        }
        let mixed = mixed(orders, &mut rng);
        let mut seen = Seen::default();
        run(&mut two, &mixed, &mut rng, &mut seen, |_, _| {});
        assert_eq!(two.sum(Counter::Released), mixed.len() as u64, "seed {seed}: nothing is lost");
        seen.verify(&mixed, seed);
        let replies: u64 = mixed.iter().map(|order| u64::from(order.actions[1] == SEND)).sum();
        assert!(seen.sent.values().map(|&count| u64::from(count)).sum::<u64>() >= replies, "seed {seed}");
        let away = two.total(Counter::Overflowed);
        let elsewhere: u32 = seen.clusters.range(2..).map(|(_, count)| count).sum();
        assert_eq!(away, [0, elsewhere.into()], "seed {seed}");
        lent += away[1];
        assert!(two.sum(Counter::Faults) > 0);
        two.verify_sums();
    }
    assert!(lent > 1000, "{lent}");
}

#[test]
fn tasks_that_may_not_overflow_do_not() {
    let others = [
        Install { placement: Placement::Home, ..Install::default() },
        Install { verdicts: true, ..Install::default() },
    ];
    for chosen in others {
        let mut rng = Rng::with_seed(1);
        let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
        let Install { placement, verdicts, .. } = chosen;
        two.install("recorder", Install { placement, verdicts, ..recorder(0) });
        let orders = messages(0, 0..40, &mut rng, false);
        let mut seen = Seen::default();
        run(&mut two, &orders, &mut rng, &mut seen, |_, _| {});
        assert_eq!((two.sum(Counter::Overflowed), two.sum(Counter::Released)), (0, orders.len() as u64));
    }
}

#[test]
fn short_tasks_stay_at_home() {
    let mut rng = Rng::with_seed(1);
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    two.pace = 1;
    two.install("recorder", recorder(0));
    let orders = messages(0, 0..40, &mut rng, false);
    run(&mut two, &orders, &mut rng, &mut Seen::default(), |_, _| {});
    assert_eq!((two.sum(Counter::Overflowed), two.sum(Counter::Released)), (0, orders.len() as u64));
}

/// Sends probes to the first engine, after `planted` packets to the other engine, which leave marks. Returns the index of the
/// first probe that was lent, and the marks that it found.
fn first_probe_away(planted: usize) -> (usize, [u8; 4]) {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    two.install("snoop", Install { isolation: Isolation::Message, ..rule("udp dport 1") });
    two.arrive(1, &vec![udp_from(1, 1, b"P"); planted]);
    (0..20).for_each(|_| drop(two.poll(1)));
    let probe = |at: u16| udp_from(1, 1, &[&b"S"[..], &at.to_le_bytes(), b"nnnn"].concat());
    two.arrive(0, &(0..600).map(probe).collect::<Vec<_>>());
    for _ in 0..100 {
        two.poll(0);
        if let Some(found) = two.poll(1).first() {
            let place = u16::from_le_bytes([found[ORDER + 1], found[ORDER + 2]]);
            return (place.into(), *found.last_chunk().expect("four bytes"));
        }
    }
    panic!("none is lent");
}

#[test]
fn messages_of_different_threads_find_nothing_of_each_other() {
    // If the watchdog parks a task in between, another one is lent first.
    let mut place = first_probe_away(0).0;
    let found = (0..10).find_map(|_| {
        // The last mark is left by the other thread's message of that number.
        let (again, found) = first_probe_away(place + 1);
        (std::mem::replace(&mut place, again) == again).then_some(found)
    });
    assert_eq!(found, Some([0; 4]));
}

/// A packet for `meet`, a message of its own.
fn meeting(who: u8, depends_on: u8) -> Vec<u8> {
    udp_from(who.into(), 1, &[[who, depends_on].as_slice(), &[0; 30]].concat())
}

#[test]
fn tasks_whose_hpus_are_all_taken_find_one_elsewhere_and_wait_there() {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    let id = two.install("meet", rule("udp dport 1"));
    (0..4).for_each(|at| drop(two.poll(at % 2)));
    // Each task runs on an HPU of its own, on four clusters: two here, two there. All wait for the last task, which waits for an
    // HPU.
    two.arrive(0, &(1..5).map(|who| meeting(who, if who == 1 { 1 } else { 5 })).collect::<Vec<_>>());
    let mut sent: Vec<_> = (0..20).flat_map(|at| two.poll(at % 2)).collect();
    assert_eq!((sent.len(), two.total(Counter::Overflowed)[1] > 0), (1, true));
    assert_eq!(two.sum(Counter::PayloadRuns), 4);
    // The replacing context shares its image's memory, and wakes them.
    let id = two.install("meet", Install { replaces: Some(id), ..rule("udp dport 1") });
    (0..4).for_each(|at| drop(two.poll(at % 2)));
    two.arrive(0, &[meeting(5, 5)]);
    sent.extend(two.settle());
    let homes: Vec<_> = sent.iter().map(|frame| (frame[44], frame[45])).collect();
    assert!(homes.len() == 5 && homes.iter().all(|&(_, home)| home < 2), "{homes:?}");
    assert!(homes.iter().any(|&(own, _)| own >= 2), "{homes:?}");
    assert_eq!(two.sum(Counter::Faults), 0);
    // Tasks that are parked on the other thread when their context is removed are lost with it.
    two.arrive(0, &(10..16).map(|who| meeting(who, 99)).collect::<Vec<_>>());
    (0..20).for_each(|at| drop(two.poll(at % 2)));
    assert!(two.has_tasks());
    two.engines[1].remove(id, ROOT).expect("installed");
    (0..5).for_each(|at| drop(two.poll(at % 2)));
    two.engines[0].remove(id, ROOT).expect("installed");
    two.settle();
    assert_eq!(two.sum(Counter::Released), 5);
    two.verify_sums();
}

/// A parked task on the other thread may hold its HPU while it waits for a task that could run at home.
#[test]
fn a_task_does_not_wait_elsewhere_while_its_home_has_room() {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    two.install("meet", rule("udp dport 1"));
    (0..4).for_each(|at| drop(two.poll(at % 2)));
    // Two tasks take all HPUs here and wait for 7. One is on the other thread and waits for 5.
    two.arrive(0, &[meeting(1, 7), meeting(2, 7)]);
    let mut sent = two.poll(0);
    two.arrive(0, &[meeting(3, 5)]);
    sent.extend([0, 0, 1, 0].map(|at| two.poll(at)).concat());
    assert_eq!(two.total(Counter::Parked), [2, 1]);
    // Task 4 takes the last HPU there, before 5.
    for packet in [meeting(7, 7), meeting(4, 5), meeting(5, 5)] {
        two.arrive(0, &[packet]);
        sent.extend(two.poll(0));
    }
    sent.extend(two.settle());
    let mut who: Vec<_> = sent.iter().map(|frame| frame[ORDER]).collect();
    who.sort_unstable();
    assert_eq!((who, two.sum(Counter::Faults)), ((1..=5).chain([7]).collect(), 0));
}
