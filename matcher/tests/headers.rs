//! Header positions, compared with the construction of frames and with etherparse.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq};
use proptest::{proptest, test_runner::TestCaseError};
use spin_matcher::Headers;
use spin_matcher::testing::{frames, honest_frames};
use spin_testing::bounded;

/// Offset in `frame` of `part`, which is a slice of it.
fn offset(frame: &[u8], part: &[u8]) -> Option<u16> {
    u16::try_from(part.as_ptr().addr() - frame.as_ptr().addr()).ok()
}

/// Compares both results. They differ by design in these cases:
/// * a third VLAN tag: etherparse skips it, the matcher does not;
/// * IPv6 packets with a fragment header: etherparse reads unfragmented ones;
/// * IPv6 packets with AH: etherparse skips it;
/// * IPv6 packets of payload length 0: etherparse takes the frame's rest;
/// * more than four extension headers.
fn compare(frame: &[u8], headers: &Headers, theirs: &SlicedPacket<'_>) -> Result<(), TestCaseError> {
    let (ip, extensions) = match &theirs.net {
        Some(NetSlice::Ipv4(ip)) => (ip.header().slice(), ip.extensions().auth.is_some()),
        Some(NetSlice::Ipv6(ip)) if ip.header().payload_length() == 0 => return Ok(()),
        Some(NetSlice::Ipv6(ip)) => (ip.header().slice(), !ip.extensions().slice().is_empty()),
        _ => return Ok(()),
    };
    prop_assert_eq!(headers.ip, offset(frame, ip));
    let (transport, payload, protocol) = match &theirs.transport {
        Some(TransportSlice::Udp(udp)) => (udp.slice(), Some(udp.payload()), 17),
        Some(TransportSlice::Tcp(tcp)) => (tcp.slice(), Some(tcp.payload()), 6),
        Some(TransportSlice::Icmpv4(icmp)) => (icmp.slice(), None, 1),
        Some(TransportSlice::Icmpv6(icmp)) => (icmp.slice(), None, 58),
        _ => return Ok(()),
    };
    if extensions && headers.protocol != protocol {
        return Ok(());
    }
    prop_assert_eq!(headers.protocol, protocol);
    prop_assert_eq!(headers.l4, offset(frame, transport));
    if let Some(payload) = payload {
        prop_assert_eq!(headers.payload, offset(frame, payload));
        prop_assert_eq!(headers.payload_of(frame), Some(payload));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: bounded(3000, 10_000), ..ProptestConfig::default() })]

    #[test]
    fn headers_are_where_they_were_put(built in honest_frames()) {
        prop_assert_eq!(Headers::parse(&built.bytes), built.headers);
    }

    #[test]
    fn etherparse_finds_the_same(built in honest_frames()) {
        let headers = Headers::parse(&built.bytes);
        if built.headers.ip.is_some() && let Ok(theirs) = SlicedPacket::from_ethernet(&built.bytes) {
            compare(&built.bytes, &headers, &theirs)?;
        }
    }

    #[test]
    fn positions_are_ordered_and_within_any_frame(frame in frames()) {
        let headers = Headers::parse(&frame);
        prop_assert!(headers.end as usize <= frame.len());
        let positions = [headers.ip, headers.l4, headers.payload];
        prop_assert!(positions.windows(2).all(|pair| pair[1].is_none() || pair[0] < pair[1]), "{:?}", headers);
        prop_assert!(positions.iter().flatten().all(|at| u32::from(*at) <= headers.end), "{:?}", headers);
        prop_assert_eq!(headers.l4.is_some(), headers.protocol != 0);
        prop_assert_eq!(headers.ip.is_some(), headers.ip_version != 0);
        // The parser ignores bytes behind the packet's end.
        if headers.ip.is_some() && (headers.end as usize) < frame.len() {
            prop_assert_eq!(Headers::parse(&frame[..headers.end as usize]), headers);
        }
    }
}

/// Checks how often the comparison with etherparse reaches a transport header.
#[test]
fn etherparse_understands_most_frames() {
    use proptest::strategy::{Strategy, ValueTree};
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut understood, mut of) = (0, 0);
    for _ in 0..2000 {
        let built = honest_frames().new_tree(&mut runner).expect("a value").current();
        if built.headers.payload.is_some() {
            of += 1;
            understood += u32::from(SlicedPacket::from_ethernet(&built.bytes).is_ok_and(|p| p.transport.is_some()));
        }
    }
    assert!(of > 500 && understood * 10 > of * 9, "{understood} of {of}");
}
