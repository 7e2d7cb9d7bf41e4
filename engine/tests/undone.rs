//! Contexts that were to replace others and are rolled back, and several that replace each other at once. Messages stay whole,
//! and nothing leaks.

mod common;
#[path = "common/streams.rs"]
mod streams;
#[path = "common/threads.rs"]
mod threads;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use common::{Kind, Lab, ROOT, image, moody_nic, rule, udp_from};
use spin_abi::control::{Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_engine::cores::units::UnitPart;
use spin_engine::cores::{ClusterThread, PollThread, Receiving, Transaction, WorkerGroup, WorkerLinks};
use spin_engine::install::Prepared;
use spin_engine::settings::{Idle, Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Queue, TxQueue};
use streams::{answers, packet, streams};
use threads::all_threads;

/// Attaches a context that does not reply.
fn link(lab: &mut Lab, replaces: Option<u32>) -> u32 {
    let prepared = Prepared::new(streams(replaces), &image("empty"), ROOT.0, &lab.loader, &lab.limits);
    lab.engine.link(prepared.expect("fine"), &lab.limits).expect("room")
}

fn contexts(slots_taken: &[bool]) -> usize {
    slots_taken.iter().filter(|taken| **taken).count()
}

#[test]
fn a_message_that_was_begun_by_one_that_gives_way_is_its_own_to_the_end() {
    let mut lab = Lab::new(Kind::Jit);
    let (old, _) = lab.install_with("udp_pingpong", streams(None));
    let new = link(&mut lab, Some(old));
    assert_eq!(answers(&mut lab, &[packet(7, false)]), [0]);
    lab.engine.rollback_replace(new).expect("it has a place");
    assert_eq!(answers(&mut lab, &[packet(7, false), packet(8, true)]), [0, 1]);
    lab.engine.undo_link(new).expect("it is there");
    assert_eq!(answers(&mut lab, &[packet(7, false), packet(7, true), packet(7, true)]), [0, 0, 1]);
    lab.poll();
    assert_eq!(contexts(&lab.engine.slots_taken()), 1);
}

/// A distributor and a worker that it feeds, polled alternately.
struct Fed {
    far: MemoryQueue,
    receiver: ReceiveOnly,
    engine: Worker,
}

impl Fed {
    /// Lets a packet arrive and hands it over.
    fn arrive(&mut self, bytes: &[u8]) {
        let mut frame = self.far.allocate().expect("the pair has more");
        frame.fill(bytes).expect("short");
        self.far.send(&mut vec![frame]);
        self.far.flush().expect("memory does not fail");
        let until = self.receiver.received() + 1;
        while self.receiver.received() < until {
            self.receiver.poll(|| Duration::ZERO).expect("memory does not fail");
        }
    }

    /// The number of replies to those packets.
    fn settle(&mut self) -> usize {
        for _ in 0..5 {
            self.engine.poll(|| Duration::ZERO).expect("a channel does not fail");
            self.receiver.poll(|| Duration::ZERO).expect("memory does not fail");
        }
        let mut batch = Vec::new();
        let answers = self.far.receive(&mut batch, 100);
        self.far.recycle_all(&mut batch);
        answers
    }
}

#[test]
fn packets_on_a_lane_that_were_found_to_be_of_one_that_gives_way_are_the_old_one_s() {
    let (near, far) = pair(1024).expect("a pair");
    let (receiver, mut ends) = ReceiveOnly::new(Box::new(near), 1, 1024).expect("a channel");
    let (arrivals, queue) = ends.swap_remove(0);
    let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
    let engine = Worker::new(loader.clone(), Box::new(queue), Sizes::default(), Schedule::default(), 0..4);
    let mut fed = Fed { far, receiver, engine: engine.expect("a timer").fed_by(arrivals) };
    let limits = Limits::default();
    let prepare = |handler: &str, install| Prepared::new(install, &image(handler), 0, &loader, &limits).expect("fine");

    let old = fed.engine.link(prepare("udp_pingpong", streams(None)), &limits).expect("room");
    fed.receiver.set_routes(fed.engine.routes());
    fed.arrive(&packet(7, false));
    assert_eq!(fed.settle(), 1);
    // The steps of a group when the NIC refuses the rules.
    let new = fed.engine.link(prepare("empty", streams(Some(old))), &limits).expect("room");
    fed.receiver.set_routes(fed.engine.routes());
    fed.arrive(&packet(7, false));
    fed.engine.rollback_replace(new).expect("it has a place");
    fed.receiver.set_routes(fed.engine.routes());
    fed.engine.undo_link(new).expect("it is there");
    assert_eq!(fed.settle(), 1);
    for last in [false, false, true] {
        fed.arrive(&packet(7, last));
        assert_eq!(fed.settle(), 1);
    }
    assert_eq!(contexts(&fed.engine.slots_taken()), 1);
}

#[test]
fn shares_of_the_buffer_are_what_they_were() {
    let sizes = Sizes { hers: 64, ..Sizes::default() };
    let mut lab = Lab::sized(Kind::Jit, Machine::PSPIN, 256, sizes, Schedule::default());
    let (old, _) = lab.install_with("udp_pingpong", rule("udp dport 1"));
    lab.install_with("udp_pingpong", rule("udp dport 9"));
    lab.steering.refuses.store(true, Relaxed);
    let heavy = Install { replaces: Some(old), weight: Some(1000), ..rule("udp dport 1") };
    lab.try_install(&image("empty"), heavy, ROOT).expect_err("refused");
    let load: Vec<_> = (0..30).map(|flow| udp_from(100 + flow, 1, &[0; 30])).collect();
    assert_eq!((lab.exchange(&load).len(), lab.total(Counter::DropShare)), (30, 0));
}

#[test]
fn the_first_of_several_that_replace_each_other_at_once_goes_too() {
    let (nic, _far, steering) = moody_nic(64);
    let common = all_threads(Idle::Spin);
    let feed = WorkerLinks::from_nic(nic).expect("a descriptor");
    let worker = PollThread::start_engine(common.clone(), feed, 0..4, None).expect("a thread");
    let limits = Limits { contexts: 4, ..Limits::default() };
    let group = WorkerGroup::new(
        vec![ClusterThread { planned: UnitPart::from(0..4).into(), worker }],
        Receiving::Each,
        steering,
        limits,
    );
    let prepare = |replaces| {
        let install = Install { replaces, ..rule("udp dport 1") };
        Prepared::new(install, &image("empty"), 0, &common.loader, &limits).expect("fine")
    };
    let settled = || {
        let deadline = Instant::now() + Duration::from_secs(20);
        while contexts(&group.first(|engine| Ok(engine.slots_taken())).expect("it lives")) > 1 {
            assert!(Instant::now() < deadline, "one stays behind");
        }
    };
    let mut id = group.install(prepare(None)).expect("room");
    for _ in 0..3 {
        // The second one replaces the first one of the two, which has the next id.
        let installs = vec![prepare(Some(id)), prepare(Some(id + 1))];
        let changed = group.change(Transaction { installs, ..Transaction::default() });
        id = *changed.installed[1].as_ref().expect("room");
        settled();
    }
    common.stop.store(true, Relaxed);
}

#[test]
fn one_whose_successor_is_taken_out_lets_its_predecessor_go() {
    let mut lab = Lab::new(Kind::Jit);
    let first = link(&mut lab, None);
    let second = link(&mut lab, Some(first));
    let third = link(&mut lab, Some(second));
    // It begins a message, which ends by the clock.
    answers(&mut lab, &[packet(7, false)]);
    lab.engine.undo_link(third).expect("it is there");
    lab.engine.retire_replaced(second).expect("it is there");
    lab.now = Duration::from_secs(60);
    (0..4096).for_each(|_| lab.poll());
    assert_eq!(contexts(&lab.engine.slots_taken()), 1);
}
