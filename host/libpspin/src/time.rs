//! Virtual time: picoseconds since the simulation began. No other clock is used.

/// A point in time or a duration. Sums saturate at the last representable time.
pub type Picos = u64;

/// A cycle at 1 GHz.
pub const CYCLE: Picos = 1000;
/// Bytes that NIC memories and the host's bus move in one beat.
pub const BEAT: usize = 64;

/// Converts cycles to picoseconds.
#[must_use]
pub const fn cycles(count: u64) -> Picos {
    count.saturating_mul(CYCLE)
}

/// Returns the time that NIC memory takes to move `bytes` bytes.
#[must_use]
pub const fn moved(bytes: usize) -> Picos {
    cycles(bytes.div_ceil(BEAT) as u64)
}

/// Splits `len` bytes at `address` into the beats of a bus of [`BEAT`] bytes: offset and length of each.
pub fn beats(address: u64, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let beat = BEAT as u64;
    #[allow(clippy::cast_possible_truncation, reason = "less than a beat")]
    let first = (beat - address % beat) as usize;
    let mut done = 0;
    std::iter::from_fn(move || {
        let offset = done;
        let most = if offset == 0 { first } else { BEAT };
        done += most.min(len - offset);
        (offset < done).then_some((offset, done - offset))
    })
}

#[cfg(test)]
mod tests {
    use super::{beats, moved};

    #[test]
    fn pieces_end_at_the_bus_s_boundaries() {
        let pieces = |address, len| beats(address, len).collect::<Vec<_>>();
        assert_eq!(pieces(0, 0), []);
        assert_eq!(pieces(0, 64), [(0, 64)]);
        assert_eq!(pieces(0xdead_beef, 100), [(0, 17), (17, 64), (81, 19)]);
        assert_eq!(pieces(63, 2), [(0, 1), (1, 1)]);
        assert_eq!(pieces(u64::MAX, 1), [(0, 1)]);
    }

    #[test]
    fn a_beat_is_a_cycle() {
        assert_eq!([0, 1, 64, 65].map(moved), [0, 1000, 1000, 2000]);
    }
}
