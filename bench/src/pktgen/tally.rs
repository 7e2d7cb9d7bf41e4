//! What the sink saw: loss, duplicates, order and latency.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Sequence numbers that are told from duplicates: see [`Counts::too_late`].
const WINDOW: u64 = 1 << 20;
/// Longest latency that is told apart, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// Counts of received packets.
pub struct Tally {
    received: u64,
    duplicates: u64,
    reordered: u64,
    too_late: u64,
    first: u64,
    /// One more than the greatest sequence number.
    next: u64,
    /// For each of the latest `WINDOW` sequence numbers, whether it arrived.
    seen: Vec<u64>,
    latency: Histogram<u64>,
}

/// The counts, once all packets have been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets sent.
    pub sent: u64,
    /// Packets received, without duplicates.
    pub received: u64,
    /// Packets sent and not received.
    pub lost: u64,
    /// Packets received more than once, each further time.
    pub duplicates: u64,
    /// Packets received after one that was sent later (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Packets received after 2^20 later ones, or of an earlier run. They count as lost, since duplicates of them cannot be told.
    pub too_late: u64,
}

/// Latencies in nanoseconds, from when a packet was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// The shortest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Tally {
    /// Expects sequence numbers from `first` on.
    #[must_use]
    pub fn starting_at(first: u64) -> Self {
        Self {
            received: 0,
            duplicates: 0,
            reordered: 0,
            too_late: 0,
            first,
            next: first,
            seen: vec![0; (WINDOW / 64) as usize],
            latency: Histogram::new_with_bounds(1, LONGEST, 3).expect("valid bounds"),
        }
    }

    /// Counts a packet that arrived `latency` nanoseconds after it was due.
    pub fn add(&mut self, sequence: u64, latency: u64) {
        if sequence >= self.next {
            self.forget(sequence);
            self.next = sequence + 1;
        } else if sequence < self.first || sequence + WINDOW < self.next {
            self.too_late += 1;
            return;
        } else if self.has_seen(sequence) {
            self.duplicates += 1;
            return;
        } else {
            self.reordered += 1;
        }
        let (word, bit) = place(sequence);
        self.seen[word] |= bit;
        self.received += 1;
        self.latency.saturating_record(latency.max(1));
    }

    /// Forgets the oldest sequence numbers, for those up to `sequence`.
    fn forget(&mut self, sequence: u64) {
        if sequence - self.next >= WINDOW {
            self.seen.fill(0);
            return;
        }
        for number in self.next..=sequence {
            let (word, bit) = place(number);
            self.seen[word] &= !bit;
        }
    }

    fn has_seen(&self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        self.seen[word] & bit != 0
    }

    /// Number of packets so far, without duplicates.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The counts, of `sent` packets.
    #[must_use]
    pub fn counts(&self, sent: u64) -> Counts {
        let Self { received, duplicates, reordered, too_late, .. } = *self;
        Counts { sent, received, lost: sent.saturating_sub(received), duplicates, reordered, too_late }
    }

    /// Latencies. `None`: nothing was received.
    #[must_use]
    pub fn latency(&self) -> Option<Latency> {
        let quantile = |quantile| self.latency.value_at_quantile(quantile);
        (self.received > 0).then(|| Latency {
            min: self.latency.min(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.latency.max(),
        })
    }
}

/// Word and bit of a sequence number.
fn place(sequence: u64) -> (usize, u64) {
    let index = sequence % WINDOW;
    ((index / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::{Tally, WINDOW};
    use std::collections::HashSet;

    #[test]
    fn counts_equal_those_of_a_set() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..50 {
            let mut tally = Tally::starting_at(0);
            let (mut seen, mut highest) = (HashSet::new(), None);
            let (mut duplicates, mut reordered) = (0, 0);
            let sent = random.u64(1..3000);
            for _ in 0..random.u64(0..4000) {
                let sequence = random.u64(..sent);
                tally.add(sequence, sequence + 1);
                if !seen.insert(sequence) {
                    duplicates += 1;
                } else if highest.is_some_and(|highest| sequence < highest) {
                    reordered += 1;
                }
                highest = highest.max(Some(sequence));
            }
            let counts = tally.counts(sent);
            assert_eq!((counts.received, counts.lost), (seen.len() as u64, sent - seen.len() as u64));
            assert_eq!((counts.duplicates, counts.reordered), (duplicates, reordered));
        }
    }

    #[test]
    fn the_window_moves_with_the_greatest_number() {
        let mut tally = Tally::starting_at(0);
        tally.add(0, 1);
        tally.add(WINDOW + 5, 1);
        tally.add(5, 1);
        assert_eq!((tally.received(), tally.counts(10).too_late), (2, 1), "packet 5 is older than the window");
        tally.add(6, 1);
        tally.add(6, 1);
        assert_eq!((tally.received(), tally.duplicates, tally.reordered), (3, 1, 1));
        tally.add(3 * WINDOW, 1);
        tally.add(3 * WINDOW - 1, 1);
        assert_eq!((tally.received(), tally.duplicates, tally.reordered), (5, 1, 2));
    }

    #[test]
    fn latencies() {
        let mut tally = Tally::starting_at(0);
        assert_eq!(tally.latency(), None);
        for sequence in 0..1000 {
            tally.add(sequence, sequence + 1);
        }
        let latency = tally.latency().expect("received");
        assert_eq!((latency.min, latency.p50, latency.p99, latency.p999, latency.max), (1, 500, 990, 999, 1000));
    }
}
