//! Message keys: the bytes that identify a frame's message.
//!
//! A [`KeySpec`] is the *flow*, some byte ranges, or both, or FPsPIN's number of the message. The flow consists of these bytes, in the
//! order of the packet:
//! * VLAN ids, so that equal addresses in two networks stay apart;
//! * IP with a transport header: addresses, protocol, and the ports of TCP, UDP, DCCP, SCTP and UDP-Lite, or the identifier of an ICMP or
//!   ICMPv6 echo;
//! * IP without one (a fragment, a packet cut short): addresses, the header's protocol field and, for IPv4, the identification, so that
//!   the fragments of one datagram are one message;
//! * anything else: MAC addresses and EtherType.
//!
//! Bytes of a range that are outside the packet are left out, and the range's length is part of the key. A short packet therefore never
//! shares a message with a packet that has zeroes there.

use spin_abi::rules::Base;

use crate::evaluate::extent;
use crate::headers::{Headers, ICMP, ICMP6, TCP, UDP, be16};
use crate::message_queue::message_queue;
use crate::rule::MAX_OFFSET;

/// Maximum number of bytes in a key.
const CAPACITY: usize = 47;
/// Number of words in a key: its bytes, followed by their number.
const WORDS: usize = (CAPACITY + 1) / 8;
/// Length of the longest flow: its shape, two VLAN ids, two IPv6 addresses, protocol, ports.
const LONGEST_FLOW: usize = 1 + 4 + 32 + 1 + 4;

/// Identifies a message within its context. Equal keys have equal bytes.
///
/// Keys of different contexts may be equal.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MessageKey {
    /// The bytes in memory order, then zeroes. The highest byte of the last word is the number of bytes. Words let a key be built, hashed
    /// and compared within a few instructions.
    words: [u64; WORDS],
}

impl MessageKey {
    /// Bytes of the key, at most 47.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.length());
        bytes
    }

    /// Whether the keys are equal. For hot paths: it compiles to a few instructions instead of a call.
    #[must_use]
    #[inline]
    pub const fn is(&self, other: &Self) -> bool {
        let ([a, b, c, d, e, f], [u, v, w, x, y, z]) = (self.words, other.words);
        // The last words contain the lengths. If these are equal and at most 16, the words between are zero in both keys.
        let begin_alike = (a ^ u) | (b ^ v) | (f ^ z) == 0;
        begin_alike && (self.length() <= 16 || (c ^ w) | (d ^ x) | (e ^ y) == 0)
    }

    /// The first 16 bytes with the key's length, and the words behind them. `None` for keys of up to 16 bytes.
    #[must_use]
    #[inline]
    pub const fn split(&self) -> (([u64; 2], u8), Option<[u64; 4]>) {
        let [a, b, rest @ ..] = self.words;
        let length = self.length();
        #[allow(clippy::cast_possible_truncation, reason = "it is one byte")]
        let first = ([a, b], length as u8);
        (first, if Self::goes_on(first.1) { Some(rest) } else { None })
    }

    /// Whether a key of this length has bytes behind its [first](MessageKey::split) 16.
    #[must_use]
    #[inline]
    pub const fn goes_on(length: u8) -> bool {
        length > 16
    }

    /// Reassembles a [split](MessageKey::split) key. Calls `rest` only if the key has further bytes.
    #[must_use]
    #[inline]
    pub fn join(([a, b], length): ([u64; 2], u8), rest: impl FnOnce() -> [u64; 4]) -> Self {
        let [c, d, e, f] = if Self::goes_on(length) { rest() } else { [0, 0, 0, u64::from(length) << 56] };
        Self { words: [a, b, c, d, e, f] }
    }

    const fn length(&self) -> usize {
        (self.words[WORDS - 1] >> 56) as usize
    }

    /// First byte, which is the whole key for [`KeySpec::fpspin`].
    #[must_use]
    pub const fn first_byte(&self) -> u8 {
        self.words[0] as u8
    }

    /// Hash of 32 bits, equal on every machine and in every version with the same key format. It spreads flows over clusters and queues.
    /// [`MessageKey::hash_with`] is the defence against senders who choose colliding flows.
    #[must_use]
    #[inline]
    pub fn hash(&self) -> u32 {
        (self.hash_with(HashSeed::new(0)) >> 32) as u32
    }

    /// Seeded hash. Senders who do not know `seed` cannot tell which keys collide.
    #[must_use]
    #[inline]
    pub const fn hash_with(&self, HashSeed([low_seed, high_seed]): HashSeed) -> u64 {
        let [a, b, c, d, e, f] = self.words;
        let mut hash = fold(a ^ low_seed ^ f >> 56, b ^ high_seed);
        // Words behind the last byte are zero in equal keys, so they are left out.
        if self.length() > 16 {
            hash = fold(c ^ hash, d ^ high_seed);
        }
        if self.length() > 32 {
            hash = fold(e ^ hash, f ^ high_seed);
        }
        // Fold twice: in a single product, the lower bits would depend little on the lower bits of the factors.
        fold(hash, 0x8ebc_6af0_9c88_c6e3)
    }

    /// Key of a flow of TCP or UDP over untagged IPv4, the most common case. `None` for other flows.
    #[inline]
    fn common_flow(frame: &[u8], headers: &Headers) -> Option<Self> {
        let Headers { tags: 0, ip_version: 4, protocol: TCP | UDP, ip: Some(ip), l4: Some(l4), .. } = *headers else {
            return None;
        };
        let (addresses, ports) = (chunk::<8>(frame, usize::from(ip) + 12)?, chunk::<4>(frame, l4.into())?);
        if u32::from(l4) + 4 > headers.end {
            return None;
        }
        Some(Self { words: common_flow(addresses, headers.protocol, ports) })
    }

    /// Key of the flow of a [plain](Headers::plain_end) frame.
    #[inline(always)]
    pub(crate) fn plain_flow(frame: &[u8]) -> Option<Self> {
        const ADDRESSES: usize = Headers::PLAIN_IP as usize + 12;
        let (addresses, ports) = (chunk(frame, ADDRESSES)?, chunk(frame, Headers::PLAIN_L4.into())?);
        Some(Self { words: common_flow(addresses, UDP, ports) })
    }
}

/// Words of the key for a flow of TCP or UDP over untagged IPv4. [`push_flow`] defines the bytes.
#[inline]
const fn common_flow(addresses: [u8; 8], protocol: u8, ports: [u8; 4]) -> [u64; WORDS] {
    let (addresses, ports) = (u64::from_le_bytes(addresses), u32::from_le_bytes(ports));
    let shape = 4 | 1 << 5;
    let first = shape | addresses << 8;
    let second = addresses >> 56 | (protocol as u64) << 8 | (ports as u64) << 16;
    [first, second, 0, 0, 0, 14 << 56]
}

/// Secret of [`MessageKey::hash_with`]. It is part of both factors of each product: senders who could make one factor zero could make all
/// keys collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed([u64; 2]);

impl HashSeed {
    /// Seeds derived from `seed`. The constants are wyhash's.
    #[must_use]
    #[inline]
    pub const fn new(seed: u64) -> Self {
        Self([seed ^ 0xa076_1d64_78bd_642f, seed.rotate_left(32) ^ 0xe703_7ed1_a0b4_28db])
    }

    /// Derives a different seed for each `number`.
    #[must_use]
    #[inline]
    pub const fn of(self, number: u32) -> Self {
        let Self([low, high]) = self;
        Self([low ^ number as u64, high])
    }
}

/// wyhash's step (Wang Yi, public domain): both halves of a product depend on all bits.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl core::fmt::Debug for MessageKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "MessageKey({:02x?})", self.to_vec())
    }
}

/// A key under construction.
struct Builder {
    /// Bytes in the layout of a [`MessageKey`].
    bytes: [u8; CAPACITY + 1],
}

impl Builder {
    const fn length(&self) -> usize {
        self.bytes[CAPACITY] as usize
    }

    /// Appends `bytes`, for which [`KeySpec::new`] has checked the room. The compiler knows the length: one move.
    #[inline]
    fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        let length = self.length();
        if let Some(room) = self.bytes[..CAPACITY].get_mut(length..).and_then(<[u8]>::first_chunk_mut) {
            *room = bytes;
            self.bytes[CAPACITY] += N as u8;
        }
    }

    /// Appends a range of any length, for which [`KeySpec::new`] has checked the room.
    fn push_range(&mut self, bytes: &[u8]) {
        self.push([bytes.len() as u8]);
        let start = self.length();
        if let Some(room) = self.bytes[..CAPACITY].get_mut(start..start + bytes.len()) {
            room.copy_from_slice(bytes);
            self.bytes[CAPACITY] += bytes.len() as u8;
        }
    }

    fn key(&self) -> MessageKey {
        let mut key = MessageKey::default();
        for (word, bytes) in key.words.iter_mut().zip(self.bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        key
    }
}

/// Bytes of a packet that are part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBytes {
    /// Origin of `offset`. Not [`Base::Kind`].
    pub base: Base,
    /// Offset of the first byte.
    pub offset: u16,
    /// Number of bytes, at least 1.
    pub length: u8,
}

/// Specification of the bytes in a message key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    flow: bool,
    parts: Vec<KeyBytes>,
    /// FPsPIN's [`message_queue`] is the key, without flow or bytes.
    fpspin: bool,
}

/// Reason why a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither flow nor bytes.
    #[error("the key is empty: without a key all frames would be one message")]
    Empty,
    /// Range without bytes.
    #[error("a part of the key has no bytes")]
    EmptyPart,
    /// Too many bytes.
    #[error("the key needs {needed} bytes, at most {room} fit (each range counts one more than its length)")]
    TooLong {
        /// Number of bytes requested besides the flow.
        needed: usize,
        /// Number of bytes left for them.
        room: usize,
    },
    /// [`Base::Kind`], which has no bytes, or an offset above [`MAX_OFFSET`].
    #[error("a part of the key lies outside any frame")]
    Outside,
}

impl Default for KeySpec {
    /// The whole flow.
    fn default() -> Self {
        Self { flow: true, parts: Vec::new(), fpspin: false }
    }
}

impl KeySpec {
    /// The flow if `flow`, then `parts`.
    ///
    /// # Errors
    /// When the longest key would not fit a [`MessageKey`], or the key would be empty.
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
        if needed > room { Err(KeyError::TooLong { needed, room }) } else { Ok(Self { flow, parts, fpspin: false }) }
    }

    /// FPsPIN's message number, one byte: [`message_queue`].
    #[must_use]
    pub const fn fpspin() -> Self {
        Self { flow: false, parts: Vec::new(), fpspin: true }
    }

    /// Whether it is [`KeySpec::fpspin`].
    #[must_use]
    #[inline]
    pub const fn is_fpspin(&self) -> bool {
        self.fpspin
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
        if self.flow
            && self.parts.is_empty()
            && let Some(key) = MessageKey::common_flow(frame, headers)
        {
            return key;
        }
        self.build(frame, headers)
    }

    /// [`KeySpec::extract`] for any frame, without the case for plain ones.
    #[inline(never)]
    pub(crate) fn build(&self, frame: &[u8], headers: &Headers) -> MessageKey {
        let mut key = Builder { bytes: [0; CAPACITY + 1] };
        if self.flow {
            push_flow(&mut key, frame, headers);
        }
        if self.fpspin {
            key.push([message_queue(frame)]);
        }
        for part in &self.parts {
            key.push_range(part.bytes(frame, headers));
        }
        key.key()
    }
}

impl KeyBytes {
    /// Bytes of the range that the packet contains.
    fn bytes<'a>(&self, frame: &'a [u8], headers: &Headers) -> &'a [u8] {
        let Some((position, limit)) = extent(self.base, frame, headers) else { return &[] };
        let start = usize::try_from(position).unwrap_or(usize::MAX).saturating_add(self.offset.into()).min(limit);
        let end = start.saturating_add(self.length.into()).min(limit);
        &frame[start..end]
    }
}

/// Part of a flow behind the protocol. The shape byte determines its length and the IP version, so no two flows have the same bytes.
enum Tail {
    None,
    Ports([u8; 4]),
    EchoId([u8; 2]),
    Identification([u8; 2]),
}

/// Appends shape, VLAN ids, addresses, protocol and tail.
fn push_flow(key: &mut Builder, frame: &[u8], headers: &Headers) {
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
        // VLAN id without priority and drop-eligibility (802.1Q §9.6).
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

/// Bytes of the frame from its IP header on, at least as many as the fixed part of the header.
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

/// DCCP, SCTP and UDP-Lite begin with two ports like UDP (RFC 4340 §5.1, RFC 9260 §3.1, RFC 3828 §3).
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Destination and source address. A frame that is too short reads as padded with zeroes.
fn mac_addresses(frame: &[u8]) -> [u8; 12] {
    let mut addresses = [0; 12];
    let there = frame.len().min(12);
    addresses[..there].copy_from_slice(&frame[..there]);
    addresses
}

/// `N` bytes of a frame, if it has them.
#[inline]
fn chunk<const N: usize>(frame: &[u8], start: usize) -> Option<[u8; N]> {
    frame.get(start..)?.first_chunk().copied()
}

/// `N` bytes of a header that is known to have them.
fn part<const N: usize>(header: &[u8], start: usize) -> [u8; N] {
    chunk(header, start).unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{HashSeed, KeySpec, MessageKey};
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
        assert_eq!(key("flow", &ipv4(17, 0, &UDP)).to_vec(), expected);
    }

    #[test]
    fn the_common_flow_is_the_flow() {
        let mut checked = 0;
        for protocol in [6, 17, 1] {
            for flags in [0, 0x2000] {
                for len in 0..24_u8 {
                    let frame = ipv4(protocol, flags, &(1..=len).collect::<Vec<_>>());
                    for cut in 0..3 {
                        let frame = &frame[..frame.len() - cut.min(frame.len())];
                        let headers = Headers::parse(frame);
                        if let Some(common) = MessageKey::common_flow(frame, &headers) {
                            assert_eq!(common, KeySpec::default().build(frame, &headers), "{frame:?}");
                            checked += 1;
                        }
                    }
                }
            }
        }
        assert!(checked > 30, "{checked}");
    }

    #[test]
    fn an_echo_is_named_by_its_id_and_a_fragment_by_its_identification() {
        let echo = ipv4(1, 0, &[8, 0, 0, 0, 0xab, 0xcd, 0, 1]);
        assert_eq!(key("flow", &echo).to_vec(), [4 | 2 << 5, 10, 0, 0, 1, 10, 0, 0, 2, 1, 0xab, 0xcd]);
        let fragment = ipv4(17, 0x2000, &UDP);
        assert_eq!(key("flow", &fragment).to_vec(), [4 | 3 << 5, 10, 0, 0, 1, 10, 0, 0, 2, 17, 0x12, 0x34]);
    }

    #[test]
    fn other_frames_are_named_by_their_ethernet_header() {
        let arp = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6, 1, 1];
        assert_eq!(key("flow", &arp).to_vec(), [0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6]);
        assert_eq!(key("flow", &[]).to_vec(), [0; 15]);
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
        assert_eq!(with.to_vec(), [flow.to_vec(), vec![2, 3, 4]].concat());
        let mut longer = UDP.to_vec();
        longer.extend([0, 0]);
        assert_ne!(key("payload[2:4]", &ipv4(17, 0, &longer)), key("payload[2:4]", &frame));
        assert_eq!(key("payload[9:4], frame[0:1]", &frame).to_vec(), [0, 1, 2]);
    }

    #[test]
    fn the_longest_flow_and_four_bytes_fit() {
        let mut frame = vec![0xff; 12];
        frame.extend([0x88, 0xa8, 0xff, 0xff, 0x81, 0, 0xff, 0xff, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64]);
        frame.extend([0xff; 32 + 12]);
        let key = key("flow + payload[0:4]", &frame);
        assert_eq!(key.to_vec().len(), 47);
        assert_eq!(key.to_vec()[42..], [4, 0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn keys_are_the_same_when_all_their_bytes_are() {
        for length in [1, 8, 15, 16, 17, 30, 31, 44] {
            let bytes: Vec<u8> = (1..=length).collect();
            let spec = format!("frame[0:{length}]");
            let whole = key(&spec, &bytes);
            assert!(whole.is(&key(&spec, &bytes)));
            assert!(!whole.is(&key(&spec, &bytes[1..])), "{length}: a shorter one");
            for changed in 0..bytes.len() {
                let mut other = bytes.clone();
                other[changed] ^= 0x80;
                assert!(!whole.is(&key(&spec, &other)), "byte {changed} of {length}");
            }
        }
    }

    #[test]
    fn keys_are_joined_as_they_were_split() {
        for length in 1..=44_u8 {
            let bytes: Vec<u8> = (1..=length).map(|byte| byte ^ 0x5a).collect();
            let whole = key(&format!("frame[0:{length}]"), &bytes);
            let (first, rest) = whole.split();
            let joined = MessageKey::join(first, || rest.expect("one that is asked for"));
            assert_eq!((joined, rest.is_some()), (whole, whole.to_vec().len() > 16));
        }
    }

    #[test]
    fn who_does_not_know_the_seed_cannot_make_factors_zero() {
        // Constant that is combined with the second word. A product with zero would be zero for every first word.
        let second = 0xe703_7ed1_a0b4_28db_u64.to_le_bytes();
        let hashes = |seed| {
            let bytes = |first: u8| [[first; 7].as_slice(), &second].concat();
            (0..=u8::MAX)
                .map(|first| key("frame[0:15]", &bytes(first)).hash_with(HashSeed::new(seed)))
                .collect::<HashSet<_>>()
                .len()
        };
        assert_eq!(hashes(0x0123_4567_89ab_cdef), 256);
        assert_eq!(hashes(0), 1, "else the test does not do what it says");
    }

    #[test]
    fn the_hash_is_stable_and_spreads() {
        assert_eq!(key("flow", &ipv4(17, 0, &UDP)).hash(), 3_268_787_836);
        let mut buckets = [0_u32; 16];
        for port in 0..1600_u16 {
            let mut udp = UDP;
            udp[..2].copy_from_slice(&port.to_be_bytes());
            buckets[key("flow", &ipv4(17, 0, &udp)).hash() as usize % 16] += 1;
        }
        assert!(buckets.iter().all(|count| (60..140).contains(count)), "{buckets:?}");
    }
}
