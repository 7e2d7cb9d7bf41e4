//! Counts of a TCP segment.

use crate::handlers::work::tcp::HEADER;

/// Number of counters: segments, malformed ones, payload bytes, eight flags, eight of options.
const COUNTERS: usize = 19;

/// Counts of a malformed segment.
pub(super) const MALFORMED: [u32; COUNTERS] = {
    let mut counts = [0; COUNTERS];
    counts[1] = 1;
    counts
};

/// Options of a segment.
#[derive(Default)]
struct Options {
    mss: Option<u16>,
    window_scale: Option<u8>,
    sack_permitted: bool,
    timestamp: Option<u32>,
    others: u32,
}

/// Returns the counts of a segment. `None` if it is malformed.
pub(super) fn counts(segment: &[u8]) -> Option<[u32; COUNTERS]> {
    let (fixed, rest) = segment.split_at_checked(HEADER)?;
    let length = usize::from(fixed[12] >> 4) * 4;
    let (bytes, payload) = rest.split_at_checked(length.checked_sub(HEADER)?)?;
    let options = options(bytes)?;
    let mut counts = [0; COUNTERS];
    counts[0] = 1;
    counts[2] = u32::try_from(payload.len()).ok()?;
    for flag in 0..8 {
        counts[3 + flag] = u32::from(fixed[13] >> flag) & 1;
    }
    counts[11..].copy_from_slice(&[
        options.mss.is_some().into(),
        options.mss.unwrap_or(0).into(),
        options.window_scale.is_some().into(),
        options.window_scale.unwrap_or(0).into(),
        options.sack_permitted.into(),
        options.timestamp.is_some().into(),
        options.timestamp.unwrap_or(0),
        options.others,
    ]);
    Some(counts)
}

fn options(mut rest: &[u8]) -> Option<Options> {
    let mut found = Options::default();
    loop {
        rest = match rest {
            [] | [0, ..] => return Some(found),
            [1, rest @ ..] => rest,
            [2, 4, high, low, rest @ ..] => {
                found.mss = Some(u16::from_be_bytes([*high, *low]));
                rest
            }
            [3, 3, scale, rest @ ..] => {
                found.window_scale = Some(*scale);
                rest
            }
            [4, 2, rest @ ..] => {
                found.sack_permitted = true;
                rest
            }
            [8, 10, a, b, c, d, _, _, _, _, rest @ ..] => {
                found.timestamp = Some(u32::from_be_bytes([*a, *b, *c, *d]));
                rest
            }
            [2 | 3 | 4 | 8, ..] | [_, 0 | 1, ..] => return None,
            [_, length, ..] => {
                found.others += 1;
                rest.get(usize::from(*length)..)?
            }
            [_] => return None,
        }
    }
}
