//! Packet mode on veth: 100,000 flows pass without a loss, and take no queue from a context whose messages hold most of them.

#[path = "../../nic/tests/common/mod.rs"]
mod common;
#[path = "../../nic/tests/packet_socket/mod.rs"]
mod packet_socket;

use std::thread;
use std::time::{Duration, Instant};

use common::{LINK, Link, root, within};
use libspin::{Client, Install};
use packet_socket::PacketSocket;
use spin_testing::bounded;
use spin_tests::{ACTION_TIMEOUT, Spind};

/// Flows of the context in packet mode.
const FLOWS: u32 = 100_000;
/// Open messages of the other context, of 256 queues.
const OPEN: u16 = 200;
/// Frames sent at a time. The socket's queue and the NIC's ring have room for more.
const BURST: u32 = 32;

/// A datagram from a flow to a port.
fn datagram(flow: u32, port: u16, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = flow.to_be_bytes();
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = builder.ipv4([10, 8, high, 2], [10, 7, 0, 1], 64).udp(u16::from_be_bytes([middle, low]), port);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("a vector takes all");
    frame
}

/// Sends `count` frames at `rate` frames per second, or as fast as it can. Returns how many the interface took, and the rate.
fn flood(socket: &PacketSocket, frames: &[Vec<u8>], count: u32, rate: u32) -> (u64, u32) {
    let (start, mut taken) = (Instant::now(), 0);
    for first in (0..count).step_by(BURST as usize) {
        let due = Duration::from_secs(1) * first / rate;
        while start.elapsed() < due {
            thread::yield_now();
        }
        for number in first..count.min(first + BURST) {
            taken += u64::from(socket.send(&frames[(number % FLOWS) as usize]));
        }
    }
    (taken, (f64::from(count) / start.elapsed().as_secs_f64()) as u32)
}

/// A counter of a context.
fn count(client: &mut Client, context: u32, counter: &str) -> u64 {
    let contexts = client.stats().expect("statistics").contexts;
    let info = contexts.into_iter().find(|info| info.context == context).expect("installed");
    info.counters.named(counter).unwrap_or(0)
}

/// Waits until a counter stays as it is, and returns it.
fn settled(client: &mut Client, context: u32, counter: &str, expected: u64) -> u64 {
    let deadline = Instant::now() + ACTION_TIMEOUT;
    let mut last = (count(client, context, counter), Instant::now());
    while last.0 < expected && last.1.elapsed() < Duration::from_secs(1) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
        let now = count(client, context, counter);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    last.0
}

#[test]
fn flows_without_end_lose_nothing_and_take_no_queue() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let spind = within(&link.near, || Spind::start(&["--iface", LINK]));
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let single = Install { rules: vec!["udp dport 7".into()], eom: Some("never".into()), ..Install::default() };
    let single = client.install(&single, &spin_handlers::image("empty", &[])).expect("installs").id;
    let messages = Install {
        rules: vec!["udp dport 8".into()],
        eom: Some("payload[0:1] = 1".into()),
        key: Some("flow".into()),
        ..Install::default()
    };
    let messages = client.install(&messages, &spin_handlers::image("three_handlers", &[])).expect("installs").id;
    let socket = PacketSocket::open(&link.far, LINK);
    let all = |last: u8| (0..OPEN).map(move |flow| datagram(flow.into(), 8, &[last; 20]));
    assert!(all(0).all(|frame| socket.send(&frame)));
    assert_eq!(settled(&mut client, messages, "header_runs", OPEN.into()), u64::from(OPEN));
    let frames: Vec<_> = (0..FLOWS).map(|flow| datagram(flow, 7, &[0; 20])).collect();
    let (mut sent, mut rate) = (0, bounded(20_000, 1_600_000));
    if bounded(false, true) {
        // The highest of some rates at which no frame is lost.
        loop {
            let before = settled(&mut client, single, "payload_runs", sent);
            let (taken, reached) = flood(&socket, &frames, 200_000, rate);
            let run = settled(&mut client, single, "payload_runs", before + taken) - before;
            eprintln!("{reached} frames/s: {taken} of 200000 taken, {run} run");
            sent = before + run;
            rate = reached / 2;
            if run == 200_000 {
                break;
            }
            assert!(rate > 1000, "frames are lost at any rate");
        }
    }
    let number = bounded(20_000, 1_000_000);
    let (taken, rate) = flood(&socket, &frames, number, rate);
    let run = settled(&mut client, single, "payload_runs", sent + taken) - sent;
    eprintln!("{rate} frames/s: {taken} of {number} taken, {run} run");
    assert_eq!((taken, run), (u64::from(number), u64::from(number)), "{}", spind.ctl_ok(&["stats"]));
    assert_eq!(count(&mut client, messages, "messages_evicted"), 0);
    // The other context's messages are all still open, and end.
    assert!(all(1).all(|frame| socket.send(&frame)));
    assert_eq!(settled(&mut client, messages, "messages", OPEN.into()), u64::from(OPEN));
    assert_eq!(count(&mut client, messages, "header_runs"), u64::from(OPEN));
}
