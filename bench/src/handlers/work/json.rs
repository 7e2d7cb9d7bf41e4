//! JSON texts with the sought member, without it, and broken ones.

use super::{Work, source};
use fastrand::Rng;

/// The key of the sought member.
pub const KEY: &str = "sequence";
/// Another spelling of [`KEY`], which handlers take for another key.
pub const ESCAPED: &str = "sequ\\u0065nce";
/// Offset of the counters: the key of up to 28 bytes and its length precede them.
pub const COUNTERS_AT: usize = 32;
/// Number of counters: found, missing, broken, sum.
const COUNTERS: usize = 4;

/// Keys of other members.
const NAMES: [&str; 8] = ["id", "time", "host", "sequence_no", "seq", "a\\\"b", "measurements", "note"];

pub(super) fn make(work: &mut Work, rng: &mut Rng) {
    work.handler_mem = vec![0; COUNTERS_AT + 4 * COUNTERS];
    work.handler_mem[..KEY.len()].copy_from_slice(KEY.as_bytes());
    work.handler_mem[28] = u8::try_from(KEY.len()).expect("a short key");
    let room = work.data();
    work.fill(|_| (source(rng), payload(rng, room)));
}

fn payload(rng: &mut Rng, room: usize) -> Vec<u8> {
    let mut text = text(rng, room).into_bytes();
    match rng.u8(..16) {
        0 => text.truncate(rng.usize(..=text.len())),
        1 => {
            let place = rng.usize(..text.len());
            text[place] = b"\"\\{}[]:, x7"[rng.usize(..11)];
        }
        _ => {}
    }
    text
}

/// Makes a valid text of up to `room` bytes.
fn text(rng: &mut Rng, room: usize) -> String {
    match rng.u8(..64) {
        0 => return " { } ".to_owned(),
        1 => return "[1, 2]".to_owned(),
        _ => {}
    }
    let mut members = Vec::new();
    let sought = sought(rng);
    let mut length = sought.len() + 2;
    loop {
        let member = format!("\"{}\":{}{}", NAMES[rng.usize(..NAMES.len())], space(rng), value(rng, 0));
        length += member.len() + 2;
        if length > room {
            break;
        }
        members.push(member);
    }
    if !sought.is_empty() {
        members.insert(rng.usize(..=members.len()), sought);
    }
    format!("{{{}}}", members.join([",", ", "][rng.usize(..2)]))
}

/// Makes the sought member, or in one of eight cases none, or one with another value or another spelling.
fn sought(rng: &mut Rng) -> String {
    let (space, integer) = (space(rng), integer(rng));
    match rng.u8(..32) {
        0..=3 => String::new(),
        4 => format!("\"{KEY}\":\"7\""),
        5 => format!("\"{KEY}\":{integer}.5"),
        6 => format!("\"{ESCAPED}\":{integer}"),
        7 => format!("\"{KEY}\" :\n{integer} "),
        _ => format!("\"{KEY}\":{space}{integer}"),
    }
}

fn integer(rng: &mut Rng) -> i32 {
    let bits = rng.u32(1..32);
    rng.i32(..) >> bits
}

fn space(rng: &mut Rng) -> &'static str {
    ["", " "][rng.usize(..2)]
}

/// Makes a value. Objects and arrays are at most two deep, and may have the sought key.
fn value(rng: &mut Rng, depth: u32) -> String {
    match rng.u8(if depth < 2 { 0..12 } else { 0..8 }) {
        0..=2 => integer(rng).to_string(),
        3 => format!("{}.{}e-3", rng.u16(..), rng.u16(..)),
        4 => ["true", "false", "null"][rng.usize(..3)].to_owned(),
        5..=7 => string(rng),
        8 | 9 => format!("{{\"{KEY}\":{},\"x\":{}}}", integer(rng), value(rng, depth + 1)),
        _ => format!("[{}, {}]", value(rng, depth + 1), value(rng, depth + 1)),
    }
}

/// Makes a string with brackets, quotes and escapes.
fn string(rng: &mut Rng) -> String {
    let mut text = "\"".to_owned();
    for _ in 0..rng.usize(..24) {
        match rng.u8(..32) {
            0 => text.push_str("\\\""),
            1 => text.push_str("\\\\"),
            2 => text.push_str("\\u00e9"),
            3 => text.push(['{', '}', '[', ']', ',', ':'][rng.usize(..6)]),
            _ => text.push(rng.alphanumeric()),
        }
    }
    text.push('"');
    text
}
