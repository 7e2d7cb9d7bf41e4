//! Packets of contexts with `--full wait` that arrive in another unit.

use std::collections::BTreeMap;

use spin_abi::control::{Full, Install};
use spin_abi::counters::Counter;

use crate::common::{payload, rule, udp_from};
use crate::group::{Group, arrive, take_replies};
use crate::hand_over::{BURST, ROOT, burst, in_unit, stop, word};

/// Many times what a channel and the HERs of a thread hold.
const FLOOD: u32 = 300 * BURST;

fn waiting(unit: u32, port: u16) -> Install {
    Install { full: Full::Wait, ..in_unit(unit, port) }
}

/// Replies to packets of a [`burst`].
#[derive(Default)]
struct Replies {
    count: u32,
    /// The number of the next packet, by the port of its sender.
    next: BTreeMap<u32, u32>,
}

impl Replies {
    /// Checks that a packet is the next one of its sender.
    fn note(&mut self, reply: &[u8]) {
        let number = word(reply, 0);
        let next = self.next.insert(number % 100, number + 100).unwrap_or(number % 100);
        assert_eq!(number, next, "a packet is lost, or was overtaken");
        self.count += 1;
    }
}

#[test]
fn a_context_that_waits_loses_nothing_and_keeps_its_order() {
    let mut of = Group::new(4, 4);
    let id = of.install("udp_pingpong", waiting(1, 9));
    let mut replies = Replies::default();
    for first in (0..FLOOD).step_by(BURST as usize) {
        arrive(&mut of.far[0], burst(9, first), |_| panic!("replies leave in the context's unit"));
        take_replies(&mut of.far[1], |reply| replies.note(reply));
    }
    of.await_count(Counter::TxPackets, FLOOD.into());
    while replies.count < FLOOD {
        take_replies(&mut of.far[1], |reply| replies.note(reply));
    }
    assert_eq!(of.count_of(id, Counter::HandedOver), u64::from(FLOOD));
    assert_eq!(of.count(Counter::DropShare), 0);
    assert!(of.count(Counter::HerStalls) > 0, "there was more than a channel holds");
    stop(of);
}

/// The queue waits for no longer than the context's part of the time. Beyond that, its packets are dropped.
#[test]
fn a_context_of_another_unit_that_waits_leaves_others_of_its_queue_their_time() {
    let mut of = Group::new(2, 2);
    let flooded = of.install("spin", waiting(1, 1));
    let other = of.install("udp_pingpong", in_unit(0, 9));
    let flood = |number: u16| udp_from(number, 1, &100_000_u32.to_le_bytes());
    let mut answered = 0;
    for round in 1..=200 {
        let one = std::iter::once(udp_from(7, 9, b"hello hello"));
        arrive(&mut of.far[0], (0..200).map(flood).chain(one), |reply| {
            answered += u32::from(payload(reply) == b"hello hello");
        });
        while answered < round {
            take_replies(&mut of.far[0], |reply| answered += u32::from(payload(reply) == b"hello hello"));
        }
    }
    assert!(of.count_of(flooded, Counter::DropShare) > 0, "it has no credit for all of that");
    assert!(of.count(Counter::HerStalls) > 0, "it had some");
    assert_eq!(of.count_of(other, Counter::DropShare), 0);
    stop(of);
}

/// Contexts are replaced and removed while packets wait for room.
#[test]
fn packets_that_wait_go_to_the_context_that_replaces_theirs() {
    let mut of = Group::new(2, 2);
    let install = |replaces| Install { replaces, ..waiting(1, 9) };
    let mut id = of.install("udp_pingpong", install(None));
    let mut sent = 0;
    for round in 0..40 {
        for _ in 0..20 {
            arrive(&mut of.far[0], burst(9, sent), |_| ());
            sent += BURST;
        }
        let handler = if round % 2 == 0 { "empty" } else { "udp_pingpong" };
        id = of.install(handler, Install { unit: None, ..install(Some(id)) });
        take_replies(&mut of.far[1], |_| ());
    }
    of.await_count(Counter::Released, sent.into());
    let lost = [Counter::DropShare, Counter::DropRemoved, Counter::DropUnmatched].map(|counter| of.count(counter));
    assert_eq!(lost, [0; 3]);
    assert!(of.count(Counter::HerStalls) > 0, "packets had to wait");
    stop(of);
}

#[test]
fn packets_that_wait_for_a_context_that_is_removed_are_counted() {
    let mut of = Group::new(2, 2);
    for _ in 0..40 {
        let id = of.install("spin", waiting(1, 1));
        arrive(&mut of.far[0], (0..1000).map(|number| udp_from(number, 1, &20_000_u32.to_le_bytes())), |_| ());
        of.group.remove(id, ROOT).expect("it is installed");
        let other = of.install("empty", rule("udp dport 2"));
        of.group.remove(other, ROOT).expect("it is installed");
    }
    assert!(of.count(Counter::DropRemoved) + of.count(Counter::DropUnmatched) > 0, "contexts left packets");
    stop(of);
}
