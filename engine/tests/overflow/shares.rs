//! The share of a helping thread's own contexts, and its accounts.

use std::time::Duration;

use spin_abi::control::Schedule;
use spin_abi::counters::Counter;
use spin_engine::cores::Poller;
use spin_nic::{Queue, TxQueue};

use crate::common::{Kind, rule, udp_from};
use crate::two::Two;

/// Short packets for `spin`.
fn spinning(flows: u16, port: u16) -> Vec<Vec<u8>> {
    (0..flows).map(|flow| udp_from(1000 + flow, port, &10_u32.to_le_bytes())).collect()
}

/// The first of two contexts has run on the second engine: on its own packets, or on those of the other engine. Both then have
/// endless packets there. Returns how many of the second context's tasks run before the next one of the first.
fn wait_after(home: usize) -> u64 {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    let [first, second] = [1, 2].map(|port| two.install("spin", rule(&format!("udp dport {port}"))));
    let packets = spinning(64, 1);
    for _ in 0..60 {
        two.arrive(home, &packets);
        two.settle();
    }
    let before = [first, second].map(|id| two.runs(1, id));
    assert!(before[0] > 500, "{before:?}");
    two.pace = 1000;
    // Nothing may be lent to a busy thread.
    two.arrive(0, &packets);
    two.poll(0);
    let mix = [spinning(24, 2), spinning(8, 1)].concat();
    while two.runs(1, first) == before[0] {
        for bytes in mix.iter().cycle() {
            let Some(mut frame) = two.far[1].allocate() else { break };
            frame.fill(bytes).expect("fits a frame");
            two.far[1].send(&mut vec![frame]);
        }
        two.far[1].flush().expect("memory does not fail");
        two.poll(1);
    }
    two.runs(1, second) - before[1]
}

#[test]
fn who_was_helped_is_no_further_behind_than_who_had_the_time_as_its_own() {
    let (own, helped) = (wait_after(1), wait_after(0));
    assert!(helped <= own.max(20), "{helped} tasks of the other one come first, and {own}");
}

#[test]
fn packets_that_were_elsewhere_are_in_the_latencies() {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    two.install("spin", rule("udp dport 1"));
    for _ in 0..40 {
        two.arrive(0, &spinning(64, 1));
        // Tasks on the other thread take longer.
        [0, 0, 0, 0, 1, 1, 1, 0, 1, 0].into_iter().for_each(|at| drop(two.poll(at)));
    }
    two.settle();
    assert!(two.sum(Counter::Overflowed) > 100);
    let recorded: u64 = two.engines.iter().map(|engine| engine.statistics().latencies.infos()[0].count).sum();
    assert_eq!(recorded, two.sum(Counter::Released));
    let of_contexts = two.engines.iter().flat_map(|engine| engine.context_latencies(0, 1).0);
    assert_eq!(of_contexts.map(|(_, latencies)| latencies.infos()[0].count).sum::<u64>(), recorded);
}

#[test]
fn who_helps_has_something_to_do() {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    two.install("spin", rule("udp dport 1"));
    let mut helped = 0;
    for _ in 0..40 {
        two.arrive(0, &spinning(64, 1));
        for _ in 0..6 {
            two.poll(0);
            let before = two.total(Counter::PayloadRuns)[1];
            let busy = Poller::poll(&mut two.engines[1], &|| Duration::ZERO).expect("memory does not fail");
            let helps = two.total(Counter::PayloadRuns)[1] > before;
            assert!(busy || !helps);
            helped += u32::from(helps);
        }
        two.settle();
    }
    assert!(helped > 0);
}
