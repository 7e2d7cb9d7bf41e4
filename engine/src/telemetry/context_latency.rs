//! Latencies of one context. Contexts may be a thousand on each thread, so their buckets are fewer than those of
//! [`Latencies`](crate::telemetry::latency::Latencies): 5 KiB for a context, where those would take 90.

use std::time::Duration;

use spin_abi::control::LatencyInfo;
use spin_pspin::ids::{Slot, Timestamp};

use crate::settings::MAX_CONTEXTS;
use crate::telemetry::latency::nanoseconds;

/// Buckets of each power of two. A percentile is the upper end of its bucket, so it is less than an eighth too high.
const PER_OCTAVE: usize = 8;
/// Binary logarithm of the shortest time in nanoseconds that has a bucket of its own. Shorter times are in the first bucket.
const FIRST_OCTAVE: usize = 6;
/// Octaves: 64 ns to 17 s. Longer times are in the last bucket.
const OCTAVES: usize = 28;
const BUCKETS: usize = OCTAVES * PER_OCTAVE;

/// The bucket of a time in nanoseconds.
#[inline]
fn bucket(time: u64) -> usize {
    let Some(octave) = time.checked_ilog2().and_then(|log| (log as usize).checked_sub(FIRST_OCTAVE)) else { return 0 };
    let eighth = time >> (octave + FIRST_OCTAVE - PER_OCTAVE.ilog2() as usize);
    (octave * PER_OCTAVE + eighth as usize % PER_OCTAVE).min(BUCKETS - 1)
}

/// The longest time in a bucket, in nanoseconds.
const fn upper_end(bucket: usize) -> u64 {
    let eighths = (PER_OCTAVE + bucket % PER_OCTAVE + 1) as u64;
    (eighths << (bucket / PER_OCTAVE + FIRST_OCTAVE - PER_OCTAVE.ilog2() as usize)) - 1
}

/// The distribution of one kind of latency.
#[derive(Clone, Debug)]
struct Distribution {
    buckets: [u64; BUCKETS],
    count: u64,
    /// The sum in nanoseconds.
    total: u64,
    min: u64,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, total: 0, min: u64::MAX, max: 0 }
    }
}

impl Distribution {
    /// Records `count` equal times.
    #[inline]
    fn record(&mut self, count: u64, elapsed: Duration) {
        let elapsed = nanoseconds(elapsed);
        self.buckets[bucket(elapsed)] += count;
        self.count += count;
        self.total = self.total.saturating_add(elapsed.saturating_mul(count));
        self.min = self.min.min(elapsed);
        self.max = self.max.max(elapsed);
    }

    fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The time that `permille` of all times do not exceed. 0 without times.
    fn quantile(&self, permille: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(permille)).div_ceil(1000);
        let mut below = 0;
        let found = self.buckets.iter().position(|&count| {
            below += u128::from(count);
            below >= rank
        });
        // The last bucket has no end.
        let end = found.filter(|&bucket| bucket < BUCKETS - 1).map_or(self.max, upper_end);
        end.clamp(self.min.min(self.max), self.max)
    }

    fn info(&self, name: &str) -> LatencyInfo {
        LatencyInfo {
            name: name.to_owned(),
            count: self.count,
            sum_ns: self.total,
            min_ns: self.min.min(self.max),
            max_ns: self.max,
            p50_ns: self.quantile(500),
            p99_ns: self.quantile(990),
            p999_ns: self.quantile(999),
            ranges: Vec::new(),
        }
    }
}

/// The distributions of a context's latencies on one thread, or the sum of several threads.
#[derive(Clone, Debug, Default)]
pub struct Distributions {
    total: Distribution,
    queueing: Distribution,
    handler: Distribution,
}

impl Distributions {
    /// Adds the times of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.total.merge(&other.total);
        self.queueing.merge(&other.queueing);
        self.handler.merge(&other.handler);
    }

    /// The summaries of `total`, `queueing` and `handler`, without ranges.
    #[must_use]
    pub fn infos(&self) -> Vec<LatencyInfo> {
        vec![self.total.info("total"), self.queueing.info("queueing"), self.handler.info("handler")]
    }
}

/// The latencies of one context on one thread. The samples are those of
/// [`Latencies`](crate::telemetry::latency::Latencies).
#[derive(Debug)]
pub struct ContextLatencies {
    recorded: Distributions,
    /// The number of packet buffers released in this poll.
    released: u64,
    /// Arrival time of the packet whose buffer was released last.
    arrived: Timestamp,
}

impl Default for ContextLatencies {
    fn default() -> Self {
        Self { recorded: Distributions::default(), released: 0, arrived: Timestamp::at(Duration::ZERO) }
    }
}

/// The latencies of a thread's contexts, by slot.
pub(crate) struct LatenciesBySlot {
    contexts: Vec<Option<Box<ContextLatencies>>>,
    /// Contexts with buffers released in this poll.
    released_by: Vec<Slot>,
}

impl LatenciesBySlot {
    pub(super) fn new() -> Self {
        // Never full: recording allocates nothing.
        Self { contexts: Vec::new(), released_by: Vec::with_capacity(MAX_CONTEXTS) }
    }

    /// Adds a context without times.
    pub(crate) fn add(&mut self, slot: Slot) {
        let index = slot.0 as usize;
        self.contexts.resize_with(self.contexts.len().max(index + 1), || None);
        self.contexts[index] = Some(Box::default());
    }

    /// Removes a context. The slot is free for another one.
    pub(crate) fn remove(&mut self, slot: Slot) {
        if let Some(context) = self.contexts.get_mut(slot.0 as usize) {
            *context = None;
        }
        self.released_by.retain(|other| *other != slot);
    }

    #[inline]
    fn of(&mut self, slot: Slot) -> Option<&mut ContextLatencies> {
        self.contexts.get_mut(slot.0 as usize)?.as_deref_mut()
    }

    /// Notes that packets of a context released `count` buffers, the last one that of a packet which arrived at `arrived`.
    #[inline]
    pub(super) fn note_released(&mut self, slot: Slot, count: u64, arrived: Timestamp) {
        let Some(context) = self.of(slot) else { return };
        let first = context.released == 0;
        context.released += count;
        context.arrived = arrived;
        if first {
            self.released_by.push(slot);
        }
    }

    /// Records the packets whose buffers were released in the poll that ends at `end`: those of a context have the latency of its
    /// last one.
    #[inline]
    pub(super) fn end_poll(&mut self, end: Duration) {
        let Self { contexts, released_by } = self;
        for slot in released_by.drain(..) {
            if let Some(ContextLatencies { recorded, released, arrived }) =
                &mut contexts[slot.0 as usize].as_deref_mut()
            {
                recorded.total.record(std::mem::take(released), arrived.before(end));
            }
        }
    }

    /// Records the queueing time and the run time of a sampled task.
    #[inline]
    pub(super) fn sample(&mut self, slot: Slot, queueing: Duration, handler: Duration) {
        if let Some(ContextLatencies { recorded, .. }) = self.of(slot) {
            recorded.queueing.record(1, queueing);
            recorded.handler.record(1, handler);
        }
    }

    /// A copy of a context's distributions, if there are times.
    pub(crate) fn recorded(&self, slot: Slot) -> Option<Box<Distributions>> {
        let ContextLatencies { recorded, .. } = self.contexts.get(slot.0 as usize)?.as_deref()?;
        (recorded.total.count + recorded.queueing.count > 0).then(|| Box::new(recorded.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Distribution, LatenciesBySlot, bucket, upper_end};
    use proptest::prelude::*;
    use spin_pspin::ids::{Slot, Timestamp};
    use std::time::Duration;

    const fn ns(time: u64) -> Duration {
        Duration::from_nanos(time)
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        assert_eq!((bucket(0), bucket(64), bucket(71), bucket(72)), (0, 0, 0, 1));
        for index in 0..BUCKETS - 1 {
            assert_eq!((bucket(upper_end(index)), bucket(upper_end(index) + 1)), (index, index + 1));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing_recorded_is_told_as_zeroes() {
        let info = Distribution::default().info("total");
        assert_eq!((info.count, info.sum_ns, info.min_ns, info.max_ns, info.p50_ns, info.p999_ns), (0, 0, 0, 0, 0, 0));
    }

    #[test]
    fn packets_of_a_poll_count_with_the_latency_of_their_context_s_last() {
        let mut latencies = LatenciesBySlot::new();
        [0, 2].into_iter().for_each(|slot| latencies.add(Slot(slot)));
        for (slot, count, arrived) in [(0, 3, 640), (2, 1, 6400), (0, 2, 1280), (1, 9, 0), (7, 9, 0)] {
            latencies.note_released(Slot(slot), count, Timestamp::at(ns(arrived)));
        }
        latencies.end_poll(ns(64_000));
        latencies.end_poll(ns(128_000));
        let total = |latencies: &LatenciesBySlot, slot| latencies.recorded(Slot(slot)).map(|all| all.infos().remove(0));
        let first = total(&latencies, 0).unwrap();
        assert_eq!((first.count, first.min_ns, first.max_ns, first.sum_ns), (5, 62_720, 62_720, 5 * 62_720));
        assert_eq!(first.p50_ns, 62_720, "no percentile is beyond the maximum");
        assert_eq!(total(&latencies, 2).map(|total| (total.count, total.max_ns)), Some((1, 57_600)));
        assert_eq!((total(&latencies, 1), total(&latencies, 7)), (None, None), "no such contexts");
    }

    #[test]
    fn a_slot_s_next_context_begins_without_times() {
        let mut latencies = LatenciesBySlot::new();
        latencies.add(Slot(0));
        latencies.sample(Slot(0), ns(100), ns(200));
        assert_eq!(latencies.recorded(Slot(0)).unwrap().infos()[2].max_ns, 200);
        latencies.note_released(Slot(0), 1, Timestamp::at(ns(64)));
        latencies.remove(Slot(0));
        latencies.add(Slot(0));
        latencies.end_poll(ns(64_000));
        assert!(latencies.recorded(Slot(0)).is_none());
    }

    proptest! {
        /// The reference is the sorted list of times.
        #[test]
        fn quantiles_are_exact_to_an_eighth(times in prop::collection::vec(64..17_000_000_000_u64, 1..400)) {
            let (mut one, mut other) = (Distribution::default(), Distribution::default());
            for (index, &time) in times.iter().enumerate() {
                if index % 2 == 0 { &mut one } else { &mut other }.record(1, ns(time));
            }
            one.merge(&other);
            let info = one.info("total");
            let mut sorted = times;
            sorted.sort_unstable();
            let count = sorted.len();
            prop_assert_eq!((info.count, info.sum_ns), (count as u64, sorted.iter().sum::<u64>()));
            prop_assert_eq!((info.min_ns, info.max_ns), (sorted[0], sorted[count - 1]));
            for (permille, told) in [(500, info.p50_ns), (990, info.p99_ns), (999, info.p999_ns)] {
                let exact = sorted[(count * permille).div_ceil(1000) - 1];
                prop_assert!(told >= exact && told - exact <= exact / 8, "{} told, {} exact", told, exact);
            }
        }
    }
}
