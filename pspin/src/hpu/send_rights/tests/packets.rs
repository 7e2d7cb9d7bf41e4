//! Random packets to the host, correct replies to them, and changes of these.

use fastrand::Rng;

/// The interface.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The headers of a packet from 10.0.0.1 or fd00::1 to the host.
pub struct Shape {
    tags: usize,
    v6: bool,
    protocol: u8,
    options: &'static [u8],
    payload: usize,
}

impl Shape {
    pub const PLAIN: Self = Self { tags: 0, v6: false, protocol: 17, options: &[], payload: 18 };

    fn random(random: &mut Rng) -> Self {
        if random.bool() {
            return Self { payload: random.usize(..40), ..Self::PLAIN };
        }
        let v6 = random.bool();
        let options: &[&[u8]] = if v6 {
            &[&[], &[], &[], &[17, 0, 0, 0, 0, 0, 0, 0]]
        } else {
            &[&[], &[], &[1, 1, 1, 0], &[7, 7, 4, 0, 0, 0, 0, 0], &[131, 7, 4, 10, 0, 0, 9, 0], &[7, 9, 4, 0]]
        };
        let protocol = [17, 17, 6, if v6 { 58 } else { 1 }, if v6 { 1 } else { 58 }, 47][random.usize(..6)];
        let tags = [0, 0, 0, 1, 2][random.usize(..5)];
        Self { tags, v6, protocol, options: options[random.usize(..options.len())], payload: random.usize(..40) }
    }
}

/// A packet to the host.
pub fn packet(shape: &Shape) -> Vec<u8> {
    let mut frame = [MAC, SENDER].concat();
    for tag in 0..shape.tags {
        frame.extend([[0x88, 0xa8], [0x81, 0x00]][usize::from(tag + 1 == shape.tags)]);
        frame.extend([0x20, 7 + u8::try_from(tag).expect("few")]);
    }
    let mut l4 = match shape.protocol {
        6 => [&[5, 0, 0, 80], &[0; 8][..], &[0x50, 0x10, 0, 9, 0, 0, 0, 0]].concat(),
        17 => vec![5, 0, 0, 9, 0, u8::try_from(8 + shape.payload).expect("short"), 0, 0],
        protocol => vec![if protocol == 58 { 128 } else { 8 }, 0, 0, 0, 0, 1, 0, 2],
    };
    l4.extend(vec![0xab; shape.payload]);
    let length = u8::try_from(shape.options.len() + l4.len()).expect("short");
    if shape.v6 {
        let first = if shape.options.is_empty() { shape.protocol } else { 60 };
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, first, 64]);
        for host in [1, 2] {
            frame.extend([&[0xfd], &[0; 14][..], &[host]].concat());
        }
        frame.extend(shape.options);
        if !shape.options.is_empty() {
            let at = frame.len() - shape.options.len();
            frame[at] = shape.protocol;
        }
    } else {
        let words = 5 + u8::try_from(shape.options.len() / 4).expect("few");
        frame.extend([8, 0, 0x40 | words, 0, 0, 20 + length, 0, 0, 0x40, 0, 64, shape.protocol, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(shape.options);
    }
    frame.extend(l4);
    frame
}

/// A packet that is handled: most are correct and for the host.
pub fn received(random: &mut Rng) -> Vec<u8> {
    let mut frame = packet(&Shape::random(random));
    if random.u8(..12) == 0 {
        change(random, &mut frame);
    }
    frame
}

/// A frame that a handler of `received` sends: a reply with few changes.
pub fn sent(random: &mut Rng, received: &[u8]) -> Vec<u8> {
    let mut frame = received.to_vec();
    turn(&mut frame);
    for _ in 0..[0, 0, 1, 1, 2][random.usize(..5)] {
        change(random, &mut frame);
    }
    frame
}

/// Start of the IP header, of the addresses and of the transport header, and the length of an address, as far as they are there.
fn places(frame: &[u8]) -> Option<[usize; 4]> {
    let mut at = 12;
    while at < 20 && matches!(frame.get(at..at + 2)?, [0x81, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    let (ip, first) = (at + 2, *frame.get(at + 2)?);
    let [addresses, l4, len] = match frame.get(at..at + 2)? {
        [8, 0] => [ip + 12, ip + 4 * usize::from(first & 15), 4],
        _ => [ip + 8, ip + 40 + 8 * usize::from(*frame.get(ip + 6)? == 60), 16],
    };
    (l4 + 8 <= frame.len() && addresses + 2 * len <= frame.len()).then_some([ip, addresses, l4, len])
}

/// Makes a packet its reply, in place.
pub fn turn(frame: &mut [u8]) {
    if frame.len() >= 12 {
        frame[..12].rotate_left(6);
    }
    let Some([_, addresses, l4, len]) = places(frame) else { return };
    frame[addresses..addresses + 2 * len].rotate_left(len);
    match frame[l4] {
        8 => frame[l4] = 0,
        128 => frame[l4] = 129,
        _ => frame[l4..l4 + 4].rotate_left(2),
    }
}

/// Changes a frame at a place that the check reads.
fn change(random: &mut Rng, frame: &mut Vec<u8>) {
    let found = places(frame);
    let Some([ip, addresses, l4, len]) = found else {
        let at = random.usize(..frame.len().max(1));
        return frame.truncate(at);
    };
    let bit = 1 << random.u8(..8);
    match random.u8(..20) {
        0 => frame[random.usize(..6)] ^= bit,
        1 => frame[6 + random.usize(..6)] ^= bit,
        2 => frame[12 + random.usize(..2)] ^= bit,
        3 => frame[ip] ^= bit,
        // Lengths of IPv4 and IPv6.
        4 => frame[ip + [3, 5][random.usize(..2)]] ^= bit,
        // Flags and offset.
        5 => frame[ip + 6] ^= bit,
        6 => frame[ip + 7] ^= bit,
        7 => frame[ip + 9] ^= bit,
        8 => frame[addresses + random.usize(..len)] ^= bit,
        9 => frame[addresses + len + random.usize(..len)] ^= bit,
        // Other addresses: of the host, multicast, broadcast, none.
        10 => frame[addresses + len - 1] = 3,
        11 => frame[addresses + len * random.usize(..2)] = [224, 255, 0, 240][random.usize(..4)],
        12 => frame[addresses + len..][..len].fill([0, 255][random.usize(..2)]),
        13 => frame[l4 + random.usize(..4)] ^= bit,
        // Other source ports that are allowed.
        14 => frame[l4..l4 + 2].copy_from_slice(&[2500_u16, 3500, 10][random.usize(..3)].to_be_bytes()),
        15 => drop(frame.splice(12..12, [0x81, 0, 0, 7])),
        16 if ip > 14 => frame[14 + random.usize(..2)] ^= bit,
        17 if ip > 14 => drop(frame.drain(12..16)),
        18 => frame.truncate(random.usize(14..=frame.len())),
        // What the check does not read.
        _ => frame.extend([0; 7]),
    }
}
