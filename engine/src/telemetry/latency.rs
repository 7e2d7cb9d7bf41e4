//! Latencies of packets and handlers, in histograms of fixed size: recording neither allocates nor fails.

use std::time::Duration;

use hdrhistogram::Histogram;
use spin_abi::control::LatencyInfo;

/// Longest time in a histogram. Longer ones count as this long.
const LONGEST: Duration = Duration::from_secs(60);
/// Decimal digits kept of a time: quantiles are less than 1 % too high. A histogram has 30 KiB.
const DIGITS: u8 = 2;
/// Upper bounds of the exported cumulative buckets, in nanoseconds.
const RANGES: [u64; 25] = ranges();

/// The bounds: 100 ns, 200 ns, 500 ns, 1 us and so on to 10 s.
const fn ranges() -> [u64; 25] {
    let mut ends = [0; 25];
    let (mut index, mut decade) = (0, 100);
    while index < ends.len() {
        ends[index] = decade * [1, 2, 5][index % 3];
        index += 1;
        if index % 3 == 0 {
            decade *= 10;
        }
    }
    ends
}

/// The distribution of one kind of latency.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    /// The sum in nanoseconds.
    total: u64,
    min: u64,
    max: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, nanoseconds(LONGEST), DIGITS);
        let histogram = histogram.expect("bounds and digits are constants, and good ones");
        Self { histogram, total: 0, min: u64::MAX, max: 0 }
    }
}

impl Latency {
    /// Records `count` equal times.
    #[inline]
    pub fn record(&mut self, count: u64, elapsed: Duration) {
        if count == 0 {
            return;
        }
        let elapsed = nanoseconds(elapsed);
        self.histogram.saturating_record_n(elapsed, count);
        self.total = self.total.saturating_add(elapsed.saturating_mul(count));
        self.min = self.min.min(elapsed);
        self.max = self.max.max(elapsed);
    }

    /// Adds the times of another thread.
    pub fn merge(&mut self, other: &Self) {
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok(), "all have the same bounds");
        self.total = self.total.saturating_add(other.total);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The number of times recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The summary of the distribution.
    #[must_use]
    pub fn info(&self, name: &str) -> LatencyInfo {
        let count = self.count();
        // The histogram returns the upper end of a range of indistinguishable times.
        let quantile = |q| self.histogram.value_at_quantile(q).min(self.max);
        let within = |end| if count == 0 { 0 } else { self.histogram.count_between(0, end) };
        LatencyInfo {
            name: name.to_owned(),
            count,
            sum_ns: self.total,
            min_ns: if count == 0 { 0 } else { self.min },
            max_ns: self.max,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            ranges: RANGES.iter().map(|&end| (end, within(end))).collect(),
        }
    }
}

/// A time in nanoseconds, saturated.
#[inline]
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The latencies of packets in one worker.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    total: Latency,
    queueing: Latency,
    handler: Latency,
}

impl Latencies {
    /// Records `packets` packets with equal latency. Times are taken once per batch. A packet's latency runs from the start of
    /// the batch it arrived in to the end of the batch in which its buffer was released.
    #[inline]
    pub fn record_total(&mut self, packets: u64, elapsed: Duration) {
        self.total.record(packets, elapsed);
    }

    /// Records the times of one task of a batch: from its packet's arrival to the start of its handler, and in the handler.
    #[inline]
    pub fn sample(&mut self, queueing: Duration, handler: Duration) {
        self.queueing.record(1, queueing);
        self.handler.record(1, handler);
    }

    /// Adds the times of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.total.merge(&other.total);
        self.queueing.merge(&other.queueing);
        self.handler.merge(&other.handler);
    }

    /// The summaries of `total`, `queueing` and `handler`.
    #[must_use]
    pub fn infos(&self) -> [LatencyInfo; 3] {
        [self.total.info("total"), self.queueing.info("queueing"), self.handler.info("handler")]
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Latencies, Latency, RANGES, nanoseconds};
    use proptest::prelude::*;
    use std::time::Duration;

    const fn ns(time: u64) -> Duration {
        Duration::from_nanos(time)
    }

    #[test]
    fn ranges_ascend_from_100_ns_to_10_s() {
        assert_eq!((RANGES[0], RANGES[4], RANGES[24]), (100, 2_000, 10_000_000_000));
        assert!(RANGES.is_sorted());
    }

    #[test]
    fn nothing_recorded_is_told_as_zeroes() {
        let info = Latency::default().info("total");
        assert_eq!((info.count, info.min_ns, info.max_ns, info.p50_ns, info.p999_ns), (0, 0, 0, 0, 0));
        assert!(info.ranges.iter().all(|(_, count)| *count == 0));
    }

    #[test]
    fn times_beyond_the_longest_are_kept_as_the_longest() {
        let mut latency = Latency::default();
        latency.record(1 << 62, Duration::MAX);
        latency.record(1, Duration::ZERO);
        let info = latency.info("total");
        assert_eq!((info.count, info.min_ns, info.max_ns), ((1 << 62) + 1, 0, u64::MAX));
        assert!(info.p50_ns >= nanoseconds(LONGEST), "{}", info.p50_ns);
    }

    proptest! {
        /// The reference is the sorted list of times.
        #[test]
        fn quantiles_are_exact_to_a_hundredth(times in prop::collection::vec(1..60_000_000_000_u64, 1..400)) {
            let (mut one, mut other) = (Latencies::default(), Latencies::default());
            for (index, &time) in times.iter().enumerate() {
                if index % 2 == 0 { &mut one } else { &mut other }.record_total(1, ns(time));
            }
            one.merge(&other);
            let [info, queueing, _] = one.infos();
            let mut sorted = times;
            sorted.sort_unstable();
            let count = sorted.len();
            prop_assert_eq!((info.count, queueing.count), (count as u64, 0));
            prop_assert_eq!((info.min_ns, info.max_ns), (sorted[0], sorted[count - 1]));
            prop_assert_eq!(info.sum_ns, sorted.iter().sum::<u64>());
            for (permille, told) in [(500, info.p50_ns), (990, info.p99_ns), (999, info.p999_ns)] {
                let exact = sorted[(count * permille).div_ceil(1000) - 1];
                prop_assert!(told >= exact && told - exact <= exact / 100, "{} told, {} exact", told, exact);
            }
            for (end, told) in info.ranges {
                let least = sorted.iter().filter(|&&time| time <= end).count() as u64;
                let most = sorted.iter().filter(|&&time| time <= end + end / 100).count() as u64;
                prop_assert!((least..=most).contains(&told), "up to {}: {} told, {} to {}", end, told, least, most);
            }
        }
    }
}
