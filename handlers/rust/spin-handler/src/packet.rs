//! Checked views of packets: Ethernet, VLAN tags, IPv4, IPv6, UDP.
//!
//! A view exists only of a packet that lies in the frame completely. Truncated packets, fragments, and inconsistent
//! lengths have none. `spin_packet.h` accepts the same packets.

use crate::command::send;

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
const MAX_VLAN_TAGS: usize = 2;
/// Minimum Ethernet frame length, without its checksum.
const ETHERNET_MIN: usize = 60;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const PROTOCOL_UDP: u8 = 17;

/// Reads two bytes in network order; `None`: out of bounds.
#[must_use]
pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads four bytes in network order; `None`: out of bounds.
#[must_use]
pub fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the complete 32-bit little-endian words of a slice.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// Returns the offset of the network header, and whether the EtherType is IPv6.
fn network(frame: &[u8]) -> Option<(usize, bool)> {
    let mut at = ETHERNET;
    for tags in 0..=MAX_VLAN_TAGS {
        match be16(frame, at - 2)? {
            0x8100 | 0x88a8 if tags < MAX_VLAN_TAGS => at += VLAN_TAG,
            0x0800 => return Some((at, false)),
            0x86dd => return Some((at, true)),
            _ => return None,
        }
    }
    None
}

/// A complete UDP datagram over IPv4 or IPv6.
#[derive(Debug)]
pub struct Udp<'p> {
    /// Frame up to the end of the network packet and padding.
    frame: &'p mut [u8],
    ip: usize,
    /// Offset of the UDP header.
    l4: usize,
    /// Offset of the network packet's end.
    end: usize,
    /// Offset of the datagram's end.
    payload_end: usize,
    ipv6: bool,
}

impl<'p> Udp<'p> {
    /// Parses the datagram of a frame.
    #[must_use]
    pub fn parse(frame: &'p mut [u8]) -> Option<Self> {
        let (ip, ipv6) = network(frame)?;
        let packet = &frame[ip..];
        let (header, total) = if ipv6 { ipv6_lengths(packet)? } else { ipv4_lengths(packet)? };
        let datagram = packet.get(header..total)?;
        let length = usize::from(be16(datagram, 4)?);
        if length < UDP || length > datagram.len() {
            return None;
        }
        let l4 = ip + header;
        Some(Self { frame, ip, l4, end: ip + total, payload_end: l4 + length, ipv6 })
    }

    /// Returns the bytes after the UDP header, by UDP's own length.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.frame[self.l4 + UDP..self.payload_end]
    }

    /// Returns the payload for changes; the checksum is wrong afterwards, see [`Udp::clear_checksum`].
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.frame[self.l4 + UDP..self.payload_end]
    }

    /// Returns the IP header and the bytes after it.
    #[must_use]
    pub fn ip(&self) -> &[u8] {
        &self.frame[self.ip..self.end]
    }

    /// Whether the datagram came over IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Returns source and destination port.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        let header = &self.frame[self.l4..];
        (be16(header, 0).unwrap_or(0), be16(header, 2).unwrap_or(0))
    }

    /// Whether source and destination are single hosts, so that an answer with exchanged addresses makes sense.
    #[must_use]
    pub fn is_unicast(&self) -> bool {
        if (self.frame[0] | self.frame[6]) & 1 == 1 {
            return false;
        }
        let ip = self.ip();
        if self.ipv6 {
            return ip[8] != 0xff && ip[24] != 0xff && ip[8..24] != [0; 16];
        }
        // 0.0.0.0/8, and 224.0.0.0 and above: multicast, reserved, broadcast (RFC 1122, 3.2.1.3).
        (1..224).contains(&ip[12]) && (1..224).contains(&ip[16])
    }

    /// Exchanges source and destination of Ethernet, IP and UDP. All checksums stay valid.
    pub fn swap(&mut self) {
        exchange::<6>(self.frame, 0, 6);
        if self.ipv6 {
            exchange::<16>(self.frame, self.ip + 8, self.ip + 24);
        } else {
            exchange::<4>(self.frame, self.ip + 12, self.ip + 16);
        }
        exchange::<2>(self.frame, self.l4, self.l4 + 2);
    }

    /// Marks the datagram as having no checksum, which IPv4 allows (RFC 768).
    pub fn clear_checksum(&mut self) {
        self.frame[self.l4 + 6..self.l4 + UDP].fill(0);
    }

    /// Sends the packet back to the wire, with only as much padding as the minimum frame length requires.
    pub fn reply(&self) {
        let length = if self.end < ETHERNET_MIN { self.frame.len().min(ETHERNET_MIN) } else { self.end };
        send(&self.frame[..length]).forget();
    }
}

/// Returns the header length and the packet length of a complete IPv4 packet with a UDP datagram.
fn ipv4_lengths(packet: &[u8]) -> Option<(usize, usize)> {
    let fixed: &[u8; IPV4] = packet.first_chunk()?;
    let (header, total) = (usize::from(fixed[0] & 15) * 4, usize::from(be16(fixed, 2)?));
    let fragment = be16(fixed, 6)? & 0x3fff != 0;
    let whole = fixed[0] >> 4 == 4 && header >= IPV4 && header <= total && total <= packet.len() && !fragment;
    (whole && fixed[9] == PROTOCOL_UDP).then_some((header, total))
}

/// Returns the header length and the packet length of a complete IPv6 packet with a UDP datagram, without extension
/// headers.
fn ipv6_lengths(packet: &[u8]) -> Option<(usize, usize)> {
    let fixed: &[u8; IPV6] = packet.first_chunk()?;
    let total = IPV6 + usize::from(be16(fixed, 4)?);
    (fixed[0] >> 4 == 6 && total <= packet.len() && fixed[6] == PROTOCOL_UDP).then_some((IPV6, total))
}

/// Exchanges `N` bytes at two offsets that do not overlap.
fn exchange<const N: usize>(bytes: &mut [u8], left: usize, right: usize) {
    let (head, tail) = bytes.split_at_mut(right);
    head[left..left + N].swap_with_slice(&mut tail[..N]);
}
