//! Interleaved messages of several datagrams each.

use crate::frames::{Ipv4, SERVER, request, udp};

/// Number of open messages.
pub const MESSAGES: usize = 8;
/// Bytes of the Ethernet, IPv4 and UDP headers.
pub const HEADERS: usize = 42;
/// Destination port of the datagrams.
pub const PORT: u16 = 9999;
/// Rule that matches the datagrams.
pub const RULE: &str = "udp dport 9999";
/// Offset of the payload byte that is 1 in a message's last datagram; it follows the bytes that the handlers read
/// first.
const END: usize = 12;
/// End-of-message rule for that byte.
pub const EOM: &str = "payload[12:1] = 1";

/// Pseudo-random numbers with a fixed seed (xorshift64*, Vigna 2016).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub fn word(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.word() as usize % bound
    }

    pub fn bytes(&mut self, to: &mut [u8]) {
        to.fill_with(|| self.word().to_le_bytes()[0]);
    }
}

/// A message; all its datagrams come from one address and port.
pub struct Message {
    pub source: [u8; 4],
    pub port: u16,
    pub datagrams: Vec<Vec<u8>>,
}

impl Message {
    /// Returns the frames as they arrive.
    pub fn frames(&self) -> impl Iterator<Item = Vec<u8>> {
        self.datagrams.iter().map(|payload| {
            let payload = udp(self.source, SERVER, [self.port, PORT], payload);
            request(&Ipv4 { source: self.source, ..Ipv4::new(17, payload) }.bytes())
        })
    }
}

/// Makes messages of two to four datagrams in frames of `size` bytes. `fill` writes the content of a message's
/// datagram, except for the byte that marks the end.
pub fn messages(size: usize, mut fill: impl FnMut(usize, &mut [u8])) -> Vec<Message> {
    let message = |number: usize| {
        let low = u8::try_from(number).expect("few messages");
        let mut datagrams = vec![vec![0; size - HEADERS]; 2 + number % 3];
        let last = datagrams.len() - 1;
        for (index, payload) in datagrams.iter_mut().enumerate() {
            fill(number, payload);
            payload[END] = if index == last { 1 } else { payload[END] & 0xf0 };
        }
        Message { source: [10, 1, low, 7], port: 4000 + u16::from(low), datagrams }
    };
    (0..MESSAGES).map(message).collect()
}

/// Returns all frames except each message's last `held_back`: the first of each message, then the second of each, and
/// so on.
pub fn interleaved(messages: &[Message], held_back: usize) -> Vec<Vec<u8>> {
    turns(messages, held_back).concat()
}

/// Returns the frames of [`interleaved`] in groups: the first frame of each message, the second of each, and so on.
/// Frames of one message may be processed in any order unless they arrive in different groups.
pub fn turns(messages: &[Message], held_back: usize) -> Vec<Vec<Vec<u8>>> {
    let mut queues: Vec<Vec<_>> = messages.iter().map(|message| message.frames().collect()).collect();
    queues.iter_mut().for_each(|queue| queue.truncate(queue.len() - held_back));
    let longest = queues.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).map(|turn| queues.iter().filter_map(|queue| queue.get(turn).cloned()).collect()).collect()
}
