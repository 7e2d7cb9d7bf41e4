//! Frames with headers at positions known by construction, and frames damaged in every way.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::{Index, select};

use super::pools::{ETHERTYPES, ICMP_KINDS, IPV4, IPV6, PROTOCOLS, VLANS, macs, ports};
use crate::headers::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPES_VLAN, Headers, ICMP, ICMP6, TCP, UDP, kind};

/// A frame and where its headers were put.
#[derive(Clone, Debug)]
pub struct Built {
    /// The frame.
    pub bytes: Vec<u8>,
    /// Expected result of [`Headers::parse`].
    pub headers: Headers,
}

/// Frames of any kind: well-formed, cut short, with bytes changed (mostly in headers), and noise.
pub fn frames() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((prop_oneof![3 => 12..64_usize, 1 => 0..200_usize], change()), 1..4);
    prop_oneof![
        4 => honest_frames().prop_map(|built| built.bytes),
        2 => (honest_frames(), any::<Index>()).prop_map(|(built, cut)| cut_short(built.bytes, cut)),
        3 => (honest_frames(), changes).prop_map(|(built, changes)| changed(built.bytes, &changes)),
        1 => vec(any::<u8>(), 0..100),
    ]
}

fn change() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), select(vec![0, 1, 5, 6, 8, 17, 0x45, 0x60, 0x81, 0xff])]
}

fn cut_short(mut bytes: Vec<u8>, cut: Index) -> Vec<u8> {
    bytes.truncate(cut.index(bytes.len() + 1));
    bytes
}

fn changed(mut bytes: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    for &(at, value) in changes {
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
    }
    bytes
}

/// Well-formed Ethernet frames: IPv4, IPv6 and others, behind VLAN tags, with options, extension headers, fragments and
/// padding. Checksums are zero.
pub fn honest_frames() -> impl Strategy<Value = Built> {
    let tag = (select(&ETHERTYPES_VLAN[..]), select(&VLANS[..]), 0..16_u16);
    let tags =
        prop_oneof![4 => Just(0..=0), 3 => Just(1..=2), 1 => Just(3..=3)].prop_flat_map(move |n| vec(tag.clone(), n));
    (macs(), macs(), tags, networks(), padding()).prop_map(|(destination, source, tags, network, padding)| {
        let mut builder = Builder { bytes: [destination, source].concat(), headers: Headers::default() };
        for (index, &(ethertype, id, priority)) in tags.iter().enumerate() {
            builder.tag(index, ethertype, id | priority << 12);
        }
        builder.network(&network, tags.len() <= 2);
        builder.padding(&padding)
    })
}

#[derive(Clone, Debug)]
enum Network {
    V4 { addresses: [u32; 2], options: Vec<u32>, identification: u16, flags: u16, transport: Transport },
    V6 { addresses: [u128; 2], extensions: Vec<(u8, u8)>, transport: Transport },
    Other { ethertype: u16, body: Vec<u8> },
}

#[derive(Clone, Debug)]
struct Transport {
    protocol: u8,
    bytes: Vec<u8>,
    /// Length of the header, for protocols with a header here.
    header: Option<usize>,
}

fn networks() -> impl Strategy<Value = Network> {
    let flags =
        prop_oneof![8 => Just(0x4000), 4 => Just(0), 1 => Just(0x2000), 1 => 0x2001..0x3fff_u16, 1 => 1..0x1fff_u16];
    let options = prop_oneof![3 => Just(Vec::new()), 1 => vec(any::<u32>(), 1..=10)];
    let pair = |pool| (select(pool), select(pool));
    let v4 = (pair(&IPV4[..]), options, 0..3_u16, flags, transports(ICMP)).prop_map(
        |((source, destination), options, identification, flags, transport)| Network::V4 {
            addresses: [source, destination],
            options,
            identification,
            flags,
            transport,
        },
    );
    let kind = prop_oneof![6 => select(vec![0, 43, 60]), 1 => Just(44), 1 => Just(51)];
    let extensions = prop_oneof![3 => Just(Vec::new()), 1 => vec((kind, 0..3_u8), 1..=6)];
    let addresses = (select(&IPV6[..]), select(&IPV6[..]));
    let v6 = (addresses, extensions, transports(ICMP6)).prop_map(|((source, destination), extensions, transport)| {
        Network::V6 { addresses: [source, destination], extensions, transport }
    });
    let other = (select(&ETHERTYPES[..2]), vec(any::<u8>(), 0..40))
        .prop_map(|(ethertype, body)| Network::Other { ethertype, body });
    prop_oneof![4 => v4, 3 => v6, 1 => other]
}

fn transports(icmp: u8) -> impl Strategy<Value = Transport> {
    let tcp = (ports(), ports(), 5..=15_u8, payload()).prop_map(|(source, destination, words, payload)| {
        let mut header = vec![0; 4 * usize::from(words)];
        header[..2].copy_from_slice(&source.to_be_bytes());
        header[2..4].copy_from_slice(&destination.to_be_bytes());
        header[12] = words << 4;
        let length = header.len();
        Transport { protocol: TCP, bytes: [header, payload].concat(), header: Some(length) }
    });
    let icmp = (select(ICMP_KINDS.to_vec()), 0..2_u8, 0..3_u8, payload()).prop_map(move |(kind, code, id, payload)| {
        let header = vec![kind, code, 0, 0, 0, id, 0, 1];
        Transport { protocol: icmp, bytes: [header, payload].concat(), header: Some(8) }
    });
    // Protocols with a header here may be too short for it. Damaged frames cover 0 and the extension headers.
    let other = (select(&PROTOCOLS[..]), vec(any::<u8>(), 0..8)).prop_map(|(protocol, bytes)| Transport {
        protocol,
        bytes,
        header: None,
    });
    prop_oneof![4 => datagrams(), 2 => tcp, 2 => icmp, 1 => other]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![0..4_u8, any::<u8>()], 0..24)
}

fn datagrams() -> impl Strategy<Value = Transport> {
    (ports(), ports(), payload()).prop_map(|(source, destination, payload)| {
        let length = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
        let header = [source, destination, length, 0].map(u16::to_be_bytes).concat();
        Transport { protocol: UDP, bytes: [header, payload].concat(), header: Some(8) }
    })
}

/// UDP over IPv4 without tags, options and fragments.
pub fn plain_frames() -> impl Strategy<Value = Vec<u8>> {
    let addresses = (select(&IPV4[..]), select(&IPV4[..]));
    (macs(), macs(), addresses, datagrams(), padding()).prop_map(
        |(to, from, (source, destination), transport, padding)| {
            let mut builder = Builder { bytes: [to, from].concat(), headers: Headers::default() };
            let (addresses, options) = ([source, destination], Vec::new());
            let datagram = Network::V4 { addresses, options, identification: 1, flags: 0x4000, transport };
            builder.network(&datagram, true);
            builder.padding(&padding).bytes
        },
    )
}

fn padding() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![2 => Just(Vec::new()), 1 => vec(any::<u8>(), 0..40)]
}

/// A frame under construction.
struct Builder {
    bytes: Vec<u8>,
    headers: Headers,
}

impl Builder {
    fn position(&self) -> Option<u16> {
        u16::try_from(self.bytes.len()).ok()
    }

    fn tag(&mut self, index: usize, ethertype: u16, control: u16) {
        self.bytes.extend(ethertype.to_be_bytes());
        self.bytes.extend(control.to_be_bytes());
        if index < 2 {
            self.headers.tags += 1;
        } else {
            self.headers.ethertype = ethertype;
        }
    }

    /// Appends EtherType and packet. Their positions are recorded if the tags before them are `skipped`.
    fn network(&mut self, network: &Network, skipped: bool) {
        let known = self.headers;
        match network {
            Network::V4 { addresses, options, identification, flags, transport } => {
                self.ethertype(ETHERTYPE_IPV4);
                self.ipv4(*addresses, options, *identification, *flags, transport);
            }
            Network::V6 { addresses, extensions, transport } => {
                self.ethertype(ETHERTYPE_IPV6);
                self.ipv6(*addresses, extensions, transport);
            }
            Network::Other { ethertype, body } => {
                self.ethertype(*ethertype);
                self.bytes.extend(body);
            }
        }
        if !skipped {
            self.headers = known;
        }
    }

    fn ethertype(&mut self, ethertype: u16) {
        self.bytes.extend(ethertype.to_be_bytes());
        self.headers.ethertype = ethertype;
    }

    fn ipv4(&mut self, addresses: [u32; 2], options: &[u32], id: u16, flags: u16, transport: &Transport) {
        self.headers.ip = self.position();
        self.headers.ip_version = 4;
        let words = u8::try_from(5 + options.len()).unwrap_or(15);
        let total = u16::try_from(4 * usize::from(words) + transport.bytes.len()).unwrap_or(u16::MAX);
        self.bytes.extend([0x40 | words, 0]);
        for half in [total, id, flags] {
            self.bytes.extend(half.to_be_bytes());
        }
        self.bytes.extend([64, transport.protocol, 0, 0]);
        for word in addresses.iter().chain(options) {
            self.bytes.extend(word.to_be_bytes());
        }
        self.transport(transport, flags & 0x3fff == 0);
    }

    fn ipv6(&mut self, addresses: [u128; 2], extensions: &[(u8, u8)], transport: &Transport) {
        self.headers.ip = self.position();
        self.headers.ip_version = 6;
        let lengths = extensions.iter().map(|&(kind, units)| extension_length(kind, units));
        let length = u16::try_from(lengths.sum::<usize>() + transport.bytes.len()).unwrap_or(u16::MAX);
        let protocols: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).chain([transport.protocol]).collect();
        self.bytes.extend([0x60, 0, 0, 0]);
        self.bytes.extend(length.to_be_bytes());
        self.bytes.extend([protocols[0], 64]);
        self.bytes.extend(addresses.iter().flat_map(|address| address.to_be_bytes()));
        for (index, (&(kind, units), next)) in extensions.iter().zip(&protocols[1..]).enumerate() {
            let at = self.bytes.len();
            // AH ends the chain for the parser: it is a protocol of its own, with an unknown payload.
            let chain_is_whole = extensions[..index].iter().all(|(kind, _)| matches!(kind, 0 | 43 | 60)) && index <= 4;
            if kind == 51 && chain_is_whole {
                self.headers.l4 = self.position();
                self.headers.protocol = kind;
            }
            self.bytes.extend([*next, if kind == 44 { 0 } else { units_field(kind, units) }]);
            self.bytes.resize(at + extension_length(kind, units), 0);
        }
        let skipped = extensions.len() <= 4 && extensions.iter().all(|(kind, _)| matches!(kind, 0 | 43 | 60));
        self.transport(transport, skipped);
    }

    fn transport(&mut self, transport: &Transport, present: bool) {
        if present && !transport.bytes.is_empty() {
            self.headers.l4 = self.position();
            self.headers.protocol = transport.protocol;
            let payload = transport.header.map(|length| self.bytes.len() + length);
            self.headers.payload = payload.and_then(|at| u16::try_from(at).ok());
        }
        self.bytes.extend(&transport.bytes);
        self.headers.end = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
    }

    fn padding(mut self, padding: &[u8]) -> Built {
        self.bytes.extend(padding);
        if self.headers.ip.is_none() {
            self.headers.end = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        }
        let Headers { ethertype, ip_version, protocol, .. } = self.headers;
        self.headers.kind = kind(ethertype, ip_version, protocol);
        Built { bytes: self.bytes, headers: self.headers }
    }
}

/// Length of an extension header in units of eight bytes. AH counts units of four bytes and two more (RFC 4302 §2.2). A
/// fragment header always has eight bytes.
fn extension_length(kind: u8, units: u8) -> usize {
    match kind {
        44 => 8,
        51 => 12 + 4 * usize::from(units),
        _ => 8 + 8 * usize::from(units),
    }
}

fn units_field(kind: u8, units: u8) -> u8 {
    if kind == 51 { units + 1 } else { units }
}
