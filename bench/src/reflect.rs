//! Turns a UDP datagram or a ping over IPv4 round: what an echo does to a frame. The checksums stay right.

/// Offsets in a frame without tags and options.
const IP: usize = 14;
const L4: usize = 34;
const PAYLOAD: usize = 42;

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ECHO_REQUEST: u8 = 8;

/// Swaps both MAC addresses, IP addresses and ports, or makes a reply of an echo request. Returns whether the frame is one of these, over
/// IPv4 without VLAN tags, fragments and IP options. Others are left alone.
pub fn reflect(frame: &mut [u8]) -> bool {
    if frame.len() < PAYLOAD || frame[12..=IP] != [8, 0, 0x45] || frame[IP + 6] & 0x3f != 0 || frame[IP + 7] != 0 {
        return false;
    }
    match frame[IP + 9] {
        UDP => swap(frame, L4, 2),
        ICMP if frame[L4..L4 + 2] == [ECHO_REQUEST, 0] => {
            frame[L4] = 0;
            // The sum of the words falls by the type's 0x0800, so its complement rises (RFC 1624).
            let (sum, carry) = u16::from_be_bytes([frame[L4 + 2], frame[L4 + 3]]).overflowing_add(0x0800);
            frame[L4 + 2..L4 + 4].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        }
        _ => return false,
    }
    swap(frame, 0, 6);
    swap(frame, IP + 12, 4);
    true
}

/// Swaps two fields of `len` bytes that follow each other.
fn swap(frame: &mut [u8], at: usize, len: usize) {
    let (one, other) = frame[at..at + 2 * len].split_at_mut(len);
    one.swap_with_slice(other);
}

#[cfg(test)]
mod tests {
    use super::reflect;
    use crate::wire::{ICMP, Ipv4, UDP, datagram, echo_request, ethernet, parse};
    use std::net::Ipv4Addr;

    #[test]
    fn a_datagram_is_turned_round() {
        let ends = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let frame = |from: usize, to: usize| {
            let payload = datagram(ends[from], ends[to], [1000 + from as u16, 1000 + to as u16], b"payload");
            let ip = Ipv4 {
                source: ends[from],
                destination: ends[to],
                protocol: UDP,
                id: 7,
                fragment: 0,
                options: vec![],
                payload,
            };
            ethernet([to as u8; 6], [from as u8; 6], &[], &ip.bytes())
        };
        let mut turned = frame(0, 1);
        assert!(reflect(&mut turned));
        assert_eq!(turned, frame(1, 0));
        parse(&turned).expect("checksums are right");
    }

    #[test]
    fn every_ping_gets_its_reply() {
        let ends = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        // Sequence numbers with all carries of the checksum.
        for number in 0..=u16::MAX {
            let payload = echo_request(0x1234, number, b"payload!");
            let ip = Ipv4 {
                source: ends[0],
                destination: ends[1],
                protocol: ICMP,
                id: 7,
                fragment: 0,
                options: vec![],
                payload,
            };
            let mut frame = ethernet([2; 6], [1; 6], &[], &ip.bytes());
            assert!(reflect(&mut frame));
            let packet = parse(&frame).expect("checksums are right");
            assert_eq!((packet.l4()[0], &packet.l4()[4..8]), (0, &[0x12, 0x34, (number >> 8) as u8, number as u8][..]));
            assert!(!reflect(&mut frame), "a reply");
        }
    }

    #[test]
    fn other_frames_are_left_alone() {
        for bytes in [vec![], vec![0; 100], [vec![0; 12], vec![8, 0, 0x45], vec![0; 27]].concat()] {
            let mut frame = bytes.clone();
            assert!(!reflect(&mut frame));
            assert_eq!(frame, bytes);
        }
    }
}
