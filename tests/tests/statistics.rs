//! Statistics of spind.

use etherparse::PacketBuilder;
use libspin::{Client, Counter, Install};
use spin_nic::pcap::{Packet, write_all};
use spin_tests::Spind;

fn udp(port: u16) -> Packet {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1234, port);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"hello").expect("a vector takes all");
    Packet::whole(0, frame)
}

/// Starts spind with three contexts: `echo` on port 1, `wild` on port 2, whose handler faults, and `idle`, which gets nothing.
fn start() -> (Spind, Client) {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    for (port, handler, name) in
        [(1, "udp_pingpong", "echo"), (2, "store_outside", "wild"), (3, "udp_pingpong", "idle")]
    {
        let image = spin_handlers::build(&spin_handlers::source(handler));
        let rules = vec![format!("udp dport {port}")];
        client.install(&Install { name: name.into(), rules, ..Install::default() }, &image).unwrap();
    }
    (spind, client)
}

fn replay(client: &mut Client, ports: &[u16]) {
    client.replay(&write_all(&ports.iter().map(|&port| udp(port)).collect::<Vec<_>>())).unwrap();
}

#[test]
fn samples_of_the_engine_are_those_of_its_contexts() {
    let (spind, mut client) = start();
    // Tasks are sampled in turns: at most one in 16 packets.
    (0..200).for_each(|_| replay(&mut client, &[1, 2]));
    let stats = client.stats().unwrap();
    for (kind, engine) in stats.latencies.iter().enumerate() {
        let contexts = stats.contexts.iter().filter_map(|context| context.latencies.get(kind));
        let (count, sum) = contexts.fold((0, 0), |(count, sum), of| (count + of.count, sum + of.sum_ns));
        assert_eq!(count, engine.count, "{}", engine.name);
        // Packets of a poll count with the latency of its last one: in the engine of all contexts, else of the context's own.
        assert!(sum == engine.sum_ns || engine.name == "total", "{}: {sum} and {} ns", engine.name, engine.sum_ns);
    }
    assert_eq!(stats.latencies[0].count, stats.engine.get(Counter::Released));
    let [echo, wild, idle] = [0, 1, 2].map(|place: usize| &stats.contexts[place].latencies);
    assert_eq!((echo[0].count, wild[0].count, idle.len()), (200, 200, 0));
    assert!(echo[0].min_ns <= echo[0].p50_ns && echo[0].p50_ns <= echo[0].p999_ns && echo[0].p999_ns <= echo[0].max_ns);
    let shown = spind.ctl_ok(&["stats"]);
    let of_echo = shown.split("(echo)").nth(1).expect("its section").split("(wild)").next().unwrap_or_default();
    assert!(
        of_echo.contains("\n  latency in ns: ") && of_echo.contains("\n    total                  200 "),
        "{shown}"
    );
}
