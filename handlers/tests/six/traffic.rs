//! Interleaved messages of several datagrams each.

use crate::frames::{Ipv4, SERVER, request, udp};

/// Messages that are open at a time.
pub const MESSAGES: usize = 8;
/// Ethernet, IPv4 and UDP header.
pub const HEADERS: usize = 42;
/// Port of the datagrams.
pub const PORT: u16 = 9999;
/// The rule they match.
pub const RULE: &str = "udp dport 9999";
/// Byte of a datagram's payload that is 1 in a message's last one, behind what the handlers look at first.
const END: usize = 12;
/// The predicate for it.
pub const EOM: &str = "payload[12:1] = 1";

/// Numbers that are the same in every run (xorshift64*, Vigna 2016).
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

/// A message: its datagrams come from one address and port.
pub struct Message {
    pub source: [u8; 4],
    pub port: u16,
    pub datagrams: Vec<Vec<u8>>,
}

impl Message {
    /// The frames, as they arrive.
    pub fn frames(&self) -> impl Iterator<Item = Vec<u8>> {
        self.datagrams.iter().map(|payload| {
            let payload = udp(self.source, SERVER, [self.port, PORT], payload);
            request(&Ipv4 { source: self.source, ..Ipv4::new(17, payload) }.bytes())
        })
    }
}

/// Messages of two to four datagrams in frames of `size` bytes: `fill` says what is in a datagram of a message, but for the
/// byte that ends messages.
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

/// All frames but each message's last `held_back`: the first of each message, then the second of each, and so on.
pub fn interleaved(messages: &[Message], held_back: usize) -> Vec<Vec<u8>> {
    turns(messages, held_back).concat()
}

/// The same in parts: the first frame of each message, the second of each, and so on. Frames of one message may be handled in any
/// order unless they arrive in different parts.
pub fn turns(messages: &[Message], held_back: usize) -> Vec<Vec<Vec<u8>>> {
    let mut queues: Vec<Vec<_>> = messages.iter().map(|message| message.frames().collect()).collect();
    queues.iter_mut().for_each(|queue| queue.truncate(queue.len() - held_back));
    let longest = queues.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).map(|turn| queues.iter().filter_map(|queue| queue.get(turn).cloned()).collect()).collect()
}
