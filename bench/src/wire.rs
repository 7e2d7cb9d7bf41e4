//! Ethernet, VLAN, IPv4, UDP and ICMP: built and strictly checked.
//!
//! Written independently of the handlers' and the matcher's parsers, which it checks.

use std::net::Ipv4Addr;

/// A MAC address.
pub type Mac = [u8; 6];

/// IPv4 protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IPv4 protocol number of UDP.
pub const UDP: u8 = 17;
/// Minimum Ethernet frame length without check sequence.
pub const ETHERNET_MIN: usize = 60;

/// Reason why a frame is not a complete, correct ICMP or UDP packet over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Flaw {
    /// The frame has another protocol; no defect is known.
    #[error("another protocol")]
    Other,
    /// A length exceeds the available bytes or is below the minimum.
    #[error("lengths do not fit")]
    Length,
    /// The packet is a fragment.
    #[error("a fragment")]
    Fragment,
    /// The IPv4 header checksum is wrong.
    #[error("wrong IPv4 header checksum")]
    IpChecksum,
    /// The ICMP or UDP checksum is wrong.
    #[error("wrong ICMP or UDP checksum")]
    Checksum,
}

/// A correct packet and the positions of its parts in the frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Frame, including padding.
    pub frame: &'a [u8],
    /// Offset of the IPv4 header.
    pub ip_at: usize,
    /// Offset of the transport header.
    pub l4_at: usize,
    /// Offset of the packet's end, where padding starts.
    pub end: usize,
    /// [`ICMP`] or [`UDP`].
    pub protocol: u8,
}

impl<'a> Packet<'a> {
    /// Returns the IPv4 header.
    #[must_use]
    pub fn ip(&self) -> &'a [u8] {
        &self.frame[self.ip_at..self.l4_at]
    }

    /// Returns the bytes after the IPv4 header.
    #[must_use]
    pub fn l4(&self) -> &'a [u8] {
        &self.frame[self.l4_at..self.end]
    }
}

/// Computes the internet checksum of the concatenated parts (RFC 1071, section 4.1).
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum: u64 =
        bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[allow(clippy::cast_possible_truncation, reason = "at most 16 bits are left")]
    let folded = sum as u16;
    !folded
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    let pair = bytes.get(at..at + 2)?;
    Some(usize::from(pair[0]) << 8 | usize::from(pair[1]))
}

/// Returns EtherType and offset of the network packet, after any VLAN tags.
fn network(frame: &[u8]) -> Option<(usize, usize)> {
    let mut at = 12;
    while matches!(be16(frame, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    Some((be16(frame, at)?, at + 2))
}

/// Checks everything from EtherType to the last checksum.
///
/// # Errors
/// The first [`Flaw`] found.
pub fn parse(frame: &[u8]) -> Result<Packet<'_>, Flaw> {
    let (ethertype, ip_at) = network(frame).ok_or(Flaw::Other)?;
    if ethertype != 0x0800 {
        return Err(Flaw::Other);
    }
    let ip = &frame[ip_at..];
    let header = ip.first().map_or(0, |first| usize::from(first & 15) * 4);
    let total = be16(ip, 2).ok_or(Flaw::Length)?;
    if ip[0] >> 4 != 4 || header < 20 || total < header || total > ip.len() {
        return Err(Flaw::Length);
    }
    if checksum(&[&ip[..header]]) != 0 {
        return Err(Flaw::IpChecksum);
    }
    if !matches!(ip[9], ICMP | UDP) {
        return Err(Flaw::Other);
    }
    if ip[6] & 0x3f != 0 || ip[7] != 0 {
        return Err(Flaw::Fragment);
    }
    let packet = Packet { frame, ip_at, l4_at: ip_at + header, end: ip_at + total, protocol: ip[9] };
    transport(&packet).map(|()| packet)
}

fn transport(packet: &Packet<'_>) -> Result<(), Flaw> {
    let l4 = packet.l4();
    if l4.len() < 8 {
        return Err(Flaw::Length);
    }
    let sum = if packet.protocol == ICMP {
        checksum(&[l4])
    } else if be16(l4, 4) != Some(l4.len()) {
        return Err(Flaw::Length);
    } else if l4[6..8] == [0, 0] {
        0
    } else {
        checksum(&[&packet.ip()[12..20], &[0, UDP], &l4[4..6], l4])
    };
    if sum == 0 { Ok(()) } else { Err(Flaw::Checksum) }
}

/// Fields of an IPv4 packet to be built.
#[derive(Clone, Debug)]
pub struct Ipv4 {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Protocol number.
    pub protocol: u8,
    /// Identification; equal in all fragments of a packet.
    pub id: u16,
    /// Flags and fragment offset, as the half-word in the header.
    pub fragment: u16,
    /// Options: a multiple of four bytes, at most 40.
    pub options: Vec<u8>,
    /// Bytes after the header.
    pub payload: Vec<u8>,
}

impl Ipv4 {
    /// Returns the header with checksum, and the payload.
    ///
    /// # Panics
    /// When options or payload exceed the size of a packet.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        assert!(self.options.len() <= 40 && self.options.len().is_multiple_of(4), "options of 0, 4, … 40 bytes");
        let header = 20 + self.options.len();
        let total = u16::try_from(header + self.payload.len()).unwrap_or_else(|_| panic!("payload too long"));
        let mut bytes = vec![0; 12];
        #[allow(clippy::cast_possible_truncation, reason = "at most 15 words, asserted above")]
        let words = (header / 4) as u8;
        bytes[0] = 0x40 | words;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.fragment.to_be_bytes());
        bytes[8..10].copy_from_slice(&[64, self.protocol]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.extend(&self.options);
        let sum = checksum(&[&bytes]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

/// Makes an ICMP echo request with its checksum.
#[must_use]
pub fn echo_request(id: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0];
    message.extend(id.to_be_bytes());
    message.extend(sequence.to_be_bytes());
    message.extend(data);
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Makes a UDP datagram over IPv4 with its checksum.
///
/// # Panics
/// When the data exceeds the size of a datagram.
#[must_use]
pub fn datagram(source: Ipv4Addr, destination: Ipv4Addr, ports: [u16; 2], data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + data.len()).unwrap_or_else(|_| panic!("data too long")).to_be_bytes();
    let mut bytes = [ports[0].to_be_bytes(), ports[1].to_be_bytes(), length, [0, 0]].concat();
    bytes.extend(data);
    let sum = match checksum(&[&source.octets(), &destination.octets(), &[0, UDP], &length, &bytes]) {
        0 => 0xffff,
        sum => sum,
    };
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Makes a frame of an IPv4 packet with VLAN tags, each a type and a tag.
#[must_use]
pub fn ethernet(destination: Mac, source: Mac, tags: &[[u16; 2]], packet: &[u8]) -> Vec<u8> {
    let mut frame = [destination, source].concat();
    for half in tags.iter().flatten() {
        frame.extend(half.to_be_bytes());
    }
    frame.extend([8, 0]);
    frame.extend(packet);
    frame
}

#[cfg(test)]
mod tests {
    use super::{Flaw, ICMP, Ipv4, UDP, datagram, echo_request, ethernet, parse};
    use std::net::Ipv4Addr;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn frame(protocol: u8, payload: Vec<u8>) -> Vec<u8> {
        let packet =
            Ipv4 { source: A, destination: B, protocol, id: 9, fragment: 0, options: vec![1, 1, 1, 0], payload };
        ethernet([2; 6], [4; 6], &[[0x8100, 5]], &packet.bytes())
    }

    /// A frame of a real ping shows that builder and parser agree with the wire and not only with each other.
    #[test]
    fn a_ping_from_the_wire() {
        let bytes: [u8; 42] = [
            0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 28, 0xd9, 0x10, 0x40, 0, 0x40, 1, 0x4d,
            0xce, 10, 0, 0, 1, 10, 0, 0, 2, 8, 0, 0xb7, 0xc0, 0x40, 0x3e, 0, 1,
        ];
        let packet = parse(&bytes).unwrap();
        assert_eq!((packet.ip_at, packet.l4_at, packet.end), (14, 34, 42));
    }

    #[test]
    fn builds_what_it_accepts() {
        for whole in [frame(ICMP, echo_request(1, 2, b"abc")), frame(UDP, datagram(A, B, [7, 8], b"abc"))] {
            let packet = parse(&whole).unwrap();
            assert_eq!((packet.ip_at, packet.l4_at, packet.end), (18, 42, whole.len()));
            for length in 18..whole.len() {
                assert_eq!(parse(&whole[..length]).unwrap_err(), Flaw::Length, "{length}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_behind_the_ethernet_header_is_noticed() {
        let whole = frame(UDP, datagram(A, B, [7, 8], b"abcd"));
        for at in 18..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x10;
            assert!(parse(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn other_things() {
        assert_eq!(parse(&[]).unwrap_err(), Flaw::Other);
        assert_eq!(parse(&frame(6, vec![0; 20])).unwrap_err(), Flaw::Other);
        let part = Ipv4 {
            source: A,
            destination: B,
            protocol: UDP,
            id: 0,
            fragment: 0x2000,
            options: vec![],
            payload: datagram(A, B, [7, 8], b"abcd"),
        };
        assert_eq!(parse(&ethernet([2; 6], [4; 6], &[], &part.bytes())).unwrap_err(), Flaw::Fragment);
    }
}
