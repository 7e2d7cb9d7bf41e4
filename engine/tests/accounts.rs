//! Messages on the fast path, in queues, and on both: handler runs, queues held, and sends.

mod common;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::{Kind, Lab, NO_END, ROOT, image, rule, udp_from};
use spin_abi::control::{Full, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_abi::verdict::Verdict;
use spin_engine::settings::Sizes;

const ONE_CLUSTER: Machine = Machine { clusters: 1, ..Machine::PSPIN };
const KINDS: [Kind; 2] = [Kind::Jit, Kind::Interp];
/// The handlers of an image besides the payload handler: header, completion.
const IMAGES: [[bool; 2]; 4] = [[false, false], [true, false], [false, true], [true, true]];

/// The recorder's action for a packet after its record.
const SEND: u8 = 6;

/// A packet of a message for the recorder at UDP port 1. The payload handler returns `verdict` and carries out `action`.
fn packet(flow: u16, action: u8, verdict: Verdict, last: bool) -> Vec<u8> {
    let mut order = [0; 28];
    (order[0], order[5], order[8]) = (last.into(), action, verdict as u8);
    udp_from(1000 + flow, 1, &order)
}

fn plain(flow: u16, last: bool) -> Vec<u8> {
    packet(flow, 0, Verdict::Success, last)
}

/// A context of the recorder with these handlers. Its messages end with a packet of 1.
fn recorder(lab: &mut Lab, [header, completion]: [bool; 2], install: Install) -> u32 {
    let left_out = [(header, "-DNO_HEADER"), (completion, "-DNO_COMPLETION")];
    let left_out: Vec<_> = left_out.iter().filter(|(has, _)| !has).map(|&(_, define)| define).collect();
    let image = spin_handlers::image("recorder", &left_out);
    let install = Install { eom: Some("payload[0:1] = 1".into()), ..install };
    lab.try_install(&image, install, ROOT).expect("a handler of ours installs").0
}

fn at_port(port: u16) -> Install {
    rule(&format!("udp dport {port}"))
}

/// The number of runs of the three handlers, and of complete messages.
fn runs(lab: &Lab, id: u32) -> [u64; 4] {
    let counters = [Counter::HeaderRuns, Counter::PayloadRuns, Counter::CompletionRuns, Counter::Messages];
    counters.map(|counter| lab.count(id, counter))
}

#[test]
fn each_message_has_its_handlers_and_leaves_no_queue_however_it_arrives() {
    let one = |flow| vec![plain(flow, true)];
    let two = |flow| vec![plain(flow, false), plain(flow, true)];
    let five = |flow| (0..5).map(|at| plain(flow, at == 4)).collect();
    let lengths: [&dyn Fn(u16) -> Vec<Vec<u8>>; 3] = [&one, &two, &five];
    for kind in KINDS {
        for (handlers, shared) in IMAGES.into_iter().flat_map(|handlers| [(handlers, false), (handlers, true)]) {
            let mut lab = Lab::new(kind);
            let id = recorder(&mut lab, handlers, at_port(1));
            if shared {
                lab.install("udp_pingpong", "udp dport 2");
            }
            let mut expected = [0; 4];
            for (messages, batch) in lengths.iter().flat_map(|message| [(message, 1), (message, 10)]) {
                // Batches of single packets, or of whole messages of several flows.
                for flows in (0..20).collect::<Vec<u16>>().chunks(batch) {
                    let packets = flows.iter().flat_map(|&flow| messages(flow)).collect::<Vec<_>>();
                    lab.exchange(&packets);
                    let (all, count) = (flows.len() as u64, packets.len() as u64);
                    let [header, completion] = handlers.map(|has| if has { all } else { 0 });
                    expected = [0, 1, 2, 3].map(|at| expected[at] + [header, count, completion, all][at]);
                    let about = format!("{kind:?}, header and completion {handlers:?}, shared {shared}, {flows:?}");
                    assert_eq!(runs(&lab, id), expected, "{about}");
                    assert_eq!(lab.engine.queues_held(id), 0, "{about}");
                    lab.engine.check_invariants();
                }
            }
        }
    }
}

#[test]
fn open_messages_hold_a_queue_each() {
    for (kind, handlers) in KINDS.into_iter().flat_map(|kind| IMAGES.map(|handlers| (kind, handlers))) {
        let mut lab = Lab::new(kind);
        let id = recorder(&mut lab, handlers, at_port(1));
        lab.exchange(&(0..30).map(|flow| plain(flow % 20, false)).collect::<Vec<_>>());
        assert_eq!(lab.engine.queues_held(id), 20, "{kind:?} {handlers:?}");
        // Ten of the messages end, and two of these begin again.
        lab.exchange(
            &(0..10).map(|flow| plain(flow, true)).chain([plain(3, false), plain(4, false)]).collect::<Vec<_>>(),
        );
        assert_eq!((lab.engine.queues_held(id), lab.count(id, Counter::Messages)), (12, 10), "{kind:?} {handlers:?}");
        lab.engine.check_invariants();
    }
}

/// The first packets of more messages than the context may hold HERs for, while packets of another context fill a third of the
/// buffer.
#[test]
fn a_packet_beyond_its_share_leaves_no_queue() {
    const SHARE: u64 = 8;
    for kind in KINDS {
        let mut lab = Lab::sized(kind, ONE_CLUSTER, 256, Sizes { hers: 64, ..Sizes::default() }, Schedule::default());
        lab.limits.watchdog_us = 10_000_000;
        // The first task waits on the context's only HPU, and all others wait behind it.
        let (busy, _) = lab.install_with("meet", Install { hpus: Some(1), weight: Some(7), ..at_port(2) });
        let meeting = |who: u8| udp_from(1000 + u16::from(who), 2, &[&[who, 0][..], &[0; 30]].concat());
        lab.arrive(&[meeting(1)]);
        while lab.count(busy, Counter::Parked) == 0 {
            lab.poll();
        }
        let id = recorder(&mut lab, [true, false], at_port(1));
        lab.arrive(&(2..22).map(meeting).collect::<Vec<_>>());
        (0..10).for_each(|_| lab.poll());
        assert_eq!(lab.count(busy, Counter::Matched), 21);
        lab.arrive(&(0..40).map(|flow| plain(flow, false)).collect::<Vec<_>>());
        (0..20).for_each(|_| lab.poll());
        let [begun, dropped] = [Counter::HeaderRuns, Counter::DropShare].map(|counter| lab.count(id, counter));
        assert!(begun >= SHARE && dropped > 0, "{begun} messages, {dropped} packets dropped");
        assert_eq!(begun + dropped, 40, "{kind:?}");
        assert_eq!(u64::from(lab.engine.queues_held(id)), begun, "{kind:?}");
        lab.engine.check_invariants();
    }
}

/// A message that a handler keeps open continues behind its end, with one packet or more.
#[test]
fn payload_handlers_alone_keep_messages_open() {
    use Verdict::{DropPending, ProcessDataPending, Success, SuccessPending};
    // The index of the packet whose handler keeps the message open, and the number of packets.
    let cases = [(0, 1), (0, 3), (2, 3)].into_iter();
    let cases = cases.flat_map(|case| [SuccessPending, ProcessDataPending, DropPending].map(|verdict| (case, verdict)));
    for (kind, shared) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        for (((says, count), pending), batch) in cases.clone().flat_map(|case| [(case, 1), (case, 8)]) {
            let mut lab = Lab::new(kind);
            let id = recorder(&mut lab, [false, false], Install { verdicts: true, ..at_port(1) });
            if shared {
                lab.install("udp_pingpong", "udp dport 2");
            }
            let part = |at: u64| packet(7, 0, if at == says { pending } else { Success }, at + 1 == count);
            (0..count).map(part).collect::<Vec<_>>().chunks(batch).for_each(|batch| drop(lab.exchange(batch)));
            let about = format!("{kind:?}, shared {shared}, {pending:?} of packet {says} of {count}, {batch} at once");
            assert_eq!((runs(&lab, id)[3], lab.engine.queues_held(id)), (0, 1), "{about}");
            lab.engine.check_invariants();
            // The message continues up to another end.
            let rest = [packet(7, 0, Success, false), packet(7, 0, Success, true)];
            rest.chunks(batch).for_each(|batch| drop(lab.exchange(batch)));
            // No handler runs on packets behind a drop.
            let dropped = if pending == DropPending { count - says - 1 } else { 0 };
            let counted = (runs(&lab, id), lab.engine.queues_held(id));
            assert_eq!(counted, ([0, count + 2 - dropped, 0, 1], 0), "{about}");
            // The next packet begins another message.
            lab.exchange(&[packet(7, 0, Success, true)]);
            assert_eq!((runs(&lab, id)[3], lab.engine.queues_held(id)), (2, 0), "{about}");
        }
    }
}

/// Two contexts with these numbers of open messages, which take all queues. Returns the lab and the contexts' ids.
fn two_with_open(messages: [u16; 2]) -> (Lab, [u32; 2]) {
    let sizes = Sizes { queues: u32::from(messages[0] + messages[1]), ..Sizes::default() };
    let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 256, sizes, Schedule::default());
    let ids = [1, 2].map(|port| {
        // With a context that may stall, packets are queued in the order of their arrival.
        let install = Install { eom: Some(NO_END.into()), full: Full::Wait, ..at_port(port) };
        lab.install_with("three_handlers", install).0
    });
    for (port, flows) in (1..).zip(messages) {
        (0..flows).for_each(|flow| drop(lab.exchange(&[udp_from(1000 + flow, port, b"123456")])));
    }
    assert_eq!(ids.map(|id| lab.engine.queues_held(id)), messages.map(u32::from));
    (lab, ids)
}

/// A context takes over queues only of a context that holds at least two more.
#[test]
fn queues_are_taken_over_only_by_a_context_with_two_less() {
    for busy in [false, true] {
        for (messages, taken) in [([3, 3], 0), ([4, 3], 0), ([5, 3], 1), ([6, 3], 1)] {
            let (mut lab, [most, least]) = two_with_open(messages);
            // While each queue has a packet waiting, none is idle.
            let waiting = (0..messages[0]).filter(|_| busy).map(|flow| udp_from(1000 + flow, 1, b"123456"));
            let packets: Vec<_> = waiting.chain([udp_from(2000, 2, b"123456")]).collect();
            lab.exchange(&packets);
            let about = format!("{messages:?}, busy {busy}");
            let counts =
                [(most, Counter::MessagesEvicted), (least, Counter::MessagesEvicted), (least, Counter::DropNoMpq)];
            let counts = counts.map(|(id, counter)| lab.count(id, counter));
            assert_eq!(counts, [taken, 0, 1 - taken], "{about}");
            let held = [most, least].map(|id| u64::from(lab.engine.queues_held(id)));
            assert_eq!(held, [u64::from(messages[0]) - taken, u64::from(messages[1]) + taken], "{about}");
        }
    }
}

/// An open message ends when its next packet is late: at most 100 ms after the timeout, and never before.
#[test]
fn messages_end_within_a_tenth_of_a_second_of_their_time() {
    const TIMEOUT: Duration = Duration::from_millis(50);
    const POLL: Duration = Duration::from_micros(12_500);
    let sizes = Sizes { queues: 1 << 14, ..Sizes::default() };
    let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 256, sizes, Schedule::default());
    let install = Install { message_timeout_us: Some(50_000), eom: Some(NO_END.into()), ..at_port(1) };
    let (id, _) = lab.install_with("empty", install);
    lab.exchange(&(0..100).map(|flow| udp_from(1000 + flow, 1, &[7; 30])).collect::<Vec<_>>());
    let start = lab.now;
    // All queues are examined just in time: no message is late.
    while lab.now < start + TIMEOUT {
        lab.now += POLL;
        (0..20).for_each(|_| lab.poll());
    }
    assert_eq!(lab.count(id, Counter::MessagesTimedOut), 0, "none has waited for longer");
    while lab.now < start + TIMEOUT + Duration::from_millis(100) {
        lab.now += POLL;
        lab.poll();
    }
    assert_eq!(lab.count(id, Counter::MessagesTimedOut), 100);
    assert_eq!(lab.engine.queues_held(id), 0);
}

#[test]
fn a_message_ends_once_it_has_waited_for_longer_than_its_time() {
    let idle = |waited: Duration| {
        let mut lab = Lab::with(Kind::Jit, ONE_CLUSTER, 256);
        let install = Install { message_timeout_us: Some(1000), eom: Some(NO_END.into()), ..at_port(1) };
        let (id, _) = lab.install_with("empty", install);
        lab.now = Duration::from_millis(7);
        lab.exchange(&[udp_from(1000, 1, &[7; 30])]);
        lab.now += waited;
        // Each poll examines some queues.
        (0..64).for_each(|_| lab.poll());
        lab.count(id, Counter::MessagesTimedOut)
    };
    let timeout = Duration::from_micros(1000);
    assert_eq!([timeout, timeout + Duration::from_nanos(1)].map(idle), [0, 1]);
}

/// A context's own open message makes room for a new one after ten seconds without a packet.
#[test]
fn own_messages_make_room_after_ten_seconds() {
    let evicted = |waited: Duration| {
        let sizes = Sizes { queues: 4, ..Sizes::default() };
        let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 256, sizes, Schedule::default());
        let (id, _) = lab.install_with("empty", Install { eom: Some(NO_END.into()), ..at_port(1) });
        (0..4).for_each(|flow| drop(lab.exchange(&[udp_from(1000 + flow, 1, &[7; 30])])));
        lab.now += waited;
        lab.exchange(&[udp_from(2000, 1, &[7; 30])]);
        [Counter::MessagesEvicted, Counter::DropNoMpq].map(|counter| lab.count(id, counter))
    };
    let limit = Duration::from_secs(10);
    assert_eq!([limit - Duration::from_nanos(1), limit].map(evicted), [[0, 1], [1, 0]]);
}

/// Sends of a frame of maximum length, and of one byte more: moved, copied at once, and copied when the packet goes elsewhere.
#[test]
fn sends_are_bounded_by_the_longest_frame() {
    const LONGEST: usize = 100;
    const HEADERS: usize = 42;
    let sent = |kind: Kind, handler: &str, verdict: Option<Verdict>, len: usize| {
        let mut lab = Lab::new(kind);
        lab.longest.store(LONGEST, Relaxed);
        let mut payload = vec![0; len - HEADERS];
        // The argument of `copies` is the number of copies; that of the recorder is the action and the verdict.
        *payload.last_mut().expect("some") = 1;
        let install = Install { verdicts: verdict.is_some(), ..at_port(1) };
        if let Some(verdict) = verdict {
            (payload[5], payload[8]) = (SEND, verdict as u8);
            let image = spin_handlers::image(handler, &["-DNO_HEADER", "-DNO_COMPLETION"]);
            lab.try_install(&image, install, ROOT).expect("a handler of ours installs");
        } else {
            lab.try_install(&image(handler), install, ROOT).expect("a handler of ours installs");
        }
        let frames = lab.exchange(&[udp_from(7, 1, &payload)]);
        let long = frames.iter().filter(|frame| frame.len() == len).count();
        let counters = [Counter::TxMoved, Counter::CommandErrors, Counter::CommandsBadLength];
        (long, counters.map(|counter| lab.total(counter)))
    };
    for kind in [Kind::Jit, Kind::Interp, Kind::Check] {
        for (handler, verdict, moved) in [
            // The frame itself is sent.
            ("udp_pingpong", None, 1),
            ("recorder", Some(Verdict::Success), 1),
            // A copy is sent, and the frame goes to the kernel.
            ("recorder", Some(Verdict::Pass), 0),
            ("recorder", Some(Verdict::Drop), 0),
            // A copy is sent at once.
            ("copies", None, 0),
        ] {
            let about = format!("{kind:?} {handler} {verdict:?}");
            assert_eq!(sent(kind, handler, verdict, LONGEST - 1), (1, [moved, 0, 0]), "{about}, a byte less");
            assert_eq!(sent(kind, handler, verdict, LONGEST), (1, [moved, 0, 0]), "{about}");
            assert_eq!(sent(kind, handler, verdict, LONGEST + 1), (0, [0, 1, 1]), "{about}, a byte more");
        }
    }
}
