//! Commands for host memory: a program writes them to a queue in a map, and user space makes them. Host memory itself is in no map.
//!
//! Each processor has a part of the map's value: the number of commands that the program has written, the number that user space has
//! read, and [`ENTRIES`] entries. Command n is in entry n modulo that.

use spin_abi::command::{Command, Direction, Status};
use spin_abi::regs::{COMMAND_WORD_COUNT, INFO_DMA};

/// Number of commands that wait on a processor at most.
pub const ENTRIES: u32 = 128;
/// Size of an entry: the words, the type, and the bytes of a copy.
pub const ENTRY: u32 = 256;
/// Offset in a processor's part of the number of commands that were written.
pub const WRITTEN: u32 = 0;
/// Offset in a processor's part of the number of commands that were read.
pub const READ: u32 = 8;
/// Offset in a processor's part of the first entry.
pub const FIRST: u32 = 64;
/// Bytes of a processor's part.
pub const PART: u32 = FIRST + ENTRIES * ENTRY;
/// Offset in an entry of the bytes of a copy.
pub const DATA: u32 = 4 * (COMMAND_WORD_COUNT as u32 + 1);
/// Loop iterations that a command takes from the handler's budget, for the time that user space needs for it.
pub const ITERATIONS: u32 = 10;
/// Maximum number of bytes of a copy. The program has instructions for each of its words.
pub const MAX_COPY: u32 = 128;

const _: () = assert!(ENTRIES.is_power_of_two() && DATA + MAX_COPY <= ENTRY && DATA.is_multiple_of(8));

/// A command for host memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCommand {
    /// Host address of the first byte.
    pub host: u64,
    /// The bytes to write.
    pub bytes: Vec<u8>,
    /// Whether it is a copy from NIC memory, instead of a HostDirect command.
    pub is_copy: bool,
    /// Whether the application gets an event.
    pub event: bool,
}

impl HostCommand {
    /// Decodes an entry. `None`: it is no command that programs write.
    #[must_use]
    pub fn decode(entry: &[u8; ENTRY as usize]) -> Option<Self> {
        let word = |index: usize| {
            let [a, b, c, d] = *entry[4 * index..].first_chunk().unwrap_or(&[0; 4]);
            u32::from_ne_bytes([a, b, c, d])
        };
        match Command::decode(word(COMMAND_WORD_COUNT), word).map_err(|_: Status| ()).ok()? {
            Command::HostDirect { host, data } => {
                Some(Self { host, bytes: data.as_slice().to_vec(), is_copy: false, event: false })
            }
            Command::Dma { host, length, direction: Direction::ToHost, event, .. } if length <= MAX_COPY => {
                let bytes = entry[DATA as usize..][..length as usize].to_vec();
                Some(Self { host, bytes, is_copy: true, event })
            }
            _ => None,
        }
    }
}

/// Whether a command's type is that of a copy, with an event or without.
pub(super) const fn is_copy(info: u32) -> bool {
    info & !1 == INFO_DMA
}
