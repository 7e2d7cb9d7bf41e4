//! Expected results of messages, written from the handlers' descriptions independently of their code.

use std::collections::{BTreeMap, VecDeque};

use crate::frames::checksum;
use crate::traffic::Message;

/// Number of elements of `reduce`'s vector.
pub const ELEMENTS: usize = 512;
/// Bound of the values that `histogram` counts, exclusive.
pub const BINS: usize = 1025;
/// Number of entries of `filtering`'s table.
pub const ENTRIES: usize = 65_536;
/// Size of an entry's record in host memory, in bytes.
pub const RECORD: usize = 64;
const SETS: u32 = 125;
const WAYS: usize = 4;

/// Returns the complete little-endian words of a slice.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
}

pub fn aggregate(message: &Message) -> u32 {
    message.datagrams.iter().flat_map(|payload| words(payload)).fold(0, u32::wrapping_add)
}

pub fn reduce(messages: &[Message]) -> Vec<u32> {
    let mut vector = vec![0u32; ELEMENTS];
    for payload in messages.iter().flat_map(|message| &message.datagrams) {
        vector.iter_mut().zip(words(payload)).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
    }
    vector
}

pub fn histogram(messages: &[Message]) -> Vec<u32> {
    let mut bins = vec![0; BINS];
    let datagrams = messages.iter().flat_map(|message| &message.datagrams);
    for value in datagrams.flat_map(|payload| words(payload)) {
        if let Some(bin) = bins.get_mut(value as usize) {
            *bin += 1;
        }
    }
    bins
}

/// Computes host memory after the messages' bytes were scattered by their offsets.
pub fn scatter(messages: &[Message], block: usize, stride: usize, host: &mut [u8]) {
    for payload in messages.iter().flat_map(|message| &message.datagrams) {
        let (offset, data) = payload.split_first_chunk().expect("an offset");
        let offset = u32::from_be_bytes(*offset) as usize;
        for (at, byte) in (offset..).zip(data) {
            host[at / block * stride + at % block] = *byte;
        }
    }
}

/// Returns the entry where the search for a source begins.
pub fn home_entry(source: [u8; 4]) -> usize {
    let product = u64::from(u32::from_le_bytes(source)) * 0x9e37_79b1;
    (product as u32 >> 16) as usize
}

/// Returns the headers of a frame with destination port `port` and updated checksums.
pub fn rewritten(frame: &[u8], port: u16) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[40..42].fill(0);
    let length = [frame[38], frame[39]];
    let sum = checksum(&[&frame[26..34], &[0, 17], &length, &frame[34..]]);
    frame[40..42].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    frame.truncate(42);
    frame
}

/// The cache: the entries of each set in insertion order of their keys.
#[derive(Default)]
pub struct Cache(BTreeMap<u32, VecDeque<(u32, [u8; 4])>>);

impl Cache {
    /// Returns the answer to a request, as a datagram's payload.
    pub fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        let field = |at: usize| -> [u8; 4] { request[at..at + 4].try_into().expect("four bytes") };
        let (key, value) = (u32::from_be_bytes(field(4)), field(8));
        let set = self.0.entry(key % SETS).or_default();
        let known = set.iter_mut().find(|entry| entry.0 == key);
        let (code, value) = match (u32::from_be_bytes(field(0)), known) {
            (1, Some(entry)) => (3u32, entry.1),
            (1, None) => (4, value),
            (_, Some(entry)) => {
                entry.1 = value;
                (5, value)
            }
            (_, None) => {
                set.push_back((key, value));
                if set.len() > WAYS {
                    set.pop_front();
                }
                (5, value)
            }
        };
        let mut answer = request.to_vec();
        answer[..4].copy_from_slice(&code.to_be_bytes());
        answer[8..12].copy_from_slice(&value);
        answer
    }
}
