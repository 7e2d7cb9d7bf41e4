//! Header fields of an IP packet.

use std::net::IpAddr;

use spin_abi::rules::MAX_VLAN_TAGS;
use spin_frame::SPARE;
use spin_matcher::Headers;
use spin_matcher::headers::UDP;

/// Start of the source MAC address.
const SOURCE_MAC: usize = 6;
/// Start of the first VLAN tag, or of the EtherType.
pub(super) const TAGS: usize = 12;
/// Length of a VLAN tag.
const TAG: usize = 4;
/// Headers of a plain frame: UDP over IPv4 without tags and options, see [`Headers::plain_end`].
pub(super) const PLAIN: usize = 42;

/// Header fields of a packet on which the rights to send depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFields {
    pub(super) destination_mac: [u8; 6],
    pub(super) source_mac: [u8; 6],
    /// Number of VLAN tags.
    pub(super) tags: u8,
    /// IP version. 0 without a complete transport header of TCP, UDP, ICMP or `ICMPv6`: then all fields behind the tags are 0.
    pub(super) version: u8,
    pub(super) protocol: u8,
    /// The VLAN tags.
    pub(super) tag_bytes: [u8; TAG * MAX_VLAN_TAGS],
    /// Source address. One of IPv4 has the first four bytes.
    pub(super) source: [u8; 16],
    /// Destination address.
    pub(super) destination: [u8; 16],
    /// First bytes of the transport header: ports, or type and code of ICMP.
    pub(super) transport: [u8; 4],
}

impl PacketFields {
    /// Fields of a packet that is unknown: no frame has as many tags.
    pub const UNKNOWN: Self = Self { tags: u8::MAX, ..Self::EMPTY };

    const EMPTY: Self = Self {
        destination_mac: [0; 6],
        source_mac: [0; 6],
        tags: 0,
        version: 0,
        protocol: 0,
        tag_bytes: [0; 8],
        source: [0; 16],
        destination: [0; 16],
        transport: [0; 4],
    };

    /// Fields of a frame.
    #[must_use]
    pub(super) fn of(frame: &[u8]) -> Self {
        let mut fields = Self::EMPTY;
        fields.read_any(&Headers::parse(frame), frame);
        fields
    }

    /// Fields of a plain frame, at constant positions.
    pub(super) fn of_plain(head: &[u8; PLAIN]) -> Self {
        let mut fields = Self { version: 4, protocol: UDP, ..Self::EMPTY };
        fields.destination_mac.copy_from_slice(&head[..SOURCE_MAC]);
        fields.source_mac.copy_from_slice(&head[SOURCE_MAC..TAGS]);
        fields.source[..4].copy_from_slice(&head[26..30]);
        fields.destination[..4].copy_from_slice(&head[30..34]);
        fields.transport.copy_from_slice(&head[34..38]);
        fields
    }

    /// Reads the fields of any frame with these headers.
    fn read_any(&mut self, headers: &Headers, frame: &[u8]) {
        self.tags = headers.tags;
        copy(&mut self.destination_mac, frame, 0);
        copy(&mut self.source_mac, frame, SOURCE_MAC);
        copy(&mut self.tag_bytes[..TAG * usize::from(headers.tags)], frame, TAGS);
        let (Some(ip), Some(l4), Some(_)) = (headers.ip, headers.l4, headers.payload) else { return };
        (self.version, self.protocol) = (headers.ip_version, headers.protocol);
        let (at, len) = if headers.ip_version == 4 { (12, 4) } else { (8, 16) };
        copy(&mut self.source[..len], frame, usize::from(ip) + at);
        copy(&mut self.destination[..len], frame, usize::from(ip) + at + len);
        copy(&mut self.transport, frame, l4.into());
    }

    /// Source address.
    #[inline]
    pub(super) fn source_address(&self) -> IpAddr {
        address(self.version, &self.source)
    }

    /// Destination address.
    #[inline]
    pub(super) fn destination_address(&self) -> IpAddr {
        address(self.version, &self.destination)
    }

    /// Source port.
    #[inline]
    pub(super) const fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.transport[0], self.transport[1]])
    }

    /// Destination port.
    #[inline]
    pub(super) const fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.transport[2], self.transport[3]])
    }

    /// Whether another frame has these VLAN tags.
    pub(super) fn has_tags_of(&self, other: &Self) -> bool {
        self.tags == other.tags && self.tag_bytes == other.tag_bytes
    }

    /// Writes the fields, and no last byte.
    pub(super) fn write(&self, bytes: &mut [u8; SPARE]) {
        let Self { destination_mac, source_mac, tags, version, protocol, tag_bytes, source, destination, transport } =
            self;
        bytes[..6].copy_from_slice(source_mac);
        bytes[6..12].copy_from_slice(&[*tags, *version, *protocol, 0, 0, 0]);
        bytes[12..16].copy_from_slice(transport);
        bytes[16..32].copy_from_slice(source);
        bytes[32..48].copy_from_slice(destination);
        bytes[48..56].copy_from_slice(tag_bytes);
        bytes[56..62].copy_from_slice(destination_mac);
    }

    /// Fields that were [written](Self::write).
    pub(super) fn from_bytes(bytes: &[u8; SPARE]) -> Self {
        Self {
            destination_mac: part(bytes, 56),
            source_mac: part(bytes, 0),
            tags: bytes[6],
            version: bytes[7],
            protocol: bytes[8],
            transport: part(bytes, 12),
            source: part(bytes, 16),
            destination: part(bytes, 32),
            tag_bytes: part(bytes, 48),
        }
    }
}

/// `N` bytes from `at` on.
#[inline]
fn part<const N: usize>(bytes: &[u8; SPARE], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

fn address(version: u8, bytes: &[u8; 16]) -> IpAddr {
    match (version, bytes) {
        (4, &[a, b, c, d, ..]) => [a, b, c, d].into(),
        _ => (*bytes).into(),
    }
}

/// Copies the bytes at `at`, if the frame has all of them.
fn copy(to: &mut [u8], frame: &[u8], at: usize) {
    if let Some(from) = frame.get(at..at + to.len()) {
        to.copy_from_slice(from);
    }
}
