//! Work of the handlers that the translator is not tuned for: see [`Handler::UNTUNED`].

use super::{Flow, Work, datagram_frame, random, source};
use crate::handlers::case::Handler;
use fastrand::Rng;
use std::net::Ipv4Addr;

impl Work {
    /// Makes packets and state of one of the handlers.
    pub(super) fn make_untuned(&mut self, rng: &mut Rng) {
        match self.case.handler {
            Handler::TcpHeader => super::tcp::make(self, rng),
            Handler::Crc32 => super::crc::make(self, rng),
            Handler::Siphash => self.make_hashed(rng),
            Handler::Lz4Check => super::lz4::make(self, rng),
            Handler::Bloom => self.make_sources(rng),
            Handler::TokenBucket => super::bucket::make(self, rng),
            Handler::TrieLookup => super::trie::make(self, rng),
            Handler::JsonField => super::json::make(self, rng),
            tuned => unreachable!("{tuned:?} has work of its own"),
        }
    }

    /// Makes random payloads, one in four shorter than its frame, and a random key before two zeroed hashes.
    fn make_hashed(&mut self, rng: &mut Rng) {
        self.handler_mem = [random(rng, SIPHASH_KEY), vec![0; 16]].concat();
        let room = self.data();
        self.fill(|_| {
            let length = shortened(rng, room);
            (source(rng), random(rng, length))
        });
    }

    /// Makes datagrams of few sources, so that a filter of some thousands has seen many of them.
    fn make_sources(&mut self, rng: &mut Rng) {
        self.handler_mem = vec![0; BLOOM_BYTES];
        let destination = Ipv4Addr::new(10, 255, 0, 1);
        let mut flow = || Flow { source: source(rng), destination, ports: [rng.u16(1024..), 9999] };
        let flows: Vec<_> = std::iter::repeat_with(&mut flow).take(BLOOM_SOURCES).collect();
        let room = self.data();
        self.fill_frames(|_| datagram_frame(flows[rng.usize(..BLOOM_SOURCES)], &random(rng, room)));
    }
}

/// Size of `SipHash`'s key in bytes.
pub const SIPHASH_KEY: usize = 16;

/// Number of bits of the Bloom filter.
pub const BLOOM_BITS: u32 = 32768;
/// Number of insertions after which the filter is cleared.
pub const BLOOM_CAPACITY: u32 = 2048;
/// Size of the filter in bytes: bits, and the numbers of insertions, hits and misses.
const BLOOM_BYTES: usize = BLOOM_BITS as usize / 8 + 12;
/// Number of different sources: more than the filter's capacity, so that it is cleared now and then.
const BLOOM_SOURCES: usize = 3000;

/// Returns `room`, or in one of four cases a random length up to it.
pub(super) fn shortened(rng: &mut Rng, room: usize) -> usize {
    if rng.u8(..4) == 0 { rng.usize(..=room) } else { room }
}
