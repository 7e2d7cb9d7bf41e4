//! An idle thread sleeps for long only after all its sent frames have left. Until then, it has to call the NIC.

mod common;
#[path = "common/threads.rs"]
mod threads;

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use common::moody_nic;
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_engine::cores::{PollThread, Poller, SharedConfig, WorkerLinks};
use spin_engine::settings::Idle;
use threads::all_threads;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn who_sent_what_has_not_left_sleeps_for_short() {
    sleeps_for_short(|common, nic| {
        PollThread::start_engine(common, WorkerLinks::from_nic(nic).expect("a descriptor"), 0..1, None)
            .expect("a thread")
    });
    sleeps_for_short(|common, nic| {
        let (receiver, _) = ReceiveOnly::new(nic, 0, 1024).expect("an event");
        let wakeup = receiver.wakeup().clone();
        PollThread::start(common, "receiver".into(), None, wakeup, || Ok(receiver)).expect("a thread")
    });
}

fn sleeps_for_short<P: Poller + 'static>(start: impl FnOnce(SharedConfig, Box<dyn spin_nic::Queue>) -> PollThread<P>) {
    let (nic, _far, mood) = moody_nic(8);
    let common = all_threads(Idle::Sleep);
    let worker = start(common.clone(), nic);
    for (stuck, patience) in [(0, 100_000), (3, 1000), (0, 100_000)] {
        mood.stuck.store(stuck, Relaxed);
        let deadline = Instant::now() + PATIENCE;
        while mood.patience.load(Relaxed) != patience {
            assert!(Instant::now() < deadline, "{stuck} are stuck, it waits {} us", mood.patience.load(Relaxed));
            thread::yield_now();
        }
    }
    common.stop.store(true, Relaxed);
    worker.join().expect("it did not end by itself");
}
