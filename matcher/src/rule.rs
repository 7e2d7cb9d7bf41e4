//! Rules as people mean them: alternatives ([`Rules`]) of conjunctions ([`Rule`]) of [`Term`]s.
//!
//! A term is either a phrase (`udp dport 9999`) or one masked [`Range`] over a field of one, two or four bytes. Phrases
//! are kept as such so that a rule prints the way it was typed; [`Rule::alternatives`] says which ranges they stand for.

use core::net::IpAddr;
use core::num::NonZeroU8;
use spin_abi::rules::Base;

use crate::headers::{ICMP, ICMP6, TCP, UDP};

/// Largest offset of a field: a test's offset is an `i16` and its word four bytes.
pub const MAX_OFFSET: u16 = i16::MAX as u16 - 3;
/// Most terms in one rule: what one table could hold.
pub const MAX_TERMS: usize = spin_abi::rules::MAX_TESTS;

/// How many bytes a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Width {
    /// A byte.
    One = 1,
    /// A half-word.
    Two = 2,
    /// A word.
    Four = 4,
}

impl Width {
    /// All ones in a field of this width.
    #[must_use]
    pub const fn mask(self) -> u32 {
        u32::MAX >> (32 - 8 * self as u32)
    }
}

/// A few bytes of a frame that are compared as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// What `offset` counts from. [`Base::Kind`] is not bytes: its offset is 0 and its width four.
    pub base: Base,
    /// First byte, 0 to [`MAX_OFFSET`].
    pub offset: u16,
    /// Bytes.
    pub width: Width,
    /// Least significant byte first (FPsPIN's words); only for four bytes.
    pub little_endian: bool,
    /// Bytes beyond the packet read as zero (FPsPIN's RTL) instead of failing the range.
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
/// Holds only where the base and every byte that the mask selects are there (a field of the frame's first three bytes
/// also needs a frame of four bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    field: Field,
    mask: u32,
    min: u32,
    max: u32,
}

/// Why a range was refused.
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
    /// `min` is above anything the mask lets through.
    #[error("can never hold: {0:#x} is above mask {1:#x}")]
    AboveMask(u32, u32),
    /// The offset is above [`MAX_OFFSET`].
    #[error("offset {0} is beyond any frame, the largest is {MAX_OFFSET}")]
    Offset(u16),
    /// Little-endian, but not four bytes.
    #[error("only fields of four bytes can be little-endian")]
    LittleEndian,
    /// [`Base::Kind`] with an offset or another width.
    #[error("the kind word has no offsets and four bytes")]
    Kind,
}

impl Range {
    /// Checks and makes a range.
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
        // What the field cannot hold says the same as its greatest value.
        let max = if max > field.width.mask() { field.width.mask() } else { max };
        Ok(Self { field, mask, min, max })
    }

    /// `field & mask == value`, for values known to be good.
    pub(crate) const fn exact(field: Field, mask: u32, value: u32) -> Self {
        Self { field, mask, min: value, max: value }
    }

    /// `min <= field <= max`, for values known to be good.
    pub(crate) const fn between(field: Field, min: u32, max: u32) -> Self {
        Self { field, mask: field.width.mask(), min, max }
    }

    /// The bytes compared.
    #[must_use]
    pub const fn field(&self) -> Field {
        self.field
    }

    /// Bits looked at; not zero, within the field's width.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        self.mask
    }

    /// Least masked value that holds; at most the mask.
    #[must_use]
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// Greatest masked value that holds; may be above the mask, not above what the field can hold.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max
    }
}

/// Which end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender's address or port.
    Source,
    /// The receiver's.
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
    /// Protocol number of its ICMP.
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

/// All addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why a prefix was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Longer than the address.
    #[error("a prefix of {length} bits is longer than an address of {bits}")]
    Length {
        /// Asked for.
        length: u8,
        /// Bits of the address.
        bits: u8,
    },
    /// Bits after the prefix are set.
    #[error("{given} has bits set after its prefix, the network is {network}")]
    HostBits {
        /// Asked for.
        given: Prefix,
        /// With those bits cleared.
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

    /// Bits in common.
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
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
        /// Which address.
        side: Side,
        /// The network.
        prefix: Prefix,
    },
    /// `udp`, `icmp`, `ip proto 47`: a transport header of that protocol is there, which it is not in a fragment.
    Protocol {
        /// Of this version only.
        version: Option<IpVersion>,
        /// Its number.
        protocol: NonZeroU8,
    },
    /// `udp dport 9999`, `tcp sport 80-90`.
    Port {
        /// TCP or UDP.
        transport: Transport,
        /// Which port.
        side: Side,
        /// Least port.
        first: u16,
        /// Greatest port.
        last: u16,
    },
    /// `icmp echo`, `icmp6 type 135 code 0`.
    Icmp {
        /// ICMP or ICMPv6.
        version: IpVersion,
        /// The type.
        kind: u8,
        /// The code; any when `None`.
        code: Option<u8>,
    },
    /// `ether type 0x88b5`: the EtherType after VLAN tags.
    EtherType(u16),
    /// `ether dst 02:00:00:00:00:01`.
    EtherAddress {
        /// Which address.
        side: Side,
        /// The address.
        address: [u8; 6],
    },
    /// `vlan`, `vlan 100`: a tag (802.1Q or 802.1ad) directly after the addresses, with this id.
    Vlan(Option<u16>),
    /// `l4[2:2] in 9000..9100`.
    Word(Range),
}

/// Conditions that must all hold; none is `any`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The conditions.
    pub terms: Vec<Term>,
}

/// Alternatives of which one must hold; none at all is `never`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The alternatives, tried in order.
    pub rules: Vec<Rule>,
}

/// When a frame is its message's last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Eom {
    /// Every frame is a message of its own.
    #[default]
    Always,
    /// Messages do not end.
    Never,
    /// Frames for which these rules hold.
    When(Rules),
}
