//! Sending on veth pairs: frame length, pending frames, and the choice of the queue.

mod common;

use std::net::UdpSocket;
use std::time::Instant;

use common::{FAR, LINK, Link, NEAR, TIMEOUT, counter, receive, root, run, swap_addresses, udp_to};
use spin_abi::rules::RuleSet;
use spin_nic::afxdp::Mode;
use spin_nic::{AfXdp, AfXdpConfig, Frame, Queue, TxQueue};

/// The offset of the UDP payload: Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Entries of a small transmit ring.
const SMALL: usize = 4;

fn config() -> AfXdpConfig {
    AfXdpConfig { mode: Mode::Native, ..AfXdpConfig::new(LINK) }
}

/// Two queues, each with a small transmit ring and twice as many frames for sending.
fn two_small_queues() -> AfXdpConfig {
    AfXdpConfig { frames_per_queue: 64 + 2 * SMALL as u32, rx_ring: 64, tx_ring: SMALL as u32, ..config() }
}

/// The bytes of a reply to `client`, with one byte of payload.
fn answer(queue: &mut AfXdp, client: &UdpSocket) -> Vec<u8> {
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    client.send_to(&[0], (NEAR, 9999)).expect("sent");
    let mut frame = receive(queue, 1).remove(0);
    swap_addresses(&mut frame);
    // Without a UDP checksum the payload may change.
    frame[40..42].fill(0);
    let bytes = frame[..HEADERS + 1].to_vec();
    queue.recycle(frame);
    // Post a chunk for the received one, so that the configured number of chunks is left for sending.
    queue.flush().expect("flush");
    bytes
}

/// A frame of `len` bytes whose datagram is the one byte `number`. The rest is padding.
fn numbered(queue: &mut AfXdp, answer: &[u8], number: u8, len: usize) -> Frame {
    let mut bytes = answer.to_vec();
    bytes[HEADERS] = number;
    bytes.resize(len, 0);
    let mut frame = queue.allocate().expect("a free frame");
    frame.fill(&bytes).expect("fits");
    frame
}

/// The numbers of the next `count` replies.
fn numbers(client: &UdpSocket, count: usize) -> Vec<u8> {
    let next = || {
        let mut buffer = [0; 64];
        let (len, _) = client.recv_from(&mut buffer).expect("an answer");
        assert_eq!(len, 1);
        buffer[0]
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn the_longest_frame_arrives_and_longer_ones_harm_no_other() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut queue = link.open(&config()).expect("opens");
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    let answer = answer(&mut queue, &client);
    let longest = queue.max_frame();
    assert_eq!(longest, 1500 + 18);
    let lens = [longest + 1, longest, longest + 1, 60, longest + 500];
    let mut batch: Vec<_> = (0..5).map(|i| numbered(&mut queue, &answer, i, lens[usize::from(i)])).collect();
    assert_eq!((queue.send(&mut batch), batch.len(), queue.pending()), (5, 0, 2));
    queue.flush().expect("flush");
    assert_eq!(queue.pending(), 0);
    assert_eq!(numbers(&client, 2), [1, 3]);
    let expected = [("tx_oversize", 3), ("tx_frames", 2), ("tx_dropped", 0), ("tx_busy", 0), ("foreign_frames", 0)];
    for (name, value) in expected {
        assert_eq!(counter(&mut queue, name), value, "{name}");
    }
}

#[test]
fn frames_the_device_drops_hold_up_no_other() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    // The far end keeps 1500, and veth applies the MTU of the receiving end.
    run(&format!("ip -n {} link set {LINK} mtu 1600", link.near));
    let mut queue = link.open(&config()).expect("opens");
    assert_eq!(queue.max_frame(), 1618);
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    let answer = answer(&mut queue, &client);
    let lens = [1519, 1519, 60, 1518, 1519, 60, 1618];
    let mut batch: Vec<_> = (0..7).map(|i| numbered(&mut queue, &answer, i, lens[usize::from(i)])).collect();
    assert_eq!(queue.send(&mut batch), 7);
    queue.flush().expect("flush");
    assert_eq!((queue.pending(), counter(&mut queue, "tx_dropped")), (0, 4));
    assert_eq!(numbers(&client, 3), [2, 3, 5]);
    assert_eq!((counter(&mut queue, "tx_busy"), counter(&mut queue, "bad_descriptors")), (0, 0));
}

#[test]
fn frames_for_a_device_that_is_down_are_pending() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut queue = link.open(&config()).expect("opens");
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    let answer = answer(&mut queue, &client);
    run(&format!("ip -n {} link set {LINK} down", link.near));
    let mut batch: Vec<_> = (0..3).map(|i| numbered(&mut queue, &answer, i, 60)).collect();
    queue.send(&mut batch);
    queue.flush().expect("down is no error");
    assert_eq!((queue.pending(), counter(&mut queue, "tx_busy")), (3, 1));
}

#[test]
fn a_full_queue_holds_up_no_other() {
    if !root() {
        return;
    }
    let link = Link::new(2);
    let mut queue = link.open(&two_small_queues()).expect("opens");
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    let answer = answer(&mut queue, &client);
    // The frames of one queue, then those of the other.
    let mut batch: Vec<_> = (0..4 * SMALL as u8).map(|i| numbered(&mut queue, &answer, i, 60)).collect();
    assert!(queue.allocate().is_none());
    for _ in 0..2 {
        // Both rings are emptied once. There is no order between the two rings.
        assert_eq!((queue.send(&mut batch), queue.pending()), (2 * SMALL, 2 * SMALL));
        assert_eq!(queue.send(&mut batch), 0, "both rings are full");
        queue.flush().expect("flush");
    }
    let mut came = numbers(&client, 4 * SMALL);
    let second: Vec<u8> = came.extract_if(.., |number| *number >= 2 * SMALL as u8).collect();
    // The frames of each queue are in order.
    assert_eq!(came, (0..2 * SMALL as u8).collect::<Vec<_>>());
    assert_eq!(second, (2 * SMALL as u8..4 * SMALL as u8).collect::<Vec<_>>());
}

#[test]
fn new_frames_belong_to_the_queue_of_the_last_received_frame() {
    if !root() {
        return;
    }
    let link = Link::new(2);
    let mut queue = link.open(&two_small_queues()).expect("opens");
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    // veth chooses the queue by a hash of the flow. Among this many flows, some use each queue.
    for _ in 0..32 {
        let client = Link::udp(&link.far, &format!("{FAR}:0"));
        client.send_to(&[0], (NEAR, 9999)).expect("sent");
        let received = receive(&mut queue, 1).remove(0);
        let mut batch: Vec<_> = (0..SMALL as u8).map(|i| numbered(&mut queue, &received, i, 60)).collect();
        batch.push(received);
        // If the new frames belonged to the other queue, the received one would find room.
        assert_eq!((queue.send(&mut batch), batch.len()), (SMALL, 1));
        let begin = Instant::now();
        while !batch.is_empty() || queue.pending() > 0 {
            assert!(begin.elapsed() < TIMEOUT, "{} frames do not leave", queue.pending());
            queue.flush().expect("flush");
            queue.send(&mut batch);
        }
        queue.flush().expect("flush");
    }
}

#[test]
fn a_caller_that_only_polls_learns_that_the_device_is_gone() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut queue = link.open(&config()).expect("opens");
    run(&format!("ip -n {} link del {LINK}", link.far));
    let begin = Instant::now();
    while !queue.exhausted() {
        assert!(begin.elapsed() < TIMEOUT, "not noticed");
        queue.receive(&mut Vec::new(), 1);
        queue.flush().expect("nothing to send, so no error");
    }
}
