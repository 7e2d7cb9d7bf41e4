//! Tests of the sender against a receiver that checks each rule of the protocol per packet.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use super::packet::{HEADER, Header};
use super::window::Window;
use super::{ACK, EOM, MAX_PAYLOAD, PORT, SYN, Sender, SlmpError};

/// Returns a loopback address that no other test uses, in this process or another.
fn address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high.max(1), low, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a receiver's socket with a receive timeout.
fn receiver(at: Ipv4Addr) -> UdpSocket {
    let socket = UdpSocket::bind((at, PORT)).expect("the port is free");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket
}

fn receive(socket: &UdpSocket) -> (Header, Vec<u8>, SocketAddr) {
    let mut packet = [0; 2000];
    let (length, from) = socket.recv_from(&mut packet).expect("a packet comes");
    (Header::decode(&packet[..length]).expect("a header"), packet[HEADER..length].to_vec(), from)
}

fn acknowledge(socket: &UdpSocket, header: Header, to: SocketAddr) {
    let answer = Header { flags: header.flags | ACK, ..header };
    socket.send_to(&answer.encode(), to).expect("sent");
}

/// Packets that a receiver got.
struct Seen {
    /// Payloads by offset.
    pieces: BTreeMap<u32, Vec<u8>>,
    most_waiting: usize,
}

/// Receives a message. Acknowledgements are held back until `window` packets wait for them or no others are to come.
fn take(socket: &UdpSocket, id: u32, window: usize, packets: usize) -> Seen {
    let (first, payload, from) = receive(socket);
    let only = packets == 1;
    let last_flags = SYN | EOM;
    assert_eq!(first, Header { flags: if only { last_flags } else { SYN }, message: id, offset: 0 });
    socket.set_nonblocking(true).expect("a mode");
    thread::sleep(Duration::from_millis(20));
    assert!(socket.recv(&mut [0; 10]).is_err(), "nothing comes before the first is acknowledged");
    socket.set_nonblocking(false).expect("a mode");
    acknowledge(socket, first, from);
    let mut seen = Seen { pieces: BTreeMap::from([(0, payload)]), most_waiting: 0 };
    let mut waiting = Vec::new();
    while seen.pieces.len() < packets {
        let (header, payload, source) = receive(socket);
        let last = seen.pieces.len() + 1 == packets;
        let flags = if last {
            last_flags
        } else if window > 0 {
            SYN
        } else {
            0
        };
        assert_eq!((header.flags, header.message, source), (flags, id, from), "{header:?}");
        assert!(!last || waiting.is_empty(), "the last comes when all others are acknowledged");
        assert!(seen.pieces.insert(header.offset, payload).is_none(), "once each");
        if window == 0 {
            continue;
        }
        waiting.push(header);
        seen.most_waiting = seen.most_waiting.max(waiting.len());
        assert!(waiting.len() <= window, "no more than the window");
        if waiting.len() == window || seen.pieces.len() + 1 >= packets {
            // Acknowledgements out of order, one for another message, and one sent twice.
            acknowledge(socket, Header { message: id ^ 1, ..header }, from);
            waiting.drain(..).rev().for_each(|header| acknowledge(socket, header, from));
            acknowledge(socket, header, from);
        }
    }
    seen
}

fn moved(sender: &Sender, bytes: &[u8]) -> Seen {
    let at = address();
    let socket = receiver(at);
    let piece = MAX_PAYLOAD / sender.align * sender.align;
    let packets = bytes.len().div_ceil(piece).max(1);
    thread::scope(|scope| {
        let sending = scope.spawn(|| sender.send(at, 7, bytes));
        let seen = take(&socket, 7, sender.window, packets);
        sending.join().expect("no panic").expect("all is acknowledged");
        let mut whole = Vec::new();
        for (offset, payload) in &seen.pieces {
            assert_eq!(usize::try_from(*offset).expect("small"), whole.len(), "payloads are where they belong");
            assert!(payload.len() == piece || whole.len() + payload.len() == bytes.len(), "aligned");
            whole.extend_from_slice(payload);
        }
        assert!(whole == bytes, "all bytes");
        seen
    })
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 256) as u8).collect()
}

#[test]
fn messages_arrive_by_the_protocol() {
    for (window, align, threads) in [(0, 0, 1), (1, 1, 1), (8, 0, 1), (8, 64, 3), (0, 1000, 4)] {
        let sender = Sender::new(window, align, 0, threads).expect("good settings");
        for length in [0, 1, 1462, 1463, 2 * 1462, 60_000] {
            let seen = moved(&sender, &bytes(length));
            let most = usize::try_from(window).expect("positive");
            assert!(length < 60_000 || window == 0 || seen.most_waiting == most, "the window is used");
        }
    }
}

#[test]
fn packets_keep_their_distance() {
    let sender = Sender::new(0, 0, 3000, 1).expect("good settings");
    let start = std::time::Instant::now();
    moved(&sender, &bytes(10 * MAX_PAYLOAD));
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn a_sender_that_takes_its_time_is_not_taken_for_silence() {
    let sender = Sender::new(1, 0, 1_200_000, 1).expect("good settings");
    moved(&Sender { patience: Duration::from_secs(1), ..sender }, &bytes(4 * MAX_PAYLOAD));
}

#[test]
fn silence_is_as_long_as_packets_wait() {
    let window = Window::new(2);
    let pause = || thread::sleep(Duration::from_millis(2));
    pause();
    assert_eq!(window.silence(), Duration::ZERO);
    assert!(window.enter(1));
    pause();
    assert!(window.enter(2) && window.silence() >= Duration::from_millis(2));
    assert!(!window.leave(3) && window.silence() >= Duration::from_millis(2), "it did not wait");
    assert!(window.leave(1) && window.leave(2));
    pause();
    assert_eq!(window.silence(), Duration::ZERO);
}

#[test]
fn nobody_is_waited_for_for_ever() {
    for threads in [1_u8, 3] {
        let sender =
            Sender { patience: Duration::from_millis(300), ..Sender::new(4, 0, 0, threads.into()).expect("good") };
        // No receiver answers.
        let at = address();
        let socket = receiver(at);
        let silent = sender.send(at, 1, &bytes(20_000)).expect_err("nobody");
        assert!(matches!(silent, SlmpError::Silent { waiting: 1, first: 0, .. }), "{silent}");
        receive(&socket);
        // A receiver that acknowledges the first packet only; the timeout allows for its thread being preempted for
        // long.
        let sender = Sender { patience: Duration::from_secs(3), ..sender };
        thread::scope(|scope| {
            let sending = scope.spawn(|| sender.send(at, 1, &bytes(20_000)));
            let (header, _, from) = receive(&socket);
            acknowledge(&socket, header, from);
            let failed = sending.join().expect("no panic").expect_err("silence");
            let SlmpError::Silent { waiting: 4, first, .. } = failed else { panic!("{failed}") };
            // Each of the other threads may be preempted while it holds an earlier packet.
            let mut firsts = (1..=usize::from(threads)).map(|piece| piece * MAX_PAYLOAD);
            assert!(firsts.any(|at| at == first as usize), "{failed}");
        });
    }
    // Without a receiver, the kernel reports an error (ICMP port unreachable).
    let sender = Sender::new(4, 0, 0, 1).expect("good");
    assert!(matches!(sender.send(address(), 1, &bytes(20_000)), Err(SlmpError::Io(_))));
}

/// The window is limited to the acknowledgements that fit into the receive buffer that the kernel grants.
#[test]
fn a_smaller_window_is_told_with_its_remedy() {
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").expect("Linux");
    let most: usize = text.trim().parse().expect("a number");
    // The kernel doubles what is asked for (socket(7)).
    let granted = 2 * most.min(1 << 20);
    let socket = UdpSocket::bind((address(), 0)).expect("a free port");
    assert_eq!(super::acknowledgements_that_fit(&socket).expect("a socket"), granted / 2048);
    let told = |asked: usize, window: usize, remedy: &str| {
        let start = format!("libfpspin: SLMP window {asked}: acknowledgements of {window} packets");
        assert_eq!(super::limit(asked, window), format!("{start} fit into the receive buffer; {remedy}"));
    };
    // 208 KiB is the kernel's default limit.
    told(256, 208, "for more, sysctl -w net.core.rmem_max=1048576");
    told(1025, 208, "for more, sysctl -w net.core.rmem_max=1048576");
    told(1025, 1024, "the greatest is 1024");
}

#[test]
fn patience_is_what_the_environment_says() {
    for (text, ms) in [(None, 5000), (Some("60000"), 60_000), (Some("0"), 5000), (Some("-1"), 5000), (Some("1s"), 5000)]
    {
        assert_eq!(super::patience(text), Duration::from_millis(ms), "{text:?}");
    }
}

#[test]
fn settings_without_meaning_are_refused() {
    for (window, align, gap, threads) in
        [(-1, 0, 0, 1), (0, -1, 0, 1), (0, 1463, 0, 1), (0, 0, -1, 1), (0, 0, 0, 0), (0, 0, 0, 65)]
    {
        let refused = Sender::new(window, align, gap, threads);
        assert!(matches!(refused, Err(SlmpError::Setting { .. })), "{refused:?}");
    }
}
