//! Clients that try to stop spind, or to keep others from it.

use std::fs;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;

use libspin::{Client, Install};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use spin_abi::control::{Preamble, Request};
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_shm::channel;
use spin_tests::Spind;

use crate::client::{image, rule, udp, wait_until};

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
    let before = level(&spind);
    let clients: [(&str, Act); 4] = [
        ("connection attempts", attempts),
        ("slow readers", slow_readers),
        ("halves of messages", halves),
        ("changed memory", changed_memory),
    ];
    for (what, act) in clients {
        let held = act(&spind);
        assert_eq!(other.contexts().unwrap()[0].rules, ["udp dport 9002"], "{what}: another client is answered");
        let sent = other.replay(&write_all(&[Packet::whole(0, udp(9002, b"hello"))])).unwrap();
        assert_eq!(read_all(&sent).unwrap().len(), 1, "{what}: packets are answered");
        drop(held);
        wait_until(|| {
            let (threads, descriptors) = level(&spind);
            threads <= before.0 && descriptors <= before.1
        });
    }
}
