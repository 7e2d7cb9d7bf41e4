//! Answers of the shipped handlers, byte for byte, under `qemu-riscv32` with unmapped pages around each frame.

mod frames;

use frames::{CLIENT, CLIENT_MAC, Ipv4, SERVER, SERVER_MAC, ethernet, icmp, reply, request, udp};
use spin_handlers::{folder, source, try_build};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Runs the handler on each frame; an empty reply means none.
fn replies(handler: &str, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let image =
        try_build(&[&source(handler), &folder().join("tests/harness.c")], &["-Werror", "-Wl,-e,_start"]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    // qemu refuses a file without execute permission, without a message.
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut qemu = Command::new("qemu-riscv32")
        .arg(file.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("qemu-riscv32 does not start; on Debian: apt install qemu-user");
    let mut input = Vec::new();
    for frame in frames {
        input.extend(u32::try_from(frame.len()).unwrap().to_le_bytes());
        input.extend(frame);
    }
    let mut stdin = qemu.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = qemu.wait_with_output().unwrap();
    assert!(output.status.success(), "{handler} ended with {}", output.status);
    writer.join().unwrap().unwrap();
    let replies = split(&output.stdout);
    assert_eq!(replies.len(), frames.len());
    replies
}

fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (reply, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        all.push(reply.to_vec());
        bytes = rest;
    }
    all
}

/// A case: special property, frame, and answer; `None`: no answer is allowed.
type Case = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// Checks each frame's answer.
fn check(handler: &str, cases: Vec<Case>) {
    let frames: Vec<_> = cases.iter().map(|(_, frame, _)| frame.clone()).collect();
    for ((what, frame, expected), got) in cases.into_iter().zip(replies(handler, &frames)) {
        assert_eq!(got, expected.unwrap_or_default(), "{what}: {frame:02x?}");
    }
}

fn padded(mut frame: Vec<u8>, length: usize) -> Vec<u8> {
    assert!(frame.len() < length);
    frame.resize(length, 0);
    frame
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

fn ping(rest: &[u8]) -> Ipv4 {
    Ipv4::new(1, icmp(8, 0, rest))
}

fn pong(request: &Ipv4) -> Ipv4 {
    request.answer(64, icmp(0, 0, &request.payload[4..]))
}

#[test]
fn icmp_echo_answers_every_length() {
    let mut cases = Vec::new();
    for length in (4..=70).chain([1000, 1471, 1472, 1480]) {
        let question = ping(&pattern(length));
        cases.push(("a plain request", request(&question.bytes()), Some(reply(&pong(&question).bytes()))));
    }
    check("icmp_echo", cases);
}

/// Edge cases of one's complement: a reply whose other bytes are all zero has checksum 0xffff, and one whose sum is
/// 0xffff has 0x0000. Neighbouring values are ordinary.
#[test]
fn icmp_echo_checksum_corners() {
    let mut cases = Vec::new();
    for word in
        [0u32, 1, 0xffff, 0xffff_0000, 0xffff_ffff, 0xf7ff, 0xf800, 0x0800, 0x0800_f7ff, 0xfffe_0001, 0xff00_00ff]
    {
        let question = ping(&word.to_be_bytes());
        cases.push(("a corner", request(&question.bytes()), Some(reply(&pong(&question).bytes()))));
    }
    check("icmp_echo", cases);
}

#[test]
fn icmp_echo_keeps_tags_options_and_padding() {
    let question = ping(&pattern(8));
    let bytes = question.bytes();
    let answer = pong(&question).bytes();
    let tagged = |tags: &[(u16, u16)]| {
        let frame = ethernet(SERVER_MAC, CLIENT_MAC, tags, 0x0800, &bytes);
        (frame, Some(ethernet(CLIENT_MAC, SERVER_MAC, tags, 0x0800, &answer)))
    };
    let with_options = Ipv4 { options: vec![7, 7, 4, 0, 0, 0, 0, 0], ..question.clone() };
    let one = tagged(&[(0x8100, 0x2005)]);
    let two = tagged(&[(0x88a8, 100), (0x8100, 200)]);
    let three = tagged(&[(0x88a8, 1), (0x8100, 2), (0x8100, 3)]);
    let long = ping(&pattern(100));
    let mut trailer = request(&long.bytes());
    trailer.extend([0xee; 9]);
    check(
        "icmp_echo",
        vec![
            ("one tag", one.0.clone(), one.1.clone()),
            ("two tags", two.0, two.1),
            ("three tags: not understood", three.0, None),
            ("padded", padded(request(&bytes), 60), Some(padded(reply(&answer), 60))),
            ("padded beyond the least frame", padded(request(&bytes), 64), Some(padded(reply(&answer), 60))),
            ("padded a little", padded(request(&bytes), 50), Some(padded(reply(&answer), 50))),
            ("tagged and padded", padded(one.0, 60), Some(padded(one.1.unwrap(), 60))),
            ("a trailer", trailer, Some(reply(&pong(&long).bytes()))),
            ("options", request(&with_options.bytes()), Some(reply(&pong(&with_options).bytes()))),
        ],
    );
}

#[test]
fn icmp_echo_answers_nothing_else() {
    let good = ping(&pattern(16));
    let bytes = good.bytes();
    let flip = |at: usize| {
        let mut packet = bytes.clone();
        packet[at] ^= 0x40;
        request(&packet)
    };
    let to = |destination| request(&Ipv4 { destination, ..good.clone() }.bytes());
    let from = |source| request(&Ipv4 { source, ..good.clone() }.bytes());
    let fragment = |fragment| request(&Ipv4 { fragment, ..good.clone() }.bytes());
    let other = |payload| request(&Ipv4 { payload, ..good.clone() }.bytes());
    let mut cases = vec![
        ("a group MAC destination", ethernet([0xff; 6], CLIENT_MAC, &[], 0x0800, &bytes)),
        ("a group MAC source", ethernet(SERVER_MAC, [1, 0, 0, 0, 0, 1], &[], 0x0800, &bytes)),
        ("limited broadcast", to([255; 4])),
        ("multicast", to([224, 0, 0, 1])),
        ("from nobody", from([0; 4])),
        ("from a group", from([239, 1, 1, 1])),
        ("a first fragment", fragment(0x2000)),
        ("a later fragment", fragment(0x0001)),
        ("the last fragment", fragment(0x1000)),
        ("an echo reply", other(icmp(0, 0, &pattern(16)))),
        ("a timestamp request", other(icmp(13, 0, &pattern(16)))),
        ("code 1", other(icmp(8, 1, &pattern(16)))),
        ("seven bytes of ICMP", other(icmp(8, 0, &pattern(3)))),
        ("no ICMP at all", other(vec![])),
        ("UDP", request(&Ipv4 { protocol: 17, ..good.clone() }.bytes())),
        ("a wrong ICMP checksum", flip(25)),
        ("a wrong IP checksum", flip(8)),
        ("IPv5", flip(0)),
        ("IPv6 EtherType", ethernet(SERVER_MAC, CLIENT_MAC, &[], 0x86dd, &bytes)),
    ];
    let whole = request(&bytes);
    cases.extend((0..whole.len()).map(|length| ("truncated", whole[..length].to_vec())));
    let tagged = ethernet(SERVER_MAC, CLIENT_MAC, &[(0x88a8, 1), (0x8100, 2)], 0x0800, &bytes);
    cases.extend((0..tagged.len()).map(|length| ("truncated with tags", tagged[..length].to_vec())));
    check("icmp_echo", cases.into_iter().map(|(what, frame)| (what, frame, None)).collect());
}

fn question(payload: &[u8]) -> Ipv4 {
    Ipv4::new(17, udp(CLIENT, SERVER, [40000, 9999], payload))
}

fn echoed(question: &Ipv4, payload: &[u8]) -> Ipv4 {
    question.answer(question.ttl, udp(SERVER, CLIENT, [9999, 40000], payload))
}

#[test]
fn udp_pingpong_sends_every_datagram_back() {
    let mut cases = Vec::new();
    for length in (0..40).chain([256, 1471, 1472]) {
        let payload = pattern(length);
        let ask = question(&payload);
        cases.push(("a plain datagram", request(&ask.bytes()), Some(reply(&echoed(&ask, &payload).bytes()))));
    }
    let payload = pattern(5);
    let ask = question(&payload);
    let (bytes, answer) = (ask.bytes(), echoed(&ask, &payload).bytes());
    let with_options = Ipv4 { options: vec![1, 1, 1, 0], ..ask.clone() };
    let tags = [(0x8100, 7)];
    cases.extend([
        ("padded", padded(request(&bytes), 60), Some(padded(reply(&answer), 60))),
        ("options", request(&with_options.bytes()), Some(reply(&echoed(&with_options, &payload).bytes()))),
        (
            "a tag",
            ethernet(SERVER_MAC, CLIENT_MAC, &tags, 0x0800, &bytes),
            Some(ethernet(CLIENT_MAC, SERVER_MAC, &tags, 0x0800, &answer)),
        ),
    ]);
    check("udp_pingpong", cases);
}

fn ipv6(source: [u8; 16], destination: [u8; 16], next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(source);
    packet.extend(destination);
    packet.extend(payload);
    packet
}

#[test]
fn udp_pingpong_over_ipv6() {
    let (client, server) = ([0xfd; 16], [0xfc; 16]);
    let group = [0xff; 16];
    let datagram = [0x9c, 0x40, 0x27, 0x0f, 0, 12, 0xab, 0xcd, 1, 2, 3, 4];
    let swapped = [0x27, 0x0f, 0x9c, 0x40, 0, 12, 0xab, 0xcd, 1, 2, 3, 4];
    let ask = |packet: &[u8]| ethernet(SERVER_MAC, CLIENT_MAC, &[], 0x86dd, packet);
    let whole = ask(&ipv6(client, server, 17, &datagram));
    let answer = ethernet(CLIENT_MAC, SERVER_MAC, &[], 0x86dd, &ipv6(server, client, 17, &swapped));
    let mut cases = vec![
        ("IPv6", whole.clone(), Some(answer)),
        ("a fragment header", ask(&ipv6(client, server, 44, &datagram)), None),
        ("to a group", ask(&ipv6(client, group, 17, &datagram)), None),
        ("from nobody", ask(&ipv6([0; 16], server, 17, &datagram)), None),
    ];
    cases.extend((0..whole.len()).map(|length| ("truncated", whole[..length].to_vec(), None)));
    check("udp_pingpong", cases);
}

#[test]
fn udp_pingpong_answers_nothing_else() {
    let ask = question(&pattern(20));
    let bytes = ask.bytes();
    let udp_length = |length: u16| {
        let mut packet = bytes.clone();
        packet[24..26].copy_from_slice(&length.to_be_bytes());
        request(&packet)
    };
    let with = |change: fn(&mut Ipv4)| {
        let mut packet = ask.clone();
        change(&mut packet);
        request(&packet.bytes())
    };
    let mut cases = vec![
        ("a group MAC destination", ethernet([0x33, 0x33, 0, 0, 0, 1], CLIENT_MAC, &[], 0x0800, &bytes)),
        ("a group MAC source", ethernet(SERVER_MAC, [0xff; 6], &[], 0x0800, &bytes)),
        ("multicast", with(|packet| packet.destination = [239, 255, 255, 250])),
        ("broadcast", with(|packet| packet.destination = [255; 4])),
        ("from nobody", with(|packet| packet.source = [0; 4])),
        ("a first fragment", with(|packet| packet.fragment = 0x2000)),
        ("a later fragment", with(|packet| packet.fragment = 185)),
        ("TCP", with(|packet| packet.protocol = 6)),
        ("a UDP length of 7", udp_length(7)),
        ("a UDP length beyond the packet", udp_length(29)),
    ];
    let whole = request(&bytes);
    cases.extend((0..whole.len()).map(|length| ("truncated", whole[..length].to_vec())));
    check("udp_pingpong", cases.into_iter().map(|(what, frame)| (what, frame, None)).collect());
}

/// Datagrams of a few lengths, with each header byte set to each value, and truncated at every length. Every datagram
/// that counts as plain is accepted by the general parser with the same result.
#[test]
fn plain_datagrams_are_those_without_tags_or_options_and_nothing_behind() {
    const HEADERS: usize = 42;
    let mut frames = Vec::new();
    for (length, behind) in [(0, 0), (18, 0), (100, 0), (7, 11)] {
        let datagram = Ipv4::new(17, udp(CLIENT, SERVER, [40_000, 9999], &pattern(length)));
        let frame = [request(&datagram.bytes()), vec![0; behind]].concat();
        frames.extend((2..frame.len()).map(|cut| frame[..cut].to_vec()));
        for at in 12..HEADERS {
            frames.extend((0..=255).map(|value| {
                let mut changed = frame.clone();
                changed[at] = value;
                changed
            }));
        }
    }
    let (mut plain, mut others) = (0, 0);
    for (frame, reply) in frames.iter().zip(replies("plain_udp", &frames)) {
        let any = reply[1] != 0;
        let half = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let expected = any && half(12) == 0x0800 && frame[14] == 0x45 && 20 + half(38) == half(16);
        assert_eq!(reply[..2], if expected { [1, 2] } else { [0, u8::from(any)] }, "{frame:02x?}");
        plain += usize::from(expected);
        others += usize::from(any && !expected);
    }
    assert!(plain > 10_000 && others > 100, "{plain} plain, {others} others");
}
