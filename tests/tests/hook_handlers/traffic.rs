//! Frames that handlers are made for.

use crate::frames::{CLIENT, CLIENT_MAC, Ipv4, SERVER, SERVER_MAC, ethernet, icmp, udp};
use crate::random::Random;

pub const IPV4: u16 = 0x0800;

/// Random bytes.
pub fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next().to_le_bytes()[0]).collect()
}

/// A length of a payload: most often a short one.
pub fn length(random: &mut Random) -> usize {
    let most = random.choose(&[4, 16, 64, 64, 200, 1472]);
    random.below(most + 1) as usize
}

/// The payload that a handler is made for.
fn payload(handler: &str, random: &mut Random) -> Vec<u8> {
    let len = length(random);
    match handler {
        "kvstore" => {
            let (operation, key) = (1 + random.below(2), random.below(300));
            let words = [operation, key, random.value()];
            let mut payload: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            payload.extend(bytes(random, len));
            payload
        }
        "verdicts" => {
            let mut payload = bytes(random, len + 4);
            payload[1] = random.choose(&[0, 1, 2, 3, 4, 5, 6, 7, 255]);
            payload
        }
        "store_outside" => {
            let mut payload = bytes(random, len + 1);
            payload[0] = random.choose(b"eEbnshcw..........");
            payload
        }
        "shortens" => {
            let mut payload = bytes(random, len + 2);
            payload[0] = random.choose(&[0, 0, 1, 1, 2, 29, 30, 31, 32, 33, 255]);
            payload[1] = random.choose(&[0, 0, 1, 1, 4, 4, 7]);
            payload
        }
        _ => (0..len.div_ceil(4)).flat_map(|_| random.below(1100).to_le_bytes()).collect(),
    }
}

/// An IPv4 packet that a handler is made for.
pub fn packet(handler: &str, random: &mut Random) -> Ipv4 {
    if handler == "icmp_echo" {
        let len = 4 + length(random);
        return Ipv4::new(1, icmp(8, 0, &bytes(random, len)));
    }
    Ipv4::new(17, udp(CLIENT, SERVER, [4660, 9999], &payload(handler, random)))
}

/// A frame that a handler is made for.
pub fn sample(handler: &str, random: &mut Random) -> Vec<u8> {
    ethernet(SERVER_MAC, CLIENT_MAC, &[], IPV4, &packet(handler, random).bytes())
}
