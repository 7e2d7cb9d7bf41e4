//! The check against a naive oracle, on random packets and on replies to them with random changes.

mod oracle;
mod packets;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use spin_frame::HeapPool;

use super::{HostAddresses, Received, SendRights, SendSource};
use oracle::Mode;
use packets::{MAC, Shape};

/// The host of the tests: three addresses, of which packets use the first two.
fn source() -> SendSource {
    SendSource {
        host: Some(HostAddresses {
            mac: MAC,
            ip: vec![
                IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
                IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)),
            ],
        }),
        tcp: vec![80..=80, 3000..=3999],
        udp: vec![9..=9, 2000..=2999],
        icmp: true,
        icmp6: true,
    }
}

/// Rights of random contexts.
fn random_source(random: &mut fastrand::Rng) -> SendSource {
    let mut source = source();
    source.icmp = random.u8(..8) > 0;
    source.icmp6 = random.u8(..8) > 0;
    let Some(host) = &mut source.host else { unreachable!("it was just made") };
    if random.u8(..16) == 0 {
        host.ip.truncate(random.usize(..3));
    }
    if random.u8(..32) == 0 {
        host.ip.push(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 7)));
    }
    if random.u8(..8) == 0 {
        source.host = None;
    }
    if random.u8(..4) == 0 {
        (source.tcp, source.udp) = (Vec::new(), Vec::new());
    }
    source
}

#[test]
fn the_check_agrees_with_a_naive_one() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut outcomes = [[0_u32; 2]; 2];
    let rounds = if cfg!(miri) { 200 } else { 100_000 };
    for round in 0..rounds {
        let source = random_source(&mut random);
        let received = packets::received(&mut random);
        let sent = packets::sent(&mut random, &received);
        let fields = Received::of(&received);
        for (mode, rights) in
            [(Mode::Own, SendRights::own(source.clone())), (Mode::Reply, SendRights::reply(source.clone()))]
        {
            let allowed = rights.allow(&fields, &sent);
            let expected = oracle::allows(mode, &source, &received, &sent);
            assert_eq!(allowed, expected, "round {round}, {mode:?}: {source:?}\n{received:02x?}\n{sent:02x?}");
            outcomes[mode as usize][usize::from(allowed)] += 1;
        }
        assert!(SendRights::Raw.allow(&Received::UNKNOWN, &sent));
    }
    for [forbidden, allowed] in outcomes {
        assert!(forbidden.min(allowed) > rounds / 5, "both outcomes are frequent: {outcomes:?}");
    }
}

/// Replies with random bytes in the headers, or cut short.
#[test]
fn any_bytes_are_checked_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(12);
    let rights = [SendRights::own(source()), SendRights::reply(source())];
    for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
        let received = packets::received(&mut random);
        let mut sent = packets::sent(&mut random, &received);
        for _ in 0..if sent.is_empty() { 0 } else { random.usize(..6) } {
            let at = random.usize(..sent.len());
            sent[at] = random.u8(..);
        }
        sent.truncate(random.usize(..=sent.len()));
        let fields = Received::of(&received);
        for (mode, rights) in [Mode::Own, Mode::Reply].into_iter().zip(&rights) {
            let expected = oracle::allows(mode, &source(), &received, &sent);
            assert_eq!(rights.allow(&fields, &sent), expected, "{mode:?}\n{received:02x?}\n{sent:02x?}");
        }
    }
}

#[test]
fn a_plain_reply_is_allowed_by_constant_positions() {
    let received = packets::packet(&Shape::PLAIN);
    let mut reply = received.clone();
    packets::turn(&mut reply);
    let Received::Plain(head) = Received::of(&received) else { panic!("it is plain") };
    assert!(super::check::is_plain_reply(&source(), &head, &reply));
    for at in (0..20).chain(23..24).chain(26..38) {
        let mut other = reply.clone();
        other[at] ^= 1;
        // Type of service, and identification. The packet fills the frame: its length has only bit 0 clear in byte 17.
        let free = matches!(at, 15 | 18 | 19);
        assert_eq!(super::check::is_plain_reply(&source(), &head, &other), free, "byte {at}");
    }
}

#[test]
fn nothing_is_sent_for_an_unknown_packet() {
    let received = packets::packet(&Shape::PLAIN);
    let mut reply = received.clone();
    packets::turn(&mut reply);
    for rights in [SendRights::own(source()), SendRights::reply(source())] {
        assert!(rights.allow(&Received::of(&received), &reply));
        assert!(!rights.allow(&Received::UNKNOWN, &reply));
    }
}

#[test]
fn fields_are_kept_beside_the_frame() {
    let mut random = fastrand::Rng::with_seed(13);
    let mut pool = HeapPool::new(1);
    for _ in 0..1000 {
        let received = packets::received(&mut random);
        let mut frame = pool.allocate().expect("one");
        frame.fill(&received).expect("fits");
        Received::of(&frame).keep_in(&mut frame);
        assert_eq!(&*frame, received, "unchanged");
        frame.fill(&vec![0xff; received.len()]).expect("fits");
        assert_eq!(Received::kept_in(&frame), Received::of(&received));
        pool.recycle(frame).expect("its own");
    }
    let mut frame = pool.allocate().expect("one");
    frame.fill(&[0; spin_frame::CHUNK]).expect("fits");
    Received::of(&frame).keep_in(&mut frame);
    assert_eq!(Received::kept_in(&frame), Received::UNKNOWN, "there is no room");
}
