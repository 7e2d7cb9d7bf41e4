//! PsPIN's view of a packet: from the IP header on, with the fields of the IPv4 and UDP headers in the HPU's byte order.
//!
//! PsPIN's NIC has no link layer, and its simulation gives handlers little-endian headers. A frame of a context with
//! [`Abi::Pspin`](spin_abi::control::Abi::Pspin) is converted in place when it is queued, and its handlers see the bytes behind
//! the link-layer header. Changes to a frame with EtherType 0x0800:
//!
//! | field | on the wire | in the view |
//! |---|---|---|
//! | version, header length | upper, lower half of the first byte | lower, upper half |
//! | length, identification, offset, checksum, addresses of IPv4 | network order | little-endian |
//! | ports, length, checksum of UDP (not in fragments) | network order | little-endian |
//! | options, everything behind these headers | | as on the wire |
//! | padding behind the IP packet | | removed |
//!
//! Handlers see frames of other EtherTypes without link-layer header and otherwise as on the wire. Frames that a handler sends
//! get a header again, see [`Link::restore`].

use spin_frame::Frame;
use spin_matcher::Headers;

/// Offset of EtherType or tags, behind two MAC addresses.
const ETHERTYPE: usize = 12;
/// Longest link-layer header: addresses, two VLAN tags, EtherType.
const LONGEST: usize = ETHERTYPE + 2 * 4 + 2;
const IPV4: usize = 20;
const UDP: usize = 8;
const PROTOCOL_UDP: u8 = 17;

/// Length of the link-layer header.
#[must_use]
pub fn link_len(frame: &[u8]) -> usize {
    let tagged = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    let tags = usize::from(tagged(ETHERTYPE)) + usize::from(tagged(ETHERTYPE) && tagged(ETHERTYPE + 4));
    (ETHERTYPE + 4 * tags + 2).min(frame.len())
}

/// Converts a received frame. Returns whether its headers have changed.
pub fn to_pspin_view(frame: &mut Frame) -> bool {
    let end = Headers::parse(frame).end as usize;
    let trimmed = frame.trim(0, end);
    debug_assert!(trimmed.is_ok(), "the packet ends within its frame");
    let link = link_len(frame);
    let first = frame.get(link).copied();
    if is_ipv4(&frame[..link]) {
        exchange(&mut frame[link..], Order::Network);
    }
    // A converted header has a different first byte: its halves are 4 and at least 5, and they are swapped.
    first != frame.get(link).copied()
}

/// Undoes [`to_pspin_view`], for the kernel.
pub fn to_wire(frame: &mut Frame) {
    let link = link_len(frame);
    exchange(&mut frame[link..], Order::Hpu);
}

fn is_ipv4(link: &[u8]) -> bool {
    link.ends_with(&[0x08, 0x00])
}

/// Byte order of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Network order.
    Network,
    /// Order of the HPUs: little-endian.
    Hpu,
}

/// Converts the headers of an IPv4 packet from `order` to the other order. Leaves other packets unchanged. Returns the offset of
/// the UDP header, if there is one.
fn exchange(packet: &mut [u8], order: Order) -> Option<usize> {
    let first = *packet.first()?;
    let (version, words) = if order == Order::Network { (first >> 4, first & 15) } else { (first & 15, first >> 4) };
    let header = 4 * usize::from(words);
    if version != 4 || header < IPV4 || header > packet.len() {
        return None;
    }
    packet[0] = packet[0].rotate_left(4);
    let offset = [packet[6], packet[7]];
    let offset = if order == Order::Network { u16::from_be_bytes(offset) } else { u16::from_le_bytes(offset) };
    // Length, identification, flags and offset, checksum; source, destination.
    for at in [2, 4, 6, 10] {
        packet[at..at + 2].reverse();
    }
    for at in [12, 16] {
        packet[at..at + 4].reverse();
    }
    // "More fragments" and the offset, without "don't fragment" (RFC 791, 3.1).
    if offset & 0x3fff != 0 || packet[9] != PROTOCOL_UDP || packet.len() < header + UDP {
        return None;
    }
    packet[header..header + UDP].chunks_exact_mut(2).for_each(<[u8]>::reverse);
    Some(header)
}

/// Link-layer header of a task's packet. Frames that the task sends get the reverse of it.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Link {
    /// Header of a frame.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        let len = link_len(frame);
        let mut bytes = [0; LONGEST];
        bytes[..len].copy_from_slice(&frame[..len]);
        Self { bytes, len }
    }

    /// Length in bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the packet has a sender to reply to: both MAC addresses are unicast.
    #[must_use]
    pub const fn has_return(&self) -> bool {
        self.len > ETHERTYPE && self.bytes[0] & 1 == 0 && self.bytes[6] & 1 == 0
    }

    /// Converts the bytes that a handler sends to a frame of the wire. They are in `frame` behind space for this header. The frame
    /// gets this header with the addresses swapped, and IPv4 headers in network order. Lengths and checksums are computed, because
    /// PsPIN's NIC has neither and its handlers do not set them. A UDP checksum of 0 (none) stays.
    pub fn restore(&self, frame: &mut [u8]) {
        let (link, packet) = frame.split_at_mut(self.len);
        link.copy_from_slice(&self.bytes[..self.len]);
        link[..6].copy_from_slice(&self.bytes[6..ETHERTYPE]);
        link[6..ETHERTYPE].copy_from_slice(&self.bytes[..6]);
        if !is_ipv4(link) || packet.first().is_none_or(|first| first & 15 != 4) {
            return;
        }
        let udp = exchange(packet, Order::Hpu);
        let header = 4 * usize::from(packet[0] & 15);
        // `exchange` left an incomplete header unchanged.
        if packet[0] >> 4 != 4 || header < IPV4 || header > packet.len() {
            return;
        }
        put(packet, 2, saturate(packet.len()));
        put(packet, 10, 0);
        put(packet, 10, !fold(sum(&packet[..header])));
        if let Some(udp) = udp {
            self.restore_udp(packet, udp);
        }
    }

    fn restore_udp(&self, packet: &mut [u8], udp: usize) {
        let len = saturate(packet.len() - udp);
        put(packet, udp + 4, len);
        if packet[udp + 6..udp + 8] == [0, 0] {
            return;
        }
        put(packet, udp + 6, 0);
        // RFC 768: over addresses, protocol and length too; a sum of 0 is sent as 0xffff.
        let pseudo = sum(&packet[12..20]) + u64::from(PROTOCOL_UDP) + u64::from(len);
        let checksum = !fold(pseudo + sum(&packet[udp..]));
        put(packet, udp + 6, if checksum == 0 { 0xffff } else { checksum });
    }
}

/// Sum of half-words in network order (RFC 1071). No packet is long enough for an overflow.
fn sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks();
    let odd = rest.first().map_or(0, |&last| u64::from(last) << 8);
    pairs.iter().map(|&pair| u64::from(u16::from_be_bytes(pair))).sum::<u64>() + odd
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(0)
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn saturate(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Link, Order, exchange};

    /// From 10.0.0.1:1234 to 10.0.0.2:9 with a payload of three bytes, checksums in place.
    fn frame() -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let builder = builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1234, 9);
        builder.write(&mut frame, &[7, 8, 9]).expect("a vector takes all");
        frame
    }

    #[test]
    fn every_field_is_where_pspin_has_it() {
        let mut packet = frame()[14..].to_vec();
        let wire = packet.clone();
        assert_eq!(exchange(&mut packet, Order::Network), Some(20));
        let half = |at: usize| u16::from_le_bytes([packet[at], packet[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
        assert_eq!((packet[0] & 15, packet[0] >> 4), (4, 5), "version below header length");
        assert_eq!((half(2), half(20), half(22), half(24)), (31, 1234, 9, 11));
        assert_eq!((word(12), word(16)), (0x0a00_0001, 0x0a00_0002));
        assert_eq!((packet[8], packet[9], &packet[28..]), (64, 17, &[7, 8, 9][..]));
        assert_eq!(exchange(&mut packet, Order::Hpu), Some(20));
        assert_eq!(packet, wire, "and back");
    }

    #[test]
    fn what_is_no_whole_ipv4_header_is_left_alone() {
        let packet = frame()[14..].to_vec();
        for (at, byte) in [(0, 0x65), (0, 0x44), (0, 0x4f)] {
            let mut other = packet.clone();
            other[at] = byte;
            let before = other.clone();
            assert_eq!(exchange(&mut other, Order::Network), None);
            assert_eq!(other, before, "{byte:#x}");
        }
        for len in 0..20 {
            let mut cut = packet[..len].to_vec();
            assert_eq!(exchange(&mut cut, Order::Network), None);
            assert_eq!(cut, packet[..len]);
        }
        for fragment in [0x2000u16, 1, 0x1fff] {
            let mut part = packet.clone();
            part[6..8].copy_from_slice(&fragment.to_be_bytes());
            assert_eq!(exchange(&mut part, Order::Network), None);
            assert_eq!(part[20..], packet[20..], "a fragment has no UDP header to change");
            assert_eq!(exchange(&mut part, Order::Hpu), None);
            assert_eq!(part[6..8], fragment.to_be_bytes());
        }
    }

    /// A reply equals the frame that another library builds.
    #[test]
    fn what_is_sent_is_a_frame_of_the_wire() {
        let link = Link::of(&frame());
        let mut reply = frame();
        exchange(&mut reply[14..], Order::Network);
        let packet = &mut reply[14..];
        packet[12..20].rotate_left(4);
        packet[20..24].rotate_left(2);
        (packet[2], packet[10], packet[24]) = (0, 99, 77);
        reply.extend([1, 2, 3, 4]);
        link.restore(&mut reply);
        let mut expected = Vec::new();
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
        let builder = builder.ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64).udp(9, 1234);
        builder.write(&mut expected, &[7, 8, 9, 1, 2, 3, 4]).expect("a vector takes all");
        assert_eq!(reply, expected);
    }

    #[test]
    fn any_bytes_are_sent_without_a_panic() {
        let link = Link::of(&frame());
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let len = random.usize(14..80);
            let mut frame: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            if let Some(first) = frame.get_mut(14) {
                *first = [0x54, 0x64, 0xf4, *first][random.usize(..4)];
            }
            link.restore(&mut frame);
            assert_eq!(frame[..6], [2, 0, 0, 0, 0, 1]);
        }
        assert!(!Link::of(&[0xff; 14]).has_return() && !Link::of(&[0; 5]).has_return() && link.has_return());
    }
}
