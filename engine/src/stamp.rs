//! When a packet arrived, in few bits.

use std::time::Duration;

/// A moment in units of 64 ns, on a clock that comes round after 208 days: packets wait for as long as handlers do, which is for the
/// watchdog to bound. It takes no more room in a packet than there is beside what else is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(2))]
pub struct Stamp {
    low: u32,
    high: u16,
}

impl Stamp {
    const SHIFT: u32 = 6;
    const BITS: u32 = 48;

    /// The moment `time` after some fixed one.
    #[must_use]
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "comes round")]
    pub const fn at(time: Duration) -> Self {
        let units = (time.as_nanos() >> Self::SHIFT) as u64;
        Self { low: units as u32, high: (units >> 32) as u16 }
    }

    const fn units(self) -> u64 {
        (self.high as u64) << 32 | self.low as u64
    }

    /// How long before `now` it was.
    #[must_use]
    pub const fn before(self, now: Duration) -> Duration {
        let units = Self::at(now).units().wrapping_sub(self.units()) & ((1 << Self::BITS) - 1);
        Duration::from_nanos(units << Self::SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Stamp;
    use crate::pipeline::Packet;

    #[test]
    fn tells_times_across_the_end_of_its_clock() {
        for start in [0, 1 << 38, (1 << 38) - 64, (1 << 54) - 64, u64::MAX / 2] {
            let start = Duration::from_nanos(start & !63);
            for passed in [0, 64, 6400, 60_000_000_000, 3_600_000_000_000].map(Duration::from_nanos) {
                assert_eq!(Stamp::at(start).before(start + passed), passed);
            }
        }
    }

    #[test]
    fn a_packet_is_no_larger_for_it() {
        assert_eq!(size_of::<Packet>(), size_of::<spin_nic::Frame>() + 8);
    }
}
