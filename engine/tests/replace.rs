//! A context that replaces another one.

mod common;
#[path = "common/streams.rs"]
mod streams;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::{Kind, Lab, ROOT, image, rule, udp_from};
use spin_abi::control::{Full, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_abi::verdict::Verdict;
use spin_engine::install::{InstallError, Prepared, User};
use spin_engine::settings::Sizes;
use streams::{answers, packet, streams};

fn listed(lab: &Lab) -> Vec<u32> {
    lab.engine.context_infos().iter().map(|info| info.context).collect()
}

#[test]
fn open_messages_end_with_the_handlers_they_began_with() {
    let mut lab = Lab::new(Kind::Jit);
    let (first, _) = lab.install_with("udp_pingpong", rule("udp dport 9"));
    let (old, _) = lab.install_with("udp_pingpong", streams(None));
    let (last, _) = lab.install_with("udp_pingpong", rule("udp"));
    assert_eq!(answers(&mut lab, &[packet(7, false), packet(8, false)]), [1, 1]);
    let (new, _) = lab.install_with("empty", streams(Some(old)));
    assert_eq!(listed(&lab), [first, new, last], "in its place");
    assert_eq!(answers(&mut lab, &[packet(9, false), packet(7, false), packet(9, true)]), [0, 1, 0]);
    assert_eq!(answers(&mut lab, &[packet(7, true), packet(7, false), packet(8, true)]), [1, 0, 1]);
    // The old context and its memory are gone. Its counters are kept.
    assert_eq!(answers(&mut lab, &[packet(8, true), packet(7, true)]), [0, 0]);
    let get = |counter| lab.total(counter);
    assert_eq!((get(Counter::RxPackets), get(Counter::Released), get(Counter::TxPackets)), (10, 10, 5));
    assert_eq!(get(Counter::Messages), 5);
    assert_eq!(lab.count(new, Counter::PayloadRuns), 5);
}

#[test]
fn between_its_installation_and_its_predecessors_retirement_packets_go_where_they_belong() {
    let mut lab = Lab::new(Kind::Jit);
    let (old, _) = lab.install_with("udp_pingpong", streams(None));
    assert_eq!(answers(&mut lab, &[packet(7, false)]), [1]);
    let prepared = Prepared::new(streams(Some(old)), &image("empty"), ROOT.0, &lab.loader, &lab.limits);
    let new = lab.engine.link(prepared.expect("a handler of ours"), &lab.limits).expect("there is room");
    // Both at once: the old context's message comes first, and its tasks run in a batch.
    let sent = lab.exchange(&[packet(7, false), packet(9, false), packet(7, false), packet(9, true)]);
    assert_eq!((sent.len(), lab.count(new, Counter::PayloadRuns)), (2, 2));
}

#[test]
fn who_was_replaced_keeps_no_message_open() {
    let mut lab = Lab::new(Kind::Jit);
    let eom = Some("payload[2:1] = 1".into());
    let install = |replaces| Install { verdicts: true, eom: eom.clone(), replaces, ..rule("udp dport 1") };
    // The completion handler keeps the message open each time.
    let pending = [0, 0, 1, Verdict::SuccessPending as u8];
    let last = udp_from(7, 1, &[&pending[..], &[0; 30]].concat());
    let (old, _) = lab.install_with("verdicts", install(None));
    (0..3).for_each(|_| drop(lab.exchange(std::slice::from_ref(&last))));
    assert_eq!((lab.total(Counter::HeaderRuns), lab.total(Counter::Messages)), (1, 0));
    let (new, _) = lab.install_with("verdicts", install(Some(old)));
    (0..2).for_each(|_| drop(lab.exchange(std::slice::from_ref(&last))));
    assert_eq!((lab.total(Counter::HeaderRuns), lab.total(Counter::Messages)), (2, 1));
    assert_eq!(lab.count(new, Counter::PayloadRuns), 1, "of the message after the one that was kept open");
}

#[test]
fn a_message_that_never_ends_does_not_keep_it_for_ever() {
    let mut lab = Lab::new(Kind::Jit);
    let (old, _) = lab.install_with("udp_pingpong", streams(None));
    assert_eq!(answers(&mut lab, &[packet(7, false)]), [1]);
    let (new, _) = lab.install_with("empty", streams(Some(old)));
    lab.now = Duration::from_secs(9);
    assert_eq!(answers(&mut lab, &[packet(7, false)]), [1]);
    lab.now = Duration::from_secs(20);
    (0..64).for_each(|_| lab.poll());
    assert_eq!(lab.total(Counter::MessagesTimedOut), 1);
    assert_eq!(answers(&mut lab, &[packet(7, false)]), [0]);
    lab.engine.remove(new, ROOT).expect("installed");
    assert_eq!(lab.total(Counter::RxPackets), lab.total(Counter::Released) + lab.total(Counter::DropUnmatched));
}

#[test]
fn nor_does_one_that_goes_on_and_on() {
    let mut lab = Lab::new(Kind::Jit);
    let (old, _) = lab.install_with("udp_pingpong", streams(None));
    assert_eq!(answers(&mut lab, &[packet(7, false)]), [1]);
    let (new, _) = lab.install_with("empty", streams(Some(old)));
    let sent: Vec<usize> = (1..20)
        .flat_map(|step| {
            lab.now = Duration::from_secs(4 * step);
            answers(&mut lab, &[packet(7, false)])
        })
        .collect();
    // For a minute.
    assert_eq!(sent, [[1; 15].as_slice(), &[1; 1], &[0; 3]].concat());
    assert_eq!((lab.total(Counter::MessagesTimedOut), lab.count(new, Counter::PayloadRuns)), (1, 3));
    assert_eq!(lab.total(Counter::RxPackets), lab.total(Counter::Released));
}

/// A handler did not want the message, and its end never came.
#[test]
fn nor_is_one_waited_for_that_was_given_up_or_told_of() {
    let mut lab = Lab::new(Kind::Jit);
    let open = Install { verdicts: true, ..streams(None) };
    let (old, _) = lab.install_with("verdicts", open);
    let unwanted = udp_from(7, 1, &[Verdict::Drop as u8; 40]);
    lab.exchange(&[unwanted]);
    assert_eq!(lab.total(Counter::DropVerdict), 1);
    lab.install_with("empty", streams(Some(old)));
    lab.now = Duration::from_secs(120);
    answers(&mut lab, &[packet(8, true)]);
    (0..4).for_each(|_| lab.poll());
    assert_eq!((lab.engine.context_infos().len(), lab.total(Counter::MessagesTimedOut)), (1, 0));
}

#[test]
fn open_messages_end_as_they_began_however_often_it_is_replaced() {
    let mut lab = Lab::new(Kind::Jit);
    let (mut id, _) = lab.install_with("udp_pingpong", streams(None));
    answers(&mut lab, &[packet(7, false)]);
    for flow in 100..103 {
        (id, _) = lab.install_with("empty", streams(Some(id)));
        // Every second flow has a message of its own.
        if flow % 2 == 0 {
            answers(&mut lab, &[packet(flow, false)]);
        }
        assert_eq!(answers(&mut lab, &[packet(7, false)]), [1]);
    }
    assert_eq!(answers(&mut lab, &[packet(7, true), packet(7, false), packet(100, true)]), [1, 0, 0]);
    assert_eq!(lab.count(id, Counter::PayloadRuns), 2, "flows 7 and 102: the rest was others'");
}

#[test]
fn the_new_one_can_go_before_the_old_one_has() {
    let mut lab = Lab::new(Kind::Jit);
    let (old, _) = lab.install_with("udp_pingpong", streams(None));
    answers(&mut lab, &[packet(7, false)]);
    let (new, _) = lab.install_with("udp_pingpong", streams(Some(old)));
    let (newest, _) = lab.install_with("udp_pingpong", streams(Some(new)));
    lab.engine.remove(newest, ROOT).expect("installed");
    assert_eq!((answers(&mut lab, &[packet(7, false)]), listed(&lab)), (vec![0], vec![]));
    lab.now = Duration::from_secs(11);
    (0..64).for_each(|_| lab.poll());
    let (again, _) = lab.install_with("udp_pingpong", streams(None));
    assert_eq!((answers(&mut lab, &[packet(7, false)]), listed(&lab)), (vec![1], vec![again]));
}

#[test]
fn what_cannot_be_done_leaves_the_old_one_as_it_was() {
    let mut lab = Lab::new(Kind::Jit);
    let (old, _) = lab.try_install(&image("udp_pingpong"), streams(None), User(5)).expect("installs");
    lab.install_with("udp_pingpong", rule("udp"));
    answers(&mut lab, &[packet(7, false)]);
    let before = listed(&lab);
    let theirs = lab.try_install(&image("empty"), streams(Some(old)), User(6));
    assert!(matches!(theirs, Err(InstallError::NotYours { .. })), "{theirs:?}");
    let nobody = lab.try_install(&image("empty"), streams(Some(99)), User(5));
    assert!(matches!(nobody, Err(InstallError::NoSuchContext(99))), "{nobody:?}");
    lab.steering.refuses.store(true, Relaxed);
    let refused = lab.try_install(&image("empty"), streams(Some(old)), User(5));
    assert!(matches!(refused, Err(InstallError::Nic(_))), "{refused:?}");
    lab.steering.refuses.store(false, Relaxed);
    assert_eq!(listed(&lab), before);
    assert_eq!(answers(&mut lab, &[packet(7, false), packet(7, true)]), [1, 1]);
    assert_eq!(lab.count(old, Counter::Messages), 1);
}

/// A lab with two contexts that share room for eight packets, and a successor of the first, which has an open message. Returns the
/// successor's id too.
fn full_with_successor(handlers: &str) -> (Lab, u32) {
    let sizes = Sizes { hers: 8, ..Sizes::default() };
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 256, sizes, Schedule::default());
    let waits = |replaces| Install { full: Full::Wait, ..streams(replaces) };
    let (old, _) = lab.install_with("udp_pingpong", waits(None));
    lab.install_with("udp_pingpong", rule("udp dport 9"));
    assert_eq!(answers(&mut lab, &[packet(7, false), packet(8, false)]), [1, 1]);
    let (new, _) = lab.install_with(handlers, waits(Some(old)));
    (lab, new)
}

#[test]
fn a_packet_that_waited_for_a_message_that_ended_begins_the_successors() {
    let (mut lab, new) = full_with_successor("empty");
    let sent = [packet(7, false), packet(7, false), packet(7, false), packet(7, true), packet(7, false)];
    assert_eq!((lab.exchange(&sent).len(), lab.exchange(&[packet(7, false)]).len()), (4, 0));
    assert_eq!(lab.count(new, Counter::PayloadRuns), 2);
}

#[test]
fn a_packet_that_waits_is_not_lost_with_the_context_that_is_replaced() {
    let (mut lab, _) = full_with_successor("udp_pingpong");
    assert_eq!(lab.exchange(&[packet(8, true)]).len(), 1);
    let sent = [packet(7, false), packet(7, false), packet(7, false), packet(7, true), packet(7, false)];
    assert_eq!((lab.exchange(&sent).len(), lab.total(Counter::DropRemoved)), (5, 0));
}

/// Packets behind a message's end may be of another message with its key, which continues.
#[test]
fn what_began_behind_an_end_goes_on_where_it_did() {
    let mut lab = Lab::new(Kind::Jit);
    let (old, _) = lab.install_with("udp_pingpong", streams(None));
    // All packets are queued at once. The second message has begun before the first one's tasks run.
    lab.arrive(&[packet(7, false), packet(7, true), packet(7, false)]);
    let prepared = Prepared::new(streams(Some(old)), &image("empty"), ROOT.0, &lab.loader, &lab.limits);
    lab.poll();
    lab.engine.link(prepared.expect("a handler of ours"), &lab.limits).expect("there is room");
    assert_eq!(lab.exchange(&[packet(7, false), packet(7, true), packet(7, true)]).len(), 3 + 2);
}

#[test]
fn who_is_replaced_gets_no_new_messages_under_overload() {
    let mut lab = Lab::new(Kind::Jit);
    // Each datagram is a message, and more of them arrive in a poll than run in one.
    let (old, _) = lab.install_with("udp_pingpong", rule("udp dport 1"));
    lab.install_with("udp_pingpong", rule("udp dport 9"));
    let load: Vec<_> = (0..64).map(|index| udp_from(7, if index % 2 == 0 { 1 } else { 9 }, &[0; 30])).collect();
    let overload = |lab: &mut Lab, polls| {
        for poll in 0..polls {
            if poll % 2 == 0 {
                lab.arrive(&load);
            }
            lab.now += Duration::from_micros(50);
            lab.poll();
            lab.take_replies();
        }
    };
    overload(&mut lab, 10);
    let (new, _) = lab.install_with("empty", Install { replaces: Some(old), ..rule("udp dport 1") });
    overload(&mut lab, 200);
    assert!(lab.count(new, Counter::PayloadRuns) > 0);
    assert_eq!(listed(&lab).len(), 2);
    assert_eq!(lab.engine.slots_taken().iter().filter(|taken| **taken).count(), 2, "the old one is gone");
}
