//! A NIC that refuses rules while one thread receives and another runs handlers: contexts go on as they were.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{image, nic_that_refuses, rule, udp_from};
use rustix::event::{EventfdFlags, eventfd};
use spin_abi::control::{Engine as Kind, Install, Schedule};
use spin_abi::map::Machine;
use spin_engine::config::{Idle, Limits, Sizes};
use spin_engine::fleet::{ClusterThread, Fleet};
use spin_engine::install::{Prepared, User};
use spin_engine::loader::Loader;
use spin_engine::receiver::Receiver;
use spin_engine::threads::{Common, Feed, Worker};
use spin_nic::Queue;
use spin_nic::memory::MemoryQueue;

const PATIENCE: Duration = Duration::from_secs(20);
const USER: User = User(0);

/// Whether a packet to a port is sent back before long.
fn is_answered(far: &mut MemoryQueue, port: u16) -> bool {
    let mut frame = far.allocate().expect("the pair has more");
    frame.fill(&udp_from(1000, port, &[7; 30])).expect("short");
    far.send(&mut vec![frame]);
    far.flush().expect("memory does not fail");
    let (mut replies, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while far.receive(&mut replies, 1) == 0 {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    replies.into_iter().for_each(|reply| far.recycle(reply));
    true
}

#[test]
fn contexts_go_on_as_they_were() {
    let (nic, mut far, refuse) = nic_that_refuses(64);
    let (receiver, mut lanes) = Receiver::new(nic, 1).expect("a lane");
    let (arrivals, queue) = lanes.swap_remove(0);
    let common = Common {
        loader: Arc::new(Loader::new(Machine::PSPIN, Kind::Jit)),
        sizes: Sizes::default(),
        schedule: Schedule::default(),
        idle: Idle::Spin,
        go: Arc::new(AtomicBool::new(true)),
        stop: Arc::default(),
        start: Instant::now(),
        ended: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor")),
    };
    let worker = Worker::start_engine(common.clone(), Feed::of_lane(arrivals, queue), 0..4, None).expect("a thread");
    let bell = receiver.bell().clone();
    let receives = Worker::start(common.clone(), "receiver".into(), None, bell, || Ok(receiver)).expect("a thread");
    let fleet = Fleet::new(vec![ClusterThread { clusters: 0..4, worker }], Some(receives), Limits::default());
    let prepare = |install| {
        Prepared::new(install, &image("udp_pingpong"), 0, &common.loader, &Limits::default()).expect("a fine context")
    };
    let first = fleet.install(prepare(rule("udp dport 1"))).expect("room");
    let second = fleet.install(prepare(rule("udp dport 2"))).expect("room");
    assert!(is_answered(&mut far, 1) && is_answered(&mut far, 2));

    refuse.store(true, Relaxed);
    let replacing = || prepare(Install { replaces: Some(first), ..rule("udp dport 1") });
    fleet.install(replacing()).expect_err("its rules are refused");
    assert!(is_answered(&mut far, 1) && is_answered(&mut far, 2), "the one in its place is there again");
    fleet.set_rules(first, USER, &["udp dport 3".into()], None).expect_err("refused");
    assert!(is_answered(&mut far, 1));
    // One goes all the same.
    let changed = fleet.change(vec![replacing()], vec![(second, USER)]);
    assert!(changed.installed[0].is_err() && changed.removed[0].is_ok());
    assert!(is_answered(&mut far, 1));

    refuse.store(false, Relaxed);
    let new = fleet.install(replacing()).expect("no more reason to refuse it");
    assert!(new > second && is_answered(&mut far, 1));
    common.stop.store(true, Relaxed);
    let statistics = fleet.workers.into_iter().map(|thread| thread.worker.join()).collect::<Result<Vec<_>, _>>();
    statistics.expect("it did not end by itself");
}
