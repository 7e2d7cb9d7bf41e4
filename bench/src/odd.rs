//! Frames that kernels rarely send: tagged, padded, with options; fragments, truncated, with wrong checksums.

use crate::wire::{Ipv4, Mac, UDP, datagram, echo_request, ethernet};
use std::net::Ipv4Addr;

/// Addresses of the frames.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// MAC address of the sender.
    pub from_mac: Mac,
    /// MAC address of the server.
    pub to_mac: Mac,
    /// IPv4 address of the sender.
    pub from: Ipv4Addr,
    /// IPv4 address of the server.
    pub to: Ipv4Addr,
    /// UDP port of the server's echo service.
    pub udp_port: u16,
}

/// An unusual frame and the expected reaction.
#[derive(Clone, Debug)]
pub struct Odd {
    /// Unusual property of the frame.
    pub what: &'static str,
    /// Bytes of the frame.
    pub frame: Vec<u8>,
    /// Whether it must be answered.
    pub answer: bool,
}

/// One ICMP and one UDP packet, the base of all frames.
struct Maker {
    addresses: Addresses,
    all: Vec<Odd>,
}

impl Maker {
    fn packets(&self, data: &[u8]) -> [Ipv4; 2] {
        let Addresses { from, to, udp_port, .. } = self.addresses;
        let number = u16::try_from(self.all.len()).unwrap_or(u16::MAX); // no two frames are equal
        let icmp = echo_request(0x5150, number, data);
        let udp = datagram(from, to, [20000 + number, udp_port], data);
        [(1, icmp), (UDP, udp)].map(|(protocol, payload)| Ipv4 {
            source: from,
            destination: to,
            protocol,
            id: number,
            fragment: 0x4000,
            options: vec![],
            payload,
        })
    }

    fn frame(&self, tags: &[[u16; 2]], packet: &Ipv4) -> Vec<u8> {
        ethernet(self.addresses.to_mac, self.addresses.from_mac, tags, &packet.bytes())
    }

    /// Adds both packets in this form.
    fn add(&mut self, what: &'static str, answer: bool, length: usize, form: impl Fn(&Self, Ipv4) -> Vec<u8>) {
        let data = vec![b'o'; length];
        for which in 0..2 {
            let [icmp, udp] = self.packets(&data);
            let frame = form(self, if which == 0 { icmp } else { udp });
            self.all.push(Odd { what, frame, answer });
        }
    }
}

/// Makes the frames, each with content of its own.
#[must_use]
pub fn frames(addresses: Addresses) -> Vec<Odd> {
    let mut maker = Maker { addresses, all: vec![] };
    answerable(&mut maker);
    unanswerable(&mut maker);
    maker.all
}

fn answerable(maker: &mut Maker) {
    maker.add("tagged", true, 56, |m, packet| m.frame(&[[0x8100, 0x0064]], &packet));
    maker.add("tagged with priority", true, 56, |m, packet| m.frame(&[[0x8100, 0xa064]], &packet));
    maker.add("two tags", true, 56, |m, packet| m.frame(&[[0x88a8, 7], [0x8100, 100]], &packet));
    maker.add("padded to the least frame", true, 3, |m, packet| pad(m.frame(&[], &packet), 60));
    maker.add("tagged and padded", true, 3, |m, packet| pad(m.frame(&[[0x8100, 100]], &packet), 64));
    maker.add("with a trailer", true, 100, |m, packet| {
        let frame = m.frame(&[], &packet);
        let length = frame.len() + 8;
        pad(frame, length)
    });
    // Record route with room for two addresses, then end of options.
    let options = vec![7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    maker.add("IP options", true, 32, move |m, packet| m.frame(&[], &Ipv4 { options: options.clone(), ..packet }));
    maker.add("no data", true, 0, |m, packet| m.frame(&[], &packet));
    maker.add("an odd number of bytes", true, 57, |m, packet| m.frame(&[], &packet));
}

fn unanswerable(maker: &mut Maker) {
    maker.add("first fragment", false, 64, |m, packet| m.frame(&[], &Ipv4 { fragment: 0x2000, ..packet }));
    maker.add("later fragment", false, 64, |m, packet| m.frame(&[], &Ipv4 { fragment: 100, ..packet }));
    maker.add("cut short in its data", false, 64, |m, packet| cut(m.frame(&[], &packet), 30));
    maker.add("cut short in the transport header", false, 64, |m, packet| cut(m.frame(&[], &packet), 68));
    maker.add("cut short in the IP header", false, 64, |m, packet| cut(m.frame(&[], &packet), 85));
    maker.add("tagged and cut short", false, 64, |m, packet| cut(m.frame(&[[0x8100, 100]], &packet), 1));
    maker.add("to the broadcast address", false, 56, |m, packet| {
        m.frame(&[], &Ipv4 { destination: Ipv4Addr::BROADCAST, ..packet })
    });
}

fn pad(mut frame: Vec<u8>, length: usize) -> Vec<u8> {
    frame.resize(length, 0);
    frame
}

fn cut(mut frame: Vec<u8>, bytes: usize) -> Vec<u8> {
    frame.truncate(frame.len() - bytes);
    frame
}

#[cfg(test)]
mod tests {
    use super::{Addresses, frames};
    use crate::wire;

    #[test]
    fn answerable_ones_are_right_and_all_differ() {
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let all = frames(Addresses { from_mac: [2; 6], to_mac: [4; 6], from, to, udp_port: 9 });
        for odd in all.iter().filter(|odd| odd.answer) {
            wire::parse(&odd.frame).unwrap_or_else(|flaw| panic!("{}: {flaw}", odd.what));
        }
        let mut bytes: Vec<_> = all.iter().map(|odd| odd.frame.clone()).collect();
        bytes.sort();
        bytes.dedup();
        assert_eq!(bytes.len(), all.len());
        assert!(all.iter().any(|odd| !odd.answer));
    }
}
