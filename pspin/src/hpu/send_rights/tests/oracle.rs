//! The rights as a reader of the documentation would check them: headers one by one, without the matcher.

use std::net::IpAddr;

use super::SendSource;

#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Own,
    Reply,
}

/// A packet with a complete transport header.
struct Packet {
    tags: Vec<u8>,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    l4: Vec<u8>,
    /// Whether its headers may name other addresses than these, or are malformed.
    other_headers: bool,
}

/// Whether a handler of `received` may send `sent`.
pub fn allows(mode: Mode, source: &SendSource, received: &[u8], sent: &[u8]) -> bool {
    let Some(packet) = parse(sent) else { return false };
    let request = parse(received);
    let (mac, addresses) = match &source.host {
        Some(host) => (host.mac.to_vec(), host.ip.clone()),
        None => {
            (received[..6.min(received.len())].to_vec(), request.iter().map(|request| request.destination).collect())
        }
    };
    // The port to which the host got a packet.
    let reached = request
        .filter(|request| addresses.contains(&request.destination) && matches!(request.protocol, 6 | 17))
        .map(|request| (request.destination.is_ipv4(), request.protocol, request.l4[2..4].to_vec()));
    let is_reached = reached == Some((packet.source.is_ipv4(), packet.protocol, packet.l4[..2].to_vec()));
    let from_host = sent[6..12] == mac
        && mac[0] & 1 == 0
        && addresses.contains(&packet.source)
        && one_host(packet.source)
        && !packet.other_headers
        && (port_allowed(source, &packet) || is_reached)
        && tags(received) == Some(packet.tags.clone());
    from_host
        && match mode {
            Mode::Own => true,
            Mode::Reply => answers(received, sent, &packet),
        }
}

fn answers(received: &[u8], sent: &[u8], packet: &Packet) -> bool {
    let Some(request) = parse(received) else { return false };
    let ends = sent[..6] == received[6..12]
        && received[6] & 1 == 0
        && packet.source == request.destination
        && packet.destination == request.source
        && one_host(packet.destination)
        && packet.protocol == request.protocol;
    let port = |packet: &Packet, at: usize| packet.l4[at..at + 2].to_vec();
    ends && match packet.protocol {
        1 => request.l4[..2] == [8, 0] && packet.l4[..2] == [0, 0],
        58 => request.l4[..2] == [128, 0] && packet.l4[..2] == [129, 0],
        _ => port(packet, 2) == port(&request, 0),
    }
}

fn port_allowed(source: &SendSource, packet: &Packet) -> bool {
    let port = u16::from(packet.l4[0]) * 256 + u16::from(packet.l4[1]);
    let v4 = packet.source.is_ipv4();
    match packet.protocol {
        6 => source.tcp.iter().any(|ports| ports.contains(&port)),
        17 => source.udp.iter().any(|ports| ports.contains(&port)),
        1 => source.icmp && v4 && [[8, 0], [0, 0]].contains(&[packet.l4[0], packet.l4[1]]),
        58 => source.icmp6 && !v4 && [[128, 0], [129, 0]].contains(&[packet.l4[0], packet.l4[1]]),
        _ => false,
    }
}

fn one_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_multicast() && v4.octets()[0] < 240 && v4.octets()[0] != 0,
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unspecified(),
    }
}

/// The bytes of the VLAN tags. `None`: the frame ends in one.
fn tags(frame: &[u8]) -> Option<Vec<u8>> {
    let mut tags = Vec::new();
    while tags.len() < 8 && matches!(frame.get(12 + tags.len()..14 + tags.len()), Some([0x81, 0] | [0x88, 0xa8])) {
        tags.extend(frame.get(12 + tags.len()..16 + tags.len())?);
    }
    Some(tags)
}

fn parse(frame: &[u8]) -> Option<Packet> {
    let tags = tags(frame)?;
    let ethertype = frame.get(12 + tags.len()..14 + tags.len())?;
    let packet = &frame[14 + tags.len()..];
    match ethertype {
        [0x08, 0x00] => ipv4(packet, tags),
        [0x86, 0xdd] => ipv6(packet, tags),
        _ => None,
    }
}

fn ipv4(packet: &[u8], tags: Vec<u8>) -> Option<Packet> {
    let header = packet.get(..20)?;
    let length = usize::from(header[0] % 16) * 4;
    let total = usize::from(header[2]) * 256 + usize::from(header[3]);
    if header[0] / 16 != 4 || length < 20 || total < length {
        return None;
    }
    let fragment = header[6] & 0x20 != 0 || header[6] & 0x1f != 0 || header[7] != 0;
    let l4 = packet.get(..total)?[length..].to_vec();
    let address = |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (source, destination, protocol) = (address(12), address(16), header[9]);
    let other_headers = bad_options(&packet[20..length]);
    let found = Packet { tags, source, destination, protocol, l4, other_headers };
    (!fragment && has_transport(&found)).then_some(found)
}

fn bad_options(options: &[u8]) -> bool {
    let mut at = 0;
    while at < options.len() && options[at] != 0 {
        if options[at] == 1 {
            at += 1;
            continue;
        }
        let Some(&length) = options.get(at + 1) else { return true };
        if length < 2 || at + usize::from(length) > options.len() || matches!(options[at], 131 | 137) {
            return true;
        }
        at += usize::from(length);
    }
    false
}

fn ipv6(packet: &[u8], tags: Vec<u8>) -> Option<Packet> {
    let header = packet.get(..40)?;
    let total = usize::from(header[4]) * 256 + usize::from(header[5]);
    let mut l4 = packet.get(40..40 + total)?;
    let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&header[at..at + 16]).expect("16 bytes"));
    let (mut protocol, mut extensions) = (header[6], 0);
    while matches!(protocol, 0 | 43 | 60) {
        extensions += 1;
        protocol = *l4.first()?;
        l4 = l4.get(8 * (usize::from(*l4.get(1)?) + 1)..)?;
    }
    let (source, destination) = (address(8), address(24));
    let found = Packet { tags, source, destination, protocol, l4: l4.to_vec(), other_headers: extensions > 0 };
    (header[0] / 16 == 6 && extensions <= 4 && has_transport(&found)).then_some(found)
}

/// Whether the transport header is known and complete.
fn has_transport(packet: &Packet) -> bool {
    let length = match packet.protocol {
        1 | 17 | 58 => 8,
        6 if packet.l4.len() > 12 && packet.l4[12] >= 0x50 => usize::from(packet.l4[12] / 16) * 4,
        _ => return false,
    };
    packet.l4.len() >= length
}
