//! Frames that nobody should send: random ones, changed samples, and frames of every length.
//!
//! `SPIN_FUZZ_FRAMES` says how many, `SPIN_FUZZ_SEED` with which round of [`ROUND`] frames to begin; a failure names its
//! round.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use spin_testing::{bounded, from_environment};

use crate::compare::{Fared, Pair};
use crate::frames::{CLIENT, CLIENT_MAC, Ipv4, SERVER, SERVER_MAC, ethernet, udp};
use crate::is_root;
use crate::loaded::{Form, Handler, Loaded, pin};
use crate::random::Random;
use crate::traffic::{IPV4, bytes, length, packet};

const IPV6: u16 = 0x86dd;
/// Lengths of frames that the kernel's test runs accept.
const SHORTEST: usize = 14;
const LONGEST: usize = 3520;
/// Bytes of headers without tags and options.
const HEADERS: usize = 42;
/// Frames that a handler gets in a round, with the memory of earlier ones.
const ROUND: u64 = 64;
/// Rounds after which a run says how to resume it.
const PROGRESS: u64 = 1000;
/// Handlers that get hostile frames, the form in which they load, and what becomes of at least some of the frames.
const ATTACKED: [(&str, Form, &[Fared]); 11] = [
    ("udp_pingpong", Form::Plain, &[Fared::Sent, Fared::Dropped]),
    ("icmp_echo", Form::Forgetful, &[Fared::Sent, Fared::Dropped]),
    ("kvstore", Form::Plain, &[Fared::Sent, Fared::Dropped]),
    ("aggregate", Form::Plain, &[Fared::Dropped]),
    ("reduce", Form::OpaqueForgetful, &[Fared::Dropped]),
    ("histogram", Form::Plain, &[Fared::Dropped]),
    // Returns any verdict.
    ("verdicts", Form::Plain, &[Fared::Passed, Fared::Discarded, Fared::Dropped]),
    // Changes the frame that the kernel gets.
    ("forwards", Form::Plain, &[Fared::Passed, Fared::Faulted]),
    // Sends with any length and returns any verdict. Lengths without a header are left to user space. A packet cannot be
    // sent and passed.
    (
        "shortens",
        Form::Plain,
        &[Fared::Sent, Fared::Left, Fared::Lost, Fared::Passed, Fared::Discarded, Fared::Dropped],
    ),
    // Stores outside its memory, where a jump table says, or sends the packet back.
    ("store_outside", Form::Plain, &[Fared::Sent, Fared::Faulted, Fared::Dropped]),
    ("null_load", Form::Plain, &[Fared::Faulted]),
];
/// Handlers that write memory that all processors share.
const WRITERS: [&str; 4] = ["kvstore", "aggregate", "reduce", "histogram"];
/// Handlers that decide on packets.
const DECIDERS: [&str; 3] = ["verdicts", "forwards", "shortens"];

/// Frames of a run, unless the environment says otherwise.
fn hostile_frames() -> u64 {
    from_environment("SPIN_FUZZ_FRAMES", bounded(20_000, 10_000_000))
}

/// The first round. It is another one in each run.
fn first_round() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.subsec_nanos());
    from_environment("SPIN_FUZZ_SEED", time.into())
}

/// What has become of the frames of a handler.
#[derive(Debug, Default)]
struct Totals {
    fared: BTreeMap<Fared, u64>,
    /// Rounds in which the handler has written memory that all processors share.
    written: u64,
}

/// Gives the frames of a round to a handler with initial memory.
fn round(loaded: &Loaded<'_>, name: &str, number: u64, totals: &mut Totals) {
    let (mut pair, mut random) = (Pair::new(loaded), Random::new(number));
    for index in 0..ROUND {
        let frame = hostile(name, &mut random);
        match pair.step(&frame) {
            Ok(fared) => *totals.fared.entry(fared).or_default() += 1,
            Err(error) => panic!("{name}, SPIN_FUZZ_SEED={number}, frame {index}: {error}\n{frame:02x?}"),
        }
    }
    pair.compare_shared().unwrap_or_else(|error| panic!("{name}, SPIN_FUZZ_SEED={number}: {error}"));
    totals.written += u64::from(pair.has_written());
}

#[test]
fn hostile_frames_do_what_they_do_in_the_interpreter() {
    if !is_root() {
        return;
    }
    let (processor, first) = (pin(), first_round());
    let rounds = hostile_frames().div_ceil(ROUND * ATTACKED.len() as u64);
    let handlers = ATTACKED.map(|(name, ..)| Handler::new(name, DECIDERS.contains(&name), processor));
    let pairs = handlers.iter().zip(&ATTACKED);
    let loaded: Vec<Loaded<'_>> = pairs
        .map(|(handler, (name, form, _))| handler.load(*form).unwrap_or_else(|reason| panic!("{name}: {reason}")))
        .collect();
    let mut totals = ATTACKED.map(|_| Totals::default());
    for number in first..first + rounds {
        if (number - first).is_multiple_of(PROGRESS) {
            println!(
                "SPIN_FUZZ_SEED={number} SPIN_FUZZ_FRAMES={}",
                (first + rounds - number) * ROUND * ATTACKED.len() as u64
            );
        }
        for ((loaded, (name, ..)), totals) in loaded.iter().zip(&ATTACKED).zip(&mut totals) {
            round(loaded, name, number, totals);
        }
    }
    for ((name, _, kinds), totals) in ATTACKED.iter().zip(&totals) {
        // The rarest of them is 2% of the frames.
        let least = (rounds * ROUND).div_ceil(300);
        for kind in *kinds {
            let count = totals.fared.get(kind).copied().unwrap_or(0);
            assert!(count >= least, "{name}: too few {kind:?}: {totals:?}");
        }
        assert_eq!(totals.written > 0, WRITERS.contains(name), "{name}: {totals:?}");
    }
}

/// Frames of every length, up to the longest one that the kernel's test runs take.
#[test]
fn frames_of_every_length_do_what_they_do_in_the_interpreter() {
    if !is_root() {
        return;
    }
    let processor = pin();
    for (name, form) in [("udp_pingpong", Form::Plain), ("reduce", Form::OpaqueForgetful)] {
        let handler = Handler::new(name, false, processor);
        let loaded = handler.load(form).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        let mut pair = Pair::new(&loaded);
        for len in SHORTEST..=LONGEST {
            let fared = pair.step(&of_length(len)).unwrap_or_else(|error| panic!("{name}, {len} B: {error}"));
            let sent = if name == "udp_pingpong" && len >= HEADERS { Fared::Sent } else { Fared::Dropped };
            assert_eq!(fared, sent, "{name}, {len} B");
        }
        assert_eq!(pair.compare_shared(), Ok(()), "{name}");
    }
}

/// A datagram over IPv4 in a frame of any length, as far as there is room for headers.
fn of_length(len: usize) -> Vec<u8> {
    let payload = vec![0x5a; len.saturating_sub(HEADERS)];
    let mut frame = ethernet(
        SERVER_MAC,
        CLIENT_MAC,
        &[],
        IPV4,
        &Ipv4::new(17, udp(CLIENT, SERVER, [4660, 9999], &payload)).bytes(),
    );
    frame.truncate(len);
    frame
}

/// A frame of random bytes, a changed sample, or anything between.
fn hostile(handler: &str, random: &mut Random) -> Vec<u8> {
    if random.one_in(12) {
        let len = SHORTEST + length(random) * 2;
        let mut frame = bytes(random, len);
        if random.one_in(2) {
            frame[12..14].copy_from_slice(&random.choose(&[IPV4, IPV6, 0x0806, 0x8100, 0x88a8]).to_be_bytes());
        }
        return frame;
    }
    let mut frame = framed(handler, random);
    for _ in 0..random.choose(&[0, 0, 1, 1, 1, 2, 4]) {
        mutate(&mut frame, random);
    }
    frame.truncate(LONGEST);
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

/// A packet in a frame, perhaps with tags, options, other addresses or protocols.
fn framed(handler: &str, random: &mut Random) -> Vec<u8> {
    let mut packet = packet(handler, random);
    if random.one_in(4) {
        let len = 4 * random.below(11) as usize;
        packet.options = bytes(random, len);
    }
    if random.one_in(12) {
        packet.fragment = random.choose(&[0, 0x2000, 0x2001, 1, 0x1fff, 0x8000, 0xffff]);
    }
    if random.one_in(12) {
        packet.protocol = random.choose(&[1, 6, 17, 58, 132, 255]);
    }
    if random.one_in(12) {
        packet.destination = random.choose(&[[255; 4], [224, 0, 0, 1], [0; 4], [127, 0, 0, 1]]);
    }
    let kinds = [0x8100, 0x88a8, 0x9100];
    let tags: Vec<(u16, u16)> = (0..random.choose(&[0, 0, 0, 0, 0, 0, 1, 1, 2, 9]))
        .map(|_| (random.choose(&kinds), u16::try_from(random.below(0x1_0000)).expect("16 bits")))
        .collect();
    let mac = random.choose(&[SERVER_MAC, SERVER_MAC, SERVER_MAC, [0xff; 6], [1, 0, 0x5e, 0, 0, 1]]);
    if random.one_in(8) {
        return ethernet(mac, CLIENT_MAC, &tags, IPV6, &ipv6(packet.protocol, &packet.payload, random));
    }
    ethernet(mac, CLIENT_MAC, &tags, IPV4, &packet.bytes())
}

/// An IPv6 packet, perhaps with an extension header.
fn ipv6(protocol: u8, payload: &[u8], random: &mut Random) -> Vec<u8> {
    let extension = if random.one_in(4) { [vec![protocol, 0], vec![0; 6]].concat() } else { Vec::new() };
    let next = if extension.is_empty() { protocol } else { random.choose(&[0, 43, 44, 60]) };
    let len = u16::try_from(extension.len() + payload.len()).expect("16 bits").to_be_bytes();
    let mut packet = [&[0x60, 0, 0, 0], &len[..], &[next, 64]].concat();
    packet.extend(bytes(random, 32));
    [packet, extension, payload.to_vec()].concat()
}

/// Where headers are, if there are no tags or options.
const IP: usize = 14;
const UDP: usize = 34;

/// Makes one change.
fn mutate(frame: &mut Vec<u8>, random: &mut Random) {
    let len = u32::try_from(frame.len()).expect("short");
    let half = u16::try_from(random.value() & 0xffff).expect("16 bits");
    let near = u16::try_from(frame.len()).expect("short").wrapping_sub(random.choose(&[13, 14, 15, 33, 34, 35]));
    let mut put = |at: usize, value: u16| {
        if let Some(place) = frame.get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    };
    match random.below(9) {
        // Cut anywhere, most often in the headers.
        0 => frame.truncate(random.below(len + 1) as usize),
        1 => frame.truncate(SHORTEST + random.below(60) as usize),
        2 => {
            let more = length(random);
            frame.extend(bytes(random, more));
        }
        // Lengths of IP and UDP: any, or a few bytes off.
        3 => put(IP + 2, if random.one_in(2) { half } else { near }),
        4 => put(UDP + 4, if random.one_in(2) { half } else { near }),
        // Version and header length.
        5 => {
            if let Some(place) = frame.get_mut(IP) {
                *place = random.choose(&[0x40, 0x44, 0x45, 0x46, 0x4f, 0x55, 0x60, 0x65, 0xff]);
            }
        }
        6 => put(12, random.choose(&[IPV4, IPV6, 0x8100, 0x88a8, 0x0806, 0, 0xffff, 46])),
        7 if !frame.is_empty() => {
            let at = random.below(len.min(70)) as usize;
            frame[at] = random.next().to_le_bytes()[0];
        }
        _ if !frame.is_empty() => frame[random.below(len) as usize] ^= 1 << random.below(8),
        _ => {}
    }
}
