//! Packets, each with a program: steps of eight bytes, `struct step` in `bench/large/program.h`.

use std::net::Ipv4Addr;

use fastrand::Rng;
use hpu_vm::Kind;

use crate::wire::{Ipv4, UDP, datagram, ethernet};

/// Bytes of handler memory. Some programs run out of it.
pub const MEMORY: usize = 0x14000;
/// Distance between packets in bytes.
pub const STRIDE: usize = 256;
/// Packets of a message.
const MESSAGE: usize = 16;
/// Steps of a packet.
const STEPS: usize = 16;
/// Kinds of steps: `KINDS` in `bench/large/program.h`.
const KINDS: usize = 30;
/// Steps at the start of a message that make byte strings, for the others to use.
const FIRST: usize = 8;

/// Packets as they arrive.
#[derive(Debug)]
pub struct Work {
    /// Packets, [`STRIDE`] bytes apart.
    pub packets: Vec<u8>,
    /// Bytes of each packet.
    pub size: usize,
    /// Number of packets.
    pub count: usize,
}

/// A handler that runs on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The handler.
    pub kind: Kind,
    /// Index of the packet.
    pub packet: usize,
}

impl Work {
    /// Makes `count` packets from a seed, in whole messages.
    #[must_use]
    pub fn new(seed: u64, count: usize) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let (mut packets, mut size) = (Vec::new(), 0);
        let count = count.next_multiple_of(MESSAGE);
        for number in 0..count {
            let frame = frame(&program(rng, number));
            size = frame.len();
            packets.extend(frame);
            packets.resize((number + 1) * STRIDE, 0);
        }
        Self { packets, size, count }
    }

    /// Handlers in the order in which they run.
    pub fn tasks(&self) -> impl Iterator<Item = Step> + '_ {
        (0..self.count).flat_map(|packet| {
            let place = packet % MESSAGE;
            let header = (place == 0).then_some(Kind::Header);
            let completion = (place == MESSAGE - 1).then_some(Kind::Completion);
            let kinds = header.into_iter().chain([Kind::Payload]).chain(completion);
            kinds.map(move |kind| Step { kind, packet })
        })
    }
}

/// The steps of a packet.
fn program(rng: &mut Rng, packet: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(STEPS * 8);
    for step in 0..STEPS {
        let first = packet.is_multiple_of(MESSAGE) && step < FIRST;
        #[allow(clippy::cast_possible_truncation, reason = "both are below 30")]
        let (kind, slot) = if first { (0, 2 * step as u8) } else { (rng.u8(..KINDS as u8), rng.u8(..)) };
        bytes.extend([kind, slot]);
        bytes.extend(rng.u16(..).to_le_bytes());
        bytes.extend(rng.u32(..).to_le_bytes());
    }
    bytes
}

fn frame(data: &[u8]) -> Vec<u8> {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let payload = datagram(source, destination, [4000, 9999], data);
    let packet = Ipv4 { source, destination, protocol: UDP, id: 0, fragment: 0, options: Vec::new(), payload };
    ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[], &packet.bytes())
}

/// What handler memory tells: the first members of `struct world` in `bench/large/program.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Checksum of all results.
    pub checksum: u32,
    /// Number of packets.
    pub packets: u32,
    /// Number of structures that broke a rule of theirs.
    pub broken: u32,
    /// Number of steps by kind.
    pub counts: Vec<u32>,
}

impl Summary {
    /// Reads the summary from handler memory.
    ///
    /// # Panics
    /// The memory is shorter than [`MEMORY`].
    #[must_use]
    pub fn of(memory: &[u8]) -> Self {
        let word = |index: usize| u32::from_le_bytes(memory[4 * index..4 * index + 4].try_into().expect("four bytes"));
        let counts = (6..6 + KINDS).map(word).collect();
        Self { checksum: word(1), packets: word(3), broken: word(5), counts }
    }
}
