//! Threads that stop while tasks are on other threads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fastrand::Rng;
use spin_abi::control::Schedule;
use spin_abi::counters::Counter;
use spin_engine::cores::units::{PlannedWorker, plan};
use spin_engine::cores::{ClusterThread, PollThread, Poller, Receiving, WorkerGroup, WorkerLinks};
use spin_engine::install::Prepared;
use spin_engine::settings::{Idle, Limits};
use spin_nic::memory::pair;
use spin_nic::steering::AcceptAll;
use spin_nic::{Queue, TxQueue};

use crate::common::{Kind, image, rule, udp_from};
use crate::messages::{arrive, messages, recorder};
use crate::threads::all_threads;
use crate::two::{FRAMES, Two};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn who_winds_up_lends_no_more_and_is_there_for_others_until_they_do() {
    let mut two = Two::new(Kind::Jit, Schedule::Wlbvt);
    two.install("recorder", recorder(0));
    two.poll(1);
    let orders = messages(0, 0..60, &mut Rng::with_seed(1), false);
    arrive(&mut two, &orders);
    let are_needed = |two: &Two| [0, 1].map(|at| two.engines[at].has_dependents());
    assert_eq!(are_needed(&two), [true; 2]);
    two.engines[0].shutdown();
    assert_eq!(are_needed(&two), [true, false], "the other one may still lend");
    two.settle();
    assert_eq!((two.sum(Counter::Overflowed), two.sum(Counter::Released)), (0, orders.len() as u64));
    two.engines[1].shutdown();
    assert_eq!(are_needed(&two), [false; 2]);
}

/// Real threads, of which only the first one receives packets. They are stopped while tasks are on other threads.
#[test]
fn threads_help_each_other_until_they_stop() {
    for idle in [Idle::Spin, Idle::Sleep] {
        let common = all_threads(idle);
        let (mut feeds, mut far) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (near, end) = pair(FRAMES).expect("a pair");
            feeds.push(WorkerLinks::from_nic(Box::new(near)).expect("a descriptor"));
            far.push(end);
        }
        let planned = plan(&[0, 1], |_| 0, 4, None).expect("one unit");
        WorkerLinks::connect(&mut feeds, &planned);
        let start = |(planned, feed): (PlannedWorker, WorkerLinks)| {
            let worker = PollThread::start_engine(common.clone(), feed, planned.part.clone(), None).expect("a thread");
            ClusterThread { planned, worker }
        };
        let workers = planned.into_iter().zip(feeds).map(start).collect();
        let group = WorkerGroup::new(workers, Receiving::Each, Arc::new(AcceptAll), Limits::default());
        let prepared = Prepared::new(rule("udp dport 1"), &image("spin"), 0, &common.loader, &Limits::default());
        group.install(prepared.expect("a fine context")).expect("there is room");
        // Each task takes about twenty microseconds.
        let packet = |flow: u16| udp_from(1000 + flow, 1, &200_000_u32.to_le_bytes());
        let (mut sent, deadline) = (0_u16, Instant::now() + PATIENCE);
        let counted = |counter: Counter| -> u64 {
            group.all(move |engine| engine.statistics().counts.get(counter)).into_iter().sum()
        };
        while counted(Counter::Overflowed) < 1000 {
            assert!(Instant::now() < deadline, "tasks stay at home");
            while let Some(mut frame) = far[0].allocate() {
                frame.fill(&packet(sent % 100)).expect("fits a frame");
                far[0].send(&mut vec![frame]);
                sent = sent.wrapping_add(1);
            }
            far[0].flush().expect("memory does not fail");
        }
        common.stop.store(true, Relaxed);
        let (statistics, ended) = group.finish();
        ended.expect("it did not end by itself");
        let counts = statistics.counts;
        let [received, released, run] =
            [Counter::RxPackets, Counter::Released, Counter::PayloadRuns].map(|counter| counts.get(counter));
        assert_eq!([released, run], [received; 2], "{idle:?}: none is lost");
    }
}
