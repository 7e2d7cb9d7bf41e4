//! Checks that a capture contains exactly one correct reply to every request, and nothing more.

use crate::wire::{self, ETHERNET_MIN, Flaw, ICMP, Mac, Packet};
use serde::Serialize;
use std::collections::HashMap;

/// Addresses by which a capture is read.
#[derive(Clone, Copy, Debug)]
pub struct Parties {
    /// MAC address of the server.
    pub server: Mac,
    /// UDP port of the echo service.
    pub udp_port: u16,
}

/// Result of checking a capture. Frames are numbered from 1, as in tshark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Echo requests and datagrams to the port: complete, correct, unicast.
    pub requests: u64,
    /// Correct replies to the requests.
    pub replies: u64,
    /// Requests without a reply.
    pub unanswered: u64,
    /// Frames to the server that must get no reply: fragments, truncated frames, wrong checksums, group addresses.
    pub unanswerable: u64,
    /// Frames of other protocols.
    pub other: u64,
    /// Frames from the server that answer no open request or are malformed: number and reason.
    pub wrong: Vec<(usize, String)>,
}

impl Report {
    /// Whether each request has exactly one correct reply, and there is at least one request.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.requests > 0 && self.replies == self.requests && self.unanswered == 0 && self.wrong.is_empty()
    }
}

/// A frame up to the packet's end without the fields that a hop may change, and the frame's length. These fields are
/// the time to live and the checksum over it; both are checked before.
type Shape = (Vec<u8>, usize);

fn shape(packet: &Packet<'_>) -> Shape {
    let mut bytes = packet.frame[..packet.end].to_vec();
    bytes[packet.ip_at + 8] = 0;
    bytes[packet.ip_at + 10..packet.ip_at + 12].fill(0);
    (bytes, packet.frame.len())
}

/// Returns the shape of the correct reply: addresses and ports exchanged, padding only where a short frame needs it.
fn reply_shape(packet: &Packet<'_>) -> Shape {
    let (mut bytes, length) = shape(packet);
    exchange(&mut bytes, 0, 6);
    exchange(&mut bytes, packet.ip_at + 12, 4);
    let l4 = packet.l4_at;
    if packet.protocol == ICMP {
        bytes[l4] = 0;
        bytes[l4 + 2..l4 + 4].fill(0);
        let sum = wire::checksum(&[&bytes[l4..]]);
        bytes[l4 + 2..l4 + 4].copy_from_slice(&sum.to_be_bytes());
    } else {
        exchange(&mut bytes, l4, 2);
    }
    (bytes, packet.end.max(length.min(ETHERNET_MIN)))
}

/// Exchanges two adjacent fields.
fn exchange(bytes: &mut [u8], at: usize, length: usize) {
    let (first, second) = bytes[at..at + 2 * length].split_at_mut(length);
    first.swap_with_slice(second);
}

fn is_request(packet: &Packet<'_>, port: u16) -> bool {
    let l4 = packet.l4();
    if packet.protocol == ICMP { l4[..2] == [8, 0] } else { l4[2..4] == port.to_be_bytes() }
}

fn is_reply(packet: &Packet<'_>, port: u16) -> bool {
    let l4 = packet.l4();
    if packet.protocol == ICMP { l4[0] == 0 } else { l4[..2] == port.to_be_bytes() }
}

/// Whether a packet goes from one host to one host, by its Ethernet and IPv4 addresses.
fn is_unicast(packet: &Packet<'_>) -> bool {
    let ip = packet.ip();
    let host = |first: u8| (1..224).contains(&first);
    (packet.frame[0] | packet.frame[6]) & 1 == 0 && host(ip[12]) && host(ip[16])
}

/// Checks the frames in order. Frames whose source is the server's MAC address are its replies, all others are
/// requests.
pub fn check<'a>(frames: impl IntoIterator<Item = &'a [u8]>, parties: Parties) -> Report {
    let mut report = Report::default();
    let mut open: HashMap<Shape, u64> = HashMap::new();
    for (index, frame) in frames.into_iter().enumerate() {
        if frame.get(6..12) == Some(&parties.server) {
            from_server(&mut report, &mut open, index + 1, frame, parties.udp_port);
        } else {
            to_server(&mut report, &mut open, frame, parties.udp_port);
        }
    }
    report.unanswered = open.values().sum();
    report
}

fn to_server(report: &mut Report, open: &mut HashMap<Shape, u64>, frame: &[u8], port: u16) {
    match wire::parse(frame) {
        Ok(packet) if is_request(&packet, port) && is_unicast(&packet) => {
            report.requests += 1;
            *open.entry(reply_shape(&packet)).or_default() += 1;
        }
        Err(Flaw::Other) => report.other += 1,
        _ => report.unanswerable += 1,
    }
}

fn from_server(report: &mut Report, open: &mut HashMap<Shape, u64>, number: usize, frame: &[u8], port: u16) {
    match wire::parse(frame) {
        Ok(packet) if is_reply(&packet, port) => match open.get_mut(&shape(&packet)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                report.replies += 1;
            }
            _ => report.wrong.push((number, "answers no request that is open".into())),
        },
        // Frames of the server's kernel: its ICMP errors, other ports, other protocols.
        Ok(_) | Err(Flaw::Other) => report.other += 1,
        Err(flaw) => report.wrong.push((number, flaw.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Parties, check};
    use crate::odd::{self, Addresses};

    const PORT: u16 = 9999;

    fn addresses() -> Addresses {
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Addresses { from_mac: [2, 0, 0, 0, 0, 1], to_mac: [2, 0, 0, 0, 0, 2], from, to, udp_port: PORT }
    }

    fn parties() -> Parties {
        Parties { server: addresses().to_mac, udp_port: PORT }
    }

    /// Makes requests and the server's replies, using only `reply_shape`.
    fn answered() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let requests: Vec<_> = odd::frames(addresses()).into_iter().map(|odd| odd.frame).collect();
        let replies = requests.iter().filter_map(|frame| {
            let packet = crate::wire::parse(frame).ok().filter(super::is_unicast)?;
            let (mut bytes, length) = super::reply_shape(&packet);
            bytes[packet.ip_at + 8] = 63;
            let sum = crate::wire::checksum(&[&bytes[packet.ip_at..packet.l4_at]]);
            bytes[packet.ip_at + 10..packet.ip_at + 12].copy_from_slice(&sum.to_be_bytes());
            bytes.resize(length, 0);
            Some(bytes)
        });
        let replies = replies.collect();
        (requests, replies)
    }

    #[test]
    fn right_replies_hold() {
        let (requests, replies) = answered();
        let all = requests.iter().chain(&replies);
        let report = check(all.map(Vec::as_slice), parties());
        assert!(report.holds(), "{report:?}");
        let expected = odd::frames(addresses()).iter().filter(|odd| odd.answer).count();
        assert_eq!(report.replies, expected as u64);
        assert!(report.unanswerable > 0);
    }

    #[test]
    fn a_missing_a_double_and_an_early_reply_are_noticed() {
        let (requests, replies) = answered();
        let without = requests.iter().chain(&replies[1..]);
        let report = check(without.map(Vec::as_slice), parties());
        assert_eq!(report.unanswered, 1);
        let twice = requests.iter().chain(&replies).chain(&replies[..1]);
        let report = check(twice.map(Vec::as_slice), parties());
        assert!(!report.holds() && report.wrong.len() == 1);
        let early = replies.iter().chain(&requests);
        assert!(!check(early.map(Vec::as_slice), parties()).holds());
    }

    #[test]
    fn every_changed_byte_of_a_reply_is_noticed() {
        let (requests, replies) = answered();
        for at in (0..replies[0].len()).filter(|at| !(6..12).contains(at)) {
            let mut changed = replies.clone();
            changed[0][at] ^= 2;
            let report = check(requests.iter().chain(&changed).map(Vec::as_slice), parties());
            assert!(!report.holds(), "byte {at} of {:02x?}", replies[0]);
        }
        let mut longer = replies.clone();
        longer[0].push(0);
        assert!(!check(requests.iter().chain(&longer).map(Vec::as_slice), parties()).holds());
    }

    #[test]
    fn nothing_at_all_does_not_hold() {
        assert!(!check([], parties()).holds());
    }
}
