//! Pipeline mode: one thread receives and matches, others run handlers.

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Receiver as Answers, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{ROOT, image, rule, udp_from};
use spin_abi::control::{Engine as Kind, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::Poller;
use spin_engine::cores::packet_channel::{ChannelQueue, PacketRx};
use spin_engine::cores::packet_channels::{Ends, PacketChannels};
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_engine::ingress::rx_batch::RoutingTable;
use spin_engine::install::Prepared;
use spin_engine::settings::{Limits, Sizes};
use spin_engine::telemetry::statistics::Statistics;
use spin_engine::worker::Worker;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Queue, TxQueue, Wakeup};

/// Threads that run handlers, of two clusters each.
const THREADS: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

type Request = Box<dyn FnOnce(&mut Worker) + Send>;

struct Lab {
    far: MemoryQueue,
    receiver: ReceiveOnly,
    threads: Vec<(Sender<Request>, JoinHandle<Statistics>)>,
    loader: Arc<Loader>,
}

impl Lab {
    fn new(frames: usize) -> Self {
        let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
        let (near, far) = pair(frames).expect("a pair");
        let (receiver, ends) =
            ReceiveOnly::new(Box::new(near), THREADS as usize, Sizes::default().hers).expect("channels");
        let thread = |(number, (arrivals, queue)): (u32, (_, _))| {
            let (requests, asked) = channel::<Request>();
            let loader = loader.clone();
            let life = move || {
                let clusters = number * 2..number * 2 + 2;
                let engine = Worker::new(loader, Box::new(queue), Sizes::default(), Schedule::default(), clusters);
                let mut engine = engine.expect("a timer").fed_by(arrivals);
                let start = Instant::now();
                while !engine.is_finished() || engine.has_tasks() {
                    asked.try_iter().for_each(|request| request(&mut engine));
                    engine.poll(|| start.elapsed()).expect("a channel does not fail");
                }
                engine.statistics()
            };
            (requests, thread::spawn(life))
        };
        let threads = (0..THREADS).zip(ends).map(thread).collect();
        Self { far, receiver, threads, loader }
    }

    /// The result of `what` on each thread.
    fn ask<R: Send + 'static>(&self, what: impl Fn(&mut Worker) -> R + Clone + Send + 'static) -> Vec<R> {
        let asked: Vec<Answers<R>> = self.threads.iter().map(|(requests, _)| request(requests, what.clone())).collect();
        asked.into_iter().map(|answer| answer.recv().expect("the thread lives")).collect()
    }

    fn install(&mut self, handler: &str, matching: &str) -> u32 {
        let limits = Limits::default();
        let mut rest =
            Some(Prepared::new(rule(matching), &image(handler), 0, &self.loader, &limits).expect("installs"));
        let mut id = 0;
        for (number, (requests, _)) in self.threads.iter().enumerate() {
            let mut part = rest.take().expect("one for each");
            if number + 1 < self.threads.len() {
                rest = Some(part.split_off(number as u32 * 2 + 2));
            }
            let linked = request(requests, move |engine: &mut Worker| engine.link(part, &limits));
            id = linked.recv().expect("the thread lives").expect("there is room");
        }
        let routes: RoutingTable = self.ask(|engine| engine.routes()).swap_remove(0);
        self.receiver.set_routes(routes);
        id
    }

    fn remove(&mut self, id: u32) {
        let routes = self.ask(move |engine| engine.routes_without(&[id]).expect("fewer rules")).swap_remove(0);
        self.receiver.set_routes(routes);
        self.ask(move |engine| drop(engine.unlink(id, ROOT).expect("installed")));
    }

    fn arrive(&mut self, bytes: &[u8]) {
        arrive(&mut self.far, bytes);
    }

    /// Polls the distributor until nothing is in flight. Returns the frames sent.
    fn settle(&mut self) -> Vec<Vec<u8>> {
        let (mut sent, mut batch, deadline) = (Vec::new(), Vec::new(), Instant::now() + PATIENCE);
        let mut quiet = 0;
        while quiet < 3 {
            assert!(Instant::now() < deadline, "frames stay away");
            let busy = self.receiver.poll(|| Duration::ZERO).expect("memory does not fail") > 0;
            self.far.receive(&mut batch, 1024);
            quiet = if busy || !batch.is_empty() || !self.all_home() { 0 } else { quiet + 1 };
            for frame in batch.drain(..) {
                sent.push(frame.to_vec());
                self.far.recycle(frame);
            }
            self.far.flush().expect("memory does not fail");
        }
        sent
    }

    /// Whether each received frame is accounted for.
    fn all_home(&self) -> bool {
        let received = self.receiver.statistics().counts;
        let handed = received.get(Counter::RxPackets)
            - received.get(Counter::DropUnmatched)
            - received.get(Counter::DropRemoved);
        let done: u64 = self.ask(|engine| settled(&engine.statistics())).iter().sum();
        handed == done
    }

    /// Ends all threads. Returns the sum of their statistics.
    fn end(self) -> Statistics {
        let mut sum = self.receiver.statistics();
        drop(self.receiver);
        for (requests, thread) in self.threads {
            drop(requests);
            sum.merge(&thread.join().expect("no thread panics"));
        }
        sum
    }
}

fn arrive(far: &mut MemoryQueue, bytes: &[u8]) {
    let mut frame = far.allocate().expect("the pair has as many");
    frame.fill(bytes).expect("short");
    far.send(&mut vec![frame]);
}

/// Lets packets arrive, and the distributor hand them over.
fn hand_over(far: &mut MemoryQueue, receiver: &mut ReceiveOnly, packets: impl Iterator<Item = Vec<u8>>) {
    let mut until = receiver.received();
    for bytes in packets {
        arrive(far, &bytes);
        until += 1;
    }
    while receiver.received() < until {
        receiver.poll(|| Duration::ZERO).expect("memory does not fail");
    }
}

/// The far end of a distributor's NIC, the distributor, one worker that is polled on this thread, and its loader.
fn one_thread(clusters: u32) -> (MemoryQueue, ReceiveOnly, Worker, Arc<Loader>) {
    let (near, far) = pair(1024).expect("a pair");
    let (receiver, mut ends) = ReceiveOnly::new(Box::new(near), 1, Sizes::default().hers).expect("a channel");
    let (arrivals, queue) = ends.swap_remove(0);
    let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
    let engine = Worker::new(loader.clone(), Box::new(queue), Sizes::default(), Schedule::default(), 0..clusters);
    (far, receiver, engine.expect("a timer").fed_by(arrivals), loader)
}

/// Calls a function on a thread between two polls.
fn request<R: Send + 'static>(
    requests: &Sender<Request>,
    what: impl FnOnce(&mut Worker) -> R + Send + 'static,
) -> Answers<R> {
    let (reply, answer) = channel();
    let asked = requests.send(Box::new(move |engine| drop(reply.send(what(engine)))));
    asked.expect("the thread lives");
    answer
}

/// The number of frames that a worker received and released.
fn settled(statistics: &Statistics) -> u64 {
    let causes = [Counter::Released, Counter::DropRemoved, Counter::DropNoMpq, Counter::DropShare];
    causes.into_iter().map(|counter| statistics.counts.get(counter)).sum()
}

#[test]
fn packets_on_their_way_to_a_context_that_is_replaced_are_its_own() {
    const PACKETS: u16 = 300;
    let (mut far, mut receiver, mut engine, loader) = one_thread(4);
    let limits = Limits::default();
    let link = |engine: &mut Worker, receiver: &mut ReceiveOnly, install: Install| {
        let prepared = Prepared::new(install, &image("udp_pingpong"), 0, &loader, &limits).expect("installs");
        let id = engine.link(prepared, &limits).expect("there is room");
        receiver.set_routes(engine.routes());
        id
    };
    let old = link(&mut engine, &mut receiver, rule("udp dport 1"));
    hand_over(&mut far, &mut receiver, (0..PACKETS).map(|flow| udp_from(1000 + flow, 1, &[7; 30])));
    let new = link(&mut engine, &mut receiver, Install { replaces: Some(old), ..rule("udp dport 1") });
    engine.retire_replaced(new).expect("it is there");
    let counts =
        |engine: &Worker| [Counter::Released, Counter::DropRemoved].map(|of| engine.statistics().counts.get(of));
    while counts(&engine).iter().sum::<u64>() < PACKETS.into() {
        engine.poll(|| Duration::ZERO).expect("a channel does not fail");
        receiver.poll(|| Duration::ZERO).expect("memory does not fail");
    }
    assert_eq!(counts(&engine), [PACKETS.into(), 0]);
    engine.poll(|| Duration::ZERO).expect("a channel does not fail");
    assert_eq!(engine.context_infos().len(), 1, "the old one is gone");
}

#[test]
fn packets_that_are_on_their_way_when_another_context_is_removed_are_of_their_messages() {
    const PACKETS: u16 = 60;
    let (mut far, mut receiver, mut engine, loader) = one_thread(1);
    let limits = Limits::default();
    let ids = [1, 2].map(|port| {
        let streams = Install { eom: Some("payload[0:1] = 1".into()), ..rule(&format!("udp dport {port}")) };
        let prepared = Prepared::new(streams, &image("empty"), 0, &loader, &limits).expect("installs");
        engine.link(prepared, &limits).expect("there is room")
    });
    receiver.set_routes(engine.routes());
    // Ten messages of each context, all of which are open.
    let open = (0..PACKETS).map(|at| udp_from(1000 + at / 2 % 10, 1 + at % 2, &[0; 30]));
    hand_over(&mut far, &mut receiver, open);
    let removed = engine.routes_without(&[ids[0]]).expect("fewer rules");
    receiver.set_routes(removed);
    drop(engine.unlink(ids[0], ROOT).expect("installed"));
    engine.poll(|| Duration::ZERO).expect("a channel does not fail");
    hand_over(&mut far, &mut receiver, (0..10).map(|flow| udp_from(1000 + flow, 2, &[1; 30])));
    engine.poll(|| Duration::ZERO).expect("a channel does not fail");
    let counts = engine.statistics().counts;
    let counts = [Counter::DropRemoved, Counter::PayloadRuns, Counter::Messages].map(|counter| counts.get(counter));
    assert_eq!(counts, [u64::from(PACKETS / 2), u64::from(PACKETS / 2) + 10, 10]);
}

/// A worker with `hers` HERs and a local share, its far end, and the channel ends of the other workers.
fn with_local_share(clusters: u32, others: usize, hers: u32) -> (MemoryQueue, Worker, Ends, Arc<Loader>) {
    let (near, far) = pair(1 << 14).expect("a pair");
    let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
    let wakeup = Wakeup::new().expect("an event");
    let (channels, ends) =
        PacketChannels::with_local_share(near.max_frame(), &wakeup, others, hers, 75).expect("channels");
    let sizes = Sizes { hers, ..Sizes::default() };
    let engine = Worker::new(loader.clone(), Box::new(near), sizes, Schedule::default(), 0..clusters);
    (far, engine.expect("a timer").with_local_share(channels), ends, loader)
}

#[test]
fn who_receives_and_runs_handlers_has_a_quarter_less_of_the_messages() {
    const PACKETS: u16 = 900;
    let (mut far, first, ends, loader) = with_local_share(1, 2, Sizes::default().hers);
    let limits = Limits::default();
    let fed = |(cluster, (arrivals, queue)): (u32, (PacketRx, ChannelQueue))| {
        let (sizes, schedule) = (Sizes::default(), Schedule::default());
        let engine = Worker::new(loader.clone(), Box::new(queue), sizes, schedule, cluster..cluster + 1);
        engine.expect("a timer").fed_by(arrivals)
    };
    let mut engines: Vec<_> = std::iter::once(first).chain((1..).zip(ends).map(fed)).collect();
    let mut rest =
        Some(Prepared::new(rule("udp dport 1"), &image("udp_pingpong"), 0, &loader, &limits).expect("installs"));
    for (next, engine) in (1..).zip(&mut engines) {
        let mut part = rest.take().expect("one for each");
        rest = (next < 3).then(|| part.split_off(next));
        engine.link(part, &limits).expect("there is room");
    }
    let routes = engines[0].routes();
    engines[0].set_distribution(routes);
    (0..PACKETS).for_each(|flow| arrive(&mut far, &udp_from(1000 + flow, 1, &[7; 30])));
    arrive(&mut far, &udp_from(5, 2, b"for nobody"));
    let mut taken = [0; 3];
    while engines[0].received() < 901 || engines[0].is_busy() {
        for (engine, taken) in engines.iter_mut().zip(&mut taken) {
            *taken += engine.poll(|| Duration::ZERO).expect("memory does not fail");
        }
    }
    let sum = engines.iter().fold(Statistics::default(), |mut sum, engine| {
        sum.merge(&engine.statistics());
        sum
    });
    let counts = [Counter::Released, Counter::TxPackets, Counter::DropUnmatched].map(|of| sum.counts.get(of));
    assert_eq!(counts, [PACKETS.into(), PACKETS.into(), 1]);
    let mut answers = Vec::new();
    assert_eq!(far.receive(&mut answers, usize::MAX), usize::from(PACKETS));
    // All shares together are eleven quarters of one. One packet matches no context.
    let share = |quarters: usize| usize::from(PACKETS) * quarters / 11;
    assert!(taken.iter().zip([3, 4, 4]).all(|(&taken, quarters)| taken.abs_diff(share(quarters)) < 50), "{taken:?}");
}

#[test]
fn a_context_that_is_slow_keeps_no_other_s_packets_from_arriving() {
    const FLOOD: u16 = 3000;
    let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
    let (near, mut far) = pair(1 << 13).expect("a pair");
    let (mut receiver, mut ends) = ReceiveOnly::new(Box::new(near), 1, Sizes::default().hers).expect("a channel");
    let (arrivals, queue) = ends.remove(0);
    let engine = Worker::new(loader.clone(), Box::new(queue), Sizes::default(), Schedule::default(), 0..1);
    let (mut engine, limits, start) = (engine.expect("a timer").fed_by(arrivals), Limits::default(), Instant::now());
    // The slow context may use nearly all of the packet buffer.
    let slow = Install { weight: Some(9), watchdog_us: Some(300), ..rule("udp dport 1") };
    for (install, handlers) in [(slow, "endless_loop"), (rule("udp dport 2"), "udp_pingpong")] {
        let prepared = Prepared::new(install, &image(handlers), 0, &loader, &limits).expect("installs");
        engine.link(prepared, &limits).expect("there is room");
    }
    receiver.set_routes(engine.routes());
    let mut poll = |receiver: &mut ReceiveOnly| {
        receiver.poll(|| Duration::ZERO).expect("memory does not fail");
        engine.poll(|| start.elapsed()).expect("a channel does not fail");
    };
    (0..FLOOD).for_each(|_| arrive(&mut far, &udp_from(1000, 1, &[7; 30])));
    // Each poll has time for a task or two, and receives a few packets more than that.
    (0..300).for_each(|_| poll(&mut receiver));
    assert_eq!(receiver.received(), u64::from(FLOOD), "what there is no room for is dropped");
    arrive(&mut far, &udp_from(5, 2, b"quick"));
    (0..300).for_each(|_| poll(&mut receiver));
    assert_eq!(far.receive(&mut Vec::new(), 1), 1, "it is answered");
}

#[test]
fn who_receives_and_runs_handlers_has_frames_for_all_copies() {
    const PACKETS: u16 = 600;
    // All packets that arrive together are less than a quarter of the HERs, so quotas are not enforced. The watchdog parks a task
    // that the system has interrupted for long, and the packets behind it are queued.
    const HERS: u32 = 4096;
    let (mut far, mut engine, _, loader) = with_local_share(4, 0, HERS);
    // The watchdog does not end an interrupted task.
    let limits = Limits { watchdog_us: PATIENCE.as_micros() as u64, ..Limits::default() };
    let (mut expected, mut sent, deadline) = (0, 0, Instant::now() + PATIENCE);
    // Each round uses another context, whose handler is unknown, after a time without packets.
    for (port, copies) in [(1, 2_u8), (2, 9), (3, 100)] {
        let prepared = Prepared::new(rule(&format!("udp dport {port}")), &image("copies"), 0, &loader, &limits);
        engine.link(prepared.expect("installs"), &limits).expect("there is room");
        engine.set_distribution(engine.routes());
        for _ in 0..100 {
            assert_eq!(engine.poll(|| Duration::ZERO).expect("memory does not fail"), 0);
        }
        // Fewer flows than queues. Otherwise some packets would be lost while shared tasks are on other threads for long.
        (0..PACKETS).for_each(|flow| arrive(&mut far, &udp_from(1000 + flow % 200, port, &[copies; 30])));
        expected += u32::from(PACKETS) * u32::from(copies);
        let mut batch = Vec::new();
        while sent < expected {
            assert!(Instant::now() < deadline, "{sent} of {expected}: {:?}", engine.statistics().counts);
            engine.poll(|| Duration::ZERO).expect("memory does not fail");
            sent += u32::try_from(far.receive(&mut batch, usize::MAX)).expect("few");
            far.recycle_all(&mut batch);
            far.flush().expect("memory does not fail");
        }
    }
    let counts = engine.statistics().counts;
    let lost = [Counter::CommandErrors, Counter::Faults, Counter::DropShare, Counter::DropNoMpq];
    assert_eq!(lost.map(|counter| counts.get(counter)), [0; 4]);
}

#[test]
fn each_packet_is_answered_once_by_the_thread_that_is_its_home() {
    let mut lab = Lab::new(2048);
    lab.install("udp_pingpong", "udp dport 1");
    let mut expected = Vec::new();
    for round in 0..5_u8 {
        for flow in 0..400 {
            lab.arrive(&udp_from(1000 + flow, 1, &[round; 30]));
            expected.push((1000 + flow, round));
        }
        lab.arrive(&udp_from(5, 2, b"for nobody"));
        if round % 2 == 0 {
            let sent = lab.settle();
            let source = |frame: &Vec<u8>| (u16::from_be_bytes([frame[36], frame[37]]), frame[42]);
            let mut found: Vec<_> = sent.iter().map(source).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, std::mem::take(&mut expected));
        }
    }
    let runs = lab.ask(|engine| engine.statistics().counts.get(Counter::PayloadRuns));
    assert_eq!(runs.iter().sum::<u64>(), 2000);
    assert!(runs.iter().all(|&runs| runs > 400), "both have a good part: {runs:?}");
    let sum = lab.end().counts;
    assert_eq!((sum.get(Counter::RxPackets), sum.get(Counter::DropUnmatched)), (2005, 5));
    assert_eq!((sum.get(Counter::Released), sum.get(Counter::TxPackets)), (2000, 2000));
}

#[test]
fn copies_are_sent_from_fresh_frames() {
    let mut lab = Lab::new(512);
    lab.install("double_send", "udp dport 1");
    for flow in 0..100 {
        lab.arrive(&udp_from(1000 + flow, 1, &[7; 60]));
    }
    assert_eq!(lab.settle().len(), 200);
    let sum = lab.end().counts;
    let counts = [Counter::TxPackets, Counter::TxMoved, Counter::CommandErrors].map(|counter| sum.get(counter));
    assert_eq!(counts, [200, 0, 0], "all of them are copies: the handler waits for both");
}

#[test]
fn what_is_on_its_way_to_a_removed_context_is_counted() {
    let mut lab = Lab::new(512);
    let first = lab.install("udp_pingpong", "udp dport 1");
    lab.install("udp_pingpong", "udp dport 2");
    for flow in 0..100 {
        lab.arrive(&udp_from(1000 + flow, 1 + flow % 2, &[7; 30]));
    }
    lab.receiver.poll(|| Duration::ZERO).expect("memory does not fail");
    lab.remove(first);
    let third = lab.install("udp_pingpong", "udp dport 3");
    assert_ne!(first, third);
    lab.arrive(&udp_from(7, 3, &[9; 30]));
    lab.settle();
    let sum = lab.end().counts;
    let lost = sum.get(Counter::DropRemoved) + sum.get(Counter::DropUnmatched);
    assert_eq!(sum.get(Counter::RxPackets), 101);
    assert_eq!(sum.get(Counter::Released) + lost, 101);
    assert!(sum.get(Counter::TxPackets) >= 51, "those of the others are answered");
}
