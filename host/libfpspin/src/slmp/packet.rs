//! SLMP's header: flags, message id and offset, in network order.

/// Flag: last packet of the message.
pub const EOM: u16 = 0x8000;
/// Flag: an acknowledgement is requested.
pub const SYN: u16 = 0x4000;
/// Flag: this packet is an acknowledgement.
pub const ACK: u16 = 0x2000;
/// Bytes of a header.
pub const HEADER: usize = 10;

/// Header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub flags: u16,
    pub message: u32,
    /// Offset of the payload in the message.
    pub offset: u32,
}

impl Header {
    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&self.flags.to_be_bytes());
        bytes[2..6].copy_from_slice(&self.message.to_be_bytes());
        bytes[6..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    /// Decodes a header. `None`: the packet is too short.
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let &[a, b, c, d, e, f, g, h, i, j] = packet.first_chunk::<HEADER>()?;
        Some(Self {
            flags: u16::from_be_bytes([a, b]),
            message: u32::from_be_bytes([c, d, e, f]),
            offset: u32::from_be_bytes([g, h, i, j]),
        })
    }

    /// Whether the packet acknowledges a packet of `message`.
    pub const fn acknowledges(&self, message: u32) -> bool {
        self.flags & ACK != 0 && self.message == message
    }
}
