//! Handlers index shared memory by `flow_id` and `hpu_gid`. No index belongs to two messages, or to two tasks, at a time.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use spin_abi::control::{Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::install::Prepared;
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Queue, TxQueue};
use spin_pspin::counts::Counts;

use crate::common::{Kind, udp_from};
use spin_testing::from_environment;

/// Default number of messages.
const MESSAGES: u64 = 1_000_000;
/// Frames of a thread.
const FRAMES: usize = 2048;
/// Messages of a thread that are open at a time.
const OPEN: u16 = 40;
/// Packets of a message.
const PACKETS: u32 = 3;
/// End of a message: the fifth byte of its last packet is 1.
const END: &str = "payload[4:1] = 1";

/// Frames of a group of messages, those of different messages in turn. `first` is the number of the first message.
fn group(first: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..PACKETS).flat_map(move |sequence| {
        (0..OPEN).map(move |flow| {
            let mut payload = (first + u32::from(flow)).to_le_bytes().to_vec();
            payload.push(u8::from(sequence + 1 == PACKETS));
            udp_from(1000 + flow, 9999, &payload)
        })
    })
}

/// Sends messages through a worker, and counts what happened.
fn run(mut engine: Worker, mut far: MemoryQueue, first: u32, messages: u32) -> Counts {
    let start = Instant::now();
    for group_start in (first..first + messages).step_by(OPEN.into()) {
        let mut batch: Vec<_> = group(group_start)
            .map(|bytes| {
                let mut frame = far.allocate().expect("a group is less than all frames");
                frame.fill(&bytes).expect("short");
                frame
            })
            .collect();
        far.send(&mut batch);
        far.flush().expect("memory does not fail");
        while engine.poll(|| start.elapsed()).expect("memory does not fail") > 0 || engine.has_tasks() {}
    }
    engine.statistics().counts
}

/// Sends messages through two threads that have one half of the machine's clusters each.
fn two_threads(messages: u64) -> Counts {
    let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
    let limits = Limits { watchdog_us: 10_000_000, ..Limits::default() };
    let install = Install { rules: vec!["udp dport 9999".into()], eom: Some(END.into()), ..Install::default() };
    let mut parts =
        vec![Prepared::new(install, &spin_handlers::image("slots", &[]), 0, &loader, &limits).expect("a fine context")];
    let second = parts[0].split_off(2);
    parts.push(second);
    let each = u32::try_from(messages / 2).expect("few").next_multiple_of(OPEN.into());
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(parts)
            .map(|(index, part)| {
                let (loader, begin) = (loader.clone(), &begin);
                scope.spawn(move || {
                    let (near, far) = pair(FRAMES).expect("a pair");
                    let (schedule, clusters) = (Schedule::default(), index * 2..index * 2 + 2);
                    let engine = Worker::new(loader, Box::new(near), Sizes::default(), schedule, clusters);
                    let mut engine = engine.expect("a timer");
                    engine.install(part, &limits).expect("there is room");
                    begin.wait();
                    run(engine, far, 1 + index * each, each)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).fold(Counts::default(), |mut sum, part| {
            sum.merge(&part);
            sum
        })
    })
}

#[test]
fn threads_of_a_unit_use_different_indexes() {
    let messages = from_environment("SPIN_SLOT_MESSAGES", MESSAGES);
    let counts = two_threads(messages);
    assert_eq!(counts.get(Counter::Faults), 0, "slots that two messages or tasks had");
    assert!(counts.get(Counter::Messages) >= messages);
}
