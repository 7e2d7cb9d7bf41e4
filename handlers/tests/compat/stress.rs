//! Locks, lists and counters shared by the handlers of all clusters, on two threads at a time.

use spin_abi::control::Install;
use spin_engine::context::loader::Loader;
use spin_engine::install::Prepared;
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::memory::pair;
use spin_nic::{Queue, TxQueue};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use super::common::{Kind, ROOT, udp_from};
use super::{COMPILERS, PSPIN, Target, build, host_word};

const PACKETS: u16 = 250;
const ROUNDS: u32 = 8;

/// Assignment of packets to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Messages {
    /// Each packet is a message.
    Many,
    /// All packets are one message: the payload handlers of both threads, on a cluster each, belong to it.
    One,
}

impl Messages {
    /// Returns the packet with this number among a thread's.
    fn packet(self, number: u16) -> Vec<u8> {
        match self {
            Self::Many => udp_from(1000 + number, 9999, b"x"),
            Self::One if number + 1 == PACKETS => udp_from(1000, 9999, b"e"),
            Self::One => udp_from(1000, 9999, b"x"),
        }
    }
}

/// Runs one thread's engine with its own part of a context: packets arrive and their handlers run.
fn serve(
    loader: Arc<Loader>,
    prepared: Prepared,
    limits: &Limits,
    clusters: std::ops::Range<u32>,
    messages: Messages,
    is_last: bool,
    both: &Barrier,
) {
    let (queue, mut far) = pair(64).expect("a pair");
    let mut engine =
        Worker::new(loader, Box::new(queue), Sizes::default(), Default::default(), clusters).expect("a timer");
    let id = engine.install(prepared, limits).expect("installs");
    both.wait();
    for first in (0..PACKETS).step_by(25) {
        if is_last && first + 25 == PACKETS {
            // The last completion handler writes the totals, unless another one writes at the same time; the barrier
            // prevents that.
            both.wait();
        }
        let mut batch = Vec::new();
        for source in first..first + 25 {
            let mut frame = far.allocate().expect("few are on their way");
            frame.fill(&messages.packet(source)).expect("fits");
            batch.push(frame);
        }
        far.send(&mut batch);
        far.flush().expect("memory does not fail");
        while engine.poll(|| Duration::ZERO).expect("memory does not fail") > 0 || engine.has_tasks() {}
    }
    if !is_last {
        both.wait();
    }
    let info = engine.context_infos().into_iter().find(|info| info.context == id).expect("installed");
    assert_eq!(info.faults, []);
}

fn stress(target: Target, compiler: &str, kind: Kind, messages: Messages) {
    let image = build(target, compiler, "stress.c", &[]);
    let loader = Arc::new(Loader::new(target.machine, kind));
    let limits = Limits { watchdog_us: 20_000_000, ..Limits::default() };
    let eom = (messages == Messages::One).then(|| "payload[0:1] = 101".to_owned());
    let install = Install { host_mem: 4096, eom, ..target.install() };
    let mut first = Prepared::new(install, &image, ROOT.0, &loader, &limits).expect("is prepared");
    let host = first.host().expect("host memory");
    let half = target.machine.clusters / 2;
    let second = first.split_off(half);
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(loader.clone(), first, &limits, 0..half, messages, false, &both));
        scope.spawn(|| serve(loader.clone(), second, &limits, half..target.machine.clusters, messages, true, &both));
    });
    let runs = 2 * u32::from(PACKETS);
    let all = runs * ROUNDS;
    let what = format!("{}, {compiler}, {kind}, {messages:?}", target.abi);
    // Each message's completion handler writes the totals.
    let told: Vec<u32> = (0..11).map(|n| host_word(&host, 4 * n)).collect();
    assert_eq!(told[0], runs, "{what}: the last completion handler is the last task");
    assert_eq!(told[1..4], [all; 3], "{what}: under locks");
    assert_eq!(told[4], 3 * all, "{what}: amoadd");
    assert_eq!(told[5], 0, "{what}: each bit was changed {runs} times");
    assert_eq!(told[6..9], [all; 3], "{what}: the largest, by compare and swap, the list's length");
    assert_eq!(told[9..], [all; 2], "{what}: in cluster 0's L1");
}

#[test]
fn nothing_is_lost_that_handlers_share() {
    for compiler in COMPILERS {
        for target in [PSPIN, super::FPSPIN] {
            for (kind, messages) in
                [(Kind::Interp, Messages::Many), (Kind::Jit, Messages::Many), (Kind::Jit, Messages::One)]
            {
                stress(target, compiler, kind, messages);
            }
        }
    }
}
