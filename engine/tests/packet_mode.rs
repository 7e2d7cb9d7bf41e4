//! Packet mode: no packet ends a message, so each packet is a task of its own, without a queue of the message table.

mod common;
#[path = "common/streams.rs"]
mod streams;

use std::collections::{BTreeMap, BTreeSet};

use common::{Kind, Lab, ROOT, rule, udp_from};
use spin_abi::control::{Full, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_abi::verdict::Verdict;
use spin_engine::install::{InstallError, MatchSpec};
use spin_engine::settings::Sizes;
use spin_matcher::{Headers, KeySpec};
use spin_testing::bounded;
use streams::{answers, packet, streams};

const PORT: u16 = 7;

/// A context in packet mode.
fn single() -> Install {
    Install { eom: Some("never".into()), ..rule("udp dport 7") }
}

/// A packet of a flow with four words of payload.
fn of_flow(flow: u16, words: [u32; 4]) -> Vec<u8> {
    udp_from(flow, PORT, &words.map(u32::to_le_bytes).concat())
}

/// The payload words of a reply, and its flow.
fn words(reply: &[u8]) -> (u16, [u32; 4]) {
    let word = |at: usize| u32::from_le_bytes(reply[42 + 4 * at..][..4].try_into().expect("four bytes"));
    (u16::from_be_bytes([reply[34], reply[35]]), [0, 1, 2, 3].map(word))
}

fn small(queues: u32) -> Sizes {
    Sizes { queues, hers: 64, ..Sizes::default() }
}

#[test]
fn handlers_see_a_number_of_the_key_that_belongs_to_its_cluster() {
    for kind in [Kind::Interp, Kind::Jit, Kind::Check] {
        let mut lab = Lab::new(kind);
        lab.install_with("flows", single());
        let mut seen = BTreeSet::new();
        for flow in 0..200 {
            let frame = of_flow(flow, [0; 4]);
            let hash = KeySpec::default().extract(&frame, &Headers::parse(&frame)).hash();
            let replies = lab.exchange(&[frame.clone(), frame]);
            let told: Vec<_> = replies.iter().map(|reply| words(reply).1).collect();
            // Each of the four clusters has 64 of the 256 numbers.
            let flow = hash % 4 * 64 + (hash >> 8 & 255) / 4;
            assert_eq!(told, [[flow, hash % 4, 0, 0]; 2]);
            seen.insert(told[0][0]);
        }
        assert!(seen.len() > 100, "200 flows have {} numbers", seen.len());
    }
}

/// Another context holds all queues. It keeps them, however many flows pass by, and whether or not packets have to wait.
#[test]
fn no_queue_is_taken_from_others() {
    let packets: u32 = bounded(100_000, 10_000_000);
    let mut lab =
        Lab::sized(Kind::Jit, Machine::PSPIN, 256, Sizes { queues: 3, ..Sizes::default() }, Schedule::default());
    let (id, _) = lab.install_with("empty", single());
    let (other, _) = lab.install_with("udp_pingpong", streams(None));
    assert_eq!(answers(&mut lab, &[1, 2, 3].map(|flow| packet(flow, false))), [1; 3]);
    let frame = |number: u32| {
        // 100,000 flows: port and address.
        let flow = number % 100_000;
        let mut frame = of_flow(flow as u16, [number; 4]);
        frame[29] = (flow >> 16) as u8;
        frame
    };
    for first in (0..packets).step_by(50) {
        let mut frames: Vec<_> = (first..first + 50).map(frame).collect();
        if first % 1000 == 0 {
            // Behind packets of another context, packets are queued.
            frames.insert(10, packet(2, false));
        }
        assert_eq!(lab.exchange(&frames).len(), usize::from(first % 1000 == 0));
        assert_eq!((lab.engine.queues_held(id), lab.engine.queues_held(other)), (0, 3));
    }
    assert_eq!(lab.count(id, Counter::PayloadRuns), u64::from(packets));
    assert_eq!(lab.total(Counter::RxPackets), u64::from(packets) + 3 + u64::from(packets / 1000));
    for lost in [Counter::DropNoMpq, Counter::DropShare, Counter::MessagesEvicted, Counter::DropUnmatched] {
        assert_eq!(lab.total(lost), 0, "{}", lost.name());
    }
    assert_eq!(answers(&mut lab, &[1, 2, 3].map(|flow| packet(flow, true))), [1; 3]);
    assert_eq!(lab.count(other, Counter::Messages), 3, "as one message each");
}

#[test]
fn packets_of_a_flow_start_in_order() {
    for schedule in [Schedule::RoundRobin, Schedule::Wlbvt] {
        let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 256, small(2), schedule);
        let (id, _) = lab.install_with("flows", single());
        lab.install_with("udp_pingpong", streams(None));
        let mut latest = BTreeMap::new();
        for round in 0..100_u32 {
            let mut frames: Vec<_> =
                (0..40_u32).map(|at| of_flow((at % 7) as u16, [0, 0, 0, round * 40 + at + 1])).collect();
            (0..10).for_each(|at| frames.insert(at * 4, packet(at as u16 % 2, false)));
            for reply in lab.exchange(&frames).iter().filter(|reply| reply.len() == 58) {
                let (_, [.., number]) = words(reply);
                // Flows are told apart by the number: replies have swapped no ports.
                let before = latest.insert((number - 1) % 40 % 7, number);
                assert!(before < Some(number), "{before:?} before {number}");
            }
        }
        assert_eq!(lab.count(id, Counter::PayloadRuns), 4000);
    }
}

#[test]
fn a_task_that_waits_holds_no_other_packet_up() {
    for kind in [Kind::Interp, Kind::Jit] {
        let mut lab = Lab::new(kind);
        lab.limits.watchdog_us = 20_000_000;
        let image = spin_handlers::image("flows", &["-DWAITING"]);
        let install = Install { hpus: Some(8), ..single() };
        let (id, _) = lab.try_install(&image, install, ROOT).expect("a handler of ours installs");
        let polls = |lab: &mut Lab| (0..64).for_each(|_| lab.poll());
        lab.arrive(&[of_flow(1, [0, 0, 1, 0]), of_flow(1, [0, 0, 0, 0]), of_flow(2, [0; 4])]);
        polls(&mut lab);
        assert_eq!(lab.take_replies().len(), 2, "the waiting task is on an HPU of its own");
        assert_eq!(lab.engine.queues_held(id), 0);
        lab.arrive(&[of_flow(3, [0, 0, 0, 1])]);
        polls(&mut lab);
        assert_eq!(lab.take_replies().len(), 2);
        // One that waits for ever goes with its context.
        lab.engine.remove(id, ROOT).expect("it is there");
    }
}

#[test]
fn handlers_that_would_never_run_are_refused() {
    let mut lab = Lab::new(Kind::Jit);
    let image = common::image("three_handlers");
    for (eom, refused) in [("never", true), ("udp sport 1 and udp sport 2", true), ("always", false)] {
        let install = Install { eom: Some(eom.into()), ..rule("udp") };
        let result = lab.try_install(&image, install, ROOT);
        let why = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(why.contains("no header and completion handler runs"), refused, "{eom}: {why}");
    }
    let (id, _) = lab.install_with("three_handlers", rule("udp dport 9"));
    let never = MatchSpec::parse(&["udp dport 9".into()], Some("never")).expect("rules");
    assert!(matches!(lab.engine.set_rules(id, ROOT, never), Err(InstallError::NeverEnds { .. })));
    let only_payload = Install { handlers: Some("ph=payload_handler".parse().expect("names")), ..single() };
    lab.install_with("three_handlers", only_payload);
}

#[test]
fn open_messages_end_when_a_context_changes_to_packet_mode() {
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 256, small(4), Schedule::default());
    let (id, _) = lab.install_with("udp_pingpong", streams(None));
    assert_eq!(answers(&mut lab, &[1, 2].map(|flow| packet(flow, false))), [1; 2]);
    assert_eq!(lab.engine.queues_held(id), 2);
    let spec = |eom| MatchSpec::parse(&["udp dport 1".into()], Some(eom)).expect("rules");
    lab.engine.set_rules(id, ROOT, spec("never")).expect("payload handlers only");
    assert_eq!(lab.engine.queues_held(id), 0);
    assert_eq!(answers(&mut lab, &[packet(1, false), packet(3, false)]), [1; 2]);
    assert_eq!(lab.engine.queues_held(id), 0);
    lab.engine.set_rules(id, ROOT, spec("payload[0:1] = 1")).expect("payload handlers only");
    assert_eq!(answers(&mut lab, &[packet(1, false), packet(1, true)]), [1; 2]);
    assert_eq!((lab.engine.queues_held(id), lab.count(id, Counter::Messages)), (0, 1));
}

#[test]
fn a_verdict_is_for_its_packet_alone() {
    let mut lab = Lab::new(Kind::Jit);
    let names = Some("ph=payload_handler".parse().expect("names"));
    let install = Install { verdicts: true, eom: Some("never".into()), handlers: names, ..rule("udp dport 1") };
    let (id, _) = lab.install_with("verdicts", install);
    let verdict = |verdict: Verdict| udp_from(7, 1, &[&[0, verdict as u8, 0, 0][..], &[0; 30]].concat());
    let frames = [Verdict::Drop, Verdict::Pass, Verdict::DropPending, Verdict::ProcessDataPending, Verdict::Drop];
    for _ in 0..3 {
        lab.exchange(&frames.map(verdict));
    }
    assert_eq!((lab.count(id, Counter::DropVerdict), lab.count(id, Counter::Passed)), (9, 3));
    assert_eq!((lab.count(id, Counter::PayloadRuns), lab.engine.queues_held(id)), (15, 0));
}

#[test]
fn packets_beyond_the_share_are_lost_one_by_one() {
    for full in [Full::Drop, Full::Kill, Full::Mark] {
        let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 256, small(4), Schedule::default());
        let image = spin_handlers::image("flows", &["-DWAITING"]);
        lab.limits.watchdog_us = 20_000_000;
        let (id, _) = lab.try_install(&image, Install { full, ..single() }, ROOT).expect("installs");
        lab.install_with("udp_pingpong", streams(None));
        // The first packets occupy the HPUs of all clusters; the others queue.
        let frames: Vec<_> = (0..200).map(|flow| of_flow(flow, [0, 0, 1, 0])).collect();
        for batch in frames.chunks(20) {
            lab.arrive(batch);
            (0..8).for_each(|_| lab.poll());
        }
        let lost = lab.count(id, Counter::DropShare);
        assert!(lost > 100 && lab.count(id, Counter::DropKilled) == 0, "{full:?}: {lost}");
        assert!(lab.engine.hers_held(id) > 0);
        lab.arrive(&[packet(1, false)]);
        (0..8).for_each(|_| lab.poll());
        assert_eq!(lab.take_replies().len(), 1, "another context is served");
        // Queued and waiting packets go with the context.
        lab.engine.remove(id, ROOT).expect("it is there");
    }
}

#[test]
fn a_replaced_context_ends_when_its_packets_have() {
    let mut lab = Lab::new(Kind::Jit);
    let (old, _) = lab.install_with("flows", single());
    assert_eq!(lab.exchange(&[of_flow(1, [0; 4])]).len(), 1);
    let (new, _) = lab.install_with("empty", Install { replaces: Some(old), ..single() });
    (0..8).for_each(|_| lab.poll());
    assert!(lab.exchange(&[of_flow(1, [0; 4])]).is_empty());
    let listed: Vec<_> = lab.engine.context_infos().iter().map(|info| info.context).collect();
    assert_eq!((listed, lab.count(new, Counter::PayloadRuns)), (vec![new], 1));
}
