//! Captured packets, limits of capture files, and errors of capture files.

use std::io;

use thiserror::Error;

/// Maximum length of a packet in bytes: the limit of tcpdump and Wireshark.
pub const MAX_PACKET: usize = 262_144;
/// Maximum length of a block of a pcapng file in bytes: a packet and room for options.
pub const MAX_BLOCK: usize = 1 << 20;
/// `LINKTYPE_ETHERNET`.
pub(super) const ETHERNET: u32 = 1;

/// A captured packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Bytes on the wire. More than the captured bytes when the capture truncated the packet.
    pub wire_len: u32,
    /// The captured bytes.
    pub data: Vec<u8>,
}

impl Packet {
    /// A packet without truncation.
    #[must_use]
    pub fn whole(time: u64, data: Vec<u8>) -> Self {
        Self { time, wire_len: u32::try_from(data.len()).unwrap_or(u32::MAX), data }
    }
}

/// Reason why a capture file cannot be used.
#[derive(Debug, Error)]
pub enum PcapError {
    /// Neither pcap nor pcapng.
    #[error("not a capture file: it begins with {0:#010x}, which is neither pcap nor pcapng")]
    Magic(u32),
    /// An unknown version of the format.
    #[error("unknown version {0}.{1} of the format")]
    Version(u16, u16),
    /// The file ends inside a record.
    #[error("the file ends inside the record at byte {at}")]
    Truncated {
        /// Position of that record.
        at: u64,
    },
    /// An inconsistent record.
    #[error("broken record at byte {at}: {what}")]
    Broken {
        /// Position of the record.
        at: u64,
        /// The defect.
        what: &'static str,
    },
    /// A length above the limit.
    #[error("the record at byte {at} claims {len} B, more than the {max} B there can be")]
    TooLong {
        /// Position of the length.
        at: u64,
        /// The claimed length.
        len: u64,
        /// The limit.
        max: usize,
    },
    /// Not Ethernet.
    #[error("link type {0}; only Ethernet (1) is understood")]
    LinkType(u32),
    /// Input and output are the same file.
    #[error("it is both input and output; name another file for the output")]
    SameFile,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}
