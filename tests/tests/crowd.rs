//! As many contexts as spind may have.

use libspin::{Client, Counter, Install};
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_tests::{Spind, image, udp};

/// Contexts of the default limits.
const CONTEXTS: u16 = 1024;
/// Port of the first context; the others use the following ones.
const PORT: u16 = 2000;

/// Mappings of a process.
fn mappings(pid: u32) -> usize {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a running process").lines().count()
}

#[test]
fn all_contexts_answer_and_leave_nothing() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let image = image("udp_pingpong");
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let before = mappings(spind.pid());
    let install = |port: u16| Install { rules: vec![format!("udp dport {port}")], ..Install::default() };
    let mut ids = Vec::new();
    for port in PORT..PORT + CONTEXTS {
        ids.push(client.install(&install(port), &image).expect("within the limits").id);
    }
    let refused = client.install(&install(1), &image).expect_err("one more").to_string();
    assert!(refused.contains("all 1024 contexts are in use"), "{refused}");
    assert_eq!(client.contexts().expect("a list").len(), usize::from(CONTEXTS));
    let packets: Vec<_> = (PORT - 1..=PORT + CONTEXTS).map(|port| Packet::whole(0, udp(port, b"hello"))).collect();
    let answers = read_all(&client.replay(&write_all(&packets)).expect("loopback replays")).expect("a capture");
    assert_eq!(answers.len(), usize::from(CONTEXTS), "one answer of each context");
    let stats = client.stats().expect("statistics");
    let runs: Vec<_> = stats.contexts.iter().map(|context| context.counters.get(Counter::PayloadRuns)).collect();
    assert_eq!(runs, vec![1; CONTEXTS.into()]);
    let measured = stats.contexts.iter().all(|context| context.latencies.first().is_some_and(|total| total.count == 1));
    assert!(measured, "each has the latency of its packet");
    for id in ids {
        client.remove(id).expect("its own");
    }
    let after = mappings(spind.pid());
    assert!(after < before + 500, "{after} mappings, {before} before");
}
