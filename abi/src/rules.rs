//! Compiled matching rules, which the XDP program and the matcher evaluate alike: one flat list of tests, and exact keys.
//!
//! A frame is *matched* when a rule of the list holds, or when it has one of the keys. It goes to the [`Target`] of one of them.
//!
//! # Evaluation
//! A table is a list of [`Test`]s. Consecutive tests up to one flagged [`END_OF_RULE`] form a *rule*, which holds when
//! all its tests hold. An empty table matches nothing.
//!
//! # A test
//! The four bytes at `position(base) + offset` are read as one big-endian word (little-endian with [`LITTLE_ENDIAN`]).
//! The test holds when `min <= word & mask <= max`, unsigned. A test whose base is absent, or whose four bytes are not
//! all within `[0, limit(base))` of the frame, does not hold. With [`ZERO_BEYOND`] bytes outside are read as zero
//! instead (FPsPIN's RTL), and only an absent base fails.
//!
//! # Positions
//! Both evaluators derive the positions from the frame's bytes alone, in the same way:
//! * [`Base::Frame`]: 0; limit: the frame's length.
//! * VLAN: the EtherType is the big-endian half-word at 12. While it is 0x8100 or 0x88a8, and at most [`MAX_VLAN_TAGS`]
//!   times, the next four bytes are skipped. The network header starts after the EtherType. If the frame ends before
//!   it, the EtherType is 0.
//! * [`Base::Ip`], IPv4 (EtherType 0x0800): present when 20 bytes are there, version is 4, `ihl >= 5`, the header fits
//!   the frame and `total_length >= 4 * ihl`. The packet's end is `min(frame length, start + total_length)`.
//! * [`Base::Ip`], IPv6 (0x86dd): present when 40 bytes are there and version is 6. The packet's end is
//!   `min(frame length, start + 40 + payload_length)`.
//! * [`Base::L4`]: present when the packet is neither a fragment (IPv4: MF or offset set; IPv6: a fragment header) nor
//!   cut short by the frame's end, and at least one byte of the packet follows the IP header. A fragment's ports say
//!   nothing about the other fragments, which only the kernel can reassemble. At most [`MAX_IPV6_EXTENSIONS`] IPv6
//!   headers of the kinds hop-by-hop (0), routing (43) and destination-options (60) are skipped. With one more, or when
//!   one is cut short or ends the packet, L4 is absent. The *protocol* is the IPv4 protocol or the last next-header
//!   field, 0 when L4 is absent (so IPv4 protocol 0 leaves L4 absent).
//! * [`Base::Payload`]: L4 + 8 for UDP (17), ICMP (1), ICMPv6 (58). L4 + 4 * data offset (>= 5) for TCP (6). Present
//!   when that is at or before the packet's end. Absent for other protocols.
//! * Limit of Ip, L4 and Payload: the packet's end, so Ethernet padding is never taken for payload.
//! * [`Base::Kind`]: no bytes; the word is `ethertype << 16 | ip version << 8 | protocol` (version 0 when Ip is
//!   absent), whatever the offset.
//!
//! # Exact keys
//! Most rules name a protocol, a destination port and perhaps a destination address. They become [`ExactKey`]s, which are
//! looked up by hash: their number adds nothing to the cost of a frame. A frame of TCP or UDP whose first four L4 bytes
//! are present has two keys: one with its destination address, and one with [`ExactKey::ANY_ADDRESS`].
//!
//! # Targets
//! A frame's key is the one with any address, if the set has it, unless the set has the other one too and the first is marked
//! [`KeyRule::has_narrower`]. A frame without a key goes to the target of the first rule of the list that holds. A frame with a key goes
//! to the target of the first rule that holds among the first [`KeyRule::tests_before`] tests, and to the key's target if there is none.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Maximum number of tests in a table: the XDP program's loop bound.
pub const MAX_TESTS: usize = 512;
/// Maximum number of keys: the size of the XDP program's hash map.
pub const MAX_KEYS: usize = 16_384;
/// Maximum number of programs: the size of the XDP program's map of them.
pub const MAX_PROGRAMS: u32 = 2048;
/// Maximum number of VLAN tags skipped (802.1ad: an outer and an inner one).
pub const MAX_VLAN_TAGS: usize = 2;
/// Maximum number of IPv6 extension headers skipped.
pub const MAX_IPV6_EXTENSIONS: usize = 4;

/// Flag in [`Test::flags`]: the last test of its rule.
pub const END_OF_RULE: u8 = 1;
/// Flag in [`Test::flags`]: the word is read little-endian.
pub const LITTLE_ENDIAN: u8 = 2;
/// Flag in [`Test::flags`]: bytes outside the limit read as zero.
pub const ZERO_BEYOND: u8 = 4;

/// Origin of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Base {
    /// The first byte of the Ethernet header.
    Frame = 0,
    /// The first byte of the IPv4 or IPv6 header.
    Ip = 1,
    /// The first byte of the transport header.
    L4 = 2,
    /// The first byte after the transport header.
    Payload = 3,
    /// No bytes: the result of the header parser.
    Kind = 4,
}

/// One masked range over a 32-bit word. `repr(C)`: the XDP program reads these bytes in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(C)]
pub struct Test {
    /// Origin of `offset`.
    pub base: Base,
    /// Bit set of [`END_OF_RULE`], [`LITTLE_ENDIAN`], [`ZERO_BEYOND`].
    pub flags: u8,
    /// Byte offset from the base. May be negative: a word that ends inside a header may begin before it.
    pub offset: i16,
    /// Bits that are compared.
    pub mask: u32,
    /// Minimum of the masked word.
    pub min: u32,
    /// Maximum of the masked word.
    pub max: u32,
}

impl Test {
    /// The 16 bytes that the XDP program reads, in host order.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = self.base as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.mask.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.min.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.max.to_ne_bytes());
        bytes
    }
}

/// Destination of packets, the key of a hash map. `repr(C)`: the XDP program makes the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(C)]
pub struct ExactKey {
    /// Destination address. One of IPv4 has the first four bytes.
    pub address: [u8; 16],
    /// Destination port, big-endian.
    pub port: [u8; 2],
    /// IP version.
    pub version: u8,
    /// Protocol number of TCP or UDP.
    pub protocol: u8,
}

impl ExactKey {
    /// The address of keys that packets for any address have. No exact rule names it.
    pub const ANY_ADDRESS: [u8; 16] = [0; 16];

    /// The 20 bytes of the XDP program's key.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&self.address);
        bytes[16..18].copy_from_slice(&self.port);
        [bytes[18], bytes[19]] = [self.version, self.protocol];
        bytes
    }
}

/// Where frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Target {
    /// The socket of the queue on which they came.
    #[default]
    UserSpace,
    /// The program with this index, below [`MAX_PROGRAMS`]. If there is none, to user space.
    Program(u16),
}

impl Target {
    /// The number of the XDP program: 0 for user space, one more than the index for a program.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::UserSpace => 0,
            Self::Program(index) => index as u32 + 1,
        }
    }
}

/// A key, and where its frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyRule {
    /// The key.
    pub key: ExactKey,
    /// Where frames go for which no earlier rule holds.
    pub target: Target,
    /// Number of tests at the begin of the list whose rules go before the key.
    pub tests_before: u16,
    /// Whether frames to some addresses have another target.
    pub has_narrower: bool,
}

impl KeyRule {
    /// All frames with the key go to user space.
    #[must_use]
    pub const fn user_space(key: ExactKey) -> Self {
        Self { key, target: Target::UserSpace, tests_before: 0, has_narrower: false }
    }

    /// The 8 bytes of the XDP program's value, in host order.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.target.number().to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.tests_before.to_ne_bytes());
        bytes[6] = u8::from(self.has_narrower);
        bytes
    }
}

/// Rules of all contexts, as a NIC's filter takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSet {
    /// The list of tests, at most [`MAX_TESTS`].
    pub tests: Vec<Test>,
    /// Where frames of each test's rule go. If it is shorter than the list, those of other tests go to user space.
    pub targets: Vec<Target>,
    /// The exact keys, at most [`MAX_KEYS`]. The order has no meaning.
    pub keys: Vec<KeyRule>,
}

impl RuleSet {
    /// Rules without exact keys, for frames to user space.
    #[must_use]
    pub fn list(tests: &[Test]) -> Self {
        Self { tests: tests.to_vec(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{ExactKey, KeyRule, Target, Test};
    use core::mem::{offset_of, size_of};

    #[test]
    fn a_key_has_the_bytes_of_the_xdp_program() {
        let address = core::array::from_fn(|index| index as u8);
        let key = ExactKey { address, port: [16, 17], version: 18, protocol: 19 };
        let bytes: [u8; 20] = core::array::from_fn(|index| index as u8);
        assert_eq!(key.to_bytes(), bytes);
    }

    #[test]
    fn a_value_has_the_bytes_of_the_xdp_program() {
        let key = ExactKey { address: [0; 16], port: [0; 2], version: 4, protocol: 17 };
        let rule = KeyRule { key, target: Target::Program(0x0403), tests_before: 0x0201, has_narrower: true };
        let bytes = [0x0404_u32.to_ne_bytes(), [0; 4]].concat();
        assert_eq!(rule.to_bytes()[..4], bytes[..4]);
        assert_eq!(rule.to_bytes()[4..6], 0x0201_u16.to_ne_bytes());
        assert_eq!(rule.to_bytes()[6..], [1, 0]);
        assert_eq!(KeyRule::user_space(key).to_bytes(), [0; 8]);
    }

    #[test]
    fn layout_is_the_one_the_xdp_program_reads() {
        assert_eq!(size_of::<Test>(), 16);
        assert_eq!(offset_of!(Test, flags), 1);
        assert_eq!(offset_of!(Test, offset), 2);
        assert_eq!(offset_of!(Test, mask), 4);
        assert_eq!(offset_of!(Test, min), 8);
        assert_eq!(offset_of!(Test, max), 12);
    }
}
