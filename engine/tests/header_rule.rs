//! Packets of a network that reorders and loses them, in a context that says which ones are headers.

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use common::{Kind, Lab, ROOT, rule, udp};
use fastrand::Rng;
use spin_abi::control::{Early, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::install::InstallError;
use spin_engine::settings::Sizes;
use spin_shm::Region;
use spin_testing::bounded;

/// Room for all packets and messages.
const AMPLE: Sizes = Sizes { queues: 4096, hers: 8192, dma_chunk: 1024 };
/// Fewer queues than open messages, and few HERs.
const SMALL: Sizes = Sizes { queues: 24, hers: 64, dma_chunk: 1024 };
/// Messages of which packets are in transit at a time.
const OPEN: usize = 40;
/// Packets of a round, whose messages have queues enough.
const ROUND: usize = 8000;
/// Packets that arrive at once.
const BATCH: usize = 100;
/// Bytes of a record of the handlers.
const RECORD: usize = 8;

/// A packet of a message. Its header is number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    message: u32,
    number: u32,
    end: bool,
    instance: u32,
}

impl Packet {
    fn frame(self) -> Vec<u8> {
        let words = [self.message, self.number, u32::from(self.end), self.instance];
        udp(1, &words.map(u32::to_be_bytes).concat())
    }
}

/// Endless messages: packets of several are mixed, and one in twenty is lost.
struct Network {
    rng: Rng,
    transit: Vec<Packet>,
    messages: u32,
    instances: u32,
}

impl Network {
    const fn new(rng: Rng) -> Self {
        Self { rng, transit: Vec::new(), messages: 0, instances: 0 }
    }

    fn next(&mut self) -> Packet {
        while self.transit.len() < 4 * OPEN {
            self.messages += 1;
            let length = self.rng.u32(1..=8);
            for number in 0..length {
                self.instances += 1;
                let packet =
                    Packet { message: self.messages, number, end: number + 1 == length, instance: self.instances };
                if self.rng.u8(..20) > 0 {
                    self.transit.push(packet);
                }
            }
        }
        self.transit.swap_remove(self.rng.usize(..self.transit.len()))
    }
}

/// A record: the handler ('H', 'P' or 'C') and the packet's instance.
type Record = (char, u32);

/// What should happen to the packets of one message.
#[derive(Default)]
struct Naive {
    has_header: bool,
    waiting: Vec<Packet>,
    expected: Vec<Record>,
}

impl Naive {
    fn receive(&mut self, packet: Packet) {
        if self.has_header {
            return self.run(packet);
        }
        if packet.number > 0 {
            return self.waiting.push(packet);
        }
        self.has_header = true;
        self.expected.push(('H', packet.instance));
        self.run(packet);
        for packet in std::mem::take(&mut self.waiting) {
            if self.has_header { self.run(packet) } else { self.waiting.push(packet) }
        }
    }

    fn run(&mut self, packet: Packet) {
        self.expected.push(('P', packet.instance));
        if packet.end {
            self.expected.push(('C', packet.instance));
            self.has_header = false;
        }
    }
}

struct Case {
    lab: Lab,
    id: u32,
    host: Arc<Region>,
}

impl Case {
    fn new(sizes: Sizes, install: Install) -> Self {
        let mut lab =
            Lab::sized(Kind::Jit, Machine::PSPIN, 4 * BATCH + sizes.hers as usize, sizes, Schedule::default());
        let install = Install {
            host_mem: 32 << 20,
            eom: Some("payload[8:4] = 1".into()),
            key: Some("payload[0:4]".into()),
            ..install
        };
        let (id, host) = lab.install_with("three_handlers", install);
        Self { lab, id, host: host.expect("host memory") }
    }

    fn ruled(sizes: Sizes, early: Early) -> Self {
        let install = Install { header: Some("payload[4:4] = 0".into()), early, ..rule("udp dport 1") };
        Self::new(sizes, install)
    }

    /// Messages end soon after their last packet, and leave their queue to others.
    fn hurried(sizes: Sizes, early: Early) -> Self {
        let install = Install { header: Some("payload[4:4] = 0".into()), early, ..rule("udp dport 1") };
        Self::new(sizes, Install { message_timeout_us: Some(20_000), ..install })
    }

    fn receive(&mut self, packets: &[Packet]) {
        let frames: Vec<_> = packets.iter().map(|packet| packet.frame()).collect();
        assert!(self.lab.exchange(&frames).is_empty());
    }

    fn counts<const N: usize>(&self, counters: [Counter; N]) -> [u64; N] {
        counters.map(|counter| self.lab.count(self.id, counter))
    }

    /// The records of all handlers that ran, in order.
    fn records(&self) -> Vec<Record> {
        let runs = self.counts([Counter::HeaderRuns, Counter::PayloadRuns, Counter::CompletionRuns]);
        let mut bytes = vec![0; runs.iter().sum::<u64>() as usize * RECORD];
        self.host.read(0, &mut bytes).expect("few records");
        let record =
            |bytes: &[u8]| (char::from(bytes[0]), u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]));
        bytes.chunks_exact(RECORD).map(record).collect()
    }

    /// Lets time pass until all messages that wait have timed out.
    fn time_out(&mut self) {
        for _ in 0..100 {
            self.lab.now += Duration::from_millis(50);
            self.lab.poll();
        }
    }
}

#[test]
fn packets_run_behind_their_header_whatever_their_order() {
    let seed = Rng::new().u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    for _ in 0..bounded(60_000, 1_000_000) as usize / ROUND {
        run_exactly(Network::new(rng.fork()));
    }
}

/// Compares a round with the naive reading. Nothing times out meanwhile, so messages without an end keep their queues.
fn run_exactly(mut network: Network) {
    let mut case = Case::ruled(AMPLE, Early::Wait);
    let (mut naive, mut messages) = (HashMap::<u32, Naive>::new(), HashMap::new());
    for _ in 0..ROUND / BATCH {
        let packets: Vec<_> = (0..BATCH).map(|_| network.next()).collect();
        for &packet in &packets {
            messages.insert(packet.instance, packet.message);
            naive.entry(packet.message).or_default().receive(packet);
        }
        case.receive(&packets);
    }
    let mut seen = HashMap::<u32, Vec<Record>>::new();
    for record in case.records() {
        seen.entry(messages[&record.1]).or_default().push(record);
    }
    for (message, Naive { expected, .. }) in &naive {
        assert_eq!(seen.get(message).map_or(&[][..], |seen| seen), expected, "message {message}");
    }
    let waiting: usize = naive.values().map(|naive| naive.waiting.len()).sum();
    assert_eq!(case.counts([Counter::DropNoHeader, Counter::DropShare, Counter::DropNoMpq]), [0; 3]);
    case.time_out();
    assert_eq!(case.counts([Counter::DropNoHeader]), [waiting as u64]);
    assert!(waiting > 100, "packets without a header: {waiting}");
}

#[test]
fn with_little_room_each_packet_runs_behind_its_header_or_is_counted() {
    for early in [Early::Wait, Early::Drop] {
        let seed = Rng::new().u64(..);
        println!("seed {seed}");
        let (mut network, mut case) = (Network::new(Rng::with_seed(seed)), Case::hurried(SMALL, early));
        let (mut arrived, count) = (HashMap::new(), bounded(40_000, 500_000) as usize / BATCH * BATCH);
        for _ in 0..count / BATCH {
            let packets: Vec<_> = (0..BATCH).map(|_| network.next()).collect();
            arrived.extend(packets.iter().map(|packet| (packet.instance, *packet)));
            case.receive(&packets);
            case.lab.now += Duration::from_micros(network.rng.u64(..20_000));
        }
        case.time_out();
        let (mut open, mut ran) = (HashSet::new(), HashSet::new());
        for (handler, instance) in case.records() {
            let Packet { message, number, end, .. } = arrived[&instance];
            match handler {
                'H' => assert!(number == 0 && open.insert(message), "{message}"),
                'P' => assert!(open.contains(&message) && ran.insert(instance), "{message}, packet {number}"),
                _ => assert!(end && ran.contains(&instance) && open.remove(&message), "{message}"),
            }
        }
        let lost = case.counts([Counter::DropNoHeader, Counter::DropShare, Counter::DropNoMpq, Counter::DropKilled]);
        assert_eq!(ran.len() as u64 + lost.iter().sum::<u64>(), count as u64, "{early}: {lost:?}");
        assert!(lost[0] > 100 && ran.len() > count / 10, "{early}: {} ran, {lost:?}", ran.len());
    }
}

#[test]
fn a_message_keeps_64_packets_that_wait() {
    let mut case = Case::ruled(AMPLE, Early::Wait);
    let packet = |number| Packet { message: 7, number, end: number == 70, instance: number };
    let early: Vec<_> = (1..=70).map(packet).collect();
    case.receive(&early);
    assert_eq!(case.counts([Counter::DropNoHeader, Counter::PayloadRuns]), [6, 0]);
    case.receive(&[packet(0)]);
    assert_eq!(case.counts([Counter::HeaderRuns, Counter::PayloadRuns]), [1, 65]);
    case.time_out();
    assert_eq!(case.counts([Counter::DropNoHeader, Counter::MessagesTimedOut]), [6, 0], "the message has its header");
    case.lab.engine.remove(case.id, ROOT).expect("installed");
}

#[test]
fn half_of_a_share_is_left_for_headers() {
    let mut case = Case::ruled(Sizes { queues: 64, ..SMALL }, Early::Wait);
    let packet = |message: u32, number| Packet { message, number, end: false, instance: message };
    let early: Vec<_> = (1..=60).map(|message| packet(message, 1)).collect();
    case.receive(&early);
    let [dropped] = case.counts([Counter::DropNoHeader]);
    assert_eq!(dropped, 60 - 32, "32 of 64 HERs");
    // Which messages kept their packet depends on the order of their clusters.
    let headers: Vec<_> = (1..=60).map(|message| packet(message, 0)).collect();
    case.receive(&headers);
    assert_eq!(case.counts([Counter::HeaderRuns, Counter::PayloadRuns]), [60, 60 + 32]);
}

/// Messages that wait for headers keep no other context from queues.
#[test]
fn a_message_that_waits_leaves_its_queue_to_another_context() {
    let mut case = Case::ruled(SMALL, Early::Wait);
    let packet = |message: u32| Packet { message, number: 1, end: false, instance: message };
    case.receive(&(1..=SMALL.queues).map(packet).collect::<Vec<_>>());
    let other = case.lab.install("three_handlers", "udp dport 2");
    case.lab.exchange(&[udp(2, &[0; 16])]);
    assert_eq!([Counter::Messages, Counter::DropNoMpq].map(|counter| case.lab.count(other, counter)), [1, 0]);
    assert_eq!(case.counts([Counter::MessagesEvicted, Counter::DropShare, Counter::DropNoHeader]), [1, 1, 0]);
}

#[test]
fn rules_that_cannot_be_are_refused() {
    let mut lab = Lab::new(Kind::Interp);
    let image = common::image("empty");
    let header = |text: &str| Install { header: Some(text.into()), ..rule("udp dport 1") };
    let mut refused = |install| lab.try_install(&image, install, ROOT).expect_err("refused");
    let error = refused(header("payload["));
    assert!(matches!(error, InstallError::Header(_)), "{error}");
    let error = refused(Install { eom: Some("never".into()), ..header("any") });
    assert!(matches!(error, InstallError::HeaderNeverEnds), "{error}");
    let error = refused(header(&["udp dport 1"; 300].join(" or ")));
    assert!(matches!(error, InstallError::Text(_) | InstallError::HeaderTests(_)), "{error}");
}
