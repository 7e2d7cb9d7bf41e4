//! Rules as users write them: alternatives ([`Rules`]) of conjunctions ([`Rule`]) of [`Term`]s.
//!
//! A term is either a phrase (`udp dport 9999`) or one masked [`Range`] over a field of one, two or four bytes. Phrases
//! are kept as such, so that a rule prints the way it was typed. [`Rule::alternatives`] translates them to ranges.

use core::net::IpAddr;
use core::num::NonZeroU8;
use spin_abi::rules::Base;

use crate::headers::{ICMP, ICMP6, TCP, UDP};

/// Largest offset of a field: a test's offset is an `i16` and its word has four bytes.
pub const MAX_OFFSET: u16 = i16::MAX as u16 - 3;
/// Maximum number of terms in a rule: the capacity of a table.
pub const MAX_TERMS: usize = spin_abi::rules::MAX_TESTS;

/// Width of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Width {
    /// One byte.
    One = 1,
    /// Half-word: two bytes.
    Two = 2,
    /// Word: four bytes.
    Four = 4,
}

impl Width {
    /// All ones in a field of this width.
    #[must_use]
    pub const fn mask(self) -> u32 {
        u32::MAX >> (32 - 8 * self as u32)
    }
}

/// One to four bytes of a frame that are compared as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Origin of `offset`. [`Base::Kind`] has no bytes: its offset is 0 and its width four.
    pub base: Base,
    /// Offset of the first byte, 0 to [`MAX_OFFSET`].
    pub offset: u16,
    /// Number of bytes.
    pub width: Width,
    /// Byte order: least significant byte first (FPsPIN's words). Only for four bytes.
    pub little_endian: bool,
    /// Whether bytes beyond the packet read as zero (FPsPIN's RTL) instead of failing the range.
    pub zero_beyond: bool,
}

impl Field {
    /// A big-endian field whose bytes must all be there.
    #[must_use]
    pub const fn new(base: Base, offset: u16, width: Width) -> Self {
        Self { base, offset, width, little_endian: false, zero_beyond: false }
    }
}

/// `min <= field & mask <= max`, unsigned.
///
/// Holds only if the base and every byte that the mask selects are present. A field of the frame's first three bytes
/// also needs a frame of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    field: Field,
    mask: u32,
    min: u32,
    max: u32,
}

/// Reason why a range was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The mask is zero.
    #[error("the mask selects no bits: leave the term out, or write `any`")]
    EmptyMask,
    /// The mask has bits above the field's width.
    #[error("mask {0:#x} is wider than the field")]
    WideMask(u32),
    /// `min > max`.
    #[error("the range is empty: {0:#x} is above {1:#x}")]
    Empty(u32, u32),
    /// `min` is above the mask.
    #[error("can never hold: {0:#x} is above mask {1:#x}")]
    AboveMask(u32, u32),
    /// The offset is above [`MAX_OFFSET`].
    #[error("offset {0} is beyond any frame, the largest is {MAX_OFFSET}")]
    Offset(u16),
    /// Little-endian field that has not four bytes.
    #[error("only fields of four bytes can be little-endian")]
    LittleEndian,
    /// [`Base::Kind`] with an offset or another width.
    #[error("the kind word has no offsets and four bytes")]
    Kind,
}

impl Range {
    /// Makes a range after checking it.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub const fn new(field: Field, mask: u32, min: u32, max: u32) -> Result<Self, RangeError> {
        if mask == 0 {
            return Err(RangeError::EmptyMask);
        }
        if mask & !field.width.mask() != 0 {
            return Err(RangeError::WideMask(mask));
        }
        if min > max {
            return Err(RangeError::Empty(min, max));
        }
        if min > mask {
            return Err(RangeError::AboveMask(min, mask));
        }
        if field.offset > MAX_OFFSET {
            return Err(RangeError::Offset(field.offset));
        }
        if field.little_endian && !matches!(field.width, Width::Four) {
            return Err(RangeError::LittleEndian);
        }
        let bare = field.offset == 0 && matches!(field.width, Width::Four) && !field.little_endian;
        if matches!(field.base, Base::Kind) && !bare {
            return Err(RangeError::Kind);
        }
        // A maximum above the field's greatest value is equivalent to that value.
        let max = if max > field.width.mask() { field.width.mask() } else { max };
        Ok(Self { field, mask, min, max })
    }

    /// `field & mask == value`, for valid values.
    pub(crate) const fn exact(field: Field, mask: u32, value: u32) -> Self {
        Self { field, mask, min: value, max: value }
    }

    /// `min <= field <= max`, for valid values.
    pub(crate) const fn between(field: Field, min: u32, max: u32) -> Self {
        Self { field, mask: field.width.mask(), min, max }
    }

    /// Field that is compared.
    #[must_use]
    pub const fn field(&self) -> Field {
        self.field
    }

    /// Bits that are compared. Not zero, within the field's width.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        self.mask
    }

    /// Minimum of the masked field. At most the mask.
    #[must_use]
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// Maximum of the masked field. May be above the mask, but not above the field's greatest value.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max
    }
}

/// End of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sender's address or port.
    Source,
    /// Receiver's address or port.
    Destination,
}

/// Version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IpVersion {
    /// IPv4.
    V4 = 4,
    /// IPv6.
    V6 = 6,
}

impl IpVersion {
    /// Protocol number of this version's ICMP.
    #[must_use]
    pub const fn icmp(self) -> NonZeroU8 {
        match self {
            Self::V4 => const { NonZeroU8::new(ICMP).unwrap() },
            Self::V6 => const { NonZeroU8::new(ICMP6).unwrap() },
        }
    }
}

/// Protocols with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// Protocol number.
    #[must_use]
    pub const fn protocol(self) -> NonZeroU8 {
        match self {
            Self::Tcp => const { NonZeroU8::new(TCP).unwrap() },
            Self::Udp => const { NonZeroU8::new(UDP).unwrap() },
        }
    }
}

/// Network: all addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Reason why a prefix was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Prefix longer than the address.
    #[error("a prefix of {length} bits is longer than an address of {bits}")]
    Length {
        /// Requested length.
        length: u8,
        /// Number of bits in the address.
        bits: u8,
    },
    /// Bits after the prefix are set.
    #[error("{given} has bits set after its prefix, the network is {network}")]
    HostBits {
        /// Requested prefix.
        given: Prefix,
        /// Prefix with those bits cleared.
        network: Prefix,
    },
}

impl Prefix {
    /// The network `address/length`.
    ///
    /// # Errors
    /// When `length` exceeds the address, or bits after it are set.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if length > bits {
            return Err(PrefixError::Length { length, bits });
        }
        let given = Self { address, length };
        let network = Self { address: given.masked(), length };
        if network == given { Ok(given) } else { Err(PrefixError::HostBits { given, network }) }
    }

    /// The network's first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Number of common bits.
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// The network of the first `length` bits, of which this one has at least as many.
    pub(crate) fn shortened(&self, length: u8) -> IpAddr {
        Self { address: self.address, length }.masked()
    }

    fn masked(&self) -> IpAddr {
        let length = u32::from(self.length);
        match self.address {
            IpAddr::V4(address) => {
                IpAddr::V4((address.to_bits() & u32::MAX.checked_shl(32 - length).unwrap_or(0)).into())
            }
            IpAddr::V6(address) => {
                IpAddr::V6((address.to_bits() & u128::MAX.checked_shl(128 - length).unwrap_or(0)).into())
            }
        }
    }
}

/// One condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// `ip`, `ip6`: a well-formed header of that version.
    Ip(IpVersion),
    /// `ip src 10.0.0.0/24`: an address in a network.
    Network {
        /// Side of the address.
        side: Side,
        /// The network.
        prefix: Prefix,
    },
    /// `udp`, `icmp`, `ip proto 47`: a transport header of that protocol is present. Fragments have none.
    Protocol {
        /// Required IP version, if any.
        version: Option<IpVersion>,
        /// Protocol number.
        protocol: NonZeroU8,
    },
    /// `udp dport 9999`, `tcp sport 80-90`.
    Port {
        /// TCP or UDP.
        transport: Transport,
        /// Side of the port.
        side: Side,
        /// Lowest port.
        first: u16,
        /// Highest port.
        last: u16,
    },
    /// `icmp echo`, `icmp6 type 135 code 0`.
    Icmp {
        /// ICMP or ICMPv6.
        version: IpVersion,
        /// ICMP type.
        kind: u8,
        /// ICMP code. `None`: any.
        code: Option<u8>,
    },
    /// `ether type 0x88b5`: the EtherType after VLAN tags.
    EtherType(u16),
    /// `ether dst 02:00:00:00:00:01`.
    EtherAddress {
        /// Side of the address.
        side: Side,
        /// The address.
        address: [u8; 6],
    },
    /// `vlan`, `vlan 100`: a tag (802.1Q or 802.1ad) directly after the addresses, with this id.
    Vlan(Option<u16>),
    /// `l4[2:2] in 9000..9100`: a masked range.
    Word(Range),
}

/// Conditions that must all hold. No condition: `any`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Conditions of the rule.
    pub terms: Vec<Term>,
}

/// Alternatives, one of which must hold. No alternative: `never`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Alternatives, tried in order.
    pub rules: Vec<Rule>,
}

/// Predicate for the last frame of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Eom {
    /// Every frame is a message of its own.
    #[default]
    Always,
    /// Messages do not end.
    Never,
    /// A frame ends its message if these rules hold.
    When(Rules),
}
