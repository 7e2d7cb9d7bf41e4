//! Which message a frame belongs to: the bytes that name it.
//!
//! A [`KeySpec`] is the *flow*, some byte ranges, or both. Flow means, each in the order of the packet:
//! * VLAN ids, so that equal addresses in two networks stay apart;
//! * IP with a transport header: addresses, protocol, and the ports of TCP, UDP, DCCP, SCTP and UDP-Lite, or the
//!   identifier of an ICMP or ICMPv6 echo;
//! * IP without (a fragment, a packet cut short): addresses, the header's protocol field and, of IPv4, the
//!   identification, so that the fragments of one datagram are one message;
//! * anything else: MAC addresses and EtherType.
//!
//! Bytes of a range that are outside the packet are left out, and the range's length is part of the key: a short
//! packet never shares a message with one that has zeroes there.

use spin_abi::rules::Base;

use crate::evaluate::extent;
use crate::headers::{Headers, ICMP, ICMP6, TCP, UDP, be16};
use crate::rule::MAX_OFFSET;

/// Most bytes in a key.
const CAPACITY: usize = 47;
/// Longest flow: its shape, two VLAN ids, two IPv6 addresses, protocol, ports.
const LONGEST_FLOW: usize = 1 + 4 + 32 + 1 + 4;

/// What names a message. Equal keys have equal bytes; unused bytes are zero.
///
/// A key names a message among those of its context, not beyond.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageKey {
    bytes: [u8; CAPACITY],
    length: u8,
}

impl MessageKey {
    /// The bytes, at most 47.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The same 32 bits for the same key on every machine and in every version of the same key format. Spreads flows
    /// over clusters and queues; not a defence against senders who choose colliding flows.
    #[must_use]
    #[inline]
    pub fn hash(&self) -> u32 {
        // The multiplier is FxHash's, the finish MurmurHash3's fmix64: every key bit reaches every hash bit.
        let mut hash = u64::from(self.length);
        for chunk in self.bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        (hash ^ hash >> 33) as u32
    }

    /// Appends `bytes`, which [`KeySpec::new`] has made room for. The length is known to the compiler: one move.
    fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some(room) = self.bytes.get_mut(usize::from(self.length)..).and_then(<[u8]>::first_chunk_mut) {
            *room = bytes;
            self.length += N as u8;
        }
    }

    /// Appends a range of any length, which there is room for as well.
    fn push_range(&mut self, bytes: &[u8]) {
        self.push([bytes.len() as u8]);
        let start = usize::from(self.length);
        if let Some(room) = self.bytes.get_mut(start..start + bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len() as u8;
        }
    }
}

impl core::fmt::Debug for MessageKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "MessageKey({:02x?})", self.as_bytes())
    }
}

/// Bytes of a packet that are part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBytes {
    /// What `offset` counts from; not [`Base::Kind`].
    pub base: Base,
    /// First byte.
    pub offset: u16,
    /// How many, at least 1.
    pub length: u8,
}

/// Which bytes name a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    flow: bool,
    parts: Vec<KeyBytes>,
}

/// Why a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither flow nor bytes.
    #[error("the key is empty: without a key all frames would be one message")]
    Empty,
    /// A part without bytes.
    #[error("a part of the key has no bytes")]
    EmptyPart,
    /// Too many bytes.
    #[error("the key needs {needed} bytes, at most {room} fit (each range counts one more than its length)")]
    TooLong {
        /// Bytes asked for, besides the flow.
        needed: usize,
        /// Bytes left for them.
        room: usize,
    },
    /// [`Base::Kind`] has no bytes, and offsets end at [`MAX_OFFSET`].
    #[error("a part of the key lies outside any frame")]
    Outside,
}

impl Default for KeySpec {
    /// The whole flow.
    fn default() -> Self {
        Self { flow: true, parts: Vec::new() }
    }
}

impl KeySpec {
    /// The flow if `flow`, then `parts`.
    ///
    /// # Errors
    /// When the longest key would not fit a [`MessageKey`], or there is nothing in it.
    pub fn new(flow: bool, parts: Vec<KeyBytes>) -> Result<Self, KeyError> {
        let needed = parts.iter().map(|part| 1 + usize::from(part.length)).sum();
        let room = if flow { CAPACITY - LONGEST_FLOW } else { CAPACITY };
        if !flow && parts.is_empty() {
            return Err(KeyError::Empty);
        }
        if parts.iter().any(|part| part.length == 0) {
            return Err(KeyError::EmptyPart);
        }
        if parts.iter().any(|part| part.base == Base::Kind || part.offset > MAX_OFFSET) {
            return Err(KeyError::Outside);
        }
        if needed > room { Err(KeyError::TooLong { needed, room }) } else { Ok(Self { flow, parts }) }
    }

    /// Whether the flow is part of the key.
    #[must_use]
    pub const fn flow(&self) -> bool {
        self.flow
    }

    /// The bytes besides the flow.
    #[must_use]
    pub fn parts(&self) -> &[KeyBytes] {
        &self.parts
    }

    /// The key of `frame`, whose headers are `headers`. Every frame has one.
    #[must_use]
    #[inline]
    pub fn extract(&self, frame: &[u8], headers: &Headers) -> MessageKey {
        let mut key = MessageKey { bytes: [0; CAPACITY], length: 0 };
        if self.flow {
            push_flow(&mut key, frame, headers);
        }
        for part in &self.parts {
            key.push_range(part.bytes(frame, headers));
        }
        key
    }
}

impl KeyBytes {
    /// Those of its bytes that the packet has.
    fn bytes<'a>(&self, frame: &'a [u8], headers: &Headers) -> &'a [u8] {
        let Some((position, limit)) = extent(self.base, frame, headers) else { return &[] };
        let start = usize::try_from(position).unwrap_or(usize::MAX).saturating_add(self.offset.into()).min(limit);
        let end = start.saturating_add(self.length.into()).min(limit);
        &frame[start..end]
    }
}

/// The part of a flow that follows the protocol. Its length and the IP version's follow from the shape byte, so no two
/// flows have the same bytes.
enum Tail {
    None,
    Ports([u8; 4]),
    EchoId([u8; 2]),
    Identification([u8; 2]),
}

/// Appends shape, VLAN ids, addresses, protocol and tail.
fn push_flow(key: &mut MessageKey, frame: &[u8], headers: &Headers) {
    let ip = ip_header(frame, headers);
    let tail = ip.map_or(Tail::None, |ip| tail(frame, headers, ip));
    let tail_shape = match tail {
        Tail::None => 0,
        Tail::Ports(_) => 1,
        Tail::EchoId(_) => 2,
        Tail::Identification(_) => 3,
    };
    key.push([headers.ip_version | headers.tags << 3 | tail_shape << 5]);
    for tag in 0..usize::from(headers.tags) {
        // The id without priority and drop-eligibility (802.1Q §9.6).
        key.push((be16(frame, 14 + 4 * tag).unwrap_or(0) & 0x0fff).to_be_bytes());
    }
    match ip {
        Some(ip) if headers.ip_version == 4 => {
            key.push::<8>(part(ip, 12));
            key.push([if headers.l4.is_some() { headers.protocol } else { ip[9] }]);
        }
        Some(ip) => {
            key.push::<32>(part(ip, 8));
            key.push([if headers.l4.is_some() { headers.protocol } else { ip[6] }]);
        }
        None => {
            key.push(mac_addresses(frame));
            key.push(headers.ethertype.to_be_bytes());
        }
    }
    match tail {
        Tail::None => {}
        Tail::Ports(ports) => key.push(ports),
        Tail::EchoId(id) | Tail::Identification(id) => key.push(id),
    }
}

/// The frame from its IP header on, at least as long as the fixed part of that.
fn ip_header<'a>(frame: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    let least = if headers.ip_version == 4 { 20 } else { 40 };
    frame.get(usize::from(headers.ip?)..).filter(|ip| ip.len() >= least)
}

fn tail(frame: &[u8], headers: &Headers, ip: &[u8]) -> Tail {
    let Some(l4) = headers.l4 else {
        return if headers.ip_version == 4 { Tail::Identification([ip[4], ip[5]]) } else { Tail::None };
    };
    let end = usize::try_from(headers.end).unwrap_or(usize::MAX).min(frame.len());
    let bytes = frame.get(usize::from(l4)..end).unwrap_or(&[]);
    match (headers.protocol, bytes) {
        (TCP | UDP | DCCP | SCTP | UDP_LITE, &[a, b, c, d, ..]) => Tail::Ports([a, b, c, d]),
        // Types of echo and echo reply: RFC 792, RFC 4443 §4.
        (ICMP, &[0 | 8, _, _, _, a, b, ..]) | (ICMP6, &[128 | 129, _, _, _, a, b, ..]) => Tail::EchoId([a, b]),
        _ => Tail::None,
    }
}

/// Protocols that begin with two ports like UDP (RFC 4340 §5.1, RFC 9260 §3.1, RFC 3828 §3).
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Destination and source; a frame too short for them reads as padded with zeroes.
fn mac_addresses(frame: &[u8]) -> [u8; 12] {
    let mut addresses = [0; 12];
    let there = frame.len().min(12);
    addresses[..there].copy_from_slice(&frame[..there]);
    addresses
}

/// `N` bytes of a header that is known to have them.
fn part<const N: usize>(header: &[u8], start: usize) -> [u8; N] {
    header.get(start..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::{KeySpec, MessageKey};
    use crate::headers::Headers;

    fn key(spec: &str, frame: &[u8]) -> MessageKey {
        let spec: KeySpec = spec.parse().expect("a key");
        spec.extract(frame, &Headers::parse(frame))
    }

    /// IPv4 with `protocol`, identification 0x1234 and `l4`.
    fn ipv4(protocol: u8, flags: u16, l4: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend(u16::try_from(20 + l4.len()).unwrap().to_be_bytes());
        frame.extend([0x12, 0x34]);
        frame.extend(flags.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(l4);
        frame
    }

    const UDP: [u8; 12] = [0, 7, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4];

    #[test]
    fn the_flow_is_addresses_protocol_and_ports() {
        let expected = [4 | 1 << 5, 10, 0, 0, 1, 10, 0, 0, 2, 17, 0, 7, 0, 9];
        assert_eq!(key("flow", &ipv4(17, 0, &UDP)).as_bytes(), expected);
    }

    #[test]
    fn an_echo_is_named_by_its_id_and_a_fragment_by_its_identification() {
        let echo = ipv4(1, 0, &[8, 0, 0, 0, 0xab, 0xcd, 0, 1]);
        assert_eq!(key("flow", &echo).as_bytes(), [4 | 2 << 5, 10, 0, 0, 1, 10, 0, 0, 2, 1, 0xab, 0xcd]);
        let fragment = ipv4(17, 0x2000, &UDP);
        assert_eq!(key("flow", &fragment).as_bytes(), [4 | 3 << 5, 10, 0, 0, 1, 10, 0, 0, 2, 17, 0x12, 0x34]);
    }

    #[test]
    fn other_frames_are_named_by_their_ethernet_header() {
        let arp = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6, 1, 1];
        assert_eq!(key("flow", &arp).as_bytes(), [0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6]);
        assert_eq!(key("flow", &[]).as_bytes(), [0; 15]);
    }

    #[test]
    fn vlan_ids_are_part_of_the_flow_and_priorities_are_not() {
        let tagged = |tci: [u8; 2]| {
            let mut frame = ipv4(17, 0, &UDP);
            frame.splice(12..12, [0x81, 0].into_iter().chain(tci));
            key("flow", &frame)
        };
        assert_ne!(tagged([0, 1]), tagged([0, 2]));
        assert_eq!(tagged([0, 1]), tagged([0xe0, 1]));
    }

    #[test]
    fn ranges_follow_the_flow_and_a_short_packet_is_another_message() {
        let frame = ipv4(17, 0, &UDP);
        let (flow, with) = (key("flow", &frame), key("flow + payload[2:4]", &frame));
        assert_eq!(with.as_bytes(), [flow.as_bytes(), &[2, 3, 4]].concat());
        let mut longer = UDP.to_vec();
        longer.extend([0, 0]);
        assert_ne!(key("payload[2:4]", &ipv4(17, 0, &longer)), key("payload[2:4]", &frame));
        assert_eq!(key("payload[9:4], frame[0:1]", &frame).as_bytes(), [0, 1, 2]);
    }

    #[test]
    fn the_longest_flow_and_four_bytes_fit() {
        let mut frame = vec![0xff; 12];
        frame.extend([0x88, 0xa8, 0xff, 0xff, 0x81, 0, 0xff, 0xff, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64]);
        frame.extend([0xff; 32 + 12]);
        let key = key("flow + payload[0:4]", &frame);
        assert_eq!(key.as_bytes().len(), 47);
        assert_eq!(key.as_bytes()[42..], [4, 0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn the_hash_is_stable_and_spreads() {
        assert_eq!(key("flow", &ipv4(17, 0, &UDP)).hash(), 3_775_022_872);
        let mut buckets = [0_u32; 16];
        for port in 0..1600_u16 {
            let mut udp = UDP;
            udp[..2].copy_from_slice(&port.to_be_bytes());
            buckets[key("flow", &ipv4(17, 0, &udp)).hash() as usize % 16] += 1;
        }
        assert!(buckets.iter().all(|count| (60..140).contains(count)), "{buckets:?}");
    }
}
