//! Datagrams with times, from flows of different rates, and a limiter that lets most of them pass.

use super::{Flow, PACKETS, Skewed, Work, datagram_frame, random, source};
use fastrand::Rng;
use std::net::Ipv4Addr;

/// Number of buckets.
pub const BUCKETS: usize = 1024;
/// Size of a bucket in bytes: lock, time, tokens (8 bytes), source, destination, ports, protocol.
pub const BUCKET: usize = 32;
/// Offset of the buckets: burst (8 bytes), rate, passed packets, dropped packets and an unused word precede them.
pub const BUCKETS_AT: usize = 24;
/// Number of tokens of a byte.
pub const TOKENS_PER_BYTE: u64 = 1 << 20;
/// Nanoseconds by which a packet may be older than its predecessor.
pub const MAX_REORDERING: u32 = 1 << 28;

/// Number of flows.
const FLOWS: u32 = 256;
/// Skew of the flows' numbers of packets.
const SKEW: f64 = 1.0;
/// Nanoseconds between packets. The packets of a round then take the 2^32 ns after which time starts again, so that a second
/// round continues the first.
const INTERVAL: u32 = ((1 << 32) / PACKETS as u64) as u32;
/// Bytes of packets in a full bucket, as a number of packets.
const BURST: u64 = 4;
/// A flow's share of the rate of all packets.
const SHARE: u32 = 32;

pub(super) fn make(work: &mut Work, rng: &mut Rng) {
    let size = u32::try_from(work.case.size).expect("a short frame");
    let burst = BURST * u64::from(size) * TOKENS_PER_BYTE;
    // A packet in 2^20 ns, and a rate in bytes per 2^20 ns.
    let rate = size / SHARE;
    work.handler_mem = [burst.to_le_bytes().to_vec(), rate.to_le_bytes().to_vec()].concat();
    work.handler_mem.resize(BUCKETS_AT + BUCKETS * BUCKET, 0);
    let destination = Ipv4Addr::new(10, 255, 0, 1);
    let mut flow = || Flow { source: source(rng), destination, ports: [rng.u16(1024..), 9999] };
    let flows: Vec<_> = std::iter::repeat_with(&mut flow).take(FLOWS as usize).collect();
    let numbers = Skewed::new(FLOWS, SKEW);
    let room = work.data();
    work.fill_frames(|packet| {
        let flow = flows[numbers.draw(rng) as usize];
        datagram_frame(flow, &payload(rng, packet, room))
    });
}

/// Makes a payload with its time: up to some intervals late. One in 64 is too short for a time.
fn payload(rng: &mut Rng, packet: usize, room: usize) -> Vec<u8> {
    if rng.u8(..64) == 0 {
        return random(rng, 3);
    }
    let number = u32::try_from(packet).expect("few packets");
    let time = number.wrapping_mul(INTERVAL).wrapping_sub(rng.u32(..4 * INTERVAL));
    [time.to_be_bytes().to_vec(), random(rng, room - 4)].concat()
}
