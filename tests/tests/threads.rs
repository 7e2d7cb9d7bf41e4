//! spind on two cores: its threads form one machine, whether each serves a queue of the interface or one receives for
//! the other.

#[path = "../../nic/tests/common/mod.rs"]
mod common;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use common::{FAR, Link, NEAR, within};
use libspin::Client;
use spin_tests::{ACTION_TIMEOUT, Spind};

/// Number of datagrams, each from a port of its own, so that they spread over the queues.
const DATAGRAMS: usize = 400;
/// Size in bytes of a record that `three_handlers` writes.
const RECORD: usize = 8;
const PORT: u16 = 9999;

/// A record: handler, HPU and queue.
#[derive(Clone, Copy)]
struct Record {
    who: u8,
    hpu: u8,
    queue: u16,
    tail: u32,
}

fn records(dump: &[u8]) -> Vec<Record> {
    let record = |bytes: &[u8]| Record {
        who: bytes[0],
        hpu: bytes[1],
        queue: u16::from_le_bytes([bytes[2], bytes[3]]),
        tail: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    dump.chunks_exact(RECORD).map(record).collect()
}

/// Returns spind's cluster threads and the cores that each may run on.
fn cores(spind: &Spind) -> HashMap<String, String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", spind.pid())).expect("spind runs");
    let of = |status: String| {
        let field = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
        field("Name:").zip(field("Cpus_allowed_list:"))
    };
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok().and_then(of))
        .filter(|(name, _)| name.starts_with("cluster-") || name == "receiver")
        .collect()
}

#[test]
fn two_threads_serve_two_queues_as_one_machine() {
    are_one_machine(2, &[], [("cluster-0", "0"), ("cluster-2", "1")]);
}

#[test]
fn a_thread_receives_and_another_runs_handlers_as_one_machine() {
    are_one_machine(1, &["--mode", "pipeline", "--local-share", "0"], [("receiver", "0"), ("cluster-0", "1")]);
}

#[test]
fn a_thread_receives_for_two_that_run_handlers_as_one_machine() {
    for idle in ["spin", "sleep"] {
        are_one_machine(1, &["--mode", "pipeline", "--idle", idle], [("cluster-0", "0"), ("cluster-2", "1")]);
    }
}

/// Two threads with these names on these cores process each of many datagrams once, in order, and release the context
/// on removal.
fn are_one_machine(queues: u32, how: &[&str], threads: [(&str, &str); 2]) {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("network namespaces need root");
        return;
    }
    let link = Link::new(queues);
    let arguments = [&["--iface", common::LINK, "--cores", "0,1"], how].concat();
    let spind = within(&link.near, || Spind::start(&arguments));
    let expected = threads.map(|(name, core)| (name.to_owned(), core.to_owned()));
    assert_eq!(cores(&spind), HashMap::from(expected));

    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("three.elf");
    fs::write(&image, spin_handlers::build(&spin_handlers::source("three_handlers"))).expect("written");
    let rule = format!("udp dport {PORT}");
    let image = image.to_str().expect("temporary paths are UTF-8");
    // Tasks must stay at home: an idle thread would otherwise help the other.
    spind.ctl_ok(&["install", image, "--rule", &rule, "--host-mem", "64K", "--placement", "home"]);

    let number = |index: usize| u32::try_from(index).expect("few datagrams").to_be_bytes();
    within(&link.far, || {
        for index in 0..DATAGRAMS {
            let socket = UdpSocket::bind((FAR, 0)).expect("a free port");
            socket.send_to(&number(index), (NEAR, PORT)).expect("sent");
            // The receive rings hold more than 64 frames, but not a burst of any length.
            if index % 64 == 63 {
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let deadline = Instant::now() + ACTION_TIMEOUT;
    let all = loop {
        let dump = spind.ctl(&["dump", "three"]).stdout;
        let found: Vec<Record> = records(&dump).into_iter().filter(|record| record.who != 0).collect();
        if found.len() >= 3 * DATAGRAMS {
            break found;
        }
        assert!(Instant::now() < deadline, "{} of {} handlers ran", found.len(), 3 * DATAGRAMS);
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(all.len(), 3 * DATAGRAMS, "each handler once for each datagram");
    // Queues belong to a thread, and a message has one home (clusters have 8 HPUs each, two clusters per thread).
    let mut runs: HashMap<(bool, u16), Vec<Record>> = HashMap::new();
    for record in &all {
        runs.entry((record.hpu >= 16, record.queue)).or_default().push(*record);
    }
    // All clusters processed some packets, on either thread.
    assert!(runs.keys().any(|(second, _)| *second) && runs.keys().any(|(second, _)| !second), "both halves had some");
    for run in runs.values() {
        // Record space is allocated in the order of the handlers.
        for message in run.chunks(3) {
            assert_eq!(message.iter().map(|record| record.who).collect::<Vec<_>>(), b"HPC");
            assert!(message.iter().all(|record| (record.tail, record.hpu) == (message[0].tail, message[0].hpu)));
        }
    }
    let tails: BTreeSet<u32> = all.iter().map(|record| record.tail.swap_bytes()).collect();
    assert_eq!(tails.into_iter().collect::<Vec<_>>(), (0..u32::try_from(DATAGRAMS).expect("few")).collect::<Vec<_>>());

    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let counters = client.stats().expect("statistics").engine;
    for counter in ["header_runs", "payload_runs", "completion_runs", "messages", "released"] {
        assert_eq!(counters.named(counter), Some(DATAGRAMS as u64), "{counter} in {counters:?}");
    }
    spind.ctl_ok(&["rm", "three"]);
    assert_eq!(client.contexts().expect("a list"), [], "no thread has the context any more");
}

/// All packets belong to one flow, so they arrive on one thread's queue; the other thread helps.
#[test]
fn a_thread_without_packets_helps_one_that_has_many() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("network namespaces need root");
        return;
    }
    let link = Link::new(2);
    let spind = within(&link.near, || Spind::start(&["--iface", common::LINK, "--cores", "0,1"]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("spin.elf");
    fs::write(&image, spin_handlers::build(&spin_handlers::source("spin"))).expect("written");
    let rule = format!("udp dport {PORT}");
    let image = image.to_str().expect("temporary paths are UTF-8");
    spind.ctl_ok(&["install", image, "--rule", &rule, "--key", "payload[4:4]"]);
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let mut count = |counter: &str| client.stats().expect("statistics").engine.named(counter).unwrap_or(0);
    let (mut sent, deadline) = (0_u32, Instant::now() + ACTION_TIMEOUT);
    let socket = within(&link.far, || UdpSocket::bind((FAR, 0)).expect("a free port"));
    while count("overflowed") == 0 {
        assert!(Instant::now() < deadline, "none of {sent} tasks ran elsewhere");
        for _ in 0..512 {
            // Handler run time of about twenty microseconds.
            let packet = [200_000_u32.to_le_bytes(), sent.to_le_bytes()].concat();
            socket.send_to(&packet, (NEAR, PORT)).expect("sent");
            sent += 1;
        }
    }
    // Packets for which the receive rings had no room do not count as received.
    while count("released") < count("rx_packets") {
        assert!(Instant::now() < deadline, "{} of {} packets came back", count("released"), count("rx_packets"));
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(count("payload_runs"), count("released"));
    assert_eq!(client.contexts().expect("a list").len(), 1);
}

#[test]
fn more_cores_than_queues_are_refused_with_advice() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("network namespaces need root");
        return;
    }
    let link = Link::exactly(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("spind.sock");
    let output = within(&link.near, || {
        let mut spind = std::process::Command::new(spin_tests::binary("spind"));
        spind.args(["--iface", common::LINK, "--cores", "0,1", "--socket"]).arg(&socket).output().expect("it runs")
    });
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(message.contains("1 queues for 2 threads") && message.contains("ethtool -L"), "{message}");
}
