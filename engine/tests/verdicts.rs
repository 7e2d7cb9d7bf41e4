//! Verdicts: return values of handlers decide on packets.

mod common;

use std::time::Duration;

use common::{Kind, Lab, NO_END, ROOT, rule, udp_from};
use spin_abi::control::{Abi, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_abi::verdict::Verdict;
use spin_engine::settings::Sizes;

const SUCCESS: u8 = Verdict::Success as u8;
const PASS: u8 = Verdict::Pass as u8;
const DROP: u8 = Verdict::Drop as u8;

/// A packet of a message, with the verdicts that its handlers return.
fn packet(flow: u16, header: u8, payload: u8, last: bool) -> Vec<u8> {
    udp_from(flow, 1, &[&[header, payload, u8::from(last)][..], &[0; 30]].concat())
}

/// The counters of some packets: payload runs, completions, and packets released, passed and dropped.
fn outcome(kind: Kind, packets: &[Vec<u8>]) -> [u64; 5] {
    let mut lab = Lab::new(kind);
    let install = Install { verdicts: true, eom: Some("payload[2:1] = 1".into()), ..rule("udp dport 1") };
    let (id, _) = lab.install_with("verdicts", install);
    // One by one, and all at once: the result does not depend on which packets wait while a handler decides.
    for packet in packets {
        lab.exchange(std::slice::from_ref(packet));
    }
    let names =
        [Counter::PayloadRuns, Counter::CompletionRuns, Counter::Released, Counter::Passed, Counter::DropVerdict];
    let once = names.map(|counter| lab.total(counter));
    lab.exchange(packets);
    assert_eq!(names.map(|counter| lab.total(counter)), once.map(|count| count * 2), "{packets:?}");
    assert_eq!(lab.total(Counter::RxPackets), packets.len() as u64 * 2);
    assert_eq!(lab.count(id, Counter::BadVerdicts), 0);
    once
}

#[test]
fn verdicts_decide() {
    for kind in [Kind::Jit, Kind::Interp, Kind::Check] {
        let message = |header, payload| [0, 1, 2].map(|number| packet(7, header, payload, number == 2));
        assert_eq!(outcome(kind, &message(SUCCESS, SUCCESS)), [3, 1, 3, 0, 0]);
        assert_eq!(outcome(kind, &message(PASS, SUCCESS)), [0, 0, 0, 3, 0]);
        assert_eq!(outcome(kind, &message(DROP, SUCCESS)), [0, 0, 0, 0, 3]);
        // The last packet is also the completion handler's, and is passed on after it.
        assert_eq!(outcome(kind, &message(SUCCESS, PASS)), [3, 1, 0, 3, 0]);
        // This includes the packet whose handler decides.
        assert_eq!(outcome(kind, &message(SUCCESS, DROP)), [1, 0, 0, 0, 3]);
        let one_of_two = [packet(7, SUCCESS, SUCCESS, false), packet(7, SUCCESS, PASS, false), packet(7, 0, 0, true)];
        assert_eq!(outcome(kind, &one_of_two), [3, 1, 2, 1, 0]);
        assert_eq!(outcome(kind, &[packet(7, DROP, 0, true), packet(8, SUCCESS, 0, true)]), [1, 1, 1, 0, 1]);
    }
}

/// A packet with the payload handler's verdict. With a verdict of the completion handler, it is the last one.
fn part(payload: Verdict, completion: Option<Verdict>) -> Vec<u8> {
    part_of(7, Verdict::Success, payload, completion)
}

fn part_of(flow: u16, header: Verdict, payload: Verdict, completion: Option<Verdict>) -> Vec<u8> {
    let last = u8::from(completion.is_some());
    let code = |verdict: Verdict| verdict as u8;
    let asked = [code(header), code(payload), last, code(completion.unwrap_or(Verdict::Success))];
    udp_from(flow, 1, &[&asked[..], &[0; 30]].concat())
}

#[test]
fn a_message_stays_open_as_long_as_its_handlers_say() {
    use Verdict::{ProcessDataPending, Success, SuccessPending};
    for kind in [Kind::Jit, Kind::Interp, Kind::Check] {
        // Any handler may keep the message open: header, payload (even before the last packet), completion. Two ends, one
        // message.
        let ends = |first: Vec<u8>, end: Verdict| vec![first, part(Success, Some(end)), part(Success, Some(Success))];
        let kept = [
            ends(part_of(7, ProcessDataPending, Success, None), Success),
            ends(part(SuccessPending, None), Success),
            ends(part(Success, None), SuccessPending),
        ];
        for packets in kept {
            // All at once, and one by one.
            for batches in [packets.chunks(3), packets.chunks(1)] {
                let mut lab = Lab::new(kind);
                let install = Install { verdicts: true, eom: Some("payload[2:1] = 1".into()), ..rule("udp dport 1") };
                lab.install_with("verdicts", install);
                batches.for_each(|batch| drop(lab.exchange(batch)));
                let runs = [Counter::HeaderRuns, Counter::PayloadRuns, Counter::CompletionRuns, Counter::Messages];
                assert_eq!(runs.map(|counter| lab.total(counter)), [1, 3, 2, 1], "{kind:?} {packets:?}");
                // The next packet begins another message.
                lab.exchange(&[part(Success, Some(Success))]);
                assert_eq!(runs.map(|counter| lab.total(counter)), [2, 4, 3, 2], "{kind:?} {packets:?}");
            }
        }
    }
}

#[test]
fn a_message_that_is_dropped_may_go_on_behind_its_end() {
    use Verdict::{DropPending, Success};
    for kind in [Kind::Jit, Kind::Interp] {
        for header in [DropPending, Success] {
            let mut lab = Lab::new(kind);
            let install = Install { verdicts: true, eom: Some("payload[2:1] = 1".into()), ..rule("udp dport 1") };
            lab.install_with("verdicts", install);
            let packets = [
                part_of(7, header, DropPending, None),
                part(Success, Some(Success)),
                part(Success, None),
                part(Success, Some(Success)),
            ];
            lab.exchange(&packets);
            let names = [Counter::HeaderRuns, Counter::PayloadRuns, Counter::CompletionRuns, Counter::DropVerdict];
            let judged_by_payload = u64::from(header == Success);
            let expected = [1, 2 + judged_by_payload, 1, 2];
            assert_eq!(names.map(|counter| lab.total(counter)), expected, "{kind:?} {header:?}");
        }
    }
}

/// A context whose messages time out after a millisecond.
fn timed() -> Install {
    let eom = Some("payload[2:1] = 1".into());
    Install { verdicts: true, eom, message_timeout_us: Some(1000), ..rule("udp dport 1") }
}

#[test]
fn a_message_that_is_kept_open_for_nothing_times_out() {
    let mut lab = Lab::new(Kind::Jit);
    lab.install_with("verdicts", timed());
    lab.exchange(&[part(Verdict::Success, Some(Verdict::SuccessPending))]);
    assert_eq!((lab.total(Counter::Messages), lab.total(Counter::MessagesTimedOut)), (0, 0));
    lab.now += Duration::from_millis(2);
    // Each poll examines some queues.
    (0..256).for_each(|_| lab.poll());
    assert_eq!(lab.total(Counter::MessagesTimedOut), 1);
    lab.exchange(&[part(Verdict::Success, Some(Verdict::Success))]);
    assert_eq!((lab.total(Counter::HeaderRuns), lab.total(Counter::Messages)), (2, 1));
}

/// A sleeping thread examines them ten times a second.
#[test]
fn timeouts_are_noticed_within_a_second_however_many_queues_there_are() {
    let sizes = Sizes { queues: 1 << 16, ..Sizes::default() };
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 256, sizes, Schedule::default());
    let install = Install { message_timeout_us: Some(1000), eom: Some(NO_END.into()), ..rule("udp dport 1") };
    let (id, _) = lab.install_with("empty", install);
    // Some queues have been in use before, so that those of the last messages are far from the clock hand.
    lab.exchange(&(0..100).map(|flow| udp_from(1000 + flow, 1, &[7; 30])).collect::<Vec<_>>());
    for poll in 1..=10 {
        lab.now += Duration::from_millis(100);
        lab.poll();
        assert!(poll < 10 || lab.count(id, Counter::MessagesTimedOut) == 100, "{poll}");
    }
}

/// A cancelled message keeps only a queue, until the timeout frees that.
#[test]
fn a_message_that_was_given_up_does_not_time_out_besides() {
    for verdict in [Verdict::Drop, Verdict::Pass] {
        let mut lab = Lab::new(Kind::Jit);
        let (id, _) = lab.install_with("verdicts", timed());
        lab.exchange(&[part_of(7, verdict, Verdict::Success, None)]);
        lab.now += Duration::from_millis(2);
        (0..256).for_each(|_| lab.poll());
        assert_eq!((lab.count(id, Counter::MessagesTimedOut), lab.events(id)), (0, vec![]), "{verdict:?}");
        // The packet belongs to another message.
        lab.exchange(&[part(Verdict::Success, Some(Verdict::Success))]);
        assert_eq!((lab.count(id, Counter::HeaderRuns), lab.count(id, Counter::Messages)), (2, 1), "{verdict:?}");
    }
}

/// A new message may take over its queue too.
#[test]
fn a_message_that_was_given_up_is_not_evicted_besides() {
    let mut lab = Lab::new(Kind::Jit);
    let install = Install { verdicts: true, eom: Some("payload[2:1] = 1".into()), ..rule("udp dport 1") };
    let (id, _) = lab.install_with("verdicts", install);
    lab.install("udp_pingpong", "udp dport 2");
    (0..256).for_each(|flow| drop(lab.exchange(&[part_of(1000 + flow, Verdict::Drop, Verdict::Success, None)])));
    assert_eq!(lab.exchange(&[udp_from(7, 2, &[0; 30])]).len(), 1);
    assert_eq!((lab.count(id, Counter::MessagesEvicted), lab.events(id)), (0, vec![]));
}

#[test]
fn what_is_no_verdict_is_counted_and_means_success() {
    let mut lab = Lab::new(Kind::Jit);
    let (id, _) = lab.install_with("verdicts", Install { verdicts: true, ..rule("udp dport 1") });
    lab.exchange(&[packet(7, 99, 0, true)]);
    assert_eq!((lab.count(id, Counter::BadVerdicts), lab.count(id, Counter::PayloadRuns)), (1, 1));
}

#[test]
fn what_void_handlers_leave_is_no_verdict() {
    let mut lab = Lab::new(Kind::Jit);
    let (id, _) = lab.install_with("verdicts", rule("udp dport 1"));
    lab.exchange(&[packet(7, DROP, PASS, true)]);
    assert_eq!((lab.count(id, Counter::Passed), lab.count(id, Counter::DropVerdict)), (0, 0));
    assert_eq!(lab.count(id, Counter::Messages), 1);
}

#[test]
fn what_a_handler_sends_leaves_although_the_kernel_gets_its_packet() {
    let image = spin_handlers::try_build(&[&spin_handlers::source("recorder")], &["-Werror"]).expect("compiles");
    let mut lab = Lab::new(Kind::Jit);
    let install = Install { verdicts: true, eom: Some(NO_END.into()), ..rule("udp dport 1") };
    lab.try_install(&image, install, ROOT).expect("a handler of ours installs");
    // The payload handler sends the packet and returns PASS.
    let mut order = [0; 60];
    (order[5], order[8]) = (6, PASS);
    let packet = udp_from(7, 1, &order);
    let sent = lab.exchange(std::slice::from_ref(&packet));
    // The frames are a record of each handler, then the packet.
    assert_eq!((sent.len(), sent.last()), (3, Some(&packet)));
    assert_eq!((lab.total(Counter::Passed), lab.total(Counter::TxMoved), lab.total(Counter::TxPackets)), (1, 0, 3));
}

/// Any data may follow an EtherType of IPv4. Handlers see the fields of a header in host order, if it is one, and the kernel gets
/// the original.
#[test]
fn the_kernel_gets_what_arrived_although_handlers_see_it_otherwise() {
    let mut lab = Lab::new(Kind::Jit);
    let install = Install { verdicts: true, abi: Abi::Pspin, ..rule("frame[12:2] = 0x0800") };
    // Built for no particular ABI.
    let image = spin_handlers::image("verdicts", &["-Wl,--defsym=__spin_abi=0"]);
    lab.try_install(&image, install, ROOT).expect("installs");
    let frame = |first: u8| {
        let mut frame = udp_from(7, 1, &[0; 40]);
        // The bytes that the handlers read, from the IP header on.
        frame[14 + 42..][..2].fill(PASS);
        frame[14] = first;
        frame
    };
    let frames: Vec<_> = (0..=u8::MAX).map(frame).collect();
    lab.exchange(&frames);
    assert_eq!(*lab.passed.lock().expect("no test panics meanwhile"), frames);
}

#[test]
fn images_are_installed_as_what_they_were_built_for() {
    let mut lab = Lab::new(Kind::Interp);
    let plain = include_str!("../../handlers/testing/verdicts.c").replace("#define SPIN_VERDICTS_OPTIONAL\n", "");
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("plain.c");
    std::fs::write(&source, plain).expect("it is written");
    let strict = spin_handlers::try_build(&[&source], &[]).expect("compiles");
    let optional = spin_handlers::image("verdicts", &[]);
    let void = spin_handlers::image("empty", &[]);
    let mut refused = |image: &[u8], abi: Abi, verdicts: bool| {
        let installed = lab.try_install(image, Install { abi, verdicts, ..rule("udp dport 1") }, ROOT);
        installed.err().map(|error| error.to_string())
    };
    for (image, verdicts, why) in [
        (&strict[..], false, Some("install it with --verdicts")),
        (&strict[..], true, None),
        (&optional[..], false, None),
        (&optional[..], true, None),
        (&void[..], false, None),
        (&void[..], true, Some("its handlers return nothing")),
    ] {
        let found = refused(image, Abi::Wire, verdicts);
        assert!(found.as_deref().map_or(why.is_none(), |text| why.is_some_and(|why| text.contains(why))), "{found:?}");
    }
    let found = refused(&void, Abi::Pspin, false).expect("it was not built for that");
    assert!(found.contains("it was built for abi wire (spin-cc --abi), and is to be installed for pspin"), "{found}");
}
