//! The check of a frame to send.

use std::net::IpAddr;

use spin_matcher::Headers;
use spin_matcher::headers::{ICMP, ICMP6, TCP, UDP};

use super::fields::{PLAIN, PacketFields};
use super::source::SendSource;

/// Length of an IPv4 header without options.
const IPV4: usize = 20;
/// Length of an IPv6 header.
const IPV6: usize = 40;
/// IPv4 options of one byte (RFC 791 §3.1).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
/// IPv4 options that name further destinations (RFC 791 §3.1).
const SOURCE_ROUTES: [u8; 2] = [131, 137];
/// Echo request and echo reply: ICMP (RFC 792) and `ICMPv6` (RFC 4443 §4).
const ECHO: [u8; 2] = [8, 0];
const ECHO6: [u8; 2] = [128, 129];

/// Whether `frame` answers a plain packet, with the headers `received`, by a plain one from the address and port that it was sent to.
/// Most replies do. They take a few comparisons at constant positions.
#[inline]
pub(super) fn is_plain_reply(rights: &SendSource, received: &[u8; PLAIN], frame: &[u8]) -> bool {
    let (Some(sent), Some(_)) = (frame.first_chunk::<PLAIN>(), Headers::plain_end(frame)) else { return false };
    mac(sent, 0) == mac(received, 6)
        && mac(sent, 6) == mac(received, 0)
        // IP addresses, then ports.
        && word::<8>(sent, 26) == word::<8>(received, 26).rotate_left(32)
        && word::<4>(sent, 34) as u32 == (word::<4>(received, 34) as u32).rotate_left(16)
        && is_to_host(rights, received)
}

/// Whether a plain packet is from one host to this one.
#[inline]
fn is_to_host(rights: &SendSource, received: &[u8; PLAIN]) -> bool {
    let address = |at: usize| IpAddr::from([received[at], received[at + 1], received[at + 2], received[at + 3]]);
    let is_known = rights.host.as_ref().is_none_or(|host| host.mac == received[..6] && host.ip.contains(&address(30)));
    // No group sends or answers.
    is_known && (received[0] | received[6]) & 1 == 0 && is_one_host(address(26)) && is_one_host(address(30))
}

/// A MAC address as a number.
#[inline]
fn mac(head: &[u8; PLAIN], at: usize) -> u64 {
    word::<8>(head, at) & (u64::MAX >> 16)
}

/// `N` bytes as a number, the first byte the lowest.
#[inline]
fn word<const N: usize>(head: &[u8; PLAIN], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&head[at..at + N]);
    u64::from_le_bytes(bytes)
}

/// Whether a frame is from the host, with the tags of the packet that is handled.
#[cold]
#[inline(never)]
pub(super) fn own(rights: &SendSource, received: &PacketFields, frame: &[u8]) -> bool {
    well_formed(frame).is_some_and(|sent| sent.has_tags_of(received) && is_from(rights, received, &sent))
}

/// Whether a frame is from the host to the sender of the packet that is handled.
#[cold]
#[inline(never)]
pub(super) fn reply(rights: &SendSource, received: &PacketFields, frame: &[u8]) -> bool {
    well_formed(frame).is_some_and(|sent| {
        sent.has_tags_of(received)
            && is_from(rights, received, &sent)
            && frame[..6] == received.source_mac
            && has_one_host(&received.source_mac, received.source_address())
            && answers(&sent, received)
    })
}

/// Fields of an IP packet that is complete, no fragment, and has no header that changes its source or destination.
fn well_formed(frame: &[u8]) -> Option<PacketFields> {
    let headers = Headers::parse(frame);
    headers.payload?;
    let (ip, l4) = (usize::from(headers.ip?), usize::from(headers.l4?));
    let plain_header = match headers.ip_version {
        4 => has_plain_options(frame.get(ip + IPV4..l4)?),
        // Routing headers name further destinations (RFC 8200 §4.4), and destination options another source (RFC 6275 §6.3).
        _ => l4 == ip + IPV6,
    };
    plain_header.then(|| PacketFields::of(frame))
}

/// Whether all options of an IPv4 header are complete, and none is a source route.
fn has_plain_options(mut options: &[u8]) -> bool {
    loop {
        let behind = match *options {
            [] | [END_OF_OPTIONS, ..] => return true,
            [NO_OPERATION, ref rest @ ..] => Some(rest),
            // The length counts the bytes of kind and length, too.
            [kind, len, ..] if len >= 2 && !SOURCE_ROUTES.contains(&kind) => options.get(usize::from(len)..),
            _ => None,
        };
        let Some(rest) = behind else { return false };
        options = rest;
    }
}

/// Whether a packet's source is the host.
fn is_from(rights: &SendSource, received: &PacketFields, sent: &PacketFields) -> bool {
    sent.source_mac == *mac_of(rights, received)
        && has_one_host(&sent.source_mac, sent.source_address())
        && is_host_of(rights, received, sent.source_address())
        && has_source_port(rights, received, sent)
}

/// Whether the transport protocol and the source port are allowed.
fn has_source_port(rights: &SendSource, received: &PacketFields, sent: &PacketFields) -> bool {
    let [kind, code, ..] = sent.transport;
    let listed = match (sent.protocol, sent.version) {
        (TCP, _) => &rights.tcp,
        (UDP, _) => &rights.udp,
        (ICMP, 4) => return rights.icmp && code == 0 && ECHO.contains(&kind),
        (ICMP6, 6) => return rights.icmp6 && code == 0 && ECHO6.contains(&kind),
        _ => return false,
    };
    listed.iter().any(|range| range.contains(&sent.source_port())) || is_port_of(rights, received, sent)
}

/// Whether a packet comes from the port to which the host got the packet that is handled. The policy let the context match that.
fn is_port_of(rights: &SendSource, received: &PacketFields, sent: &PacketFields) -> bool {
    (sent.version, sent.protocol, sent.source_port())
        == (received.version, received.protocol, received.destination_port())
        && is_host_of(rights, received, received.destination_address())
}

/// Whether the addresses, the protocol and the destination port are those of an answer.
fn answers(sent: &PacketFields, received: &PacketFields) -> bool {
    (sent.version, sent.protocol) == (received.version, received.protocol)
        && (sent.source, sent.destination) == (received.destination, received.source)
        && match sent.protocol {
            ICMP => [received.transport[0], sent.transport[0]] == ECHO && received.transport[1] == 0,
            ICMP6 => [received.transport[0], sent.transport[0]] == ECHO6 && received.transport[1] == 0,
            _ => sent.destination_port() == received.source_port(),
        }
}

/// MAC address of the host.
#[inline]
fn mac_of<'a>(rights: &'a SendSource, received: &'a PacketFields) -> &'a [u8; 6] {
    rights.host.as_ref().map_or(&received.destination_mac, |host| &host.mac)
}

/// Whether an IP address is the host's.
#[inline]
fn is_host_of(rights: &SendSource, received: &PacketFields, address: IpAddr) -> bool {
    match &rights.host {
        Some(host) => host.ip.contains(&address),
        None => address == received.destination_address(),
    }
}

/// Whether both addresses are of one host, and of no group.
#[inline]
fn has_one_host(mac: &[u8; 6], address: IpAddr) -> bool {
    mac[0] & 1 == 0 && is_one_host(address)
}

/// Whether an address is that of one host: no group, no broadcast, not "this network" (RFC 6890).
#[inline]
fn is_one_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => (1..224).contains(&address.octets()[0]),
        IpAddr::V6(address) => !address.is_multicast() && !address.is_unspecified(),
    }
}
