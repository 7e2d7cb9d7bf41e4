//! `spin-impair` between two namespaces: what a receiver sees is what the log says, frame by frame.

#[path = "../../nic/tests/common/mod.rs"]
mod common;
#[path = "../../nic/tests/packet_socket/mod.rs"]
mod packet_socket;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use common::{root, run, within};
use packet_socket::{PacketSocket, listen, receive};
use rustix::process::{Pid, Signal, kill_process};
use spin_testing::bounded;
use spin_tests::binary;

/// Interface of each host, and of the relay for each of them.
const HOST: &str = "v0";
const SIDES: [&str; 2] = ["west0", "east0"];

/// Two hosts, and a relay between them.
struct Wire {
    hosts: [String; 2],
    relay: String,
}

impl Wire {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("spin-impair-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let wire = Self { hosts: ["one", "two"].map(|host| format!("{name}-{host}")), relay: format!("{name}-relay") };
        for namespace in wire.hosts.iter().chain([&wire.relay]) {
            run(&format!("ip netns add {namespace}"));
            for scope in ["all", "default"] {
                run(&format!("ip netns exec {namespace} sysctl -qw net.ipv6.conf.{scope}.disable_ipv6=1"));
            }
        }
        let relay = &wire.relay;
        for ((host, side), address) in wire.hosts.iter().zip(SIDES).zip(["10.9.0.1", "10.9.0.2"]) {
            run(&format!("ip link add {HOST} netns {host} type veth peer name {side} netns {relay}"));
            run(&format!("ip netns exec {host} ethtool -K {HOST} tx off tso off gso off gro off"));
            run(&format!("ip -n {host} addr add {address}/24 dev {HOST}"));
            run(&format!("ip -n {host} link set {HOST} up"));
            run(&format!("ip -n {relay} link set {side} up"));
        }
        wire
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().chain([&self.relay]) {
            let _ = Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
    }
}

/// A running relay.
struct Relay {
    child: Child,
    output: BufReader<ChildStdout>,
    log: PathBuf,
}

impl Relay {
    fn start(wire: &Wire, folder: &Path, options: &[&str]) -> Self {
        let log = folder.join("log");
        let mut child = within(&wire.relay, || {
            let mut command = Command::new(binary("spin-impair"));
            command.args(SIDES).args(options).arg("--log").arg(&log).stdout(Stdio::piped());
            command.spawn().expect("it starts")
        });
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("text");
        assert!(line.starts_with("relaying between west0 and east0"), "{line}");
        Self { child, output, log }
    }

    /// Stops it as ^C does. Returns its log, and its summary.
    fn stop(mut self) -> (String, String) {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        assert!(self.child.wait().expect("a child").success());
        let mut summary = String::new();
        self.output.read_to_string(&mut summary).expect("text");
        (fs::read_to_string(&self.log).expect("a log"), summary)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A datagram of an ECN-capable sender with a number.
fn frame(number: u32) -> Vec<u8> {
    let len = 60 + number as usize % 1000;
    let mut bytes = vec![number as u8; len];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let length = u16::try_from(len - 14).expect("short");
    let mut header = [0x45, 2, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    header[2..4].copy_from_slice(&length.to_be_bytes());
    let sum: u32 = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&folded.to_be_bytes());
    bytes[14..34].copy_from_slice(&header);
    bytes[42..46].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// What the log says about a frame.
struct Fate {
    number: u32,
    words: Vec<String>,
}

impl Fate {
    fn of(line: &str) -> Self {
        let mut words = line.split(' ').map(str::to_owned);
        assert_eq!(words.next().as_deref(), Some("west0>east0"), "{line}");
        let number = words.next().and_then(|number| number.parse().ok()).expect("a number");
        let length = words.next().and_then(|length| length.parse().ok());
        assert_eq!(length, Some(frame(number).len()), "{line}");
        Self { number, words: words.collect() }
    }

    fn is(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// The frame as it leaves; `None`: it is lost.
    fn left(&self) -> Option<Vec<u8>> {
        let mut bytes = frame(self.number);
        if self.is("lost") {
            return None;
        }
        if self.is("marked") {
            // RFC 1624: the sum of the words is as before.
            let sum = u16::from_be_bytes([bytes[24], bytes[25]]);
            bytes[15] |= 3;
            let sum = u32::from(!sum) + 0xffff - 2 + 3;
            let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
            bytes[24..26].copy_from_slice(&folded.to_be_bytes());
        }
        for word in &self.words {
            let Some((byte, bit)) = word.strip_prefix("corrupted=").and_then(|place| place.split_once('.')) else {
                continue;
            };
            let (byte, bit): (usize, u8) = (byte.parse().expect("a byte"), bit.parse().expect("a bit"));
            bytes[byte] ^= 1 << bit;
        }
        Some(bytes)
    }
}

/// Sends numbered frames through a relay. Returns its log, its summary, and the frames that arrived.
fn relayed(options: &[&str], count: u32) -> (String, String, Vec<Vec<u8>>) {
    let (wire, folder) = (Wire::new(), tempfile::tempdir().expect("a temporary folder"));
    let relay = Relay::start(&wire, folder.path(), options);
    let [one, two] = &wire.hosts;
    let (socket, arriving) = (PacketSocket::open(one, HOST), listen(two, HOST));
    let received = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut frames, mut pauses) = (Vec::new(), 0);
            while pauses < 2 {
                match receive(&arriving) {
                    Some(frame) => frames.push(frame),
                    None => pauses += 1,
                }
            }
            frames
        });
        for number in 1..=count {
            assert!(socket.send(&frame(number)));
            if number % 16 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        receiver.join().expect("it receives")
    });
    let (log, summary) = relay.stop();
    (log, summary, received)
}

#[test]
fn a_receiver_sees_what_the_log_says() {
    if !root() {
        return;
    }
    let count = bounded(400, 5000);
    let all = [
        &["--loss", "10%"][..],
        &["--duplicate", "10%"],
        &["--corrupt", "20%"],
        &["--ecn", "30%"],
        &["--delay", "20ms", "--jitter", "5ms"],
        &["--loss", "5%", "--duplicate", "5%", "--corrupt", "5%", "--ecn", "5%", "--delay", "2ms", "--seed", "7"],
    ];
    // In short, all of them at once.
    for options in bounded(&all[5..], &all[..]) {
        let (log, summary, received) = relayed(options, count);
        let fates: Vec<_> = log.lines().map(Fate::of).collect();
        assert!(fates.iter().map(|fate| fate.number).eq(1..=count), "{options:?}: each frame once: {summary}");
        let expected: Vec<_> = fates
            .iter()
            .flat_map(|fate| {
                let copies = if fate.is("twice") { 2 } else { 1 };
                std::iter::repeat_n(fate.left(), copies).flatten()
            })
            .collect();
        assert!(
            received == expected,
            "{options:?}: {} frames arrived, {} expected: {summary}",
            received.len(),
            expected.len()
        );
        // Each impairment occurs.
        let word = ["lost", "twice", "corrupted=", "marked", "delayed="];
        let asked = ["--loss", "--duplicate", "--corrupt", "--ecn", "--delay"];
        for (word, asked) in word.iter().zip(asked) {
            assert_eq!(log.contains(word), options.contains(&asked), "{options:?}: {word}");
        }
    }
}

#[test]
fn frames_that_are_not_delayed_overtake_others() {
    if !root() {
        return;
    }
    let (log, summary, received) = relayed(&["--delay", "30ms", "--reorder", "10%"], 400);
    let fates: Vec<_> = log.lines().map(Fate::of).collect();
    let numbers: Vec<u32> =
        received.iter().map(|bytes| u32::from_be_bytes([bytes[42], bytes[43], bytes[44], bytes[45]])).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(1..=400), "{summary}");
    // Those that overtake are in order, and so are the others.
    for overtakes in [true, false] {
        let of_kind = |number: &&u32| fates[**number as usize - 1].is("overtakes") == overtakes;
        assert!(numbers.iter().filter(of_kind).is_sorted(), "{numbers:?}");
    }
    assert!(!numbers.is_sorted() && log.contains("overtakes"));
}

#[test]
fn a_seed_gives_the_same_log_and_another_a_different_one() {
    if !root() {
        return;
    }
    let options = |seed| ["--loss", "5%", "--duplicate", "5%", "--corrupt", "5%", "--delay", "1ms", "--seed", seed];
    let [one, again, other] = ["3", "3", "4"].map(|seed| relayed(&options(seed), 300).0);
    assert!(one == again && one != other);
}

#[test]
fn a_queue_that_is_full_loses_what_it_says() {
    if !root() {
        return;
    }
    // A megabit per second, and room for 20 frames.
    let (_, summary, received) = relayed(&["--rate", "4M", "--limit", "20"], 200);
    let count = |what: &str| -> usize {
        let (before, _) = summary.split_once(what).unwrap_or_else(|| panic!("{what} in {summary}"));
        before.rsplit(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number")
    };
    assert_eq!((count("received"), count("lost")), (200, 0), "{summary}");
    assert_eq!(count("sent,"), received.len(), "{summary}");
    let (overflowed, _) = summary.split_once(" found the queue full").expect("it says so");
    let overflowed: usize = overflowed.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    assert!(overflowed > 0 && overflowed + received.len() == 200, "{summary}");
}

#[test]
fn tcp_gets_through_a_lossy_wire() {
    if !root() {
        return;
    }
    let (wire, folder) = (Wire::new(), tempfile::tempdir().expect("a temporary folder"));
    let relay = Relay::start(&wire, folder.path(), &["--loss", "1%"]);
    let (bytes, [one, two]) = (bounded(3_000_000_usize, 100_000_000), &wire.hosts);
    let listener = within(two, || TcpListener::bind("10.9.0.2:7000").expect("binds"));
    let sent: Vec<u8> = (0..bytes as u32).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    let received = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).map(|_| all).expect("it arrives")
        });
        let mut stream = within(one, || TcpStream::connect("10.9.0.2:7000").expect("connects"));
        stream.write_all(&sent).expect("sent");
        drop(stream);
        receiver.join().expect("it receives")
    });
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    let (log, _) = relay.stop();
    assert!(log.lines().any(|line| line.starts_with("west0>east0") && line.ends_with("lost")));
}
