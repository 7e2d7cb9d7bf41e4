//! Values that were computed in the current block and can be used again there.

use cranelift_codegen::ir::Value;

use spin_abi::regs::COMMAND_WORD_COUNT;

use super::access::Host;
use crate::jit::passes::{COMMAND_WORDS, Place};

/// Bytes of which it was found whether they belong to the packet: their location is known in either case.
#[derive(Clone, Copy, Debug)]
struct FoundBytes {
    /// The place that distances are counted from, and its host address.
    place: Place,
    host: Value,
    /// Distances of the first byte and of the end.
    bytes: (i32, i32),
}

/// The cache.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockCache {
    /// Host addresses of places.
    hosts: Vec<(Place, Value)>,
    /// Where bytes of the packet are, as long as the packet stays there.
    packet: Vec<FoundBytes>,
    /// Values that were stored to the command registers.
    pub(super) command: StoredCommand,
}

impl BlockCache {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A host address with the same value number, and the distance from there to `place`.
    pub(super) fn host_near(&self, place: Place) -> Option<(Value, i32)> {
        let (known, host) = self.hosts.iter().find(|(known, _)| known.value == place.value)?;
        Some((*host, place.distance.wrapping_sub(known.distance).cast_signed()))
    }

    /// Remembers the host address of `place`; the first with its value number stays.
    pub(super) fn add_host(&mut self, place: Place, host: Value) {
        if self.host_near(place).is_none() {
            self.hosts.push((place, host));
        }
    }

    /// Remembers the host address of `place` for an access to packet bytes at these distances.
    pub(super) fn add_packet(&mut self, place: Place, host: Value, bytes: (i32, i32)) {
        self.packet.push(FoundBytes { place, host, bytes });
    }

    /// Where `len` packet bytes at `distance` from a place are, if that was found.
    pub(super) fn packet_near(&self, place: Place, distance: i32, len: u32) -> Option<Host> {
        self.packet.iter().filter(|found| found.place.value == place.value).find_map(|found| {
            let at = place.distance.wrapping_sub(found.place.distance).cast_signed().checked_add(distance)?;
            let end = at.checked_add(len.cast_signed())?;
            (found.bytes.0 <= at && end <= found.bytes.1).then_some(Host(found.host, at))
        })
    }

    /// The packet may have moved, or changed.
    pub(super) fn forget_packet(&mut self) {
        self.packet.clear();
    }
}

/// Values that were stored to the command registers since the block began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoredCommand {
    pub(super) words: [Option<Value>; COMMAND_WORDS],
    /// Words that are constants.
    pub(super) known: [Option<u32>; COMMAND_WORDS],
    /// The command's type, if it is known.
    pub(super) info: Option<u32>,
}

impl StoredCommand {
    /// Notes a store of `value`, which may be known, to register `index`, in the order of
    /// [`CommandRegisters`](crate::device::CommandRegisters).
    pub(super) const fn note(&mut self, index: usize, value: Value, known: Option<u32>) {
        if index < COMMAND_WORDS {
            (self.words[index], self.known[index]) = (Some(value), known);
        } else if index == COMMAND_WORD_COUNT {
            self.info = known;
        }
    }
}
