//! Turns a UDP datagram over IPv4 round: what an echo does to a frame. The checksums stay right.

/// Offsets in a frame without tags and options.
const IP: usize = 14;
const UDP: usize = 34;
const PAYLOAD: usize = 42;

/// Swaps both MAC addresses, IP addresses and ports. Returns whether the frame is a UDP datagram over IPv4 without VLAN tags and IP
/// options; others are left alone.
pub fn reflect(frame: &mut [u8]) -> bool {
    if frame.len() < PAYLOAD || frame[12..=IP] != [8, 0, 0x45] || frame[IP + 9] != 17 {
        return false;
    }
    for (at, len) in [(0, 6), (IP + 12, 4), (UDP, 2)] {
        let (one, other) = frame[at..at + 2 * len].split_at_mut(len);
        one.swap_with_slice(other);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::reflect;
    use crate::wire::{Ipv4, UDP, datagram, ethernet, parse};
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
    fn other_frames_are_left_alone() {
        for bytes in [vec![], vec![0; 100], [vec![0; 12], vec![8, 0, 0x45], vec![0; 27]].concat()] {
            let mut frame = bytes.clone();
            assert!(!reflect(&mut frame));
            assert_eq!(frame, bytes);
        }
    }
}
