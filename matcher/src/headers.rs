//! Header positions in a frame.
//!
//! The module documentation of [`spin_abi::rules`] defines them. The XDP program finds the same positions from the same bytes. No input
//! makes the parser fail: a missing or incomplete header is absent.

use spin_abi::rules::{MAX_IPV6_EXTENSIONS, MAX_VLAN_TAGS};

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherTypes of a VLAN tag: 802.1Q and 802.1ad.
pub const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMP6: u8 = 58;

/// Offset of the first EtherType: after two MAC addresses.
const ETHERTYPE_AT: usize = 12;
/// IPv4 flags and fragment offset: "more fragments" and the offset, without "don't fragment" (RFC 791 §3.1).
const IPV4_FRAGMENT: u16 = 0x3fff;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Header positions of one frame, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// EtherType after at most two VLAN tags. 0 when the frame ends before it.
    pub ethertype: u16,
    /// Number of VLAN tags skipped, 0 to [`MAX_VLAN_TAGS`]. The id of tag `n` is in the two bytes at `14 + 4 * n`.
    pub tags: u8,
    /// Start of the IPv4 or IPv6 header.
    pub ip: Option<u16>,
    /// IP version: 4, 6, or 0 when `ip` is absent.
    pub ip_version: u8,
    /// Transport protocol. 0 when `l4` is absent.
    pub protocol: u8,
    /// Start of the transport header. Absent in fragments and in packets cut short.
    pub l4: Option<u16>,
    /// First byte after the transport header of UDP, TCP, ICMP and ICMPv6. May equal `end`.
    pub payload: Option<u16>,
    /// End of the IP packet, at most the frame's length. Padding follows it. Without `ip`: the frame's length.
    pub end: u32,
    /// Result of [`Headers::kind`].
    pub(crate) kind: u32,
}

impl Headers {
    /// Start of the IP header in a [plain](Headers::plain_end) frame.
    pub(crate) const PLAIN_IP: u16 = 14;
    /// Start of the UDP header in a plain frame.
    pub(crate) const PLAIN_L4: u16 = Self::PLAIN_IP + 20;
    /// Start of the payload in a plain frame.
    pub(crate) const PLAIN_PAYLOAD: u16 = Self::PLAIN_L4 + 8;
    /// Kind word of a plain frame.
    pub(crate) const PLAIN_KIND: u32 = kind(ETHERTYPE_IPV4, 4, UDP);

    /// Finds the headers of `frame`, which starts with the destination MAC address.
    #[must_use]
    #[inline]
    pub fn parse(frame: &[u8]) -> Self {
        Self::plain_end(frame).map_or_else(|| Self::parse_any(frame), Self::plain)
    }

    /// End of the packet in a plain frame: UDP over IPv4 without tags, options and fragments, like most traffic. All positions are then
    /// constants. `None` for other frames and for plain ones that are cut short.
    #[must_use]
    #[inline]
    pub fn plain_end(frame: &[u8]) -> Option<u32> {
        const LENGTH: usize = Headers::PLAIN_PAYLOAD as usize;
        let head: &[u8; LENGTH] = frame.first_chunk()?;
        let end = u32::from(Self::PLAIN_IP) + u32::from(u16::from_be_bytes([head[16], head[17]]));
        // Compare whole words in memory order, because every frame passes through here.
        let word = |at: usize| head[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        const fn mask(bytes: [u8; 4]) -> u32 {
            u32::from_ne_bytes(bytes)
        }
        // EtherType, IP version and header length.
        let first = word(12)? & mask([0xff, 0xff, 0xff, 0]) == mask([8, 0, 0x45, 0]);
        // Fragment flags and offset, hop limit, protocol.
        let [high, low] = IPV4_FRAGMENT.to_be_bytes();
        let second = word(20)? & mask([high, low, 0, 0xff]) == mask([0, 0, 0, UDP]);
        let plain = first && second;
        (plain && end >= u32::from(Self::PLAIN_PAYLOAD) && end as usize <= frame.len()).then_some(end)
    }

    /// The headers of a [plain](Headers::plain_end) frame whose packet ends at `end`.
    pub(crate) const fn plain(end: u32) -> Self {
        Self {
            ethertype: ETHERTYPE_IPV4,
            tags: 0,
            ip: Some(Self::PLAIN_IP),
            ip_version: 4,
            protocol: UDP,
            l4: Some(Self::PLAIN_L4),
            payload: Some(Self::PLAIN_PAYLOAD),
            end,
            kind: Self::PLAIN_KIND,
        }
    }

    /// [`Headers::parse`] without the case for plain frames.
    pub(crate) fn parse_any(frame: &[u8]) -> Self {
        let (ethertype, tags) = ethertype(frame);
        let end = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let start = ETHERTYPE_AT + 2 + 4 * usize::from(tags);
        let found = match ethertype {
            ETHERTYPE_IPV4 => Packet::ipv4(frame, start),
            ETHERTYPE_IPV6 => Packet::ipv6(frame, start),
            _ => None,
        };
        let Some(packet) = found else {
            return Self { ethertype, tags, end, kind: kind(ethertype, 0, 0), ..Self::default() };
        };
        // Protocol 0 means "L4 absent" in the kind word. RFC 791 gives the number no other use in IPv4.
        let transport = packet.transport.filter(|&(protocol, l4)| protocol != 0 && l4 < packet.end);
        let protocol = transport.map_or(0, |(protocol, _)| protocol);
        Self {
            ethertype,
            tags,
            ip: position(start),
            ip_version: packet.version,
            protocol,
            l4: transport.and_then(|(_, l4)| position(l4)),
            payload: transport.and_then(|(protocol, l4)| payload(&frame[..packet.end], protocol, l4)),
            end: u32::try_from(packet.end).unwrap_or(u32::MAX),
            kind: kind(ethertype, packet.version, protocol),
        }
    }

    /// Word that tests on [`spin_abi::rules::Base::Kind`] read.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> u32 {
        self.kind
    }

    /// Bytes of the packet after its transport header, without Ethernet padding.
    #[must_use]
    pub fn payload_of<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(usize::from(self.payload?)..usize::try_from(self.end).ok()?)
    }
}

/// EtherType, IP version and protocol in the form of [`Headers::kind`].
#[inline]
pub(crate) const fn kind(ethertype: u16, ip_version: u8, protocol: u8) -> u32 {
    (ethertype as u32) << 16 | (ip_version as u32) << 8 | protocol as u32
}

/// Packet properties from the IP header.
struct Packet {
    version: u8,
    /// End of the packet, at most the frame's length.
    end: usize,
    /// Protocol and start of the transport header, not checked against `end`.
    transport: Option<(u8, usize)>,
}

impl Packet {
    #[inline]
    fn ipv4(frame: &[u8], start: usize) -> Option<Self> {
        let header = frame.get(start..start + 20)?;
        let length = 4 * usize::from(header[0] & 0xf);
        let total = usize::from(be16(header, 2)?);
        let whole_header = start + length <= frame.len();
        if header[0] >> 4 != 4 || length < 20 || !whole_header || total < length {
            return None;
        }
        let cut = start + total > frame.len();
        let fragment = be16(header, 6)? & IPV4_FRAGMENT != 0;
        let transport = (!cut && !fragment).then_some((header[9], start + length));
        Some(Self { version: 4, end: frame.len().min(start + total), transport })
    }

    #[inline]
    fn ipv6(frame: &[u8], start: usize) -> Option<Self> {
        let header = frame.get(start..start + 40)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let end = start + 40 + usize::from(be16(header, 4)?);
        let transport = frame.get(..end).and_then(|packet| skip_extensions(packet, header[6], start + 40));
        Some(Self { version: 6, end: end.min(frame.len()), transport })
    }
}

/// Protocol and start of the data behind the extension headers of `packet` (from the frame's start to the packet's end). `None` for
/// fragments, for extension headers cut short, and when there are too many.
fn skip_extensions(packet: &[u8], first: u8, start: usize) -> Option<(u8, usize)> {
    let (mut next, mut at) = (first, start);
    for _ in 0..MAX_IPV6_EXTENSIONS {
        if !is_skipped(next) {
            break;
        }
        let header = packet.get(at..at + 2)?;
        // RFC 8200 §4.3: length in units of eight bytes, not counting the first.
        let length = 8 * (usize::from(header[1]) + 1);
        packet.get(at..at + length)?;
        next = header[0];
        at += length;
    }
    (!is_skipped(next) && next != FRAGMENT).then_some((next, at))
}

fn is_skipped(next: u8) -> bool {
    matches!(next, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS)
}

/// EtherType after the VLAN tags, and the number of tags.
#[inline]
fn ethertype(frame: &[u8]) -> (u16, u8) {
    let mut tags = 0;
    loop {
        let found = be16(frame, ETHERTYPE_AT + 4 * usize::from(tags));
        match found {
            Some(tag) if ETHERTYPES_VLAN.contains(&tag) && usize::from(tags) < MAX_VLAN_TAGS => tags += 1,
            _ => return (found.unwrap_or(0), tags),
        }
    }
}

/// First byte after the transport header at `l4` of `packet`.
#[inline]
fn payload(packet: &[u8], protocol: u8, l4: usize) -> Option<u16> {
    let length = match protocol {
        UDP | ICMP | ICMP6 => 8,
        TCP => 4 * usize::from(packet.get(l4 + 12)? >> 4),
        _ => return None,
    };
    if protocol == TCP && length < 20 {
        return None;
    }
    (l4 + length <= packet.len()).then(|| position(l4 + length)).flatten()
}

/// Converts a position. It fits: the furthest payload starts after 2 tags, 4 extension headers of 2 KiB and 60 bytes of TCP.
#[inline]
fn position(at: usize) -> Option<u16> {
    u16::try_from(at).ok()
}

/// Big-endian half-word at `at`, if it is there.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::{Headers, UDP};

    /// Frame of UDP over IPv4 behind `tags` 802.1Q tags: 8 bytes of header, 4 of payload, then `padding`.
    fn udp4(tags: usize, padding: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for _ in 0..tags {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([8, 0, 0x45, 0, 0, 32, 0, 1, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 9, 0, 10, 0, 12, 0, 0, b'a', b'b', b'c', b'd']);
        frame.resize(frame.len() + padding, 0xee);
        frame
    }

    #[test]
    fn padding_is_no_payload() {
        let frame = udp4(0, 14);
        let headers = Headers::parse(&frame);
        assert_eq!(headers.payload_of(&frame), Some(&b"abcd"[..]));
        assert_eq!((headers.ip, headers.l4, headers.payload, headers.end), (Some(14), Some(34), Some(42), 46));
        assert_eq!(headers.kind(), 0x0800_0411);
    }

    #[test]
    fn plain_frames_are_found_to_be_what_they_are() {
        let (mut plain, mut others) = (0, 0);
        for byte in 12..24 {
            for value in 0..=u8::MAX {
                for padding in [0, 1, 14] {
                    let mut frame = udp4(0, padding);
                    frame[byte] = value;
                    for len in [frame.len(), 46, 45, 42, 41] {
                        let frame = &frame[..len.min(frame.len())];
                        let Some(end) = Headers::plain_end(frame) else {
                            others += 1;
                            continue;
                        };
                        assert_eq!(Headers::plain(end), Headers::parse_any(frame), "{frame:?}");
                        plain += 1;
                    }
                }
            }
        }
        assert!(plain > 100 && others > 100, "{plain} {others}");
    }

    #[test]
    fn two_tags_are_skipped_and_a_third_is_the_ethertype() {
        for (tags, ip) in [(1, Some(18)), (2, Some(22)), (3, None)] {
            let headers = Headers::parse(&udp4(tags, 0));
            assert_eq!(headers.ip, ip, "{tags} tags");
            assert_eq!(usize::from(headers.tags), tags.min(2));
        }
        assert_eq!(Headers::parse(&udp4(3, 0)).ethertype, 0x8100);
    }

    #[test]
    fn a_cut_packet_has_an_ip_header_but_no_transport() {
        let frame = udp4(0, 0);
        let headers = Headers::parse(&frame[..45]);
        assert_eq!((headers.ip, headers.l4, headers.protocol, headers.end), (Some(14), None, 0, 45));
        assert_eq!(headers.kind(), 0x0800_0400);
    }

    #[test]
    fn a_fragment_has_no_transport_and_dont_fragment_is_no_fragment() {
        for (flags, l4) in [(0x4000_u16, Some(34)), (0x2000, None), (0x0001, None), (0x8000, Some(34))] {
            let mut frame = udp4(0, 0);
            frame[20..22].copy_from_slice(&flags.to_be_bytes());
            assert_eq!(Headers::parse(&frame).l4, l4, "{flags:#x}");
        }
    }

    #[test]
    fn a_frame_that_ends_in_a_tag_has_ethertype_zero() {
        let frame = udp4(1, 0);
        for cut in 14..18 {
            let headers = Headers::parse(&frame[..cut]);
            assert_eq!((headers.ethertype, headers.tags, headers.end), (0, 1, u32::try_from(cut).unwrap()));
        }
        assert_eq!(Headers::parse(&frame[..18]).ethertype, 0x0800);
        assert_eq!(Headers::parse(&frame[..13]).ethertype, 0);
    }

    #[test]
    fn extension_headers_are_skipped_up_to_the_limit() {
        for (count, l4) in [(0_usize, true), (1, true), (4, true), (5, false)] {
            let mut frame = vec![0; 12];
            let length = u16::try_from(8 * count + 8).unwrap();
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([if count == 0 { UDP } else { 60 }, 64]);
            frame.extend([0; 32]);
            for left in (0..count).rev() {
                frame.extend([if left == 0 { UDP } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
            }
            frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
            let headers = Headers::parse(&frame);
            let expected = l4.then(|| u16::try_from(54 + 8 * count).unwrap());
            assert_eq!(headers.l4, expected, "{count} extension headers");
            assert_eq!(headers.payload, expected.map(|at| at + 8));
        }
    }
}
