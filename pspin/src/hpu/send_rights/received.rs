//! What is remembered of a received packet.

use spin_frame::{Frame, SPARE};
use spin_matcher::Headers;

use super::fields::{PLAIN, PacketFields};

/// Where spare bytes say whether they have the headers of a plain packet, instead of fields.
const IS_PLAIN: usize = SPARE - 1;

/// A received packet, as far as the rights to send depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The headers of a plain packet: UDP over IPv4 without tags and options, see [`Headers::plain_end`]. Copying them takes less time
    /// than reading their fields, which only unusual replies need.
    Plain([u8; PLAIN]),
    /// The fields of any other packet.
    Other(PacketFields),
}

impl Received {
    /// A packet that is unknown.
    pub const UNKNOWN: Self = Self::Other(PacketFields::UNKNOWN);

    /// The packet of a frame.
    #[must_use]
    #[inline]
    pub fn of(frame: &[u8]) -> Self {
        match frame.first_chunk() {
            Some(head) if Headers::plain_end(frame).is_some() => Self::Plain(*head),
            _ => Self::Other(PacketFields::of(frame)),
        }
    }

    /// Its fields.
    #[must_use]
    pub(super) fn fields(&self) -> PacketFields {
        match self {
            Self::Plain(head) => PacketFields::of_plain(head),
            Self::Other(fields) => *fields,
        }
    }

    /// Whether a frame still has the addresses, ports and tags of the packet. `false` for packets without ports and ICMP, whose
    /// addresses are not remembered.
    #[must_use]
    pub fn is_still(&self, frame: &[u8]) -> bool {
        let fields = self.fields();
        fields.version != 0 && fields == Self::of(frame).fields()
    }

    /// Keeps this in a frame's chunk, outside the frame. A frame without spare bytes does not keep it.
    #[inline]
    pub fn keep_in(&self, frame: &mut Frame) {
        let Some(spare) = frame.spare_mut() else { return };
        match self {
            Self::Plain(head) => spare[..PLAIN].copy_from_slice(head),
            Self::Other(fields) => fields.write(spare),
        }
        spare[IS_PLAIN] = u8::from(matches!(self, Self::Plain(_)));
    }

    /// What [`keep_in`](Self::keep_in) kept in this frame's chunk.
    #[must_use]
    #[inline]
    pub fn kept_in(frame: &Frame) -> Self {
        let Some(spare) = frame.spare() else { return Self::UNKNOWN };
        match spare.first_chunk() {
            Some(head) if spare[IS_PLAIN] == 1 => Self::Plain(*head),
            _ => Self::Other(PacketFields::from_bytes(spare)),
        }
    }
}
