//! Expected results of the handlers that the translator is not tuned for.

use super::{Task, add, put, word};
use crate::handlers::case::Handler;
use crate::handlers::command::Send;
use crate::handlers::reference::{json, lz4, tcp};
use crate::handlers::work::crc::{CRC, TABLE_WORDS};
use crate::handlers::work::trie::{self, ROUTES};
use crate::handlers::work::untuned::{BLOOM_BITS, BLOOM_CAPACITY, SIPHASH_KEY};
use std::hash::Hasher;

impl Task<'_, '_> {
    /// Does what one of the handlers does.
    pub(super) fn run_untuned(&mut self) {
        match self.work.case.handler {
            Handler::TcpHeader => self.count_segment(),
            Handler::Crc32 => self.check_crc(),
            Handler::Siphash => self.hash_payload(),
            Handler::Lz4Check => self.check_block(),
            Handler::Bloom => self.filter_source(),
            Handler::TokenBucket => self.limit(),
            Handler::TrieLookup => self.route(),
            Handler::JsonField => self.add_integer(),
            tuned => unreachable!("{tuned:?} has a result of its own"),
        }
    }

    /// Returns the datagram's payload without padding.
    pub(super) fn payload(&mut self) -> Vec<u8> {
        let frame = self.frame();
        let length = usize::from(u16::from_be_bytes([frame[38], frame[39]]));
        frame[34..34 + length][8..].to_vec()
    }

    fn count_segment(&mut self) {
        let frame = self.frame();
        let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let packet = &frame[14..14 + total];
        if packet[9] != crate::handlers::work::tcp::TCP {
            return;
        }
        let segment = &packet[4 * usize::from(packet[0] & 15)..];
        let counts = tcp::counts(segment).unwrap_or(tcp::MALFORMED);
        for (index, count) in counts.into_iter().enumerate() {
            add(self.memory.scratchpad, index, count);
        }
    }

    /// Counters: good, bad and short payloads. The latest CRC follows.
    fn check_crc(&mut self) {
        let payload = self.payload();
        let Some((data, sent)) = payload.split_last_chunk::<CRC>() else {
            return add(self.memory.handler, TABLE_WORDS + 2, 1);
        };
        let crc = crc32(data);
        add(self.memory.handler, TABLE_WORDS + usize::from(crc.to_le_bytes() != *sent), 1);
        put(self.memory.handler, TABLE_WORDS + 3, crc);
    }

    fn hash_payload(&mut self) {
        let payload = self.payload();
        let (key, hashes) = self.memory.handler.split_at_mut(SIPHASH_KEY);
        let hash = siphash(key, &payload).to_le_bytes();
        let (sum, last) = hashes.split_at_mut(8);
        sum.iter_mut().zip(hash).for_each(|(sum, byte)| *sum ^= byte);
        last.copy_from_slice(&hash);
    }

    /// Counters: valid and invalid blocks, decompressed bytes.
    fn check_block(&mut self) {
        match lz4::decompress(&self.payload()) {
            Some(bytes) => {
                add(self.memory.scratchpad, 0, 1);
                add(self.memory.scratchpad, 2, u32::try_from(bytes.len()).expect("a short block"));
            }
            None => add(self.memory.scratchpad, 1, 1),
        }
    }

    /// Counters behind the bits: insertions since the filter was cleared, hits, misses.
    fn filter_source(&mut self) {
        const COUNTERS: usize = BLOOM_BITS as usize / 32;
        let (address, ports) = (word(&self.frame()[26..30], 0), word(&self.frame()[34..38], 0));
        let [first, second] = [1, 2].map(|seed| murmur(seed, &[address, ports]));
        let bits = [0, 1, 2, 3u32].map(|n| first.wrapping_add(n.wrapping_mul(second | 1)) % BLOOM_BITS);
        let place = |bit: u32| (bit as usize / 8, 1u8 << (bit % 8));
        let memory = &mut *self.memory.handler;
        if bits.into_iter().map(place).all(|(byte, mask)| memory[byte] & mask != 0) {
            return add(memory, COUNTERS + 1, 1);
        }
        add(memory, COUNTERS + 2, 1);
        bits.into_iter().map(place).for_each(|(byte, mask)| memory[byte] |= mask);
        add(memory, COUNTERS, 1);
        if word(memory, COUNTERS) == BLOOM_CAPACITY {
            memory[..=COUNTERS * 4 + 3].fill(0);
        }
    }

    /// Counters: forwarded packets, packets without a route.
    fn route(&mut self) {
        let at = self.at as u64;
        let frame = self.frame();
        if frame[12..14] != [8, 0] {
            return;
        }
        let destination = word(&frame[30..34], 0).swap_bytes();
        let routes = ROUTES.iter().filter(|route| route.leads_to(destination));
        let Some(best) = routes.max_by_key(|route| route.length) else {
            return add(&mut self.memory.handler[trie::COUNTERS_AT..], 1, 1);
        };
        frame[..6].copy_from_slice(&trie::mac(best.hop));
        let length = 14 + u64::from(u16::from_be_bytes([frame[16], frame[17]]));
        self.commands.sends.push(Send { from: at, length });
        add(&mut self.memory.handler[trie::COUNTERS_AT..], 0, 1);
    }

    /// Counters: found, missing, broken; the sum of the integers follows.
    fn add_integer(&mut self) {
        let result = json::integer(&self.payload(), crate::handlers::work::json::KEY);
        let counters = &mut self.memory.handler[crate::handlers::work::json::COUNTERS_AT..];
        match result {
            Ok(Some(integer)) => {
                add(counters, 0, 1);
                add(counters, 3, integer);
            }
            Ok(None) => add(counters, 1, 1),
            Err(json::Broken) => add(counters, 2, 1),
        }
    }
}

/// Divides by the polynomial of IEEE 802.3, the highest power first, and reflects the remainder.
fn crc32(data: &[u8]) -> u32 {
    let divide = |rest: u32, _| rest << 1 ^ if rest >> 31 == 1 { 0x04c1_1db7 } else { 0 };
    let add = |rest: u32, byte: &u8| (0..8).fold(rest ^ u32::from(byte.reverse_bits()) << 24, divide);
    !data.iter().fold(!0, add).reverse_bits()
}

/// The standard library's hash with a key is SipHash-2-4.
#[allow(deprecated, reason = "only for hash tables")]
fn siphash(key: &[u8], data: &[u8]) -> u64 {
    let [first, second] = [0, 8].map(|at| u64::from_le_bytes(key[at..at + 8].try_into().expect("eight bytes")));
    let mut hasher = std::hash::SipHasher::new_with_keys(first, second);
    hasher.write(data);
    hasher.finish()
}

/// `MurmurHash3`, 32 bits, of whole words.
fn murmur(seed: u32, words: &[u32]) -> u32 {
    let body = words.iter().fold(seed, |hash, word| {
        let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    let length = u32::try_from(4 * words.len()).expect("few words");
    let steps = [(16, 0x85eb_ca6b), (13, 0xc2b2_ae35), (16, 1)];
    steps.into_iter().fold(body ^ length, |hash, (bits, factor): (u32, u32)| (hash ^ hash >> bits).wrapping_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::{crc32, murmur, siphash};

    /// The catalogue's check value, the vector of SipHash's paper, and a published vector of `MurmurHash3`.
    #[test]
    fn published_values() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let numbers: Vec<u8> = (0..16).collect();
        assert_eq!(siphash(&numbers, &numbers[..15]), 0xa129_ca61_49be_45e5);
        assert_eq!((murmur(0, &[0]), murmur(0x5082_edee, &[0x8765_4321])), (0x2362_f9de, 0x2362_f9de));
    }
}
