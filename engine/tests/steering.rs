//! A NIC that refuses rules, or takes long to set them. Contexts and threads continue unchanged meanwhile.

mod common;
#[path = "common/threads.rs"]
mod threads;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use common::{Moody, image, moody_nic, rule, udp_from};
use spin_abi::control::Install;
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_engine::cores::units::UnitPart;
use spin_engine::cores::{
    ChangeResult, ClusterThread, PollThread, Receiving, SharedConfig, Transaction, WorkerGroup, WorkerLinks,
};
use spin_engine::install::{InstallError, MatchSpec, Prepared, User};
use spin_engine::settings::{Idle, Limits};
use spin_nic::memory::MemoryQueue;
use spin_nic::{Queue, TxQueue};
use threads::all_threads;

const PATIENCE: Duration = Duration::from_secs(20);
const USER: User = User(0);
/// Packets in flight at once.
const FEW: u16 = 32;

/// Threads with a pingpong context, and the far end of their NIC.
struct Live {
    group: WorkerGroup,
    common: SharedConfig,
    far: MemoryQueue,
    steering: Arc<Moody>,
}

/// The threads of a group with one worker for all clusters.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The worker is the only thread.
    Alone,
    /// A distributor receives for the worker.
    Fed,
    /// The worker has a local share, and would receive for others.
    Spread,
}

impl Live {
    fn start(way: Way) -> Self {
        let (nic, far, steering) = moody_nic(64);
        let common = all_threads(Idle::Spin);
        let alone = |feed| {
            let worker = PollThread::start_engine(common.clone(), feed, 0..4, None).expect("a thread");
            vec![ClusterThread { planned: UnitPart::from(0..4).into(), worker }]
        };
        let (workers, receiving) = match way {
            Way::Alone => (alone(WorkerLinks::from_nic(nic).expect("a descriptor")), Receiving::Each),
            Way::Fed => {
                let (receiver, mut channels) = ReceiveOnly::new(nic, 1, 1024).expect("a channel");
                let (arrivals, queue) = channels.swap_remove(0);
                let wakeup = receiver.wakeup().clone();
                let worker = PollThread::start(common.clone(), "receiver".into(), None, wakeup, || Ok(receiver));
                (alone(WorkerLinks::from_channel(arrivals, queue)), Receiving::Apart(worker.expect("a thread")))
            }
            Way::Spread => {
                let (feed, _) = WorkerLinks::with_local_share(nic, 0, 1024, 75).expect("a descriptor");
                (alone(feed), Receiving::First)
            }
        };
        let group = WorkerGroup::new(workers, receiving, steering.clone(), Limits::default());
        Self { group, common, far, steering }
    }

    fn prepare(&self, install: Install) -> Prepared {
        let image = image("udp_pingpong");
        Prepared::new(install, &image, 0, &self.common.loader, &Limits::default()).expect("a fine context")
    }

    fn end(self) {
        self.common.stop.store(true, Relaxed);
        let statistics =
            self.group.workers.into_iter().map(|thread| thread.worker.join()).collect::<Result<Vec<_>, _>>();
        statistics.expect("it did not end by itself");
    }
}

/// Whether a packet to a port is sent back soon.
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
        thread::yield_now();
    }
    replies.into_iter().for_each(|reply| far.recycle(reply));
    true
}

fn set_rules(group: &WorkerGroup, id: u32, rules: MatchSpec) -> Result<(), InstallError> {
    group
        .change(Transaction { rules: vec![(id, USER, rules)], ..Transaction::default() })
        .ruled
        .pop()
        .expect("one was asked for")
}

fn port_3() -> MatchSpec {
    MatchSpec::parse(&["udp dport 3".to_owned()], None).expect("fine rules")
}

#[test]
fn contexts_go_on_as_they_were_when_rules_are_refused() {
    [Way::Fed, Way::Spread].into_iter().for_each(contexts_go_on_as_they_were);
}

fn contexts_go_on_as_they_were(way: Way) {
    let mut live = Live::start(way);
    let first = live.group.install(live.prepare(rule("udp dport 1"))).expect("room");
    let second = live.group.install(live.prepare(rule("udp dport 2"))).expect("room");
    assert!(is_answered(&mut live.far, 1) && is_answered(&mut live.far, 2));

    live.steering.refuses.store(true, Relaxed);
    let replacing = |live: &Live| live.prepare(Install { replaces: Some(first), ..rule("udp dport 1") });
    live.group.install(replacing(&live)).expect_err("its rules are refused");
    assert!(is_answered(&mut live.far, 1) && is_answered(&mut live.far, 2), "the one in its place is there again");
    set_rules(&live.group, first, port_3()).expect_err("refused");
    assert!(is_answered(&mut live.far, 1));
    // The removal is carried out all the same.
    let (installs, removals) = (vec![replacing(&live)], vec![(second, USER)]);
    let changed = live.group.change(Transaction { installs, rules: vec![(first, USER, port_3())], removals });
    assert!(changed.installed[0].is_err() && changed.ruled[0].is_err() && changed.removed[0].is_ok());
    assert!(is_answered(&mut live.far, 1));
    live.steering.refuses.store(false, Relaxed);
    live.group.install(live.prepare(rule("udp dport 4"))).expect("room");
    let other = live.group.install(live.prepare(rule("udp dport 5"))).expect("room");
    live.steering.refuses.store(true, Relaxed);
    live.group.remove(other, USER).expect("it goes all the same");
    let mut frame = live.far.allocate().expect("the pair has more");
    frame.fill(&udp_from(1000, 5, &[])).expect("short");
    live.far.send(&mut vec![frame]);
    assert!(is_answered(&mut live.far, 1), "what the NIC still hands over of it goes nowhere");

    live.steering.refuses.store(false, Relaxed);
    let new = live.group.install(replacing(&live)).expect("no more reason to refuse it");
    assert!(new > second && is_answered(&mut live.far, 1));
    live.end();
}

#[test]
fn no_packet_is_lost_to_a_context_that_could_not_take_another_one_s_place() {
    for way in [Way::Alone, Way::Fed, Way::Spread] {
        let Live { group, common, mut far, steering } = Live::start(way);
        let replacement = |install| {
            Prepared::new(install, &image("udp_pingpong"), 0, &common.loader, &Limits::default())
                .expect("a fine context")
        };
        let first = group.install(replacement(rule("udp dport 1"))).expect("room");
        let refused = (0..20).map(|_| replacement(Install { replaces: Some(first), ..rule("udp dport 1") }));
        let refused: Vec<_> = refused.collect();
        steering.refuses.store(true, Relaxed);
        let changing = thread::spawn(move || {
            refused.into_iter().for_each(|prepared| assert!(group.install(prepared).is_err()));
            group
        });
        let (mut out, mut replies, deadline) = (0, Vec::new(), Instant::now() + PATIENCE);
        while !changing.is_finished() || out > 0 {
            assert!(Instant::now() < deadline, "{way:?}: {out} packets are not answered");
            if out < FEW && !changing.is_finished() {
                let mut frame = far.allocate().expect("the pair has more");
                frame.fill(&udp_from(1000 + out, 1, &[7; 30])).expect("short");
                far.send(&mut vec![frame]);
                out += 1;
            }
            far.flush().expect("memory does not fail");
            out -= u16::try_from(far.receive(&mut replies, FEW.into())).expect("few");
            replies.drain(..).for_each(|reply| far.recycle(reply));
        }
        // The last rules are refused too, and threads end all the same.
        Live { group: changing.join().expect("all are refused"), common, far, steering }.end();
    }
}

/// The kernel takes 10 ms and more to set rules, which is the time of 10,000 packets and more.
#[test]
fn threads_go_on_while_the_nic_takes_its_time() {
    for way in [Way::Alone, Way::Fed, Way::Spread] {
        let mut live = Live::start(way);
        let first = live.group.install(live.prepare(rule("udp dport 1"))).expect("room");
        let (second, steering) = (live.prepare(rule("udp dport 2")), live.steering.clone());
        type Change = Box<dyn FnOnce(&WorkerGroup) + Send>;
        let changes: [Change; 3] = [
            Box::new(move |group| assert!(group.install(second).expect("room") > first)),
            Box::new(move |group| set_rules(group, first, port_3()).expect("fine rules")),
            Box::new(move |group| group.remove(first, USER).expect("installed")),
        ];
        // Frames of the old filter reach the old contexts, and frames of the new one the new contexts.
        for (change, ports) in changes.into_iter().zip([&[1, 2][..], &[1, 2, 3], &[2, 3]]) {
            let asked = steering.asked.load(Relaxed);
            let held = steering.hold.lock().expect("nobody panics");
            let (group, far) = (live.group, &mut live.far);
            let changing = thread::spawn(move || {
                change(&group);
                group
            });
            while steering.asked.load(Relaxed) == asked {
                thread::yield_now();
            }
            ports.iter().for_each(|&port| assert!(is_answered(far, port), "{way:?}, port {port}"));
            drop(held);
            live.group = changing.join().expect("it is changed");
            let infos = live.group.first(|engine| Ok(engine.context_infos())).expect("it lives");
            assert!(infos.iter().all(|info| info.rules.len() == 1), "no rules of before: {infos:?}");
        }
        live.end();
    }
}

#[test]
fn the_nic_is_told_once_of_changes_that_wait() {
    let mut live = Live::start(Way::Alone);
    let first = live.group.install(live.prepare(rule("udp dport 1"))).expect("room");
    let second = live.group.install(live.prepare(rule("udp dport 2"))).expect("room");
    let (installs, removals) = (vec![live.prepare(rule("udp dport 4"))], vec![(second, USER)]);
    let rules = vec![(first, USER, port_3()), (second + 100, USER, port_3())];
    let asked = live.steering.asked.load(Relaxed);
    let ChangeResult { installed, ruled, removed } = live.group.change(Transaction { installs, rules, removals });
    assert!(installed[0].is_ok() && ruled[0].is_ok() && ruled[1].is_err() && removed[0].is_ok());
    assert_eq!(live.steering.asked.load(Relaxed), asked + 1);
    assert!(is_answered(&mut live.far, 3) && is_answered(&mut live.far, 4));
    live.end();
}
