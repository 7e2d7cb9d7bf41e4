//! TCP segments: common ones, and some with malformed headers or options.

use super::{Work, source};
use crate::handlers::work::random;
use crate::wire::{Ipv4, UDP, ethernet};
use fastrand::Rng;
use std::net::Ipv4Addr;

/// IPv4 protocol number of TCP.
pub const TCP: u8 = 6;
/// Size of a TCP header without options in bytes.
pub const HEADER: usize = 20;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// Options without their end, each invalid: lengths of zero, of another kind, beyond the header; no length.
const INVALID: [[u8; 4]; 4] = [[2, 0, 5, 180], [3, 4, 7, 1], [1, 1, 8, 10], [1, 1, 1, 2]];

pub(super) fn make(work: &mut Work, rng: &mut Rng) {
    let room = work.case.size - 34;
    work.fill_frames(|_| frame(rng, room));
}

/// Makes a frame with `room` bytes behind an IPv4 header without options.
fn frame(rng: &mut Rng, room: usize) -> Vec<u8> {
    let options = if rng.u8(..16) == 0 { vec![1, 1, 1, 0] } else { Vec::new() };
    let mut payload = segment(rng, room - options.len());
    if rng.u8(..64) == 0 {
        // A header that continues behind the packet.
        payload.truncate(24);
        payload[12] = 10 << 4;
    }
    let protocol = if rng.u8(..64) == 0 { UDP } else { TCP };
    let destination = Ipv4Addr::new(10, 255, 0, 1);
    let packet = Ipv4 { source: source(rng), destination, protocol, id: 0, fragment: 0, options, payload };
    ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[], &packet.bytes())
}

/// Makes a segment of `length` bytes. Its checksum is left 0, since no handler here verifies it.
fn segment(rng: &mut Rng, length: usize) -> Vec<u8> {
    let (flags, mut options) = kind(rng);
    options.resize(options.len().next_multiple_of(4), 0);
    let mut words = (HEADER + options.len()) / 4;
    if rng.u8(..64) == 0 {
        words = 4;
    }
    let offset = u8::try_from(words << 4).expect("at most 15 words");
    let mut segment = random(rng, HEADER);
    segment[12..18].copy_from_slice(&[offset, flags, 0xff, 0xff, 0, 0]);
    segment.extend(options);
    segment.extend(random(rng, length - segment.len()));
    segment
}

/// Returns flags and options of a segment.
fn kind(rng: &mut Rng) -> (u8, Vec<u8>) {
    match rng.u8(..32) {
        0..=7 => (ACK, timestamps(rng)),
        8..=15 => (ACK | PSH, timestamps(rng)),
        16..=19 => (SYN | if rng.bool() { ACK } else { 0 }, handshake(rng)),
        20 | 21 => (ACK, Vec::new()),
        22..=25 => (ACK, [timestamps(rng), selective(rng)].concat()),
        26 | 27 => (FIN | ACK, timestamps(rng)),
        28 => (RST, Vec::new()),
        // An experimental option, and all flags.
        29 => (rng.u8(..), [vec![254, 6], random(rng, 4)].concat()),
        _ => (SYN, INVALID[rng.usize(..INVALID.len())].to_vec()),
    }
}

fn timestamps(rng: &mut Rng) -> Vec<u8> {
    [vec![1, 1, 8, 10], random(rng, 8)].concat()
}

fn handshake(rng: &mut Rng) -> Vec<u8> {
    let [high, low] = rng.u16(536..=8960).to_be_bytes();
    [vec![2, 4, high, low, 4, 2, 8, 10], random(rng, 8), vec![1, 3, 3, rng.u8(..15)]].concat()
}

/// Makes one or two blocks of selective acknowledgements.
fn selective(rng: &mut Rng) -> Vec<u8> {
    let blocks = rng.u8(1..=2);
    [vec![1, 1, 5, 2 + 8 * blocks], random(rng, 8 * usize::from(blocks))].concat()
}
