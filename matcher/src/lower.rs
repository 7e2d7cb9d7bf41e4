//! Translates phrases to masked ranges.

use core::net::IpAddr;
use core::num::NonZeroU8;
use spin_abi::rules::Base;

use crate::headers::ETHERTYPES_VLAN;
use crate::rule::{Field, IpVersion, Prefix, Range, Rule, Side, Term, Width};

impl Rule {
    /// The rule as alternatives of conjunctions of ranges.
    ///
    /// There is one alternative, or two when the rule mentions `vlan`: the two EtherTypes of a tag are not one masked
    /// range. All `vlan` terms of a rule refer to the same tag, so two are enough.
    #[must_use]
    pub fn alternatives(&self) -> Vec<Vec<Range>> {
        let tagged = self.terms.iter().any(|term| matches!(term, Term::Vlan(_)));
        let tags: &[u16] = if tagged { &ETHERTYPES_VLAN } else { &ETHERTYPES_VLAN[..1] };
        tags.iter().map(|&tag| self.terms.iter().flat_map(|term| ranges(term, tag)).collect()).collect()
    }
}

/// Ranges of one term. `tag` is the EtherType of the VLAN tag, if the term requires one.
fn ranges(term: &Term, tag: u16) -> Vec<Range> {
    match *term {
        Term::Ip(version) => vec![ip_version(version)],
        Term::Network { side, prefix } => network(side, prefix),
        Term::Protocol { version, protocol } => protocol_is(version, protocol),
        Term::Port { transport, side, first, last } => {
            let field = Field::new(Base::L4, offset(side, 0, 2), Width::Two);
            let mut ranges = protocol_is(None, transport.protocol());
            ranges.push(Range::between(field, first.into(), last.into()));
            ranges
        }
        Term::Icmp { version, kind, code } => icmp(version, kind, code),
        Term::EtherType(ethertype) => vec![kind(0xffff_0000, u32::from(ethertype) << 16)],
        Term::EtherAddress { side, address } => ether_address(side, address),
        Term::Vlan(id) => vlan(tag, id),
        Term::Word(range) => vec![range],
    }
}

const fn offset(side: Side, source: u16, destination: u16) -> u16 {
    match side {
        Side::Source => source,
        Side::Destination => destination,
    }
}

fn kind(mask: u32, value: u32) -> Range {
    Range::exact(Field::new(Base::Kind, 0, Width::Four), mask, value)
}

fn ip_version(version: IpVersion) -> Range {
    kind(0xff00, u32::from(version as u8) << 8)
}

fn protocol_is(version: Option<IpVersion>, protocol: NonZeroU8) -> Vec<Range> {
    let protocol = kind(0xff, protocol.get().into());
    version.map(ip_version).into_iter().chain([protocol]).collect()
}

/// Ranges of an address. IPv4 addresses are at 12 and 16 (RFC 791 §3.1), IPv6 ones at 8 and 24 (RFC 8200 §3).
fn network(side: Side, prefix: Prefix) -> Vec<Range> {
    let length = u32::from(prefix.length());
    match prefix.address() {
        IpAddr::V4(address) => {
            let words = prefix_words(offset(side, 12, 16), &[address.to_bits()], length);
            core::iter::once(ip_version(IpVersion::V4)).chain(words).collect()
        }
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let words = [96, 64, 32, 0].map(|shift| (bits >> shift & u128::from(u32::MAX)) as u32);
            let words = prefix_words(offset(side, 8, 24), &words, length);
            core::iter::once(ip_version(IpVersion::V6)).chain(words).collect()
        }
    }
}

/// One range for each word that contains some of the first `length` bits.
fn prefix_words(start: u16, words: &[u32], length: u32) -> Vec<Range> {
    let mut ranges = Vec::new();
    let (mut at, mut left) = (start, length);
    for &word in words {
        if left == 0 {
            break;
        }
        let bits = left.min(32);
        ranges.push(Range::exact(Field::new(Base::Ip, at, Width::Four), u32::MAX << (32 - bits), word));
        at += 4;
        left -= bits;
    }
    ranges
}

fn icmp(version: IpVersion, kind: u8, code: Option<u8>) -> Vec<Range> {
    let mut ranges = protocol_is(Some(version), version.icmp());
    ranges.push(match code {
        None => exact(Base::L4, 0, Width::One, kind.into()),
        Some(code) => exact(Base::L4, 0, Width::Two, u16::from_be_bytes([kind, code]).into()),
    });
    ranges
}

fn ether_address(side: Side, address: [u8; 6]) -> Vec<Range> {
    let [a, b, c, d, e, f] = address;
    let at = offset(side, 6, 0);
    vec![
        exact(Base::Frame, at, Width::Four, u32::from_be_bytes([a, b, c, d])),
        exact(Base::Frame, at + 4, Width::Two, u16::from_be_bytes([e, f]).into()),
    ]
}

fn vlan(tag: u16, id: Option<u16>) -> Vec<Range> {
    let tagged = exact(Base::Frame, 12, Width::Two, tag.into());
    // The id is the low twelve bits; priority and drop-eligibility are above it (802.1Q §9.6).
    let id = id.map(|id| Range::exact(Field::new(Base::Frame, 14, Width::Two), 0x0fff, id.into()));
    core::iter::once(tagged).chain(id).collect()
}

fn exact(base: Base, offset: u16, width: Width, value: u32) -> Range {
    Range::exact(Field::new(base, offset, width), width.mask(), value)
}
