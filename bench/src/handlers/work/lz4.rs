//! LZ4 blocks of random sequences, and some that are invalid.

use super::{Work, random, source};
use fastrand::Rng;

/// Length that a match has at least.
pub const MIN_MATCH: usize = 4;

pub(super) fn make(work: &mut Work, rng: &mut Rng) {
    let room = work.data();
    work.fill(|_| (source(rng), payload(rng, room)));
}

fn payload(rng: &mut Rng, room: usize) -> Vec<u8> {
    let mut block = block(rng, room);
    match rng.u8(..32) {
        0 => block.truncate(rng.usize(..block.len())),
        1 => {
            let place = rng.usize(..block.len());
            block[place] = rng.u8(..);
        }
        // Literals that end behind the block.
        2 => block[0] = 0xf0,
        _ => {}
    }
    block
}

/// Makes a block of up to `room` bytes. One in 16 has an offset that is zero or too large.
fn block(rng: &mut Rng, room: usize) -> Vec<u8> {
    let (mut block, mut produced) = (Vec::new(), 0);
    let wrong = if rng.u8(..16) == 0 { rng.usize(..16) } else { usize::MAX };
    for number in 0.. {
        let literals = if number == 0 { rng.usize(1..16) } else { literals(rng) };
        let copied = copied(rng);
        let mut sequence = begin(literals, copied - MIN_MATCH);
        sequence.extend(random(rng, literals));
        produced += literals;
        let right = rng.usize(1..=produced.min(0xffff));
        let offset = if number != wrong { right } else { [0, produced + 1 + rng.usize(..9)][rng.usize(..2)] };
        sequence.extend(u16::try_from(offset).unwrap_or(u16::MAX).to_le_bytes());
        sequence.extend(remainder(copied - MIN_MATCH));
        if block.len() + sequence.len() + 2 > room {
            break;
        }
        block.extend(sequence);
        produced += copied;
    }
    // The last literals fill the room behind their token. Fewer than 270 fit, so that at most one byte completes their number;
    // 15 bytes hold neither 14 literals and nothing else nor 15 and that byte.
    let left = room - block.len() - 1;
    let last = if left < 15 { left } else { (left - 1).max(14) };
    block.extend(begin(last, 0));
    block.extend(random(rng, last));
    block
}

/// Returns a token, and the bytes that complete the number of literals.
fn begin(literals: usize, copied: usize) -> Vec<u8> {
    let token = literals.min(15) << 4 | copied.min(15);
    let mut bytes = vec![u8::try_from(token).expect("two half-bytes")];
    bytes.extend(remainder(literals));
    bytes
}

/// Returns the bytes that complete a length: none below 15.
fn remainder(length: usize) -> Vec<u8> {
    let Some(rest) = length.checked_sub(15) else { return Vec::new() };
    let mut bytes = vec![255; rest / 255];
    bytes.push(u8::try_from(rest % 255).expect("a byte"));
    bytes
}

/// Draws a number of literals; most sequences have few.
fn literals(rng: &mut Rng) -> usize {
    match rng.u8(..16) {
        0..=5 => 0,
        6..=14 => rng.usize(1..12),
        _ => rng.usize(12..60),
    }
}

/// Draws the length of a match; most are short.
fn copied(rng: &mut Rng) -> usize {
    match rng.u8(..32) {
        0..=23 => rng.usize(MIN_MATCH..12),
        24..=30 => rng.usize(12..60),
        _ => rng.usize(60..900),
    }
}
