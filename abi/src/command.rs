//! Commands of handlers: the words of the HPU driver page, decoded (PsPIN paper §III-B1).

use serde::Serialize;

use crate::regs::COMMAND_WORD_COUNT;

/// Result of a command, as [`crate::regs::COMMAND_STATUS`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// Complete, or so old that its status is no longer kept.
    Done = 0,
    /// Not complete yet.
    Pending = 1,
    /// The info register or the words name no command.
    Malformed = 2,
    /// NIC address range that the context may not access.
    BadNicAddress = 3,
    /// Host address range outside the context's host memory.
    BadHostAddress = 4,
    /// Longer than a frame, or empty.
    BadLength = 5,
    /// No transmit buffer became free in time.
    NoBuffer = 6,
    /// Command that this engine does not implement.
    Unsupported = 7,
    /// Frame that the context may not send.
    ForbiddenSend = 8,
}

/// Direction of a DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From host memory to NIC memory.
    FromHost,
    /// From NIC memory to host memory.
    ToHost,
}

/// Source of the bytes of a NIC send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Guest address: L1, L2 packet or handler memory.
    Nic(u32),
    /// Host virtual address.
    Host(u64),
}

/// Immediate data of a HostDirect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate {
    bytes: [u8; 32],
    len: u8,
}

impl Immediate {
    /// The bytes to write.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A decoded command. Addresses and lengths are unchecked: they are the handler's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sends one frame (`fid` 0), or puts the bytes on queue pair `fid`.
    Send {
        /// Destination node. 0 for raw frames.
        destination: u32,
        /// RDMA queue pair. 0: a raw frame.
        fid: u32,
        /// Source of the bytes.
        source: Source,
        /// Number of bytes.
        length: u32,
    },
    /// Copies between NIC memory and host memory.
    Dma {
        /// Host virtual address.
        host: u64,
        /// Guest address.
        nic: u32,
        /// Number of bytes.
        length: u32,
        /// Direction of the copy.
        direction: Direction,
        /// Whether the application gets an event when the copy is done.
        event: bool,
    },
    /// Writes immediate data to host memory.
    HostDirect {
        /// Host virtual address.
        host: u64,
        /// Bytes to write.
        data: Immediate,
    },
}

impl Command {
    /// Decodes the info register and the command words. `word` returns the word of an index below [`COMMAND_WORD_COUNT`].
    ///
    /// # Errors
    /// [`Status::Malformed`] when they name no command.
    #[inline]
    pub fn decode(info: u32, word: impl Fn(usize) -> u32) -> Result<Self, Status> {
        match info >> 1 & 3 {
            0 => Ok(Self::Dma {
                host: u64::from(word(1)) << 32 | u64::from(word(0)),
                nic: word(2),
                length: word(3),
                direction: if word(4) & 1 == 1 { Direction::ToHost } else { Direction::FromHost },
                event: info & 1 == 1,
            }),
            1 => Ok(Self::Send {
                destination: word(0),
                fid: word(1),
                source: match word(3) {
                    0 => Source::Nic(word(2)),
                    high => Source::Host(u64::from(high) << 32 | u64::from(word(2))),
                },
                length: word(4),
            }),
            2 => Self::decode_host_direct(word),
            _ => Err(Status::Malformed),
        }
    }

    /// Word 2 is `size << 1 | direction`. Only writes to the host (direction 1) of up to 32 B exist.
    fn decode_host_direct(word: impl Fn(usize) -> u32) -> Result<Self, Status> {
        let len = word(2) >> 1;
        if word(2) & 1 == 0 || len == 0 || len > 32 {
            return Err(Status::Malformed);
        }
        let mut bytes = [0; 32];
        for (chunk, index) in bytes.chunks_exact_mut(4).zip(3..COMMAND_WORD_COUNT) {
            chunk.copy_from_slice(&word(index).to_le_bytes());
        }
        Ok(Self::HostDirect {
            host: u64::from(word(1)) << 32 | u64::from(word(0)),
            #[allow(clippy::cast_possible_truncation, reason = "at most 32, checked above")]
            data: Immediate { bytes, len: len as u8 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMAND_WORD_COUNT, Command, Direction, Source, Status};

    fn decode(info: u32, words: &[u32; COMMAND_WORD_COUNT]) -> Result<Command, Status> {
        Command::decode(info, |index| words[index])
    }

    #[test]
    fn send_from_nic_and_from_host() {
        let words = [0, 0, 0x1000_8000, 0, 64, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            decode(2, &words),
            Ok(Command::Send { destination: 0, fid: 0, source: Source::Nic(0x1000_8000), length: 64 })
        );
        let words = [1, 2, 0xdead_beef, 7, 64, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            decode(2, &words),
            Ok(Command::Send { destination: 1, fid: 2, source: Source::Host(0x7_dead_beef), length: 64 })
        );
    }

    #[test]
    fn dma_both_ways() {
        let words = [0x10, 0x20, 0x1c30_0000, 100, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            decode(1, &words),
            Ok(Command::Dma {
                host: 0x20_0000_0010,
                nic: 0x1c30_0000,
                length: 100,
                direction: Direction::ToHost,
                event: true
            })
        );
        let mut from_host = words;
        from_host[4] = 0;
        assert!(matches!(decode(0, &from_host), Ok(Command::Dma { direction: Direction::FromHost, event: false, .. })));
    }

    #[test]
    fn host_direct_carries_up_to_32_bytes_low_word_first() {
        let words = [8, 0, 32 << 1 | 1, 0x0403_0201, 0x0807_0605, 3, 4, 5, 6, 7, 8];
        let Ok(Command::HostDirect { host: 8, data }) = decode(4, &words) else { panic!("not HostDirect") };
        assert_eq!(&data.as_slice()[..8], &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(data.as_slice().len(), 32);
        for size in [0, 33, u32::MAX >> 1] {
            let mut bad = words;
            bad[2] = size << 1 | 1;
            assert_eq!(decode(4, &bad), Err(Status::Malformed));
        }
    }

    #[test]
    fn unknown_types_are_malformed() {
        assert_eq!(decode(6, &[0; 11]), Err(Status::Malformed));
    }
}
