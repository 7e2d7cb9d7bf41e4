//! Random messages through two clusters under every policy, and a checker outside the engine. For each message, header precedes
//! payload precedes completion handler. Every packet is processed at most once, or lost under one cause, and all sums agree.
//!
//! * [`policy`]: the contexts.
//! * [`traffic`]: packets, with orders to handlers.
//! * [`nic`]: the source of packets, which accounts for every frame; [`fed`]: the queue of a worker that is fed.
//! * [`judge`]: checks the handlers' records; [`expected`]: all counters of contexts that lose nothing.
//! * [`round`]: two engines, and the sums.
//!
//! `SPIN_CHECK_PACKETS` is the total number of packets, `SPIN_CHECK_SEED` the first seed; the default seed is random. Each round
//! prints its seed. With that seed, the round comes first.

mod expected;
mod fed;
mod handed;
mod judge;
mod nic;
mod policy;
mod round;
mod traffic;

use std::hash::{BuildHasher, RandomState};

use round::Round;
use spin_abi::control::{Engine as Kind, Schedule};
use spin_abi::counters::Counter;
use spin_pspin::counts::Counts;
use spin_testing::from_environment;

/// Packets of a round.
const PACKETS: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
/// Default total number of packets: each schedule twice, a single context twice, and ample room three times.
const ALL: u64 = 8 * PACKETS;
const SCHEDULES: [Schedule; 3] = [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt];
/// Events that have to occur, since otherwise they are not checked.
const OCCUR: [Counter; 21] = [
    Counter::HeaderRuns,
    Counter::PayloadRuns,
    Counter::CompletionRuns,
    Counter::Faults,
    Counter::Messages,
    Counter::TxMoved,
    Counter::HerStalls,
    Counter::Released,
    Counter::DropUnmatched,
    Counter::MessagesEvicted,
    Counter::MessagesTimedOut,
    Counter::MessagesKilled,
    Counter::DropShare,
    Counter::DropKilled,
    Counter::EcnMarked,
    Counter::Parked,
    Counter::DropNoMpq,
    Counter::Passed,
    Counter::DropVerdict,
    Counter::BadVerdicts,
    Counter::DropRemoved,
];

fn print(counts: &Counts, records: u64) {
    println!("{:<24}{records:>14}", "records");
    counts.named().filter(|(_, value)| *value > 0).for_each(|(name, value)| println!("{name:<24}{value:>14}"));
}

/// A distributor drops packets of a context, which is removed before its worker has read the count.
#[test]
fn drops_of_a_removed_context_are_counted() {
    Round { schedule: Schedule::Wlbvt, kind: Kind::Jit, seed: 858_366_647, packets: PACKETS }.run();
}

#[test]
fn whatever_arrives_messages_are_in_order_and_sums_agree() {
    let random = RandomState::new().hash_one(0) % 1_000_000_000;
    let (all, first) = (from_environment("SPIN_CHECK_PACKETS", ALL), from_environment("SPIN_CHECK_SEED", random));
    let (mut sum, mut records, mut exact) = (Counts::default(), 0, [0; 4]);
    for seed in first.. {
        // The seed alone determines a round.
        let schedule = SCHEDULES[(seed % SCHEDULES.len() as u64) as usize];
        let done = sum.get(Counter::RxPackets);
        let packets = PACKETS.min(all.saturating_sub(done));
        if packets == 0 {
            break;
        }
        println!("SPIN_CHECK_SEED={seed}, {schedule}, {done} packets so far");
        let outcome = Round { schedule, kind: Kind::Jit, seed, packets }.run();
        sum.merge(&outcome.counts);
        records += outcome.records;
        exact = [0, 1, 2, 3].map(|kind| exact[kind] + outcome.exact[kind]);
    }
    print(&sum, records);
    println!("contexts that lost nothing, with header, completion, neither, verdicts: {exact:?}");
    let missing: Vec<_> =
        OCCUR.iter().filter(|&&counter| sum.get(counter) == 0).map(|counter| counter.name()).collect();
    assert!(missing.is_empty() || all < ALL, "did not happen: {missing:?}");
    assert!(exact.iter().all(|&contexts| contexts > 0) || all < ALL, "contexts that lost nothing, by kind: {exact:?}");
}
