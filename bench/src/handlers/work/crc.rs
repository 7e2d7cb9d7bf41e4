//! Payloads that end with their CRC-32, and some that do not.

use super::untuned::shortened;
use super::{Work, random, source};
use fastrand::Rng;

/// Size of a CRC in bytes.
pub const CRC: usize = 4;
/// Number of words of the four tables, which precede the counters.
pub const TABLE_WORDS: usize = 4 * 256;
/// Number of counters.
const COUNTERS: usize = 4;
/// The polynomial of IEEE 802.3 with its lowest power first.
const REFLECTED: u32 = 0xedb8_8320;

pub(super) fn make(work: &mut Work, rng: &mut Rng) {
    let words = tables().into_iter().chain([0; COUNTERS]);
    work.handler_mem = words.flat_map(u32::to_le_bytes).collect();
    let room = work.data();
    work.fill(|_| (source(rng), payload(rng, room)));
}

fn payload(rng: &mut Rng, room: usize) -> Vec<u8> {
    let length = if rng.u8(..32) == 0 { rng.usize(..CRC) } else { shortened(rng, room).max(CRC) };
    if length < CRC {
        return random(rng, length);
    }
    let mut data = random(rng, length - CRC);
    let crc = !data.iter().fold(!0, |crc, byte| step(crc ^ u32::from(*byte)) ^ crc >> 8);
    data.extend(crc.to_le_bytes());
    if rng.u8(..8) == 0 {
        let place = rng.usize(..length);
        data[place] ^= 1 << rng.u8(..8);
    }
    data
}

/// Returns the remainder of eight bits.
fn step(byte: u32) -> u32 {
    (0..8).fold(byte & 0xff, |rest, _| if rest & 1 == 1 { rest >> 1 ^ REFLECTED } else { rest >> 1 })
}

/// Makes the tables of a byte that 0, 1, 2 and 3 bytes follow.
fn tables() -> Vec<u32> {
    let mut words: Vec<u32> = (0..256).map(step).collect();
    for at in 256..TABLE_WORDS {
        let before = words[at - 256];
        words.push(before >> 8 ^ words[(before & 0xff) as usize]);
    }
    words
}
