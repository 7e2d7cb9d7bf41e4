//! Handlers index shared memory by `flow_id` and `hpu_gid`. No index belongs to two messages, or to two tasks, at a time.

use std::thread;

use spin_abi::control::{Install, UnitCount};
use spin_abi::counters::Counter;

use crate::common::udp_from;
use crate::group::{Group, arrive};
use spin_testing::from_environment;

/// Default number of messages. `SPIN_SLOT_MESSAGES` is another one.
const MESSAGES: u64 = 60_000;
/// Messages of a thread that are open at a time: fewer than its queues with PsPIN's numbers.
const OPEN: u16 = 40;
/// Packets of a message.
const PACKETS: u32 = 3;
/// End of a message: the fifth byte of its last packet is 1.
const END: &str = "payload[4:1] = 1";

/// Frames of a group of messages, those of different messages in turn. `first` is the number of the first message.
fn group(first: u32, port: u16) -> impl Iterator<Item = Vec<u8>> {
    (0..PACKETS).flat_map(move |sequence| {
        (0..OPEN).map(move |flow| {
            let mut payload = (first + u32::from(flow)).to_le_bytes().to_vec();
            payload.push(u8::from(sequence + 1 == PACKETS));
            udp_from(1000 + flow, port, &payload)
        })
    })
}

/// Sends messages through all threads of a group. Each slot that another message or task has is an error of the handler.
fn check(threads: usize, units: u32, install: Install) {
    let messages = from_environment("SPIN_SLOT_MESSAGES", MESSAGES);
    let mut of = Group::new(threads, units);
    let rules = vec!["udp dport 9000-9999".to_owned()];
    of.install("slots", Install { rules, eom: Some(END.into()), ..install });
    let each = u32::try_from(messages / threads as u64).expect("few").next_multiple_of(OPEN.into());
    thread::scope(|scope| {
        for (index, far) in (0..).zip(&mut of.far) {
            scope.spawn(move || {
                let first = 1 + index * each;
                let groups = (first..first + each).step_by(OPEN.into());
                // Each thread has messages of its own, as with RSS.
                arrive(far, groups.flat_map(|first| group(first, 9000 + index as u16)), |_| ());
            });
        }
    });
    let all = u64::from(each) * threads as u64;
    of.await_count(Counter::Released, all * u64::from(PACKETS));
    let (statistics, _) = of.stop();
    let counts = statistics.counts;
    assert_eq!(counts.get(Counter::Faults), 0, "slots that two messages or tasks had");
    assert_eq!(counts.get(Counter::Messages), all);
    assert_eq!(counts.get(Counter::HandedOver), 0, "each packet ran where it arrived");
}

#[test]
fn threads_of_a_unit_use_different_indexes() {
    check(2, 1, Install::default());
}

#[test]
fn units_of_a_context_use_different_indexes() {
    check(2, 2, Install { units: Some(UnitCount::ALL), ..Install::default() });
}

#[test]
fn threads_of_several_units_do_too() {
    check(8, 4, Install { units: Some(UnitCount::ALL), ..Install::default() });
}
