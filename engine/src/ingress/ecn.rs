//! Explicit congestion notification (RFC 3168): tells a packet's receiver that its sender should slow down.

use spin_matcher::Headers;

/// Mask of the ECN field, and its value "congestion experienced". The other values are not capable, ECT(1) and ECT(0).
const CE: u8 = 0b11;

/// Marks a packet with "congestion experienced". Returns whether it is marked: only packets of ECN-capable senders are.
pub fn mark(frame: &mut [u8]) -> bool {
    let headers = Headers::parse(frame);
    let Some(ip) = headers.ip.map(usize::from) else { return false };
    match headers.ip_version {
        4 => mark_v4(&mut frame[ip..]),
        6 => mark_v6(&mut frame[ip..]),
        _ => false,
    }
}

fn mark_v4(header: &mut [u8]) -> bool {
    let Some(&[version, tos, .., high, low]) = header.first_chunk::<12>() else { return false };
    if tos & CE == 0 {
        return false;
    }
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let [old, new] = [tos, tos | CE].map(|tos| u32::from(u16::from_be_bytes([version, tos])));
    let sum = (u32::from(u16::from_be_bytes([high, low])) ^ 0xffff) + (old ^ 0xffff) + new;
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let [.., high, low] = (folded ^ 0xffff).to_be_bytes();
    header[1] = tos | CE;
    (header[10], header[11]) = (high, low);
    true
}

fn mark_v6(header: &mut [u8]) -> bool {
    // The header begins with version, traffic class and flow label. The ECN field, the class's lowest two bits, is in bits 4 and
    // 5 of the second byte.
    match header.get_mut(1) {
        Some(byte) if *byte >> 4 & CE != 0 => {
            *byte |= CE << 4;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, SlicedPacket};
    use proptest::prelude::*;

    use super::mark;

    proptest! {
        #[test]
        fn v4_is_marked_and_its_checksum_right(tos in any::<u8>(), ttl in any::<u8>(), source in any::<[u8; 4]>()) {
            let mut header = etherparse::Ipv4Header::new(8, ttl, etherparse::IpNumber::UDP, source, [10, 0, 0, 2])
                .expect("short");
            header.dscp = etherparse::IpDscp::try_new(tos >> 2).expect("six bits");
            header.ecn = etherparse::IpEcn::try_new(tos & 3).expect("two bits");
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ip(etherparse::IpHeaders::Ipv4(header, Default::default()));
            let mut frame = Vec::new();
            builder.udp(1, 2).write(&mut frame, b"payload").expect("into memory");
            let before = frame.clone();
            prop_assert_eq!(mark(&mut frame), tos & 3 != 0);
            if tos & 3 == 0 {
                prop_assert_eq!(&frame, &before);
                return Ok(());
            }
            let sliced = SlicedPacket::from_ethernet(&frame).expect("still a packet");
            let Some(etherparse::NetSlice::Ipv4(ip)) = sliced.net else { panic!("IPv4") };
            prop_assert_eq!(ip.header().ecn().value(), 3);
            prop_assert_eq!(ip.header().dcp().value(), tos >> 2);
            prop_assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
        }

        #[test]
        fn v6_is_marked(class in any::<u8>(), label in 0..0x10_0000_u32) {
            let header = etherparse::Ipv6Header {
                traffic_class: class,
                flow_label: label.try_into().expect("twenty bits"),
                ..etherparse::Ipv6Header::default()
            };
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ip(etherparse::IpHeaders::Ipv6(header, Default::default()));
            let mut frame = Vec::new();
            builder.udp(1, 2).write(&mut frame, b"payload").expect("into memory");
            prop_assert_eq!(mark(&mut frame), class & 3 != 0);
            let sliced = SlicedPacket::from_ethernet(&frame).expect("still a packet");
            let Some(etherparse::NetSlice::Ipv6(ip)) = sliced.net else { panic!("IPv6") };
            prop_assert_eq!(ip.header().traffic_class(), if class & 3 == 0 { class } else { class | 3 });
            prop_assert_eq!(ip.header().flow_label().value(), label);
        }

        #[test]
        fn any_bytes_are_survived(mut frame in proptest::collection::vec(any::<u8>(), 0..80)) {
            mark(&mut frame);
        }
    }
}
