//! Contexts are installed, removed, replaced and given other rules in random order, on a NIC that refuses some of it. Packets
//! arrive for all of them. Each packet of the one context that stays is answered once.

mod common;
#[path = "common/threads.rs"]
mod threads;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use common::{Moody, NO_END, image, moody_nic, payload, rule, udp_from};
use fastrand::Rng;
use spin_abi::control::Install;
use spin_abi::counters::Counter;
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_engine::cores::units::{PlannedWorker, plan};
use spin_engine::cores::{
    ChangeResult, ClusterThread, PollThread, Receiving, SharedConfig, Transaction, WorkerGroup, WorkerLinks,
};
use spin_engine::install::{MatchSpec, Prepared, User};
use spin_engine::settings::{Idle, Limits, Sizes};
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Queue, TxQueue};
use threads::all_threads;

const PATIENCE: Duration = Duration::from_secs(60);
const USER: User = User(0);
/// The port of the context that stays.
const STAYS: u16 = 1;
/// The ports of the others.
const COME_AND_GO: Range<u16> = 2..7;
/// Maximum number of transactions at once, and the number of rounds.
const TOGETHER: u32 = 4;
const TIMES: u32 = 60;
/// Concurrent messages of each port, which stay open as long as their context exists. The queues suffice for all contexts.
const FLOWS: u16 = 20;
const QUEUES: u32 = TIMES * TOGETHER * FLOWS as u32;
/// Packets of the staying context in flight at once.
const FEW: usize = 8;

/// Variants of threads: the distributor's local share in pipeline mode, and the number of threads that run handlers. Several with a NIC queue
/// are of as many units.
const WAYS: [(Option<u32>, usize); 5] = [(None, 1), (Some(0), 1), (Some(0), 2), (Some(75), 2), (None, 8)];
/// The thread of several with a NIC queue at which packets arrive.
const ARRIVES_AT: usize = 3;

/// The far ends of the NIC queues: packets arrive at the first one.
struct Far(Vec<MemoryQueue>);

impl Far {
    /// Lets a packet arrive. Returns whether there was a frame for it.
    fn send(&mut self, packet: &[u8]) -> bool {
        let Some(mut frame) = self.0[0].allocate() else { return false };
        frame.fill(packet).expect("short");
        self.0[0].send(&mut vec![frame]);
        true
    }

    /// Takes a few replies of each queue.
    fn receive(&mut self, mut reply: impl FnMut(&[u8])) {
        self.0[0].flush().expect("memory does not fail");
        for far in &mut self.0 {
            let mut replies = Vec::new();
            far.receive(&mut replies, FEW);
            for frame in replies {
                reply(&frame);
                far.recycle(frame);
            }
        }
    }
}

/// The threads of a group, of which `handlers` run handlers.
fn start(local_share: Option<u32>, handlers: usize, common: &SharedConfig) -> (WorkerGroup, Far, Arc<Moody>) {
    let (nic, first, steering) = moody_nic(4096);
    let mut far = vec![first];
    let (mut feeds, receiving) = match local_share {
        None => {
            let mut nics: Vec<_> = (1..handlers).map(|_| pair(4096).expect("a pair")).collect();
            let mut links = Vec::new();
            for (near, end) in nics.drain(..) {
                links.push(WorkerLinks::from_nic(Box::new(near)).expect("a descriptor"));
                far.push(end);
            }
            links.insert(ARRIVES_AT.min(links.len()), WorkerLinks::from_nic(nic).expect("a descriptor"));
            (links, Receiving::Each)
        }
        Some(0) => {
            let (receiver, ends) = ReceiveOnly::new(nic, handlers, 1024).expect("channels");
            let wakeup = receiver.wakeup().clone();
            let receiver = PollThread::start(common.clone(), "receiver".into(), None, wakeup, || Ok(receiver));
            let feeds = ends.into_iter().map(|(arrivals, queue)| WorkerLinks::from_channel(arrivals, queue)).collect();
            (feeds, Receiving::Apart(receiver.expect("a thread")))
        }
        Some(local_share) => {
            let (first, ends) =
                WorkerLinks::with_local_share(nic, handlers - 1, 1024, local_share).expect("a descriptor");
            let others = ends.into_iter().map(|(arrivals, queue)| WorkerLinks::from_channel(arrivals, queue));
            (std::iter::once(first).chain(others).collect(), Receiving::First)
        }
    };
    let cores: Vec<usize> = (0..feeds.len()).collect();
    let units = if local_share.is_none() { handlers } else { 1 };
    let planned = plan(&cores, |_| 0, 4, Some(units as u32)).expect("possible");
    WorkerLinks::connect(&mut feeds, &planned);
    let thread = |(planned, feed): (PlannedWorker, _)| {
        let worker = PollThread::start_engine(common.clone(), feed, planned.part.clone(), None).expect("a thread");
        ClusterThread { planned, worker }
    };
    let workers = planned.into_iter().zip(feeds).map(thread).collect();
    (WorkerGroup::new(workers, receiving, steering.clone(), Limits::default()), Far(far), steering)
}

/// Random requests to a group.
struct Storm {
    rng: Rng,
    common: SharedConfig,
    steering: Arc<Moody>,
    /// The id of the context that stays.
    stays: u32,
    others: Vec<u32>,
}

impl Storm {
    fn port(&mut self) -> String {
        format!("udp dport {}", self.rng.u16(COME_AND_GO))
    }

    fn other(&mut self) -> Option<u32> {
        (!self.others.is_empty()).then(|| self.others[self.rng.usize(..self.others.len())])
    }

    /// A context whose messages are one packet each, or never end.
    fn prepare(&mut self, port: &str, replaces: Option<u32>) -> Prepared {
        let eom = (port != stays() && self.rng.bool()).then(|| NO_END.to_owned());
        let install = Install { replaces, eom, ..rule(port) };
        Prepared::new(install, &image("udp_pingpong"), 0, &self.common.loader, &Limits::default()).expect("fine")
    }

    /// Some changes, and the index of the one that replaces the staying context, if any.
    fn some(&mut self) -> (Transaction, Option<usize>) {
        let (mut changes, mut successor) = (Transaction::default(), None);
        for _ in 0..self.rng.u32(1..=TOGETHER) {
            let port = self.port();
            match (self.rng.u32(..6), self.other()) {
                (0, _) if successor.is_none() => {
                    successor = Some(changes.installs.len());
                    let prepared = self.prepare(&stays(), Some(self.stays));
                    changes.installs.push(prepared);
                }
                (1, Some(id)) => changes.removals.push((id, USER)),
                (2, Some(id)) => {
                    let prepared = self.prepare(&port, Some(id));
                    changes.installs.push(prepared);
                }
                (3, Some(id)) => changes.rules.push((id, USER, MatchSpec::parse(&[port], None).expect("fine rules"))),
                _ => {
                    let prepared = self.prepare(&port, None);
                    changes.installs.push(prepared);
                }
            }
        }
        (changes, successor)
    }

    fn rage(mut self, group: WorkerGroup) -> WorkerGroup {
        for _ in 0..TIMES {
            self.steering.refuses.store(self.rng.u32(..3) == 0, Relaxed);
            let (changes, successor) = self.some();
            let ChangeResult { installed, .. } = group.change(changes);
            if let Some(Ok(id)) = successor.map(|at| &installed[at]) {
                self.stays = *id;
            }
            let infos = group.first(|engine| Ok(engine.context_infos())).expect("it lives");
            self.others = infos.iter().map(|info| info.context).filter(|&id| id != self.stays).collect();
            assert!(infos.len() == self.others.len() + 1, "{} is not there", self.stays);
        }
        self.steering.refuses.store(false, Relaxed);
        let removals = self.others.iter().map(|&id| (id, USER)).collect();
        group.change(Transaction { removals, ..Transaction::default() });
        group
    }
}

fn stays() -> String {
    format!("udp dport {STAYS}")
}

/// Packets for all contexts, and their replies.
struct Traffic {
    rng: Rng,
    far: Far,
    sent: u32,
    unanswered: HashSet<u32>,
}

impl Traffic {
    fn send(&mut self) {
        let of_others = self.rng.bool();
        if !of_others && self.unanswered.len() >= FEW {
            return;
        }
        let port = if of_others { self.rng.u16(COME_AND_GO) } else { STAYS };
        self.sent += 1;
        let packet = udp_from(1000 + self.rng.u16(..FLOWS), port, &self.sent.to_be_bytes());
        if self.far.send(&packet) && !of_others {
            self.unanswered.insert(self.sent);
        }
    }

    fn receive(&mut self) {
        let Self { far, unanswered, .. } = self;
        far.receive(|reply| {
            if reply[34..36] == STAYS.to_be_bytes() {
                let number = payload(reply)[..4].try_into().map(u32::from_be_bytes).expect("four bytes");
                assert!(unanswered.remove(&number), "{number} was answered before");
            }
        });
    }
}

#[test]
fn packets_of_the_one_that_stays_are_all_answered() {
    for (local_share, handlers) in WAYS {
        let seed = fastrand::u64(..);
        eprintln!("{local_share:?} with {handlers}, seed {seed}");
        let common = all_threads(if handlers > 2 { Idle::Sleep } else { Idle::Spin });
        let common = SharedConfig { sizes: Sizes { queues: QUEUES, ..common.sizes }, ..common };
        let (group, far, steering) = start(local_share, handlers, &common);
        let mut storm =
            Storm { rng: Rng::with_seed(seed), common: common.clone(), steering, stays: 0, others: Vec::new() };
        let first = storm.prepare(&stays(), None);
        storm.stays = group.install(first).expect("room");
        let changing = thread::spawn(move || storm.rage(group));
        let mut traffic = Traffic { rng: Rng::with_seed(seed), far, sent: 0, unanswered: HashSet::new() };
        let deadline = Instant::now() + PATIENCE;
        while !changing.is_finished() || !traffic.unanswered.is_empty() {
            assert!(Instant::now() < deadline, "not answered: {:?}", traffic.unanswered);
            if !changing.is_finished() {
                traffic.send();
            }
            traffic.receive();
        }
        let group = changing.join().expect("the one that stays is there");
        common.stop.store(true, Relaxed);
        let ended = group.workers.into_iter().map(|thread| thread.worker.join()).collect::<Result<Vec<_>, _>>();
        ended.expect("it did not end by itself");
    }
}

/// Messages with one packet each in flight at a time.
struct Streams {
    far: Far,
    /// The number of packets sent, and whether the last one is not answered yet, by message.
    messages: [(u32, bool); FEW],
    ended: u64,
}

impl Streams {
    const LONG: u32 = 40;

    /// Sends the next packet of each message. With `to_an_end`, only of messages that have begun.
    fn go_on(&mut self, to_an_end: bool) {
        for (number, (sent, is_out)) in (0..).zip(&mut self.messages) {
            if *is_out || to_an_end && *sent == 0 {
                continue;
            }
            let last = *sent + 1 == Self::LONG;
            if !self.far.send(&udp_from(1000 + number, STAYS, &[u8::from(last); 30])) {
                return;
            }
            self.ended += u64::from(last);
            (*sent, *is_out) = (if last { 0 } else { *sent + 1 }, true);
        }
    }

    fn receive(&mut self) {
        let Self { far, messages, .. } = self;
        far.receive(|reply| {
            let port = u16::from_be_bytes([reply[34], reply[35]]);
            messages[usize::from(port - 1000)].1 = false;
        });
    }

    fn are_over(&self) -> bool {
        self.messages.iter().all(|&message| message == (0, false))
    }
}

#[test]
fn messages_are_whole_though_another_context_was_to_have_their_packets() {
    for (local_share, handlers) in WAYS {
        let common = all_threads(if handlers > 2 { Idle::Sleep } else { Idle::Spin });
        let (group, far, steering) = start(local_share, handlers, &common);
        let loader = common.loader.clone();
        let prepare = move |replaces| {
            let install = Install { eom: Some("payload[0:1] = 1".into()), replaces, ..rule(&stays()) };
            Prepared::new(install, &image("answer_in_three"), 0, &loader, &Limits::default()).expect("fine")
        };
        let first = group.install(prepare(None)).expect("room");
        steering.refuses.store(true, Relaxed);
        let changing = thread::spawn(move || {
            (0..100).for_each(|_| assert!(group.install(prepare(Some(first))).is_err()));
            group
        });
        let mut streams = Streams { far, messages: [(0, false); FEW], ended: 0 };
        let deadline = Instant::now() + PATIENCE;
        while !changing.is_finished() || !streams.are_over() {
            assert!(Instant::now() < deadline, "{local_share:?}: not answered: {:?}", streams.messages);
            streams.go_on(changing.is_finished());
            streams.receive();
        }
        let group = changing.join().expect("all are refused");
        steering.refuses.store(false, Relaxed);
        common.stop.store(true, Relaxed);
        let ended = group.workers.into_iter().map(|thread| thread.worker.join()).collect::<Result<Vec<_>, _>>();
        let ended = ended.expect("it did not end by itself");
        for counter in [Counter::HeaderRuns, Counter::CompletionRuns] {
            let runs: u64 = ended.iter().map(|statistics| statistics.counts.get(counter)).sum();
            assert_eq!(runs, streams.ended, "{local_share:?}, {}", counter.name());
        }
    }
}
