//! Work of a case: distinct packets, and its handler's initial state.

use super::case::{Case, Handler};
use crate::wire::{Ipv4, UDP, datagram, ethernet};
use fastrand::Rng;
use std::net::Ipv4Addr;

pub mod bucket;
pub mod crc;
pub mod json;
pub mod lz4;
pub mod tcp;
pub mod trie;
pub mod untuned;

/// Number of packets of a case.
pub const PACKETS: usize = 4096;
/// Ethernet, IPv4 and UDP header.
pub const HEADERS: usize = 42;

/// Size of the vector and of the bins in bytes, rounded up: what a context of these handlers requests.
const SCRATCHPAD: usize = 8192;

/// Number of entries of the filter's table. An entry is a word with the source as in the packet and a word with a port
/// in network order.
pub const FILTER_ENTRIES: usize = 65536;
/// Number of entries that the filter probes.
pub const FILTER_PROBES: usize = 8;
/// Size of a filter's record in host memory, in bytes.
pub const FILTER_RECORD: usize = 64;
/// Number of sources in the filter's table.
const FILTER_SOURCES: usize = FILTER_ENTRIES / 4;
/// Number of packet sources: the paper's number of messages.
const FLOWS: usize = 512;

/// Number of sets of the cache.
pub const CACHE_SETS: usize = 125;
/// Entries per set.
pub const CACHE_WAYS: usize = 4;
/// Size of a set in bytes: lock, number of keys placed, keys, values.
pub const CACHE_SET_BYTES: usize = 8 + 8 * CACHE_WAYS;
/// Number of requested keys, and their skew: the paper's YCSB workload.
const KEYS: u32 = 1000;
const KEY_SKEW: f64 = 1.1;

/// Block and stride of the scattered message.
pub const LAYOUT: [u32; 2] = [256, 512];
/// Size in bytes of a scattered packet's offset in the message, which precedes its data.
pub const OFFSET_BYTES: usize = 4;
/// Packets per scattered message. Its host memory stays in the cache, so the figure measures the handler alone.
const MESSAGE: usize = 64;

/// One more than the greatest counted value.
pub const BINS: u32 = 1025;

/// Packets and initial state of a case.
#[derive(Debug)]
pub struct Work {
    /// Case of the work.
    pub case: Case,
    /// Distance between packets in bytes: one line more than their length, so that their headers do not collide in few
    /// cache sets.
    pub stride: usize,
    /// Packets as they arrive, [`Work::stride`] bytes apart.
    pub packets: Vec<u8>,
    /// Handler memory before the first packet.
    pub handler_mem: Vec<u8>,
    /// Size of the scratchpad in bytes; it is zeroed before the first packet.
    pub scratchpad_size: usize,
    /// Size of host memory in bytes; it is zeroed before the first packet.
    pub host_size: usize,
}

impl Work {
    /// Makes the work of a case; it is identical every time.
    #[must_use]
    pub fn new(case: Case) -> Self {
        let rng = &mut Rng::with_seed(case.size as u64);
        let mut work = Self {
            case,
            stride: case.size.next_multiple_of(64) + 64,
            packets: Vec::new(),
            handler_mem: Vec::new(),
            scratchpad_size: SCRATCHPAD,
            host_size: 0,
        };
        let data = work.data();
        match case.handler {
            Handler::Empty | Handler::Pingpong | Handler::Aggregate | Handler::Reduce => {
                work.fill(|_| (source(rng), random(rng, data)));
            }
            Handler::Histogram => work.fill(|_| (source(rng), values(rng, data))),
            Handler::Filtering => {
                let (table, flows) = filter(rng);
                work.handler_mem = table;
                work.host_size = FILTER_ENTRIES * FILTER_RECORD;
                work.fill(|_| (flows[rng.usize(..FLOWS)], random(rng, data)));
            }
            Handler::Kvstore => {
                let keys = Skewed::new(KEYS, KEY_SKEW);
                work.handler_mem = vec![0; CACHE_SETS * CACHE_SET_BYTES];
                work.fill(|_| (source(rng), request(rng, &keys, data)));
            }
            Handler::StridedDdt => {
                work.handler_mem = LAYOUT.iter().flat_map(|word| word.to_le_bytes()).collect();
                let message = (MESSAGE * (data - OFFSET_BYTES)).next_multiple_of(LAYOUT[0] as usize);
                work.host_size = message / LAYOUT[0] as usize * LAYOUT[1] as usize;
                work.fill(|packet| (source(rng), piece(rng, packet, data)));
            }
            _ => work.make_untuned(rng),
        }
        work
    }

    /// Returns the number of bytes behind the headers of a frame.
    const fn data(&self) -> usize {
        self.case.size - HEADERS
    }

    /// Makes the packets from their sources and data.
    fn fill(&mut self, mut content: impl FnMut(usize) -> (Ipv4Addr, Vec<u8>)) {
        let destination = Ipv4Addr::new(10, 255, 0, 1);
        self.fill_frames(|number| {
            let (source, data) = content(number);
            datagram_frame(Flow { source, destination, ports: [4000, 9999] }, &data)
        });
    }

    /// Makes the packets from their frames. Zeroes pad short frames to the size of the case.
    fn fill_frames(&mut self, mut frame: impl FnMut(usize) -> Vec<u8>) {
        self.packets = vec![0; PACKETS * self.stride];
        for (number, window) in self.packets.chunks_exact_mut(self.stride).enumerate() {
            let frame = frame(number);
            assert!(frame.len() <= self.case.size, "{}: a frame of {} bytes", self.case, frame.len());
            window[..frame.len()].copy_from_slice(&frame);
        }
    }
}

/// Addresses and ports of a datagram.
#[derive(Clone, Copy)]
struct Flow {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    ports: [u16; 2],
}

/// Makes a complete datagram with all checksums.
fn datagram_frame(flow: Flow, data: &[u8]) -> Vec<u8> {
    let Flow { source, destination, ports } = flow;
    let payload = datagram(source, destination, ports, data);
    let packet = Ipv4 { source, destination, protocol: UDP, id: 0, fragment: 0, options: Vec::new(), payload };
    ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[], &packet.bytes())
}

/// Returns a random host of 10.0.0.0/8.
fn source(rng: &mut Rng) -> Ipv4Addr {
    Ipv4Addr::new(10, rng.u8(..), rng.u8(..), rng.u8(..))
}

fn random(rng: &mut Rng, length: usize) -> Vec<u8> {
    std::iter::repeat_with(|| rng.u8(..)).take(length).collect()
}

/// Makes counted values, and a remainder that is not a complete value.
fn values(rng: &mut Rng, length: usize) -> Vec<u8> {
    let values = std::iter::repeat_with(|| rng.u32(..BINS).to_le_bytes());
    values.flatten().take(length).collect()
}

/// Makes a request: half of the requests are gets, half are sets.
fn request(rng: &mut Rng, keys: &Skewed, length: usize) -> Vec<u8> {
    let words = [rng.u32(1..=2), keys.draw(rng), rng.u32(..)];
    let mut data: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    data.extend(random(rng, length - data.len()));
    data
}

/// Makes the part of a message that packet number `packet` carries.
fn piece(rng: &mut Rng, packet: usize, length: usize) -> Vec<u8> {
    let offset = packet % MESSAGE * (length - OFFSET_BYTES);
    let mut data = u32::try_from(offset).expect("a short message").to_be_bytes().to_vec();
    data.extend(random(rng, length - OFFSET_BYTES));
    data
}

/// Makes a filter's table and the packets' sources; one source in 16 is not in the table.
fn filter(rng: &mut Rng) -> (Vec<u8>, Vec<Ipv4Addr>) {
    let mut table = vec![0; FILTER_ENTRIES * 8];
    let mut flows = Vec::with_capacity(FLOWS);
    for number in 0..FILTER_SOURCES {
        let source = source(rng);
        let stranger = number % 16 == 0;
        if (stranger || enter(&mut table, source, rng.u16(..))) && flows.len() < FLOWS {
            flows.push(source);
        }
    }
    (table, flows)
}

/// Inserts a source into the table. Returns false if none of the probed entries is free.
fn enter(table: &mut [u8], source: Ipv4Addr, port: u16) -> bool {
    let first = filter_hash(source.octets());
    for probe in 0..FILTER_PROBES {
        let at = (first + probe) % FILTER_ENTRIES * 8;
        let (key, value) = table[at..at + 8].split_at_mut(4);
        if key == [0; 4] || key == source.octets() {
            key.copy_from_slice(&source.octets());
            value[..2].copy_from_slice(&port.to_be_bytes());
            return true;
        }
    }
    false
}

/// Returns the entry that is probed first.
#[must_use]
pub const fn filter_hash(source: [u8; 4]) -> usize {
    (u32::from_le_bytes(source).wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// Random numbers below a bound: the n-th is drawn in proportion to n to the minus skew (Zipf's law).
struct Skewed {
    cumulated: Vec<f64>,
}

impl Skewed {
    fn new(bound: u32, skew: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=bound).map(|rank| f64::from(rank).powf(-skew));
        let cumulated = weights.map(|weight| {
            sum += weight;
            sum
        });
        Self { cumulated: cumulated.collect() }
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        let total = self.cumulated.last().copied().unwrap_or_default();
        let at = rng.f64() * total;
        u32::try_from(self.cumulated.partition_point(|sum| *sum <= at)).expect("below the bound")
    }
}
