//! spind with more units than this machine has cores: contexts in all of them answer, whatever queue their packets arrive on.
//! `SPIN_UNITS_CONTEXTS` and `SPIN_UNITS` are the numbers of contexts and of units.

#[path = "../../nic/tests/common/mod.rs"]
mod common;

use std::fs;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use common::{FAR, Link, NEAR, within};
use libspin::{Client, Counter, Install, Lifetime, UnitCount};
use spin_testing::from_environment;
use spin_tests::{Spind, image};

/// Default numbers.
const UNITS: u64 = 8;
const CONTEXTS: u64 = 64;
/// Connections that install contexts at the same time.
const CONNECTIONS: usize = 16;
/// Port of the first context; the others have the following ones.
const PORT: u16 = 20_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine with a core for each unit, on two nodes.
fn topology(folder: &tempfile::TempDir, units: u64) -> String {
    let path = folder.path().join("topology.toml");
    let half = units / 2;
    fs::write(&path, format!("nodes = ['0-{}', '{half}-{}']", half - 1, units - 1)).expect("written");
    path.to_str().expect("temporary paths are UTF-8").to_owned()
}

fn start(link: &Link, folder: tempfile::TempDir, units: u64, more: &[&str]) -> Spind {
    let (file, cores, count) = (topology(&folder, units), format!("0-{}", units - 1), units.to_string());
    let own =
        ["--iface", common::LINK, "--cores", &cores, "--units", &count, "--topology", &file, "--idle", "adaptive"];
    within(&link.near, || Spind::start_in(folder, &[&own, more].concat()))
}

/// A line of /proc/PID/status, in its unit.
fn status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.split_whitespace().next().unwrap_or_default().parse().expect("a number")
}

/// Sends a datagram from a port of its own to each context, again until it is answered.
fn ask_all(link: &Link, contexts: u16) -> u32 {
    within(&link.far, || {
        let mut asked = 0;
        for port in PORT..PORT + contexts {
            let socket = UdpSocket::bind((FAR, 0)).expect("a free port");
            socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
            let deadline = Instant::now() + PATIENCE;
            loop {
                socket.send_to(&port.to_be_bytes(), (NEAR, port)).expect("sent");
                asked += 1;
                let mut answer = [0; 16];
                match socket.recv_from(&mut answer) {
                    Ok((2, _)) if answer[..2] == port.to_be_bytes() => break,
                    other => assert!(Instant::now() < deadline, "port {port}: {other:?}"),
                }
            }
        }
        asked
    })
}

/// Installs contexts over some connections at a time. Returns these: the contexts stay as long.
fn install_all(spind: &Spind, contexts: u64, image: &[u8]) -> Vec<Client> {
    let (ports, socket): (Vec<u16>, _) = ((PORT..).take(contexts as usize).collect(), spind.socket());
    let install = |ports: &[u16]| {
        let mut client = Client::connect(&socket).expect("spind listens");
        for port in ports {
            let install = Install { rules: vec![format!("udp dport {port}")], ..Install::default() };
            client.install(&install, image).expect("within the limits");
        }
        client
    };
    thread::scope(|scope| {
        let parts = ports.chunks(ports.len().div_ceil(CONNECTIONS));
        let threads: Vec<_> = parts.map(|ports| scope.spawn(|| install(ports))).collect();
        threads.into_iter().map(|thread| thread.join().expect("all are installed")).collect()
    })
}

#[test]
fn contexts_of_all_units_answer() {
    if !rustix::process::geteuid().is_root() {
        return spin_testing::skip("network namespaces need root");
    }
    let (units, contexts) = (from_environment("SPIN_UNITS", UNITS), from_environment("SPIN_UNITS_CONTEXTS", CONTEXTS));
    let link = Link::new(u32::try_from(units).expect("few"));
    let begun = Instant::now();
    let mut spind = start(&link, tempfile::tempdir().expect("a folder"), units, &[]);
    println!("started in {:?}", begun.elapsed());
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let capabilities = client.capabilities().expect("spind has some");
    assert_eq!((u64::from(capabilities.units), u64::from(capabilities.threads)), (units, units));
    let (file, begun) = (image("udp_pingpong"), Instant::now());
    let _others = install_all(&spind, contexts, &file);
    println!("{contexts} contexts installed in {:?}", begun.elapsed());
    let maps = fs::read_to_string(format!("/proc/{}/maps", spind.pid())).expect("it runs").lines().count();
    println!("{} KiB resident, {maps} mappings", status(spind.pid(), "VmRSS:"));
    let asked = ask_all(&link, u16::try_from(contexts).expect("few"));
    let begun = Instant::now();
    let stats = client.stats().expect("statistics");
    println!("first statistics in {:?}", begun.elapsed());
    let ask = |client: &mut Client| {
        let begun = Instant::now();
        client.stats().expect("statistics");
        begun.elapsed()
    };
    let mut times: Vec<_> = (0..9).map(|_| ask(&mut client)).collect();
    times.sort_unstable();
    println!("statistics in {:?} (median of nine, {:?} to {:?})", times[4], times[0], times[8]);
    // Each unit has as many contexts as any other, and a thread on its core and node.
    let mut in_unit = vec![0; units as usize];
    stats.contexts.iter().for_each(|context| in_unit[context.units.0 as usize] += 1);
    assert_eq!(in_unit, vec![contexts / units; units as usize]);
    let placed: Vec<_> = stats.threads.iter().map(|thread| (thread.unit, thread.core, thread.node)).collect();
    let expected = |unit| (unit as u32, Some(unit as usize), u32::from(unit >= units / 2));
    assert_eq!(placed, (0..units).map(expected).collect::<Vec<_>>());
    let sum = |counter: Counter| -> u64 { stats.contexts.iter().map(|context| context.counters.get(counter)).sum() };
    assert!(sum(Counter::PayloadRuns) >= contexts && sum(Counter::PayloadRuns) <= asked.into());
    assert!(sum(Counter::HandedOver) > 0, "packets arrive on all queues");
    let begun = Instant::now();
    for context in &stats.contexts {
        client.remove(context.context).expect("its own");
    }
    println!("removed in {:?}", begun.elapsed());
    let begun = Instant::now();
    spind.signal(rustix::process::Signal::TERM);
    let (succeeded, log) = spind.wait();
    println!("stopped in {:?}", begun.elapsed());
    assert!(succeeded, "{log}");
}

#[test]
fn a_persistent_context_returns_to_its_units_and_a_spread_one_counts_in_each() {
    if !rustix::process::geteuid().is_root() {
        return spin_testing::skip("network namespaces need root");
    }
    let link = Link::new(8);
    let state = tempfile::tempdir().expect("a folder");
    // spind makes the folder, for the account that it runs as.
    let state_path = state.path().join("state").to_str().expect("UTF-8").to_owned();
    let more = ["--state", &state_path];
    let spind = start(&link, tempfile::tempdir().expect("a folder"), UNITS, &more);
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let persistent = Install {
        rules: vec![format!("udp dport {PORT}")],
        lifetime: Lifetime::Persistent,
        unit: Some(5),
        ..Install::default()
    };
    let id = client.install(&persistent, &image("udp_pingpong")).expect("fine").id;
    let spread = Install {
        rules: vec![format!("udp dport {}", PORT + 1)],
        lifetime: Lifetime::Persistent,
        units: Some(UnitCount::ALL),
        handler_mem_per_unit: true,
        ..Install::default()
    };
    client.install(&spread, &image("udp_pingpong")).expect("fine");
    ask_all(&link, 2);
    let folder = spind.kill();
    let spind = start(&link, folder, UNITS, &more);
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let contexts = client.contexts().expect("a list");
    assert_eq!(contexts.iter().map(|context| context.units).collect::<Vec<_>>(), [(5, 5), (0, 7)]);
    assert_eq!(contexts[0].context, id, "with its id");
    // Datagrams of many flows arrive on all queues. Those of the spread context run where they arrive.
    for _ in 0..50 {
        ask_all(&link, 2);
    }
    let stats = client.stats().expect("statistics");
    let handed: Vec<_> = stats.contexts.iter().map(|context| context.counters.get(Counter::HandedOver)).collect();
    assert!(handed[0] > 0 && handed[1] == 0, "{handed:?}");
    let ran = stats.threads.iter().filter(|thread| thread.counters.get(Counter::PayloadRuns) > 0).count();
    assert!(ran > 2, "the spread context ran in {ran} units");
    let shown = spind.ctl_ok(&["list"]);
    assert!(shown.contains("unit: 5") && shown.contains("units: 0-7"), "{shown}");
    let refused = spind.ctl(&["install", "/nowhere.elf", "--rule", "udp", "--units", "0"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not a number of units"), "{refused:?}");
}
