//! A context runs in its unit, whatever queue its packets arrive on.

use spin_abi::control::{Abi, Install, UnitCount};
use spin_abi::counters::Counter;
use spin_engine::install::{InstallError, Prepared, User};

use spin_nic::TxQueue;

use crate::common::{payload, rule, udp_from};
use crate::group::{FRAMES, Group, arrive, take_replies};

/// Packets that arrive at once: fewer than fit a channel, so that none is lost.
pub const BURST: u32 = 64;
pub const BURSTS: u32 = 40;
pub const ROOT: User = User(0);

/// Packets with numbers from `first` on, of many messages.
pub fn burst(port: u16, first: u32) -> impl Iterator<Item = Vec<u8>> {
    (first..first + BURST)
        .map(move |number| udp_from(1000 + (number % 100) as u16, port, &[number.to_le_bytes(); 6].concat()))
}

pub fn in_unit(unit: u32, port: u16) -> Install {
    Install { unit: Some(unit), ..rule(&format!("udp dport {port}")) }
}

pub fn word(reply: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(payload(reply)[4 * at..][..4].try_into().expect("four bytes"))
}

/// Checks that each frame is at home, and that the counters of the stopped group add up.
pub fn stop(of: Group) {
    let queues = of.far.len();
    let (statistics, mut far) = of.stop();
    let get = |counter| statistics.counts.get(counter);
    let drops = [Counter::DropShare, Counter::DropRemoved, Counter::DropUnmatched, Counter::DropNoMpq];
    let dropped: u64 = drops.into_iter().map(get).sum();
    assert_eq!(get(Counter::Released) + dropped, get(Counter::RxPackets));
    assert_eq!(get(Counter::Faults), 0);
    for end in &mut far {
        take_replies(end, |_| ());
        assert_eq!(std::iter::from_fn(|| end.allocate()).count(), FRAMES, "frames are not at home");
    }
    assert_eq!(far.len(), queues);
}

#[test]
fn packets_reach_the_unit_of_their_context_from_every_queue() {
    let mut of = Group::new(8, 8);
    of.install("udp_pingpong", in_unit(5, 9));
    let mut seen = vec![0_u8; (8 * BURST * BURSTS) as usize];
    let mut next = 0;
    for queue in (0..8).cycle().take(8 * BURSTS as usize) {
        arrive(&mut of.far[queue], burst(9, next), |_| panic!("nothing was sent"));
        next += BURST;
        of.await_count(Counter::Released, next.into());
        of.await_count(Counter::TxPackets, next.into());
        let far = &mut of.far[5];
        while seen.iter().map(|&seen| u32::from(seen)).sum::<u32>() < next {
            take_replies(far, |reply| seen[word(reply, 0) as usize] += 1);
        }
    }
    assert!(seen.iter().all(|&seen| seen == 1), "each packet is answered once");
    let handed: Vec<u64> = of.counts(Counter::HandedOver);
    let each = u64::from(BURST * BURSTS);
    assert_eq!(handed, [each, each, each, each, each, 0, each, each]);
    assert_eq!(of.counts(Counter::PayloadRuns), [0, 0, 0, 0, 0, 8 * each, 0, 0]);
    stop(of);
}

/// A flood for one context of a unit costs another one there nothing.
#[test]
fn a_flood_from_another_unit_leaves_others_their_share_of_the_channel() {
    let mut of = Group::new(2, 2);
    of.install("spin", in_unit(1, 1));
    let other = of.install("udp_pingpong", in_unit(1, 9));
    let flood = |number: u16| udp_from(number, 1, &20_000_u32.to_le_bytes());
    let mut answered = 0;
    for number in 0..300 {
        arrive(&mut of.far[0], (0..100).map(flood).chain(std::iter::once(udp_from(7, 9, b"hello hello"))), |_| ());
        let expected = number + 1;
        while answered < expected {
            take_replies(&mut of.far[1], |reply| answered += u32::from(payload(reply) == b"hello hello"));
            assert_eq!(of.count_of(other, Counter::DropShare), 0, "packet {expected} is lost");
        }
    }
    assert!(of.count(Counter::DropShare) > 0, "the flood was more than there is room for");
    stop(of);
}

/// Contexts of another unit are replaced and removed while packets are on their way there.
#[test]
fn no_packet_is_lost_between_a_context_and_the_one_that_replaces_it() {
    let mut of = Group::new(4, 4);
    let streams = |replaces| Install { replaces, ..in_unit(2, 9) };
    let mut id = of.install("udp_pingpong", streams(None));
    let mut sent = 0;
    for round in 0..60 {
        for queue in 0..4 {
            arrive(&mut of.far[queue], burst(9, sent), |_| ());
            sent += BURST;
        }
        let handler = if round % 2 == 0 { "empty" } else { "udp_pingpong" };
        id = of.install(handler, Install { unit: None, ..streams(Some(id)) });
        of.await_count(Counter::Released, u64::from(sent) - of.count(Counter::DropShare));
        take_replies(&mut of.far[2], |_| ());
    }
    assert_eq!(of.count(Counter::DropRemoved) + of.count(Counter::DropUnmatched), 0);
    for queue in 0..4 {
        arrive(&mut of.far[queue], burst(9, 0), |_| ());
    }
    of.group.remove(id, ROOT).expect("it is installed");
    stop(of);
}

/// Slots are used again at once: packets of the former context do not reach the next one there.
#[test]
fn packets_on_their_way_to_a_removed_context_reach_no_other() {
    let mut of = Group::new(4, 4);
    for round in 0..100_u32 {
        let id = of.install("empty", in_unit(3, 9));
        for queue in 0..4 {
            arrive(&mut of.far[queue], burst(9, round), |_| ());
        }
        of.group.remove(id, ROOT).expect("it is installed");
        let next = of.install("empty", in_unit(3, 10));
        assert_eq!(of.count_of(next, Counter::Matched), 0, "round {round}");
        of.group.remove(next, ROOT).expect("it is installed");
    }
    stop(of);
}

#[test]
fn a_context_spreads_over_units_with_memory_of_its_own_or_shared() {
    for (units, per_unit) in [(2, false), (2, true), (4, false), (4, true)] {
        let mut of = Group::new(4, 4);
        let install = Install {
            unit: Some(0),
            units: Some(UnitCount::Number(units)),
            handler_mem_per_unit: per_unit,
            ..rule("udp dport 9")
        };
        let prepared = of.prepare("units", install);
        let memory = prepared.nic_memory();
        let address = prepared.areas().handler_mem.address;
        let symbol = spin_handlers::image("units", &[]);
        let image = hpu_vm::Image::load(&symbol, &spin_abi::map::Machine::PSPIN).expect("ours");
        let (all, by_unit) = (image.symbol("all").expect("known"), image.symbol("by_unit").expect("known"));
        assert!(all >= address.min(all), "handler data is in the image");
        of.group.install(prepared).expect("there is room");
        let mut sent = 0;
        let mut indexes = std::collections::HashMap::new();
        for queue in (0..4).cycle().take(80) {
            arrive(&mut of.far[queue], burst(9, sent), |_| ());
            sent += BURST;
            of.await_count(Counter::TxPackets, sent.into());
            for far in &mut of.far {
                take_replies(far, |reply| {
                    let [unit, count, gid, flow, hpus, flows] = [0, 1, 2, 3, 4, 5].map(|at| word(reply, at));
                    assert_eq!((count, hpus, flows), (units, 32, 256 + 4 * 256 + 32));
                    assert!(
                        unit < units && gid / hpus == unit && flow / flows == unit,
                        "{unit}: HPU {gid}, flow {flow}"
                    );
                    *indexes.entry(unit).or_insert(0_u32) += 1;
                });
            }
        }
        let read = |unit: usize, address| {
            let bytes = memory[unit].read(address, 4).expect("its memory");
            u32::from_le_bytes(bytes.try_into().expect("four bytes"))
        };
        assert_eq!(memory.len() as u32, units);
        let sums: Vec<u32> = (0..units as usize).map(|unit| read(unit, all)).collect();
        let own: Vec<u32> = (0..units).map(|unit| read(unit as usize, by_unit + 4 * unit)).collect();
        assert_eq!(own.iter().sum::<u32>(), sent, "each packet is counted in its unit");
        assert!(own.iter().all(|&own| own > 0), "{own:?}");
        if per_unit {
            assert_eq!(sums, own, "each unit has counted its own");
        } else {
            assert_eq!(sums, vec![sent; units as usize], "units see one memory");
        }
        stop(of);
    }
}

#[test]
fn contexts_go_to_the_unit_with_fewest_and_impossible_units_are_refused() {
    let of = Group::new(4, 4);
    let units = |of: &Group| -> Vec<(u32, u32)> {
        of.group.first(|engine| Ok(engine.context_infos())).expect("runs").into_iter().map(|info| info.units).collect()
    };
    let spread = Install { units: Some(UnitCount::Number(2)), ..rule("udp dport 1") };
    let first = of.install("empty", spread.clone());
    for port in 2..5 {
        of.install("empty", rule(&format!("udp dport {port}")));
    }
    assert_eq!(units(&of), [(0, 1), (2, 2), (3, 3), (0, 0)]);
    of.install("empty", Install { units: Some(UnitCount::ALL), ..rule("udp dport 5") });
    of.group.remove(first, ROOT).expect("it is installed");
    of.install("empty", rule("udp dport 6"));
    assert_eq!(units(&of), [(2, 2), (3, 3), (0, 0), (0, 3), (1, 1)]);
    let refused = |install: Install| {
        let image = spin_handlers::image("empty", &[]);
        let prepared = Prepared::new(install, &image, 0, &of.common.loader, &of.limits);
        prepared.and_then(|prepared| of.group.install(prepared)).expect_err("refused").to_string()
    };
    let of_four = |first, count| format!("unit {first}, {count} units: this spind has 4, numbered from 0");
    assert_eq!(refused(Install { unit: Some(4), ..rule("udp") }), of_four(4, 1));
    assert_eq!(refused(Install { unit: Some(3), ..spread.clone() }), of_four(3, 2));
    assert_eq!(refused(Install { units: Some(UnitCount::Number(5)), ..rule("udp") }), of_four(0, 5));
    let pspin = refused(Install { abi: Abi::Pspin, ..spread });
    assert!(pspin.contains("know one unit") && pspin.contains("leave --units out"), "{pspin}");
    let moved = refused(Install { unit: Some(1), replaces: Some(2), ..rule("udp") });
    assert!(moved.contains("context 2 runs in units 2 to 2"), "{moved}");
    assert!(matches!(of.group.remove(first, ROOT), Err(InstallError::NoSuchContext(_))));
    stop(of);
}

/// FPsPIN's key is the message id alone: packets of two senders, on two queues, are of one message. One thread has it.
#[test]
fn a_message_of_several_senders_is_on_one_thread() {
    let mut of = Group::new(2, 1);
    of.install("empty", Install { key: Some("fpspin".into()), ..rule("udp dport 9") });
    for (round, queue) in (0..60).zip([0, 1].into_iter().cycle()) {
        let frames = (0..16).map(|id: u8| udp_from(1, 9, &[0, 0, 0, 0, id, id, id, id, 0, 0, 0, 0]));
        arrive(&mut of.far[queue], frames, |_| ());
        of.await_count(Counter::Released, (round + 1) * 16);
    }
    let (runs, handed) = (of.counts(Counter::PayloadRuns), of.counts(Counter::HandedOver));
    assert_eq!(runs.iter().sum::<u64>(), 60 * 16);
    // A message id has one thread, so that what one thread hands over the other one runs.
    assert!(handed.iter().sum::<u64>() > 0, "{handed:?} of {runs:?}");
    stop(of);
}
