//! When a packet arrived, in few bits.

use std::time::Duration;

/// A moment in units of 64 ns, on a clock that comes round after 274 s: no packet waits that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u32);

impl Stamp {
    const SHIFT: u32 = 6;

    /// The moment `time` after some fixed one.
    #[must_use]
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "comes round")]
    pub const fn at(time: Duration) -> Self {
        Self((time.as_nanos() >> Self::SHIFT) as u32)
    }

    /// How long before `now` it was.
    #[must_use]
    pub const fn before(self, now: Duration) -> Duration {
        Duration::from_nanos((Self::at(now).0.wrapping_sub(self.0) as u64) << Self::SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Stamp;

    #[test]
    fn tells_times_across_the_end_of_its_clock() {
        for start in [0, 1 << 38, (1 << 38) - 64] {
            let start = Duration::from_nanos(start);
            for passed in [0, 64, 6400, 60_000_000_000].map(Duration::from_nanos) {
                assert_eq!(Stamp::at(start).before(start + passed), passed);
            }
        }
    }
}
