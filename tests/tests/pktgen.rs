//! `spin-pktgen` between two namespaces: tcpdump sees exactly what it says it sent, and it sees what a lossy wire did.

#[path = "../../nic/tests/common/mod.rs"]
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{LINK, Link, TIMEOUT, root, run, within};
use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use spin_nic::pcap::{Packet, read_all};
use spin_testing::bounded;
use spin_tests::binary;

/// Runs it in a namespace. Returns its result.
fn pktgen(namespace: &str, arguments: &str) -> (ExitStatus, Value) {
    let output = within(namespace, || {
        Command::new(binary("spin-pktgen"))
            .args(arguments.split_whitespace())
            .arg("--json")
            .output()
            .expect("it starts")
    });
    let text = String::from_utf8_lossy(&output.stdout);
    let result = serde_json::from_str(&text);
    let result = result.unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status, result)
}

/// A process that says in its standard error when it is ready.
struct Background {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Background {
    fn start(namespace: &str, command: &mut Command, ready: &str) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = within(namespace, || common::start(command)).expect("it starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains(ready) {
            assert!(stderr.read_line(&mut said).expect("text") > 0, "{said}");
        }
        Self { child, stderr }
    }

    /// Stops it as ^C does. Returns what it printed: output, then errors.
    fn stop(mut self) -> [String; 2] {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        let (mut output, mut errors) = (String::new(), String::new());
        self.child.stdout.take().expect("piped").read_to_string(&mut output).expect("text");
        self.stderr.read_to_string(&mut errors).expect("text");
        assert!(self.child.wait().expect("a child").success(), "{errors}");
        [output, errors]
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Captures what arrives at the link.
struct Capture {
    tcpdump: Background,
    file: PathBuf,
}

impl Capture {
    fn start(namespace: &str, file: &Path) -> Self {
        let mut command = Command::new("tcpdump");
        command.args(["-i", LINK, "-n", "-s", "0", "-B", "65536", "--immediate-mode", "-U", "-Z", "root"]);
        command.arg("-w").arg(file).arg("udp");
        Self { tcpdump: Background::start(namespace, &mut command, "listening on"), file: file.to_owned() }
    }

    /// Stops it when it has captured `count` packets, or none for long. Returns all packets.
    fn stop(self, count: usize) -> Vec<Packet> {
        let captured = || read_all(&fs::read(&self.file).expect("a capture")).unwrap_or_default();
        let begin = Instant::now();
        while captured().len() < count && begin.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(50));
        }
        let [_, said] = self.tcpdump.stop();
        assert!(said.contains("0 packets dropped by kernel"), "{said}");
        let packets = read_all(&fs::read(&self.file).expect("a capture")).expect("a whole capture");
        assert_eq!(packets.len(), count);
        packets
    }
}

fn accept(namespace: &str) -> Background {
    Background::start(namespace, Command::new(binary("spin-pktgen")).args(["accept", LINK]), "attached to")
}

/// Checks a captured frame. Returns its length, source port, and the sequence number of its signature.
fn check(frame: &[u8], signature_at: usize) -> (usize, u16, u64) {
    let packet = PacketHeaders::from_ethernet_slice(frame).expect("a whole packet");
    let Some(NetHeaders::Ipv4(ip, _)) = &packet.net else { panic!("not IPv4: {frame:x?}") };
    let Some(TransportHeader::Udp(udp)) = &packet.transport else { panic!("not UDP: {frame:x?}") };
    assert_eq!(usize::from(ip.total_len), frame.len() - 14);
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    assert_eq!(usize::from(udp.length), frame.len() - 34);
    assert_eq!(udp.checksum, udp.calc_checksum_ipv4(ip, packet.payload.slice()).expect("short"));
    let sequence = frame[signature_at + 2..signature_at + 10].try_into().expect("8 bytes");
    (frame.len(), udp.source_port, u64::from_be_bytes(sequence))
}

/// What was sent passes to the kernel's stack at the other end, where tcpdump sees it. There are fewer packets than a kernel
/// that has no time for them keeps (net.core.netdev_max_backlog, 1000), or in a burst than the ring of a veth (256).
#[test]
fn every_backend_sends_what_it_says() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("seen.pcap");
    let plans = [
        ("packet", "--rate 5k --count 900 --flows 100 --size imix"),
        ("xdp", "--rate 5k --count 900 --flows 100 --zipf 1 --size 61:2,1000"),
        ("live", "--burst 200 --count 2000 --flows 100 --size imix"),
        ("live", "--burst 200 --count 2000 --message 4 --size 100"),
        ("xdp", "--rate 5k --count 900 --ycsb a --flows 100 --size 72"),
    ];
    for (backend, plan) in plans {
        let accepting = (backend == "live").then(|| accept(&link.near));
        let capture = Capture::start(&link.near, &file);
        let (status, result) = pktgen(&link.far, &format!("send {LINK} --backend {backend} --seconds 20 {plan}"));
        let count = plan.split("--count ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a count");
        let frames = capture.stop(count.parse().expect("a number"));
        drop(accepting);
        assert!(status.success(), "{result}");
        let signature_at = if plan.contains("--message") { 52 } else { 42 + 12 * usize::from(plan.contains("--ycsb")) };
        let mut ports = std::collections::HashSet::new();
        for (expected, frame) in (0..).zip(&frames) {
            let (_, port, sequence) = check(&frame.data, signature_at);
            assert_eq!(sequence, expected, "{backend} {plan}");
            ports.insert(port);
        }
        let flows = if plan.contains("--message") { 1 } else { 100 };
        assert!(ports.len() <= flows && (ports.len() == flows || plan.contains("zipf")), "{} flows", ports.len());
    }
}

/// A live sender without a willing receiver says what is missing.
#[test]
fn live_frames_need_a_program_at_the_peer() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let send = ["send", LINK, "--backend", "live", "--count", "64"];
    let output = within(&link.far, || Command::new(binary("spin-pktgen")).args(send).output().expect("it starts"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("spin-pktgen accept PEER"), "{said}");
}

/// Frames come back from the other end, or not all do.
#[test]
fn loss_duplicates_and_order_are_those_of_the_wire() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let (far, near) = (&link.far, &link.near);
    // The relay stands in `near`, between the sender's link and a second one that ends in `far`, too.
    run(&format!("ip link add east0 netns {near} type veth peer name sink0 netns {far}"));
    run(&format!("ip -n {near} link set east0 up"));
    run(&format!("ip -n {far} link set sink0 up"));
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let impair = |options: &str| {
        let mut command = Command::new("sh");
        // Its first line goes to standard output.
        let program = binary("spin-impair");
        let relay = format!("exec {} {LINK} east0 --log {} {options} >&2", program.display(), log.display());
        Background::start(near, command.args(["-c", &relay]), "relaying between")
    };
    // A veth with an XDP program keeps 256 packets while the kernel has no time for them: a quarter of a second's.
    let send = format!("send {LINK} --rate 1k --count 900 --seconds 20 --sink sink0");
    for sink in ["packet", "xdp"] {
        let relay = impair("--loss 10% --duplicate 5% --delay 2ms --reorder 5%");
        let (status, result) = pktgen(far, &format!("{send} --sink-backend {sink} --max-loss 1"));
        relay.stop();
        let log = fs::read_to_string(&log).expect("a log");
        let fates: Vec<_> = log.lines().filter(|line| line.starts_with(LINK)).collect();
        let with = |word: &str| fates.iter().filter(|line| line.contains(word)).count() as u64;
        let counts = &result["counts"];
        assert_eq!(fates.len(), 900);
        assert!(with("lost") > 30 && with("twice") > 10 && with("overtakes") > 10, "something happened");
        assert_eq!(counts["sent"], 900);
        assert_eq!(counts["lost"], with("lost"), "{result}");
        assert_eq!(counts["duplicates"], with("twice"), "{result}");
        // Each that overtakes leaves behind those that were sent in the 2 ms before.
        assert!(counts["reordered"].as_u64().expect("a number") > 0, "{result}");
        assert_eq!(status.code(), Some(3), "more than 1 % was lost");
        assert!(result["latency"]["p50"].as_u64() >= Some(2_000_000), "{result}");
    }
    let relay = impair("");
    let (status, result) = pktgen(far, &format!("{send} --sink-backend count --max-loss 0"));
    relay.stop();
    assert!(status.success() && result["counts"]["received"] == 900, "{result}");
}

/// A capture is sent again, with the gaps between its packets.
#[test]
fn captures_are_replayed_with_their_timing() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second] = ["first.pcap", "second.pcap"].map(|name| folder.path().join(name));
    let capture = Capture::start(&link.near, &first);
    pktgen(&link.far, &format!("send {LINK} --rate 50 --count 20 --flows 20 --seconds 9"));
    let first_packets = capture.stop(20);
    let capture = Capture::start(&link.near, &second);
    let replay = first.display();
    let (status, _) = pktgen(&link.far, &format!("send {LINK} --backend xdp --replay {replay} --count 40 --seconds 9"));
    let second_packets = capture.stop(40);
    assert!(status.success());
    for (packet, original) in second_packets.iter().zip(first_packets.iter().cycle()) {
        assert_eq!(packet.data, original.data);
    }
    // 39 gaps of 20 ms against 19: no packet is early, and the first is not 400 ms late.
    let length = |packets: &[Packet]| packets[packets.len() - 1].time - packets[0].time;
    assert!(
        length(&second_packets) > length(&first_packets),
        "{} ns, {} ns",
        length(&second_packets),
        length(&first_packets)
    );
}

/// netsniff-ng's generator sends frames that the sink knows.
#[test]
fn trafgen_sends_to_the_sink() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let folder = tempfile::tempdir().expect("a folder");
    let frames = folder.path().join("frames.cfg");
    let print = ["trafgen", LINK, "--size", "imix", "--flows", "50", "--count", "100", "--seed", "9"];
    let printed = within(&link.far, || Command::new(binary("spin-pktgen")).args(print).output().expect("it starts"));
    fs::write(&frames, printed.stdout).expect("a file");
    let mut count = Command::new(binary("spin-pktgen"));
    let count = Background::start(&link.near, count.args(["count", LINK, "--seed", "9", "--json"]), "attached to");
    let generator = ["ip netns exec", &link.far, "trafgen --cpus 1 --num 200 --rate 2000pps -o", LINK, "-i"].join(" ");
    run(&format!("{generator} {}", frames.display()));
    let [output, _] = count.stop();
    assert_eq!(serde_json::from_str::<Value>(&output).expect("JSON")["packets"], 200);
}

/// The benches on a wire run from start to end, and their report has all that they measured.
#[test]
fn the_benches_on_a_wire() {
    if !root() || bounded(true, false) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let image = file("udp_pingpong.elf");
    fs::write(&image, spin_handlers::image("udp_pingpong", &[])).expect("a file");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(binary(program)).args(arguments).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{program}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let said = run("spin-bench", &[&image, "--rule", "udp dport 9999", "--size", "64", "--time", "50"]);
    assert!(said.contains("Mpps without loss") && said.contains("round trip µs: p50"), "{said}");
    let [wire, page] = ["wire.json", "page.html"].map(file);
    run(
        "spin-bench-wire",
        &["--rounds", "1", "--only", "spind,AF_XDP,XDP_TX,socket", "--image", &image, "--json", &wire],
    );
    let results: Value = serde_json::from_str(&fs::read_to_string(&wire).expect("results")).expect("JSON");
    let series = results["series"].as_array().expect("series");
    assert_eq!(series.iter().filter(|series| series["rounds"].as_array().map(Vec::len) == Some(1)).count(), 24);
    run("spin-bench-report", &["--wire", &wire, "--engine", "none", "--handlers", "none", "--out", &page]);
    let page = fs::read_to_string(&page).expect("a page");
    for series in series {
        assert!(page.contains(series["program"].as_str().expect("a name")), "{series}");
    }
}

/// The bench of the hook runs from start to end, and has a figure for every ratio. Its bounds are not checked: few packets say nothing.
#[test]
fn the_bench_of_the_hook() {
    if !root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for handler in ["udp_pingpong", "icmp_echo"] {
        let image = folder.path().join(handler).with_extension("elf");
        fs::write(image, spin_handlers::image(handler, &[])).expect("a file");
    }
    let json = folder.path().join("hook.json");
    let mut bench = Command::new(binary("spin-bench-hook"));
    bench.args(["--rounds", "1", "--frames", "20000", "--round-trips", "40", "--images"]).arg(folder.path());
    let output = bench.arg("--json").arg(&json).output().expect("it starts");
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    let results: Value = serde_json::from_str(&fs::read_to_string(json).expect("results")).expect("JSON");
    let ratios = results["ratios"].as_array().expect("ratios");
    assert!(ratios.len() == 14 && ratios.iter().all(|ratio| ratio["median"].is_f64()), "{said}");
}
