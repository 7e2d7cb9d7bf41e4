//! The host programs of the shipped handlers, in Rust, in C and in Python, end to end. Each installs its handlers in a running
//! spind, packets arrive, and it prints the results.
#![forbid(unsafe_code)]

#[path = "frames/mod.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod frames;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use frames::{Ipv4, SERVER, request, udp};
use libspin::Client;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_tests::c_programs::{checked, compile, libspin_c};
use spin_tests::{ACTION_TIMEOUT, Python, Spind, built};

/// Returns a handler's host programs, in Rust, in C and in Python.
fn programs(handler: &str, to: &Path) -> Vec<Command> {
    let source = libspin_c().join("examples").join(handler).with_extension("c");
    let mut programs = vec![Command::new(built().join("examples").join(handler)), checked(&compile(&source, true, to))];
    programs.extend(Python::with_wheel().map(|python| python.program("examples", handler)));
    programs
}

/// Makes a datagram from 10.0.0.`host`.
fn datagram(host: u8, payload: &[u8]) -> Vec<u8> {
    let source = [10, 0, 0, host];
    request(&Ipv4 { source, ..Ipv4::new(17, udp(source, SERVER, [4000, 9999], payload)) }.bytes())
}

/// What a host program printed, and the frames that its handlers sent.
type Outcome = (String, Vec<Vec<u8>>);

/// Runs each host program of a handler while these datagrams arrive, each a message.
fn run(handler: &str, datagrams: &[Vec<u8>]) -> Vec<Outcome> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("handler.elf");
    std::fs::write(&image, spin_handlers::build(&spin_handlers::source(handler))).unwrap();
    let programs = programs(handler, folder.path()).into_iter();
    programs.map(|program| run_program(program, &image, datagrams)).collect()
}

fn run_program(mut command: Command, image: &Path, datagrams: &[Vec<u8>]) -> Outcome {
    let spind = Spind::start(&["--nic", "loopback"]);
    command.arg(image).arg(datagrams.len().to_string()).arg(spind.socket()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let (mut first, mut rest) = (String::new(), String::new());
    output.read_line(&mut first).unwrap();
    assert_eq!(first, format!("waiting for {} messages\n", datagrams.len()));
    let packets: Vec<_> = datagrams.iter().map(|frame| Packet::whole(0, frame.clone())).collect();
    let mut client = Client::connect(spind.socket()).unwrap();
    let sent = client.replay(&write_all(&packets)).unwrap();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    let deadline = Instant::now() + ACTION_TIMEOUT;
    while !client.contexts().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "its handlers go with it");
        sleep(Duration::from_millis(5));
    }
    (rest, read_all(&sent).unwrap().into_iter().map(|packet| packet.data).collect())
}

fn little(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Checks what a handler's host programs print.
fn assert_prints(handler: &str, datagrams: &[Vec<u8>], expected: &str) {
    for (printed, _) in run(handler, datagrams) {
        assert_eq!(printed, expected);
    }
}

#[test]
fn reduce() {
    let datagrams = [[1, 2, 0], [10, 20, 0], [100, 0, 5]].map(|words| datagram(1, &little(&words)));
    assert_prints("reduce", &datagrams, "0 111\n1 22\n2 5\n");
}

#[test]
fn aggregate() {
    let datagrams = [[1, 2], [10, 20], [100, 200]].map(|words| datagram(1, &little(&words)));
    assert_prints("aggregate", &datagrams, "sum 300\n");
}

#[test]
fn histogram() {
    let datagrams = [[3, 1024], [1025, 3], [3, 0]].map(|words| datagram(1, &little(&words)));
    assert_prints("histogram", &datagrams, "0 1\n3 3\n1024 1\n");
}

#[test]
fn filtering() {
    let datagrams = [3, 2, 1].map(|host| datagram(host, b"hello"));
    for (printed, _) in run("filtering", &datagrams) {
        let mut lines: Vec<_> = printed.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["10.0.0.1 to port 7001", "10.0.0.3 to port 7003"]);
    }
}

#[test]
fn kvstore() {
    let request = |operation: u8, value: u8| datagram(1, &[0, 0, 0, operation, 0, 0, 0, 77, 0, 0, 0, value]);
    for (printed, sent) in run("kvstore", &[request(2, 5), request(1, 0)]) {
        assert_eq!(printed, "2 requests answered\n");
        let mut answers: Vec<_> = sent.iter().map(|frame| (frame[45], frame[53])).collect();
        answers.sort_unstable();
        // The two messages may be processed in either order: the get may run before the set.
        assert!(answers == [(3, 5), (5, 5)] || answers == [(4, 0), (5, 5)], "{answers:?}");
    }
}

#[test]
fn strided_ddt() {
    let piece = |offset: u32, byte: u8| datagram(1, &[&offset.to_be_bytes()[..], &[byte; 256]].concat());
    let expected = "block 0: [01, 01, 01, 01, 01, 01, 01, 01]\nblock 2: [03, 03, 03, 03, 03, 03, 03, 03]\n";
    assert_prints("strided_ddt", &[piece(512, 3), piece(0, 1)], expected);
}
