//! Random policies and rules in the XDP program, against the policy as docs/users.md describes it.
//!
//! Packets are values whose frames are built here. The oracle asks these values: it uses neither the matcher's headers nor its
//! evaluation.

use std::cell::Cell;
use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq};
use proptest::prop_oneof;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};
use spin_abi::rules::Base;
use spin_matcher::rule::{IpVersion, Prefix, Range, Rule, Rules, Side, Term, Transport};
use spin_matcher::testing::terms;
use spin_matcher::{Table, TableEntry};
use spin_nic::{Filter, FlowSteering};
use spin_testing::bounded;

use super::{Line, UserGrant};
use crate::control::policy::host::Host;
use crate::control::policy::ranges::Unprivileged;
use crate::control::policy::section::Send;

/// Packets for each policy with its rules.
const PACKETS: usize = 48;
/// The host's addresses, then others.
const V4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 1, 1, 1], [192, 168, 0, 1]];
const V6: [u128; 4] = [
    0x2001_0db8_0000_0000_0000_0000_0000_0001,
    0x2001_0db8_0000_0000_0000_0000_0000_0002,
    0x2001_0db8_0000_0000_0001_0000_0000_0001,
    0xfe80_0000_0000_0000_0000_0000_0000_0001,
];
/// Ports that a policy may give, with the protocol and the bounds.
const LINES: [(&str, u8, (u16, u16)); 4] = [
    ("udp 53", 17, (53, 53)),
    ("tcp 80-90", 6, (80, 90)),
    ("udp 9000-9999", 17, (9000, 9999)),
    ("tcp 9330-9999", 6, (9330, 9999)),
];

/// The transport header of a packet.
#[derive(Clone, Debug)]
enum Header {
    Udp([u16; 2]),
    Tcp([u16; 2]),
    Icmp(u8, u8),
    Gre,
}

/// A packet. Ports and addresses are those of the source and of the destination.
#[derive(Clone, Debug)]
struct Packet {
    macs: [[u8; 6]; 2],
    vlan: Option<u16>,
    addresses: [IpAddr; 2],
    /// IPv4 only: the flags and the offset of a fragment.
    fragment: Option<u16>,
    header: Header,
    payload: [u8; 4],
}

impl Packet {
    fn version(&self) -> IpVersion {
        if self.addresses[0].is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
    }

    fn protocol(&self) -> u8 {
        match (&self.header, self.version()) {
            (Header::Udp(_), _) => 17,
            (Header::Tcp(_), _) => 6,
            (Header::Icmp(..), IpVersion::V4) => 1,
            (Header::Icmp(..), IpVersion::V6) => 58,
            (Header::Gre, _) => 47,
        }
    }

    /// Where the IP header, the transport header and the payload begin. Fragments have only the first, GRE has no payload.
    fn starts(&self) -> [Option<usize>; 3] {
        let ip = if self.vlan.is_some() { 18 } else { 14 };
        let transport = ip + if self.version() == IpVersion::V4 { 20 } else { 40 };
        let length = match self.header {
            Header::Udp(_) | Header::Icmp(..) => Some(8),
            Header::Tcp(_) => Some(20),
            Header::Gre => None,
        };
        let whole = self.fragment.is_none();
        [Some(ip), whole.then_some(transport), length.filter(|_| whole).map(|length| transport + length)]
    }

    fn frame(&self) -> Vec<u8> {
        let mut transport = match self.header {
            Header::Udp([from, to]) => [from, to, 12, 0].map(u16::to_be_bytes).concat(),
            Header::Tcp([from, to]) => {
                let words = [from, to, 0, 0, 0, 0, 0x5000, 0, 0, 0];
                words.map(u16::to_be_bytes).concat()
            }
            Header::Icmp(kind, code) => vec![kind, code, 0, 0, 0, 1, 0, 1],
            Header::Gre => vec![0; 4],
        };
        transport.extend(self.payload);
        let (length, mut frame) = (transport.len() as u16, [self.macs[1], self.macs[0]].concat());
        if let Some(id) = self.vlan {
            frame.extend([0x8100, id].map(u16::to_be_bytes).concat());
        }
        match self.addresses {
            [IpAddr::V4(from), IpAddr::V4(to)] => {
                let words = [0x0800, 0x4500, 20 + length, 7, self.fragment.unwrap_or(0x4000)];
                frame.extend(words.map(u16::to_be_bytes).concat());
                frame.extend([64, self.protocol(), 0, 0]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            [IpAddr::V6(from), IpAddr::V6(to)] => {
                frame.extend([0x86dd, 0x6000, 0, length].map(u16::to_be_bytes).concat());
                frame.extend([self.protocol(), 64]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            _ => unreachable!("both addresses have the same version"),
        }
        [frame, transport].concat()
    }

    /// The ports of a whole packet, with the transport protocol.
    fn ports(&self) -> Option<(Transport, [u16; 2])> {
        match self.header {
            _ if self.fragment.is_some() => None,
            Header::Udp(ports) => Some((Transport::Udp, ports)),
            Header::Tcp(ports) => Some((Transport::Tcp, ports)),
            _ => None,
        }
    }

    fn satisfies(&self, term: &Term) -> bool {
        let of = |side: Side| usize::from(side == Side::Destination);
        match *term {
            Term::Ip(version) => self.version() == version,
            Term::Network { side, prefix } => is_in(self.addresses[of(side)], prefix),
            Term::Protocol { version, protocol } => {
                self.fragment.is_none()
                    && self.protocol() == protocol.get()
                    && version.is_none_or(|version| version == self.version())
            }
            Term::Port { transport, side, first, last } => {
                self.ports().is_some_and(|(own, ports)| own == transport && (first..=last).contains(&ports[of(side)]))
            }
            Term::Icmp { version, kind, code } => match self.header {
                Header::Icmp(own, own_code) if self.fragment.is_none() && version == self.version() => {
                    own == kind && code.is_none_or(|code| code == own_code)
                }
                _ => false,
            },
            Term::EtherType(number) => number == if self.version() == IpVersion::V4 { 0x0800 } else { 0x86dd },
            Term::EtherAddress { side, address } => self.macs[of(side)] == address,
            Term::Vlan(id) => self.vlan.is_some_and(|own| id.is_none_or(|id| id == own)),
            Term::Word(range) => self.has(&range),
        }
    }

    /// Whether the bytes of a range are there and within it.
    fn has(&self, range: &Range) -> bool {
        let (field, [ip, transport, payload]) = (range.field(), self.starts());
        let start = match field.base {
            Base::Frame => Some(0),
            Base::Ip => ip,
            Base::L4 => transport,
            Base::Payload => payload,
            _ => unreachable!("rules here have no such words"),
        };
        let Some(start) = start else { return false };
        let (frame, width, mut value) = (self.frame(), field.width as usize, 0);
        for index in 0..width {
            let shift = 8 * if field.little_endian { index } else { width - 1 - index };
            match frame.get(start + usize::from(field.offset) + index) {
                Some(&byte) => value |= u32::from(byte) << shift,
                None if range.mask() >> shift & 0xff != 0 && !field.zero_beyond => return false,
                None => {}
            }
        }
        (range.min()..=range.max()).contains(&(value & range.mask()))
    }

    fn matches(&self, rule: &Rule) -> bool {
        rule.terms.iter().all(|term| self.satisfies(term))
    }
}

/// Whether the first bits of an address are those of a network.
fn is_in(address: IpAddr, network: Prefix) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (own, theirs) = (bits(address), bits(network.address()));
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    own.len() == theirs.len() && (0..usize::from(network.length())).all(|at| bit(&own, at) == bit(&theirs, at))
}

fn packets() -> impl Strategy<Value = Packet> {
    let within = || select(vec![53, 80, 85, 90, 9330, 9335, 9339, 9999]);
    let beside = || select(vec![52, 54, 79, 84, 86, 91, 92, 9329, 9340, 9991, 10_000]);
    let port = || prop_oneof![5 => within(), 2 => beside(), 1 => any::<u16>()];
    let header = prop_oneof![
        4 => [port(), port()].prop_map(Header::Udp),
        3 => [port(), port()].prop_map(Header::Tcp),
        2 => (select(vec![0, 8, 128, 129]), 0..2_u8).prop_map(|(kind, code)| Header::Icmp(kind, code)),
        1 => Just(Header::Gre),
    ];
    let v4 = (select(&V4[..]), prop_oneof![Just(V4[0]), select(&V4[..])])
        .prop_map(<[_; 2]>::from)
        .prop_map(|pair| pair.map(IpAddr::from));
    let v6 = (select(&V6[..]), prop_oneof![Just(V6[0]), select(&V6[..])])
        .prop_map(<[_; 2]>::from)
        .prop_map(|pair| pair.map(|bits| IpAddr::V6(bits.into())));
    let mac = || select(vec![[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6]]);
    let fragment = option::weighted(0.1, select(vec![0x2000, 0x2005, 0x0005]));
    let vlan = option::weighted(0.2, select(vec![0, 100, 4095]));
    ([mac(), mac()], vlan, prop_oneof![3 => v4, 2 => v6], fragment, header, any::<[u8; 4]>()).prop_map(
        |(macs, vlan, addresses, fragment, header, payload)| {
            let fragment = fragment.filter(|_| addresses[0].is_ipv4());
            Packet { macs, vlan, addresses, fragment, header, payload }
        },
    )
}

/// Terms that the oracle knows.
fn known_terms() -> impl Strategy<Value = Term> {
    terms().prop_filter(
        "no word without bytes",
        |term| !matches!(term, Term::Word(range) if range.field().base == Base::Kind),
    )
}

/// Rules of a user, most of which name ports.
fn asked() -> impl Strategy<Value = Rules> {
    let port = (
        select(vec![Transport::Tcp, Transport::Udp]),
        select(vec![(53, 53), (80, 90), (85, 85), (80, 91), (9330, 9339), (9330, 9990), (9999, 9999)]),
    );
    let port =
        port.prop_map(|(transport, (first, last))| Term::Port { transport, side: Side::Destination, first, last });
    let ports = prop_oneof![4 => vec(port, 1), 1 => Just(Vec::new())];
    let others = prop_oneof![2 => Just(Vec::new()), 1 => vec(known_terms(), 1..3)];
    let rule = (ports, others).prop_map(|(ports, others)| Rule { terms: [ports, others].concat() });
    vec(rule, 1..3).prop_map(|rules| Rules { rules })
}

/// Rules of a policy, if it has some.
fn allowed() -> impl Strategy<Value = Rules> {
    let some = vec(vec(known_terms(), 1..3).prop_map(|terms| Rule { terms }), 1..3);
    prop_oneof![Just(Vec::new()), some].prop_map(|rules| Rules { rules })
}

/// Whether a rule names destination ports that one line allows.
fn names_ports(rule: &Rule, lines: &[(&str, u8, (u16, u16))]) -> bool {
    rule.terms.iter().any(|term| match *term {
        Term::Port { transport, side: Side::Destination, first, last } => {
            let protocol = if transport == Transport::Tcp { 6 } else { 17 };
            lines.iter().any(|&(_, of, (least, most))| of == protocol && least <= first && last <= most)
        }
        _ => false,
    })
}

/// Sets the rules of one context. Returns whether they fit the XDP program.
fn set_rules(filter: &Filter, rules: Rules) -> bool {
    let Ok(table) = Table::new(&[TableEntry { rules, ..TableEntry::default() }]) else { return false };
    filter.set_rules(table.rules()).expect("the kernel takes the table");
    true
}

/// How often each result was seen.
#[derive(Debug, Default)]
struct Seen {
    refused: Cell<u32>,
    by_ports: Cell<u32>,
    by_rules: Cell<u32>,
    /// The user's rule matches, the policy does not.
    kept_out: Cell<u32>,
}

fn count(cell: &Cell<u32>) {
    cell.set(cell.get() + 1);
}

#[test]
fn the_kernel_takes_the_packets_that_rule_and_policy_allow() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("loading the XDP program needs root");
        return;
    }
    let (filter, seen) = (Filter::load().expect("the kernel takes the XDP program"), Seen::default());
    let local = [IpAddr::from(V4[0]), IpAddr::V6(V6[0].into())];
    let strategy = (subsequence(LINES.to_vec(), 1..=4), allowed(), asked(), vec(packets(), PACKETS));
    let config = Config { cases: bounded(400, 4000), failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&strategy, |(lines, allowed, asked, packets)| {
        let ports = lines.iter().map(|(text, ..)| text.parse().expect("ports")).collect();
        let grant = UserGrant {
            uid: 7,
            ports: Line { name: "policy.ports".to_owned(), value: ports },
            rules: Line { name: "policy.rules".to_owned(), value: allowed.clone() },
            send: Send::Reply,
            weight: 1,
            kernel_tier: false,
            host: Host::Absent,
        };
        let Ok(narrowed) = grant.narrow(&asked, &Unprivileged::new(u16::MAX, (0, u16::MAX)), Some(&local)) else {
            count(&seen.refused);
            return Ok(());
        };
        let shown = narrowed.rules.to_string();
        if !set_rules(&filter, narrowed.rules) {
            return Ok(());
        }
        for packet in &packets {
            let by_rules = allowed.rules.iter().any(|rule| packet.matches(rule));
            let is_local = local.contains(&packet.addresses[1]);
            let own = || asked.rules.iter().filter(|rule| packet.matches(rule));
            let by_ports = is_local && own().any(|rule| names_ports(rule, &lines));
            let expected = by_ports || by_rules && own().next().is_some();
            let taken = filter.test_run(&packet.frame()).expect("the kernel runs the program").is_some();
            prop_assert_eq!(taken, expected, "{} -> {} by {:?} and {}: {:?}", asked, shown, lines, allowed, packet);
            match (expected, by_rules) {
                (true, true) => count(&seen.by_rules),
                (true, false) => count(&seen.by_ports),
                _ if own().next().is_some() => count(&seen.kept_out),
                _ => {}
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    println!("{seen:?}");
    let Seen { refused, by_ports, by_rules, kept_out } = &seen;
    let enough = [(refused, 20), (by_ports, 10), (by_rules, 50), (kept_out, 50)];
    assert!(enough.iter().all(|(cell, least)| cell.get() > *least), "each result is often seen: {seen:?}");
}
