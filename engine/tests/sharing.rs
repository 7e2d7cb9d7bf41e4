//! Sharing between contexts: time, the packet buffer, clusters.

mod common;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Kind, Lab, NO_END, ROOT, image, payload, rule, udp, udp_from};
use spin_abi::control::{Full, Install, Placement, Schedule};
use spin_abi::counters::Counter;
use spin_abi::events::What;
use spin_abi::map::Machine;
use spin_abi::verdict::Verdict;
use spin_engine::context::loader::Loader;
use spin_engine::install::{Prepared, User};
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::{Queue, SyntheticSource, TxQueue};
use spin_shm::Region;

/// A lab with room for 64 packets. Checked tasks run one at a time, so packets have to be queued.
fn lab(schedule: Schedule) -> Lab {
    Lab::sized(Kind::Check, Machine::PSPIN, 512, Sizes { hers: 64, ..Sizes::default() }, schedule)
}

/// Two contexts that send each packet back: one for port 1, with the options `greedy`, and one for port 2.
fn install_two(lab: &mut Lab, greedy: Install) -> [u32; 2] {
    let (first, _) = lab.install_with("udp_pingpong", Install { rules: vec!["udp dport 1".into()], ..greedy });
    [first, lab.install("udp_pingpong", "udp dport 2")]
}

/// Sixty packets to port 1, of as many messages, and four to port 2.
fn many_and_few() -> Vec<Vec<u8>> {
    let many = (0..60).map(|flow| udp_from(1000 + flow, 1, &[7; 30]));
    many.chain((0..4).map(|flow| udp_from(1000 + flow, 2, &[7; 30]))).collect()
}

const ONE_CLUSTER: Machine = Machine { clusters: 1, ..Machine::PSPIN };

/// A packet for `meet`, a message of its own.
fn meeting(who: u8, depends_on: u8) -> Vec<u8> {
    udp_from(who.into(), 1, &[[who, depends_on].as_slice(), &[0; 30]].concat())
}

/// The number of frames that came from a port.
fn from(port: u16, frames: &[Vec<u8>]) -> usize {
    frames.iter().filter(|frame| frame[34..36] == port.to_be_bytes()).count()
}

/// A packet for `told` that writes one event.
const EVENT: [u8; 6] = [0, 0, 0, 0, 1, 0];

/// A clock that advances with each read, so that the speed of the machine does not matter.
fn by_reads(reads: &Cell<u64>) -> Duration {
    reads.set(reads.get() + 1);
    Duration::from_nanos(100 * reads.get())
}

/// A clock that advances by a millisecond per event of a context.
fn by_events(events: &Region) -> Duration {
    let mut count = [0; 8];
    events.read(0, &mut count).expect("inside");
    Duration::from_millis(u64::from_le_bytes(count))
}

#[test]
fn beyond_its_share_of_the_buffer_a_context_loses_and_the_other_does_not() {
    let mut lab = lab(Schedule::RoundRobin);
    let [greedy, modest] = install_two(&mut lab, Install::default());
    let sent = lab.exchange(&many_and_few());
    // One task ends before the others are queued.
    assert_eq!((from(1, &sent), from(2, &sent)), (33, 4));
    assert_eq!((lab.count(greedy, Counter::DropShare), lab.count(modest, Counter::DropShare)), (27, 0));
    assert_eq!(lab.total(Counter::RxPackets), lab.total(Counter::Released) + 27);
}

#[test]
fn packets_stay_in_order_where_that_may_matter() {
    let chosen = [Install { full: Full::Wait, ..Install::default() }, Install { verdicts: true, ..Install::default() }];
    for (install, ordered) in chosen.into_iter().map(|install| (install, true)).chain([(Install::default(), false)]) {
        let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 512, Sizes::default(), Schedule::RoundRobin);
        // An image that was built for no ABI.
        let image = spin_handlers::image("udp_pingpong", &["-Wl,--defsym=__spin_abi=0"]);
        let install = Install { rules: vec!["udp dport 1".into()], ..install };
        lab.try_install(&image, install, ROOT).expect("installs");
        let (ports, mut firsts): (Vec<_>, _) = ((1000..1060).collect(), BTreeSet::new());
        for _ in 0..Machine::PSPIN.clusters {
            let sent = lab.exchange(&ports.iter().map(|&port| udp_from(port, 1, &[7; 30])).collect::<Vec<_>>());
            let mut answered: Vec<_> = sent.iter().map(|frame| u16::from_be_bytes([frame[36], frame[37]])).collect();
            assert_eq!(answered.is_sorted(), ordered, "else cluster by cluster");
            firsts.insert(answered[0]);
            answered.sort_unstable();
            assert_eq!(answered, ports);
        }
        let each = Machine::PSPIN.clusters as usize;
        assert_eq!(firsts.len(), if ordered { 1 } else { each }, "another cluster is the first each time");
    }
}

#[test]
fn packets_that_are_queued_do_not_keep_another_context_from_queues() {
    // Without `--full wait`, one task ends before the others are queued.
    for (full, ran) in [(Full::Drop, 33), (Full::Wait, 32)] {
        let sizes = Sizes { queues: 32, hers: 256, ..Sizes::default() };
        let mut lab = Lab::sized(Kind::Check, ONE_CLUSTER, 512, sizes, Schedule::RoundRobin);
        let [greedy, modest] = install_two(&mut lab, Install { full, ..Install::default() });
        let sent = lab.exchange(&many_and_few());
        assert_eq!((from(1, &sent), from(2, &sent)), (ran - 4, 4), "{full:?}");
        let gave_way = [Counter::DropShare, Counter::MessagesEvicted].map(|counter| lab.count(greedy, counter));
        assert_eq!((gave_way, lab.events(greedy)), ([4; 2], vec![What::Evicted; 4]));
        assert_eq!(lab.count(modest, Counter::Messages), 4);
        assert_eq!(lab.total(Counter::DropNoMpq), (60 - ran) as u64);
        assert_eq!(lab.total(Counter::RxPackets), lab.total(Counter::Released) + (60 - ran + 4) as u64);
    }
}

#[test]
fn contexts_that_have_no_packets_cost_others_none() {
    let sizes = Sizes { queues: 256, hers: 256, ..Sizes::default() };
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 512, sizes, Schedule::Wlbvt);
    let busy = lab.install("udp_pingpong", "udp dport 1");
    // With that many other contexts, its share is less than what arrives at once.
    (100..110).for_each(|port| _ = lab.install("udp_pingpong", &format!("udp dport {port}")));
    let sent = lab.exchange(&(0..60).map(|flow| udp_from(1000 + flow, 1, &[7; 30])).collect::<Vec<_>>());
    assert_eq!((sent.len(), lab.count(busy, Counter::DropShare)), (60, 0));
}

/// A thread that is often off its core runs few tasks per poll. It must not receive more than it can queue.
#[test]
fn time_off_its_core_costs_a_context_no_packets() {
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 4096, Sizes::default(), Schedule::Wlbvt);
    let busy = lab.install("udp_pingpong", "udp dport 1");
    (100..108).for_each(|port| _ = lab.install("udp_pingpong", &format!("udp dport {port}")));
    lab.arrive(&(0..2000).map(|at| udp_from(1000 + at % 200, 1, &[7; 30])).collect::<Vec<_>>());
    // The thread is off its core at each tenth read of the clock.
    let (now, reads) = (Cell::new(Duration::ZERO), Cell::new(0_u32));
    while lab.count(busy, Counter::Released) < 2000 - lab.count(busy, Counter::DropShare) {
        let passing = || {
            let off = reads.replace(reads.get() + 1) % 10 == 9;
            now.set(now.get() + if off { Duration::from_millis(1) } else { Duration::from_micros(1) });
            now.get()
        };
        lab.engine.poll(passing).expect("memory does not fail");
    }
    assert_eq!(lab.count(busy, Counter::DropShare), 0);
}

#[test]
fn weight_is_a_share_of_the_buffer_too() {
    let mut lab = lab(Schedule::RoundRobin);
    let [greedy, _] = install_two(&mut lab, Install { weight: Some(3), ..Install::default() });
    // One task ends before the others are queued.
    assert_eq!(from(1, &lab.exchange(&many_and_few())), 49);
    assert_eq!(lab.count(greedy, Counter::DropShare), 11);
}

#[test]
fn a_context_that_waits_loses_nothing() {
    let mut lab = lab(Schedule::RoundRobin);
    let [greedy, _] = install_two(&mut lab, Install { full: Full::Wait, ..Install::default() });
    let sent = lab.exchange(&[many_and_few(), many_and_few()].concat());
    assert_eq!((from(1, &sent), from(2, &sent)), (120, 8));
    assert_eq!(lab.count(greedy, Counter::DropShare), 0);
    assert!(lab.total(Counter::HerStalls) > 0);
}

#[test]
fn what_waits_has_its_turn_when_its_context_is_alone() {
    let mut lab = lab(Schedule::RoundRobin);
    let [greedy, modest] = install_two(&mut lab, Install { full: Full::Wait, ..Install::default() });
    lab.arrive(&many_and_few());
    lab.poll();
    lab.engine.remove(modest, ROOT).expect("installed");
    (0..100).for_each(|_| lab.poll());
    assert_eq!(lab.count(greedy, Counter::Released), 60);
    assert!(!lab.engine.has_tasks());
}

#[test]
fn what_waits_when_its_context_is_removed_is_counted() {
    let mut lab = lab(Schedule::RoundRobin);
    let install = Install { full: Full::Wait, eom: Some(NO_END.into()), ..Install::default() };
    let [greedy, _] = install_two(&mut lab, install);
    lab.arrive(&many_and_few());
    lab.poll();
    assert!(lab.engine.has_tasks());
    lab.engine.remove(greedy, ROOT).expect("installed");
    lab.exchange(&[]);
    let (released, dropped) = (lab.total(Counter::Released), lab.total(Counter::DropRemoved));
    assert!(dropped >= 1, "the one that waited");
    assert_eq!(lab.total(Counter::RxPackets), released + dropped + lab.total(Counter::DropUnmatched));
}

#[test]
fn congestion_is_marked_from_half_the_share_on() {
    let mut lab = lab(Schedule::RoundRobin);
    let [greedy, _] = install_two(&mut lab, Install { full: Full::Mark, ..Install::default() });
    let mut frames = many_and_few();
    // ECT(0), with the checksum corrected.
    for frame in &mut frames {
        frame[15] |= 2;
        let sum = u16::from_be_bytes([frame[24], frame[25]]);
        frame[24..26].copy_from_slice(&(sum - 2).to_be_bytes());
    }
    let sent = lab.exchange(&frames);
    // One task ends before the others are queued.
    assert_eq!((from(1, &sent), from(2, &sent)), (33, 4));
    let marked = |port: u16| from(port, &sent.iter().filter(|frame| frame[15] & 3 == 3).cloned().collect::<Vec<_>>());
    assert_eq!((marked(1), marked(2)), (16, 0));
    assert_eq!((lab.count(greedy, Counter::EcnMarked), lab.count(greedy, Counter::DropShare)), (16, 27));
    for frame in &sent {
        let ip = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..]).expect("IPv4");
        assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
    }
}

#[test]
fn a_message_beyond_the_share_is_given_up_and_the_next_one_is_not() {
    let mut lab = lab(Schedule::RoundRobin);
    let install = Install { full: Full::Kill, eom: Some("payload[0:1] = 1".into()), ..Install::default() };
    let [greedy, _] = install_two(&mut lab, install);
    let message = |packets: usize, flow: u16| {
        (1..=packets).map(move |packet| udp_from(flow, 1, &[u8::from(packet == packets); 30])).collect::<Vec<_>>()
    };
    let sent = lab.exchange(&[message(4, 5), message(50, 6), message(3, 7)].concat());
    let answered = |flow: u16| sent.iter().filter(|frame| frame[36..38] == flow.to_be_bytes()).count();
    assert_eq!((answered(5), answered(6), answered(7)), (4, 0, 3));
    assert_eq!((lab.count(greedy, Counter::MessagesKilled), lab.count(greedy, Counter::DropKilled)), (1, 50));
    assert_eq!(lab.events(greedy), [What::Killed]);
    assert_eq!(lab.count(greedy, Counter::Messages), 2);
    // The key can be used again.
    assert_eq!(lab.exchange(&message(5, 6)).len(), 5);
    assert_eq!(lab.total(Counter::RxPackets), lab.total(Counter::Released) + 50);
}

#[test]
fn a_message_that_is_given_up_does_not_time_out_besides() {
    let mut lab = lab(Schedule::RoundRobin);
    let install = Install {
        full: Full::Kill,
        eom: Some("payload[0:1] = 1".into()),
        message_timeout_us: Some(1000),
        ..Install::default()
    };
    let [greedy, _] = install_two(&mut lab, install);
    let open = udp_from(6, 1, &[0; 30]);
    lab.exchange(&vec![open.clone(); 50]);
    lab.now += Duration::from_millis(2);
    (0..256).for_each(|_| lab.poll());
    let ended = [Counter::MessagesKilled, Counter::MessagesTimedOut].map(|counter| lab.count(greedy, counter));
    assert_eq!((ended, lab.events(greedy)), ([1, 0], vec![What::Killed]));
    // The key can be used again.
    assert_eq!(lab.exchange(&[open]).len(), 1);
}

#[test]
fn tasks_are_shared_by_weight() {
    // The lighter context may lead by 64 tasks. After 640 tasks, the other one is then behind by three quarters of that.
    let cases = [(Schedule::RoundRobin, 3, 320), (Schedule::Weighted, 3, 480 - 48), (Schedule::Weighted, 1, 320)];
    // On the fast path, and in queues.
    for ((schedule, weight, share), kind) in cases.into_iter().flat_map(|case| [(case, Kind::Jit), (case, Kind::Check)])
    {
        let sizes = Sizes { queues: 1 << 12, ..Sizes::default() };
        let mut lab = Lab::sized(kind, ONE_CLUSTER, 4096, sizes, schedule);
        install_two(&mut lab, Install { weight: Some(weight), ..Install::default() });
        // Equally many packets of both contexts, all there before the first task runs.
        let both = (0..1600).map(|flow| udp_from(1000 + flow, 1 + flow % 2, &[7; 30])).collect::<Vec<_>>();
        let sent = lab.exchange(&both);
        let dropped = lab.total(Counter::DropShare);
        assert_eq!(sent.len() as u64 + dropped, 1600, "{kind}, {schedule}, {weight}");
        assert_eq!(from(1, &sent[..640]), share, "{kind}, {schedule}, {weight}");
    }
}

/// Two users: the first one has one context of weight 1 for port 1, the second one `contexts` of this weight for the ports from 2 on.
/// Returns the ids.
fn install_users(lab: &mut Lab, contexts: u16, weight: u32) -> Vec<u32> {
    (1..contexts + 2)
        .map(|port| {
            let (user, weight) = if port == 1 { (User(1000), 1) } else { (User(1001), weight) };
            let install = Install { weight: Some(weight), ..rule(&format!("udp dport {port}")) };
            lab.try_install(&image("udp_pingpong"), install, user).expect("installs").0
        })
        .collect()
}

/// The second user's contexts: a heavy one, or many.
const CROWDS: [(u16, u32); 3] = [(1, 1000), (60, 1), (60, 1000)];

/// Equally many packets of both users, `each`, alternately.
fn of_both_users(contexts: u16, each: u16) -> Vec<Vec<u8>> {
    let port = |at: u16| if at.is_multiple_of(2) { 1 } else { 2 + at / 2 % contexts };
    (0..2 * each).map(|at| udp_from(1000 + at, port(at), &[7; 30])).collect()
}

#[test]
fn tasks_are_shared_by_user_first() {
    let schedules = [Schedule::RoundRobin, Schedule::Weighted];
    // On the fast path, and in queues.
    let kinds = [Kind::Jit, Kind::Check];
    for ((schedule, kind), (contexts, weight)) in schedules
        .into_iter()
        .flat_map(|schedule| kinds.map(|kind| (schedule, kind)))
        .flat_map(|of| CROWDS.map(|crowd| (of, crowd)))
    {
        let sizes = Sizes { queues: 1 << 12, ..Sizes::default() };
        let mut lab = Lab::sized(kind, ONE_CLUSTER, 4096, sizes, schedule);
        install_users(&mut lab, contexts, weight);
        let sent = lab.exchange(&of_both_users(contexts, 800));
        let first = from(1, &sent[..640]);
        assert!((288..=352).contains(&first), "{kind}, {schedule}, {contexts} of weight {weight}: {first} of 320");
    }
}

/// All packets of one user arrive before those of the other.
#[test]
fn the_packet_buffer_is_shared_by_user_first() {
    const HERS: u16 = 1024;
    for (contexts, weight) in CROWDS {
        for own_first in [false, true] {
            let sizes = Sizes { queues: 1 << 12, hers: HERS.into(), ..Sizes::default() };
            let mut lab = Lab::sized(Kind::Check, ONE_CLUSTER, 4096, sizes, Schedule::RoundRobin);
            let ids = install_users(&mut lab, contexts, weight);
            let own = (0..HERS / 2 * 9 / 10).map(|flow| udp_from(1000 + flow, 1, &[7; 30])).collect::<Vec<_>>();
            let others =
                (0..HERS * 2).map(|flow| udp_from(1000 + flow, 2 + flow % contexts, &[7; 30])).collect::<Vec<_>>();
            lab.exchange(&if own_first { [own, others].concat() } else { [others, own].concat() });
            let (dropped, run) = (lab.count(ids[0], Counter::DropShare), lab.count(ids[0], Counter::Released));
            let others = ids[1..].iter().map(|&id| lab.count(id, Counter::Released)).sum::<u64>();
            let what = format!("{contexts} of weight {weight}, {own_first}");
            assert_eq!((dropped, run), (0, u64::from(HERS / 2 * 9 / 10)), "{what}");
            assert!(others >= u64::from(HERS / 2 * 9 / 10), "{what}: {others}");
        }
    }
}

/// However many packets are in the NIC, none of the contexts is ahead if each has equally many packets.
#[test]
fn contexts_that_have_as_many_packets_lose_none() {
    for contexts in [2, 16, 64] {
        let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
        let frames: Vec<_> = (0..4096).map(|at| udp_from(1000 + at % 512, 100 + at % contexts, &[7; 30])).collect();
        let nic = Box::new(SyntheticSource::new(&frames, 72, 0).expect("short frames"));
        let sizes = Sizes { queues: 1 << 14, ..Sizes::default() };
        let mut engine = Worker::new(loader.clone(), nic, sizes, Schedule::RoundRobin, 0..1).expect("a timer");
        for port in 100..100 + contexts {
            let install = rule(&format!("udp dport {port}"));
            let prepared = Prepared::new(install, &image("empty"), 0, &loader, &Limits::default());
            engine.install(prepared.expect("fine"), &Limits::default()).expect("room");
        }
        let reads = Cell::new(0);
        while engine.received() < 100_000 {
            engine.poll(|| by_reads(&reads)).expect("memory does not fail");
        }
        assert_eq!(engine.statistics().counts.get(Counter::DropShare), 0, "{contexts}");
    }
}

/// A context may have packets although a batch has none of them.
#[test]
fn shares_are_kept_when_packets_come_in_bursts() {
    let sizes = Sizes { queues: 1 << 14, ..Sizes::default() };
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 8192, sizes, Schedule::Weighted);
    let first = lab.install("udp_pingpong", "udp dport 1");
    let (second, _) = lab.install_with("udp_pingpong", Install { weight: Some(4), ..rule("udp dport 2") });
    // Equally many packets of both contexts, 250 at a time.
    lab.arrive(&(0..6000).map(|at| udp_from(1000 + at % 500, 1 + at / 250 % 2, &[7; 30])).collect::<Vec<_>>());
    while lab.total(Counter::RxPackets) < 5500 {
        lab.poll();
    }
    let runs = [first, second].map(|id| lab.count(id, Counter::PayloadRuns));
    assert!(runs[1] * 2 >= runs[0] * 3, "the heavier one's packets are looked for: {runs:?}");
    assert!(lab.count(first, Counter::DropShare) > 0 && lab.count(second, Counter::DropShare) == 0);
}

/// Few packets of one context among many of another whose tasks take a millisecond. All of them are in the NIC.
#[test]
fn packets_behind_those_of_long_tasks_do_not_wait_for_all_of_these() {
    // Where tasks are counted: as many as those of the other context, plus those of a poll.
    for (schedule, most) in [(Schedule::Wlbvt, 8), (Schedule::RoundRobin, 164), (Schedule::Weighted, 164)] {
        let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 4096, Sizes::default(), schedule);
        let install = Install { host_mem: 4096, ..rule("udp dport 1") };
        let (long, _) = lab.install_with("told", install);
        let short = lab.install("udp_pingpong", "udp dport 2");
        let port = |at: u16| if at % 20 == 19 { (2, vec![7; 30]) } else { (1, EVENT.to_vec()) };
        let frames =
            (0..2000).map(|at| (at, port(at))).map(|(at, (port, bytes))| udp_from(1000 + at % 200, port, &bytes));
        lab.arrive(&frames.collect::<Vec<_>>());
        let (events, reads) = (lab.engine.event_ring(long, ROOT).expect("installed"), Cell::new(0));
        while lab.count(short, Counter::Released) < 100 {
            let clock = || by_events(&events) + by_reads(&reads);
            lab.engine.poll(clock).expect("memory does not fail");
        }
        let runs = lab.count(long, Counter::PayloadRuns);
        assert!((1..=most).contains(&runs), "{schedule}: {runs}");
    }
}

/// A context whose packets come last in a batch does not wait for all packets of another one, which had more before.
#[test]
fn few_packets_behind_many_have_their_turn() {
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 512, Sizes::default(), Schedule::RoundRobin);
    let [greedy, modest] = install_two(&mut lab, Install::default());
    lab.exchange(&[udp_from(999, 1, &[7; 30])]);
    let sent = lab.exchange(&many_and_few());
    assert_eq!((from(1, &sent), from(2, &sent)), (60, 4));
    let last = sent.iter().rposition(|frame| from(2, std::slice::from_ref(frame)) == 1);
    assert!(last.is_some_and(|last| last < 40), "{last:?}");
    assert_eq!([greedy, modest].map(|id| lab.count(id, Counter::DropShare)), [0, 0]);
}

#[test]
fn one_that_takes_all_its_time_ends_its_contexts_turn() {
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 512, Sizes::default(), Schedule::Wlbvt);
    let (endless, _) = lab.install_with("spin", Install { watchdog_us: Some(1000), ..rule("udp dport 1") });
    let quick = lab.install("udp_pingpong", "udp dport 2");
    let both: Vec<_> = (0..64).map(|flow| udp_from(1000 + flow, 1 + flow % 2, &[0xff; 30])).collect();
    lab.arrive(&both);
    lab.poll();
    let runs = [endless, quick].map(|id| lab.count(id, Counter::PayloadRuns));
    assert!((1..=2).contains(&runs[0]) && runs[1] >= 14, "the contexts took turns, and one task is a turn: {runs:?}");
    assert_eq!(lab.count(endless, Counter::Faults), runs[0]);
}

/// Requests to a thread wait for the end of its poll.
#[test]
fn long_tasks_of_a_context_that_is_alone_are_not_run_all_in_a_turn() {
    let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 512, Sizes::default(), Schedule::Wlbvt);
    let (endless, _) = lab.install_with("spin", Install { watchdog_us: Some(2000), ..rule("udp dport 1") });
    lab.arrive(&(0..64).map(|flow| udp_from(1000 + flow, 1, &[0xff; 30])).collect::<Vec<_>>());
    let start = Instant::now();
    lab.engine.poll(|| start.elapsed()).expect("memory does not fail");
    assert!(
        (1..=2).contains(&lab.count(endless, Counter::PayloadRuns)),
        "one that took all its time is the turn's last"
    );
    // The duration of handlers is known after the first ones.
    let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 512, Sizes::default(), Schedule::Wlbvt);
    let (long, _) = lab.install_with("told", Install { host_mem: 4096, ..rule("udp dport 1") });
    lab.arrive(&vec![udp_from(1000, 1, &EVENT); 200]);
    let (events, mut polls) = (lab.engine.event_ring(long, ROOT).expect("installed"), 0);
    while lab.count(long, Counter::Released) < 200 {
        let before = lab.count(long, Counter::PayloadRuns);
        lab.engine.poll(|| by_events(&events)).expect("memory does not fail");
        let runs = lab.count(long, Counter::PayloadRuns) - before;
        assert!(polls == 0 || runs <= 2, "{runs}");
        polls += 1;
    }
    assert!(polls > 10, "{polls}");
}

/// Time of passing a packet to the kernel.
const PASSING: Duration = Duration::from_micros(25);
/// Times of short and of long tasks, or of a batch of them.
const SHORT: Duration = Duration::from_micros(1);
const LONG: Duration = Duration::from_micros(400);

/// A context that passes all its packets to the kernel, and one that sends each back.
fn one_that_passes(schedule: Schedule, frames: usize, passing: Install) -> (Lab, [u32; 2]) {
    let sizes = Sizes { queues: 1 << 12, ..Sizes::default() };
    let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, frames, sizes, schedule);
    let install = Install { verdicts: true, rules: vec!["udp dport 1".into()], ..passing };
    let (passing, _) = lab.install_with("verdicts", install);
    let other = lab.install("udp_pingpong", "udp dport 2");
    (lab, [passing, other])
}

/// A packet that the first context's header handler passes to the kernel, with the rest of its message.
fn for_the_kernel(flow: u16) -> Vec<u8> {
    udp_from(flow, 1, &[Verdict::Pass as u8, 0, 0, 0].repeat(8))
}

/// Polls until `over`. The clock advances by `row` at each read, and by the time of passing packets. Returns the time of other
/// work, and of passing.
fn take_turns(lab: &mut Lab, row: Duration, over: impl Fn(&Lab) -> bool) -> [Duration; 2] {
    let reads = Cell::new(0);
    let passed = lab.passed.clone();
    let passing = || PASSING * passed.lock().expect("no test panics meanwhile").len() as u32;
    while !over(lab) {
        let clock = || {
            reads.set(reads.get() + 1);
            row * reads.get() + passing()
        };
        lab.engine.poll(clock).expect("memory does not fail");
    }
    [row * reads.get(), passing()]
}

/// The kernel gets packets at the end of a poll, when no handler runs. Their context is charged all the same.
#[test]
fn what_goes_to_the_kernel_is_its_contexts_time() {
    // Each packet is a message, or all are of one that was passed to the kernel with its first packet and has no tasks.
    for (eom, flows) in [("always", 1000), (NO_END, 1)] {
        for weight in [1, 3] {
            let install = Install { eom: Some(eom.into()), weight: Some(weight), ..Install::default() };
            let (mut lab, [passing, other]) = one_that_passes(Schedule::Wlbvt, 8192, install);
            let both =
                (0..2000).flat_map(|at| [for_the_kernel(2000 + at % flows), udp_from(1000 + at % 500, 2, &[7; 30])]);
            lab.arrive(&both.collect::<Vec<_>>());
            let [others, its] = take_turns(&mut lab, SHORT, |lab| {
                lab.count(other, Counter::Released) + lab.count(other, Counter::DropShare) == 2000
            });
            // The maximum lead of both contexts, and the cost until that was known.
            let slack = Duration::from_millis(2);
            assert!(its <= others * weight + slack, "{eom}, {weight}: {its:?} for {others:?}");
            assert_eq!(lab.count(other, Counter::DropShare), 0, "{eom}, {weight}");
            take_turns(&mut lab, SHORT, |lab| !lab.engine.has_tasks());
            let [passed, lost] = [Counter::Passed, Counter::DropShare].map(|counter| lab.count(passing, counter));
            assert_eq!(passed + lost, 2000, "{eom}, {weight}");
            assert!(lost > 0, "{eom}, {weight}: it asked for more");
        }
    }
}

#[test]
fn who_asks_for_no_time_costs_one_that_leaves_packets_to_the_kernel_none() {
    for schedule in [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt] {
        for (eom, flows) in [("always", 1000), (NO_END, 1)] {
            let install = Install { eom: Some(eom.into()), ..Install::default() };
            let (mut lab, [passing, other]) = one_that_passes(schedule, 8192, install);
            lab.arrive(&(0..2000).map(|at| for_the_kernel(2000 + at % flows)).collect::<Vec<_>>());
            take_turns(&mut lab, SHORT, |lab| lab.total(Counter::RxPackets) == 2000 && !lab.engine.has_tasks());
            assert_eq!(lab.count(passing, Counter::Passed), 2000, "{schedule}, {eom}");
            // The context is not behind for work that it had meanwhile, either.
            let both = |at: u16| [for_the_kernel(5000 + at), udp_from(1000 + at, 2, &[7; 30])];
            lab.arrive(&(0..200).flat_map(both).collect::<Vec<_>>());
            take_turns(&mut lab, LONG, |lab| lab.count(other, Counter::Released) == 200);
            assert!(lab.count(passing, Counter::Passed) > 2000, "{schedule}, {eom}");
        }
    }
}

#[test]
fn tasks_that_wait_for_each_other_both_end() {
    for kind in [Kind::Jit, Kind::Interp] {
        let mut lab = Lab::with(kind, ONE_CLUSTER, 256);
        let install = Install { hpus: Some(2), ..rule("udp dport 1") };
        let (id, _) = lab.install_with("meet", install);
        let sent = lab.exchange(&[meeting(b'a', b'b'), meeting(b'b', b'a')]);
        assert_eq!(sent.len(), 2, "{kind}: {:?}", lab.faults(id));
        // The second task does not wait, unless the system interrupts it while it polls.
        let parked = lab.count(id, Counter::Parked);
        assert!((1..=2).contains(&parked), "{kind}: {parked}");
        assert!(parked == 2 || payload(&sent[0])[0] == b'b', "the second one did not wait");
    }
}

/// A context whose task waits forever on its only HPU, and one that sends packets back.
fn one_that_waits(schedule: Schedule, sizes: Sizes, install: Install) -> (Lab, [u32; 2]) {
    let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 512, sizes, schedule);
    let install = Install { hpus: Some(1), placement: Placement::Home, rules: vec!["udp dport 1".into()], ..install };
    let (waiting, _) = lab.install_with("meet", install);
    let other = lab.install("udp_pingpong", "udp dport 2");
    lab.arrive(&[meeting(1, 2)]);
    while lab.count(waiting, Counter::Parked) == 0 {
        lab.poll();
    }
    (lab, [waiting, other])
}

/// A context over its share gets the time that others leave, although these have packets all the time.
#[test]
fn one_that_is_ahead_runs_when_nobody_else_has_more() {
    for schedule in [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt] {
        let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 512, Sizes::default(), schedule);
        let (ahead, _) = lab.install_with("told", Install { host_mem: 4096, ..rule("udp dport 1") });
        let other = lab.install("udp_pingpong", "udp dport 2");
        let events = lab.engine.event_ring(ahead, ROOT).expect("installed");
        let poll = |lab: &mut Lab| lab.engine.poll(|| by_events(&events)).expect("memory does not fail");
        lab.arrive(&vec![udp_from(1000, 1, &EVENT); 200]);
        while lab.count(ahead, Counter::Released) < 200 {
            poll(&mut lab);
        }
        for polls in 1..=5 {
            lab.arrive(&[udp_from(1001, 1, &EVENT), udp_from(1002, 2, &[7; 30])]);
            poll(&mut lab);
            assert_eq!(lab.count(other, Counter::Released), polls, "{schedule}");
            assert_eq!(lab.count(ahead, Counter::Released), 200 + polls, "{schedule}");
        }
    }
}

/// Others' packets wait for some of the parked tasks to be resumed, not for all of them. Each parked task is resumed in turn.
#[test]
fn many_that_wait_are_looked_at_some_at_a_time_while_others_have_packets() {
    let looks = |waiting: u8| {
        // The clock is read for each task.
        let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 512, Sizes::default(), Schedule::Wlbvt);
        let (meet, _) = lab.install_with("meet", Install { hpus: Some(8), ..rule("udp dport 1") });
        let other = lab.install("udp_pingpong", "udp dport 2");
        let reads = Cell::new(0);
        let poll = |lab: &mut Lab| {
            let before = reads.get();
            lab.engine.poll(|| by_reads(&reads)).expect("memory does not fail");
            reads.get() - before
        };
        // Each task waits for its partner.
        lab.arrive(&(0..waiting).map(|who| meeting(who, 100 + who)).collect::<Vec<_>>());
        while lab.count(meet, Counter::Parked) < waiting.into() {
            poll(&mut lab);
        }
        lab.arrive(&packets_for_the_other(1));
        let looks = poll(&mut lab);
        assert_eq!(lab.count(other, Counter::Released), 1);
        lab.arrive(&(0..waiting).map(|who| meeting(100 + who, who)).collect::<Vec<_>>());
        let mut polls = 0;
        while lab.count(meet, Counter::Released) < 2 * u64::from(waiting) {
            lab.arrive(&packets_for_the_other(1));
            poll(&mut lab);
            lab.take_replies();
            polls += 1;
            assert!(polls < 100, "some wait on and on");
        }
        looks
    };
    assert_eq!(looks(4), looks(7));
}

fn packets_for_the_other(count: u16) -> Vec<Vec<u8>> {
    (0..count).map(|flow| udp_from(1000 + flow, 2, &[7; 30])).collect()
}

#[test]
fn tasks_that_have_no_hpu_keep_nobody_waiting() {
    for schedule in [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt] {
        let (mut lab, [waiting, other]) = one_that_waits(schedule, Sizes::default(), Install::default());
        let behind = (3..20).map(|who| meeting(who, who));
        lab.arrive(&behind.chain(packets_for_the_other(100)).collect::<Vec<_>>());
        (0..20).for_each(|_| lab.poll());
        assert_eq!(lab.count(other, Counter::Released), 100, "{schedule}");
        assert_eq!(lab.count(waiting, Counter::PayloadRuns), 1, "{schedule}: its task still waits");
    }
}

#[test]
fn one_that_waits_does_not_fill_the_buffer_by_giving_messages_up() {
    let sizes = Sizes { hers: 64, ..Sizes::default() };
    let install = Install { full: Full::Kill, ..Install::default() };
    let (mut lab, [waiting, other]) = one_that_waits(Schedule::RoundRobin, sizes, install);
    // All packets of the flow whose first message waits.
    lab.arrive(&vec![meeting(1, 1); 100]);
    (0..20).for_each(|_| lab.poll());
    assert_eq!(lab.count(waiting, Counter::DropKilled), 100 - 32, "its share is half the buffer");
    lab.arrive(&packets_for_the_other(4));
    (0..20).for_each(|_| lab.poll());
    assert_eq!(lab.count(other, Counter::Released), 4);
}

/// Runs `polls` polls, each of which takes a millisecond.
fn long_turns(lab: &mut Lab, polls: u32) {
    for _ in 0..polls {
        let (start, reads) = (lab.now, Cell::new(0));
        let clock = || {
            reads.set(reads.get() + 1);
            start + Duration::from_micros(100) * reads.get()
        };
        lab.engine.poll(clock).expect("memory does not fail");
        lab.now = start + Duration::from_millis(1);
    }
}

/// The task waits forever, and all other contexts would wait for room for its packets.
#[test]
fn one_that_has_others_wait_does_not_stop_them() {
    for schedule in [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt] {
        let sizes = Sizes { hers: 64, ..Sizes::default() };
        let install = Install { full: Full::Wait, ..Install::default() };
        let (mut lab, [waiting, other]) = one_that_waits(schedule, sizes, install);
        let of_both = |at: u8| [meeting(3 + at, 3 + at), udp_from(1000 + u16::from(at), 2, &[7; 30])];
        lab.arrive(&(0..100).flat_map(of_both).collect::<Vec<_>>());
        long_turns(&mut lab, 100);
        assert_eq!((lab.count(other, Counter::Released), lab.count(other, Counter::DropShare)), (100, 0), "{schedule}");
        assert_eq!(lab.count(waiting, Counter::DropShare), 100 - 32, "{schedule}: its share is half the buffer");
        assert!(lab.total(Counter::HerStalls) > 0, "{schedule}: they did wait");
        // The stall is repaid, so that the context stalls the others again for a while.
        let (stalls, dropped) = (lab.total(Counter::HerStalls), lab.count(waiting, Counter::DropShare));
        lab.arrive(&[meeting(200, 200)]);
        (0..2).for_each(|_| lab.poll());
        let again = (lab.total(Counter::HerStalls) > stalls, lab.count(waiting, Counter::DropShare) - dropped);
        assert_eq!(again, (true, 0), "{schedule}");
    }
}

#[test]
fn one_that_has_nobody_wait_loses_nothing() {
    let sizes = Sizes { hers: 64, ..Sizes::default() };
    let install = Install { full: Full::Wait, ..Install::default() };
    let (mut lab, [waiting, other]) = one_that_waits(Schedule::Wlbvt, sizes, install);
    lab.engine.remove(other, ROOT).expect("installed");
    lab.arrive(&(0..100).map(|who| meeting(3 + who, 3 + who)).collect::<Vec<_>>());
    long_turns(&mut lab, 1000);
    assert_eq!(lab.count(waiting, Counter::DropShare), 0);
}

#[test]
fn queues_behind_one_that_waits_give_way_too() {
    let sizes = Sizes { queues: 32, hers: 256, ..Sizes::default() };
    let install = Install { eom: Some(NO_END.into()), ..Install::default() };
    let (mut lab, [waiting, other]) = one_that_waits(Schedule::RoundRobin, sizes, install);
    // The next packet of the message whose first one waits comes first.
    lab.arrive(&(1..=32).map(|who| meeting(who, who)).collect::<Vec<_>>());
    lab.poll();
    lab.arrive(&packets_for_the_other(4));
    (0..20).for_each(|_| lab.poll());
    assert_eq!((lab.count(other, Counter::Released), lab.total(Counter::DropNoMpq)), (4, 0));
    assert!(lab.count(waiting, Counter::MessagesEvicted) > 0);
}

#[test]
fn what_tasks_take_that_wait_is_their_contexts_time() {
    let mut lab = Lab::sized(Kind::Jit, ONE_CLUSTER, 512, Sizes::default(), Schedule::Wlbvt);
    let (waiting, _) = lab.install_with("meet", Install { hpus: Some(2), ..rule("udp dport 1") });
    let other = lab.install("udp_pingpong", "udp dport 2");
    lab.arrive(&[meeting(1, 2)]);
    while lab.count(waiting, Counter::Parked) == 0 {
        lab.poll();
    }
    // Each resumption takes a millisecond.
    let now = Cell::new(Duration::ZERO);
    for _ in 0..20 {
        lab.engine.poll(|| now.replace(now.get() + Duration::from_millis(1))).expect("memory does not fail");
    }
    lab.now = now.get();
    let both =
        (0..40).flat_map(|flow| [meeting(3 + flow, 3 + flow), packets_for_the_other(40).swap_remove(flow.into())]);
    lab.arrive(&both.collect::<Vec<_>>());
    while lab.count(waiting, Counter::PayloadRuns) == 1 {
        lab.poll();
    }
    assert!(lab.count(other, Counter::PayloadRuns) >= 32, "it is the other's turn until it has had as much");
}

#[test]
fn what_a_task_sends_leaves_before_it_waits() {
    for kind in [Kind::Jit, Kind::Interp] {
        let mut lab = Lab::with(kind, ONE_CLUSTER, 256);
        let (id, _) = lab.install_with("send_and_wait", Install { hpus: Some(2), ..rule("udp dport 1") });
        let for_the_send = udp_from(9, 1, &[[9, 9, 1].as_slice(), &[0; 30]].concat());
        assert_eq!((lab.exchange(&[for_the_send]).len(), lab.faults(id)), (1, vec![]), "{kind}");
        // Includes that task too, if the system interrupted it.
        let before = lab.count(id, Counter::Parked);
        lab.arrive(&[udp_from(1, 1, &[[1, 2, 0].as_slice(), &[0; 30]].concat())]);
        while lab.count(id, Counter::Parked) == before {
            lab.poll();
        }
        let mut sent = Vec::new();
        assert_eq!(lab.far.receive(&mut sent, 8), 1, "{kind}: it is on its way");
        sent.into_iter().for_each(|frame| lab.far.recycle(frame));
        let other = udp_from(2, 1, &[[2, 1, 0].as_slice(), &[0; 30]].concat());
        assert_eq!((lab.exchange(&[other]).len(), lab.faults(id)), (1, vec![]), "{kind}");
        assert_eq!(lab.total(Counter::RxPackets), lab.total(Counter::Released), "{kind}");
    }
}

#[test]
fn tasks_that_wait_when_their_context_is_removed_are_not_complete() {
    let (mut lab, [waiting, _]) = one_that_waits(Schedule::RoundRobin, Sizes::default(), Install::default());
    lab.engine.remove(waiting, ROOT).expect("installed");
    let counts = [Counter::PayloadRuns, Counter::Messages, Counter::Released, Counter::DropRemoved];
    assert_eq!(counts.map(|counter| lab.total(counter)), [1, 0, 0, 1]);
}

/// Five tasks on clusters of one HPU each. Four of them wait for the fifth.
fn five_that_meet(placement: Placement) -> (Lab, u32) {
    let mut lab = Lab::with(Kind::Jit, Machine { clusters: 4, ..Machine::PSPIN }, 256);
    let install = Install { placement, watchdog_us: Some(30_000), ..rule("udp dport 1") };
    let (id, _) = lab.install_with("meet", install);
    // Some of these messages have the same home.
    lab.arrive(&(1..5).map(|who| meeting(who, 5)).collect::<Vec<_>>());
    (0..4).for_each(|_| lab.poll());
    (lab, id)
}

#[test]
fn payload_tasks_overflow_to_the_cluster_that_has_an_hpu() {
    let (mut lab, id) = five_that_meet(Placement::Any);
    assert_eq!(lab.count(id, Counter::PayloadRuns), 4, "each on an HPU of its own");
    let away = lab.count(id, Counter::Overflowed);
    assert!((1..4).contains(&away), "{away} of four");
    // No HPU is left for the task that they wait for.
    lab.arrive(&[meeting(5, 5)]);
    (0..4).for_each(|_| lab.poll());
    assert_eq!(lab.count(id, Counter::PayloadRuns), 4);
    let sent = lab.exchange(&[]);
    let ended = lab.faults(id).len();
    assert!(ended > 0, "the clock ends one at least, before there is an HPU");
    assert_eq!((sent.len() + ended, lab.count(id, Counter::PayloadRuns)), (5, 5));
}

#[test]
fn a_task_away_from_home_knows_both_clusters() {
    // One task waits for a packet with the same home.
    let mut lab = Lab::with(Kind::Jit, Machine { clusters: 2, ..Machine::PSPIN }, 256);
    let (id, _) = lab.install_with("meet", rule("udp dport 1"));
    lab.arrive(&[meeting(1, 2)]);
    (0..4).for_each(|_| lab.poll());
    let sent = lab.exchange(&(2..20).map(|who| meeting(who, who)).collect::<Vec<_>>());
    let homes =
        |away: bool| sent.iter().map(|frame| (frame[44], frame[45])).filter(move |(own, home)| (own != home) == away);
    assert_eq!((sent.len(), homes(true).count() as u64), (19, lab.count(id, Counter::Overflowed)));
    assert!(homes(true).count() > 0 && homes(false).count() > 0, "{sent:?}");
}

#[test]
fn with_placement_home_none_overflows() {
    let (lab, id) = five_that_meet(Placement::Home);
    assert!(lab.count(id, Counter::PayloadRuns) < 4, "some have no HPU at home");
    assert_eq!(lab.count(id, Counter::Overflowed), 0);
}

#[test]
fn others_go_on_while_a_task_waits_and_its_hpu_is_its_own() {
    let mut lab = Lab::with(Kind::Jit, ONE_CLUSTER, 256);
    let (id, _) = lab.install_with("meet", rule("udp dport 1"));
    lab.install("udp_pingpong", "udp dport 2");
    let arrive = |lab: &mut Lab, bytes: &[u8]| {
        lab.arrive(&[bytes.to_vec()]);
        (0..4).for_each(|_| lab.poll());
    };
    arrive(&mut lab, &meeting(b'a', b'b'));
    assert!(lab.engine.has_tasks() && lab.total(Counter::Released) == 0);
    arrive(&mut lab, &udp(2, &[7; 30]));
    assert_eq!(lab.total(Counter::TxPackets), 1, "another context's");
    // The task that would wake it has the same home and no HPU.
    arrive(&mut lab, &meeting(b'b', b'b'));
    assert_eq!((lab.total(Counter::TxPackets), lab.count(id, Counter::PayloadRuns)), (1, 1));
    lab.engine.remove(id, ROOT).expect("installed");
    assert!(!lab.engine.has_tasks());
    let (released, dropped) = (lab.total(Counter::Released), lab.total(Counter::DropRemoved));
    assert_eq!((released, dropped), (1, 2), "the one that waited is dropped, and the one behind it");
}

#[test]
fn a_task_that_waits_in_vain_is_ended_by_the_clock() {
    let mut lab = Lab::new(Kind::Jit);
    let (id, _) = lab.install_with("meet", Install { watchdog_us: Some(2000), ..rule("udp dport 1") });
    lab.exchange(&[meeting(b'a', b'b')]);
    let fault = lab.faults(id)[0].fault;
    assert_eq!(fault.cause, spin_abi::fault::Cause::Watchdog);
    assert_eq!(lab.total(Counter::Released), 1);
    assert_eq!(lab.events(id), [What::Fault { stage: 1, fault }], "its application is told");
}
