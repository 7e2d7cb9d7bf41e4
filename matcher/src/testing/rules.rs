//! Rules and keys that fit the frames.

use core::net::IpAddr;
use core::num::NonZeroU8;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use proptest::strategy::Union;
use proptest::{prop_oneof, strategy::BoxedStrategy};
use spin_abi::rules::Base;

use super::pools::{ETHERTYPES, ICMP_KINDS, IPV4, IPV6, PROTOCOLS, VLANS, macs, ports};
use crate::key::{KeyBytes, KeySpec};
use crate::rule::{Field, IpVersion, Prefix, Range, Rule, Rules, Side, Term, Transport, Width};

/// One to three alternatives of up to three terms.
pub fn rules() -> impl Strategy<Value = Rules> {
    let rule = vec(terms(), 0..=3).prop_map(|terms| Rule { terms });
    vec(prop_oneof![3 => rule, 1 => destinations()], 1..=3).prop_map(|rules| Rules { rules })
}

/// Rules that name a destination port, and perhaps the whole address.
fn destinations() -> impl Strategy<Value = Rule> {
    let v4 = select(&IPV4[..]).prop_filter_map("an address", |bits| Prefix::new(IpAddr::V4(bits.into()), 32).ok());
    let v6 = select(&IPV6[..]).prop_filter_map("an address", |bits| Prefix::new(IpAddr::V6(bits.into()), 128).ok());
    let address = prop_oneof![v4, v6].prop_map(|prefix| Term::Network { side: Side::Destination, prefix });
    (select(vec![Transport::Tcp, Transport::Udp]), ports(), option::of(address)).prop_map(
        |(transport, port, address)| {
            let port = Term::Port { transport, side: Side::Destination, first: port, last: port };
            Rule { terms: [port].into_iter().chain(address).collect() }
        },
    )
}

/// Terms of every kind.
pub fn terms() -> impl Strategy<Value = Term> {
    Union::new([
        versions().prop_map(Term::Ip).boxed(),
        (sides(), prefixes()).prop_map(|(side, prefix)| Term::Network { side, prefix }).boxed(),
        protocols(),
        port_terms(),
        icmp(),
        select(&ETHERTYPES[..]).prop_map(Term::EtherType).boxed(),
        (sides(), macs()).prop_map(|(side, address)| Term::EtherAddress { side, address }).boxed(),
        option::of(select(&VLANS[..])).prop_map(Term::Vlan).boxed(),
        words().prop_map(Term::Word).boxed(),
    ])
}

fn versions() -> impl Strategy<Value = IpVersion> {
    select(vec![IpVersion::V4, IpVersion::V6])
}

fn sides() -> impl Strategy<Value = Side> {
    select(vec![Side::Source, Side::Destination])
}

fn prefixes() -> impl Strategy<Value = Prefix> {
    let v4 = (select(&IPV4[..]), 0..=32_u8).prop_map(|(bits, length)| {
        let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
        (IpAddr::V4((bits & !host).into()), length)
    });
    let v6 = (select(&IPV6[..]), 0..=128_u8).prop_map(|(bits, length)| {
        let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
        (IpAddr::V6((bits & !host).into()), length)
    });
    prop_oneof![v4, v6].prop_filter_map("a network", |(address, length)| Prefix::new(address, length).ok())
}

fn protocols() -> BoxedStrategy<Term> {
    (option::of(versions()), select(&PROTOCOLS[..]))
        .prop_filter_map("a protocol", |(version, number)| {
            NonZeroU8::new(number).map(|protocol| Term::Protocol { version, protocol })
        })
        .boxed()
}

fn port_terms() -> BoxedStrategy<Term> {
    (select(vec![Transport::Tcp, Transport::Udp]), sides(), ports(), ports(), any::<bool>())
        .prop_map(|(transport, side, a, b, single)| {
            let (first, last) = if single { (a, a) } else { (a.min(b), a.max(b)) };
            Term::Port { transport, side, first, last }
        })
        .boxed()
}

fn icmp() -> BoxedStrategy<Term> {
    (versions(), select(ICMP_KINDS.to_vec()), option::of(0..2_u8))
        .prop_map(|(version, kind, code)| Term::Icmp { version, kind, code })
        .boxed()
}

/// Raw words: any width, order and mask at positions where frames have headers.
fn words() -> impl Strategy<Value = Range> {
    let base = select(vec![Base::Frame, Base::Ip, Base::L4, Base::Payload, Base::Kind]);
    let width = select(vec![Width::One, Width::Two, Width::Four]);
    let mask = prop_oneof![
        Just(u32::MAX),
        select(vec![0xff, 0xff00, 0xffff, 0x00ff_0000, 0xffff_0000, 0xff00_0000, 0x0f, 0xf000, 0x0180_0000]),
        any::<u32>()
    ];
    let bounds =
        (prop_oneof![Just(0), 0..20_u32, any::<u32>()], prop_oneof![0..0x100_u32, any::<u32>(), Just(u32::MAX)]);
    (base, 0..44_u16, width, any::<(bool, bool)>(), mask, bounds, any::<bool>()).prop_filter_map(
        "a range that can hold",
        |(base, offset, width, (little_endian, zero_beyond), mask, (low, span), exact)| {
            let bytes = base != Base::Kind;
            let field = Field {
                base,
                offset: if bytes { offset } else { 0 },
                width: if bytes { width } else { Width::Four },
                little_endian: bytes && little_endian && width == Width::Four,
                zero_beyond: bytes && zero_beyond,
            };
            let mask = mask & field.width.mask();
            let low = if exact { low & mask } else { low & field.width.mask() };
            Range::new(field, mask, low, if exact { low } else { low.saturating_add(span) }).ok()
        },
    )
}

/// Keys of every kind.
pub fn keys() -> impl Strategy<Value = KeySpec> {
    let base = select(vec![Base::Frame, Base::Ip, Base::L4, Base::Payload]);
    let part = (base, 0..60_u16, 1..12_u8).prop_map(|(base, offset, length)| KeyBytes { base, offset, length });
    (any::<bool>(), vec(part, 0..=3)).prop_filter_map("a key that fits", |(flow, mut parts)| {
        if flow {
            // Beside the flow there is room for one range of four bytes.
            parts.truncate(1);
            parts.iter_mut().for_each(|part| part.length = part.length.min(4));
        }
        KeySpec::new(flow, parts).ok()
    })
}
