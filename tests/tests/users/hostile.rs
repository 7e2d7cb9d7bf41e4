//! Clients that try to stop spind, or to keep others from it.

use std::fs;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use libspin::{Client, Install};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use spin_abi::control::{Preamble, Request};
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_shm::channel;
use spin_tests::{Spind, binary, image, udp, wait_until};

use crate::client::rule;

/// Connections of a client that has many, fewer than one user may have.
const MANY: usize = 20;

fn connect(spind: &Spind) -> UnixStream {
    UnixStream::connect(spind.socket()).expect("spind listens")
}

/// Far more connections than spind serves at a time.
fn attempts(spind: &Spind) -> Vec<UnixStream> {
    (0..10_000).for_each(|_| drop(connect(spind)));
    Vec::new()
}

/// Requests whose replies nobody reads.
fn slow_readers(spind: &Spind) -> Vec<UnixStream> {
    let streams: Vec<_> = (0..MANY).map(|_| connect(spind)).collect();
    for stream in &streams {
        stream.set_nonblocking(true).expect("a socket");
        let is_full = (0..100_000).any(|_| channel::send(stream, &Request::Capabilities, &[], None).is_err());
        assert!(is_full, "spind reads no further requests while a reply waits");
    }
    streams
}

/// Messages that end early.
fn halves(spind: &Spind) -> Vec<UnixStream> {
    let streams: Vec<_> = (0..MANY).map(|_| connect(spind)).collect();
    let announced = Preamble { json: 20, blob: 16 << 20 }.encode();
    let whole = [&announced[..], br#"{"request":"replay"}"#, &[0; 1000]].concat();
    for (number, mut stream) in streams.iter().enumerate() {
        stream.write_all(&whole[..1 + number * whole.len() / MANY]).expect("spind reads");
    }
    streams
}

/// Shared memory that its user tries to shorten and to extend, and whose pages it frees. Handlers still write there.
fn changed_memory(spind: &Spind) -> Vec<UnixStream> {
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let context =
        client.install(&Install { host_mem: 8192, ..rule("udp dport 9001") }, &image("dma_probe")).expect("room");
    let stream = connect(spind);
    channel::send(&stream, &Request::HostMemory { context: context.id }, &[], None).expect("spind reads");
    let message = channel::receive::<spin_abi::control::Reply>(&stream).expect("a reply").expect("a reply");
    let memory = File::from(message.fd.expect("host memory"));
    for len in [0, 4096, 1 << 20] {
        assert!(memory.set_len(len).is_err(), "its length is sealed");
    }
    assert_eq!(fallocate(&memory, FallocateFlags::empty(), 8192, 4096), Err(Errno::PERM));
    fallocate(&memory, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 8192).expect("no seal forbids that");
    let sent = client.replay(&write_all(&[Packet::whole(0, udp(9001, b"hello"))])).expect("loopback replays");
    assert_eq!(read_all(&sent).expect("a capture").len(), 1, "the handler wrote to memory that was freed");
    vec![stream]
}

/// Contexts that come and go, from several connections at a time.
fn storm(spind: &Spind) -> Vec<UnixStream> {
    let images = ["udp_pingpong", "dma_probe"].map(image);
    let socket = &spind.socket();
    std::thread::scope(|scope| {
        for (port, image) in (9100..).zip(&images) {
            scope.spawn(move || {
                let mut client = Client::connect(socket).expect("spind listens");
                for _ in 0..5 {
                    let install = Install { host_mem: 1 << 20, ..rule(&format!("udp dport {port}")) };
                    let context = client.install(&install, image).expect("room");
                    client.remove(context.id).expect("it is ours");
                }
            });
        }
    });
    Vec::new()
}

/// An event ring whose indices change at random while spind writes there.
fn rewritten_ring(spind: &Spind) -> Vec<UnixStream> {
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let context = client.install(&rule("udp dport 9001"), &image("endless_loop")).expect("room");
    let stream = connect(spind);
    channel::send(&stream, &Request::Events { context: context.id }, &[], None).expect("spind reads");
    let message = channel::receive::<spin_abi::control::Reply>(&stream).expect("a reply").expect("a reply");
    let ring = File::from(message.fd.expect("an event ring"));
    let len = ring.metadata().expect("a file").len();
    for round in 0..5_u64 {
        let noise: Vec<u8> =
            (0..len).map(|at| (at.wrapping_mul(0x9e37_79b9).rotate_left(9) ^ (round * 77)) as u8).collect();
        ring.write_all_at(&noise, 0).expect("shared memory");
        client.replay(&write_all(&[Packet::whole(0, udp(9001, b"hello"))])).expect("loopback replays");
    }
    vec![stream]
}

/// Programs that are killed in every phase of a request.
fn killed(spind: &Spind) -> Vec<UnixStream> {
    let folder = tempfile::tempdir().expect("a folder");
    let handler = folder.path().join("handler.elf");
    fs::write(&handler, image("dma_probe")).expect("written");
    for delay in (0..20).step_by(2) {
        let mut spinctl = Command::new(binary("spinctl"));
        spinctl.arg("--socket").arg(spind.socket()).arg("install").arg(&handler).args(["--rule", "udp dport 9200"]);
        let mut child =
            spinctl.args(["--host-mem", "1M", "--name", "killed"]).stderr(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(delay));
        let _ = child.kill();
        child.wait().expect("it ends");
    }
    // Those that were installed in time stay, as spinctl asks for.
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    for context in client.contexts().expect("spind answers").iter().filter(|context| context.name == "killed") {
        client.remove(context.context).expect("root may");
    }
    Vec::new()
}

/// Bytes of resident memory of spind.
fn resident(spind: &Spind) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{}/statm", spind.pid())).expect("spind runs");
    let pages: u64 = pages.split_whitespace().nth(1).expect("proc_pid_statm(5)").parse().expect("a number");
    pages * rustix::param::page_size() as u64
}

/// Memory that spind may keep for later use.
const SLACK: u64 = 64 << 20;

/// Numbers of threads and open descriptors of spind.
fn level(spind: &Spind) -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", spind.pid())).expect("spind runs").count();
    (count("task"), count("fd"))
}

/// What a client does. Returns connections that it keeps open.
type Act = fn(&Spind) -> Vec<UnixStream>;

#[test]
fn hostile_clients_take_nothing_for_long() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut other = Client::connect(spind.socket()).unwrap();
    other.install(&rule("udp dport 9002"), &image("udp_pingpong")).unwrap();
    // Threads that stay once they are needed are there before.
    let first = other.install(&rule("udp dport 9003"), &image("dma_probe")).unwrap().id;
    other.remove(first).unwrap();
    let (before, memory) = (level(&spind), resident(&spind));
    let clients: [(&str, Act); 7] = [
        ("connection attempts", attempts),
        ("slow readers", slow_readers),
        ("halves of messages", halves),
        ("changed memory", changed_memory),
        ("a rewritten event ring", rewritten_ring),
        ("a storm of installs", storm),
        ("killed programs", killed),
    ];
    for (what, act) in clients {
        println!("{what}");
        let held = act(&spind);
        assert_eq!(other.contexts().unwrap()[0].rules, ["udp dport 9002"], "{what}: another client is answered");
        let sent = other.replay(&write_all(&[Packet::whole(0, udp(9002, b"hello"))])).unwrap();
        assert_eq!(read_all(&sent).unwrap().len(), 1, "{what}: packets are answered");
        drop(held);
        wait_until(|| {
            let (threads, descriptors) = level(&spind);
            threads <= before.0 && descriptors <= before.1
        });
        let now = resident(&spind);
        assert!(now < memory + SLACK, "{what}: {now} bytes stay of {memory}");
    }
}
