//! When each packet is due. An open loop: a packet that is sent late makes no later one late, and its latency counts from
//! when it was due.

use super::clock::SECOND;

/// Due times of packets, in nanoseconds from the start.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// Each packet is due at once.
    AtOnce,
    /// Packets are due in equal intervals.
    Rate {
        /// Packets of a million seconds.
        per_million_seconds: u128,
    },
    /// The times of a capture, repeated.
    Times {
        /// In ascending order, from 0.
        times: Vec<u64>,
        /// From the start of one repetition to that of the next.
        period: u64,
    },
}

impl Schedule {
    /// Packets per second, or as fast as it goes.
    #[must_use]
    pub fn of(packets_per_second: Option<f64>) -> Self {
        match packets_per_second {
            None => Self::AtOnce,
            Some(rate) => Self::Rate { per_million_seconds: ((rate * 1e6) as u128).max(1) },
        }
    }

    /// The times of captured packets, in nanoseconds. The gap between repetitions is the mean gap.
    #[must_use]
    pub fn captured(times: &[u64]) -> Self {
        let first = times.first().copied().unwrap_or_default();
        // Captures of several queues may be slightly out of order.
        let mut last = 0;
        let times: Vec<u64> = times
            .iter()
            .map(|time| {
                last = time.saturating_sub(first).max(last);
                last
            })
            .collect();
        let gap = last / (times.len() as u64).saturating_sub(1).max(1);
        Self::Times { times, period: last + gap.max(1) }
    }

    /// When packet number `packet` is due. `None`: at once.
    #[must_use]
    pub fn due(&self, packet: u64) -> Option<u64> {
        match self {
            Self::AtOnce => None,
            Self::Rate { per_million_seconds } => {
                let due = u128::from(packet) * u128::from(SECOND) * 1_000_000 / per_million_seconds;
                Some(u64::try_from(due).unwrap_or(u64::MAX))
            }
            Self::Times { times, period } => {
                let round = packet / times.len() as u64;
                Some(round * period + times[(packet % times.len() as u64) as usize])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn packets_are_due_in_equal_intervals_without_drift() {
        let schedule = Schedule::of(Some(3.0));
        assert_eq!(
            [0, 1, 2, 3].map(|packet| schedule.due(packet)),
            [0, 333_333_333, 666_666_666, 1_000_000_000].map(Some)
        );
        let fast = Schedule::of(Some(14_880_952.0));
        assert_eq!(fast.due(14_880_952 * 3600), Some(3_600_000_000_000));
        assert_eq!(Schedule::of(None).due(5), None);
    }

    #[test]
    fn captures_are_repeated_with_their_timing() {
        let schedule = Schedule::captured(&[100, 110, 105, 160]);
        assert_eq!([0, 1, 2, 3, 4, 5, 11].map(|packet| schedule.due(packet)), [0, 10, 10, 60, 80, 90, 220].map(Some));
        assert_eq!(Schedule::captured(&[7]).due(3), Some(3));
    }
}
