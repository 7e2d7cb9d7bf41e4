//! What it takes to hand a frame on to the kernel, which the context pays that leaves it there: each enters the kernel on its own, at the
//! end of a turn, when none of the context's tasks runs any more.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use spin_nic::{Frame, Queue};

/// What it takes, as long as it was never measured: a few microseconds on fast machines, some 25 on slow ones.
const AT_FIRST: Duration = Duration::from_micros(10);
/// The most that counts of what one took: a thread that is off its core meanwhile is no measure.
const MOST: Duration = Duration::from_millis(1);
/// A batch of them counts for so much of the running average.
const PART: u64 = 8;

/// Frames that a thread which receives for others hands on in a turn at the most: with what arrives meanwhile the NIC is not full.
pub(crate) const PASSED: usize = 8;
/// Those that wait for that at the most: others' packets need buffers, too.
pub(crate) const PASSING: usize = 1024;

/// What a frame costs, as the thread that hands them over has measured it.
#[derive(Debug)]
pub struct Toll {
    /// Nanoseconds, a running average. Written by that thread alone.
    each: AtomicU64,
    /// Threads whose frames it hands over: none of them knows what the others' contexts leave to it.
    threads: u32,
}

impl Toll {
    /// Of a thread that hands so many threads' frames over.
    #[must_use]
    pub const fn new(threads: u32) -> Self {
        Self { each: AtomicU64::new(AT_FIRST.as_nanos() as u64), threads }
    }

    /// What a context is charged for a frame: where several threads share the one that hands them over, each has its part of that one's
    /// time to share out.
    #[must_use]
    pub fn charge(&self) -> Duration {
        Duration::from_nanos(self.each.load(Relaxed)) * self.threads
    }

    /// Hands frames on to the kernel, and notes how long that took. Returns it.
    pub fn pass(&self, nic: &mut dyn Queue, frames: &mut Vec<Frame>, clock: impl Fn() -> Duration) -> Duration {
        let (count, start) = (frames.len() as u32, clock());
        nic.pass_to_kernel(frames);
        let took = clock().saturating_sub(start);
        if count > 0 {
            self.note(took / count);
        }
        took
    }

    /// Hands the first of those that wait on, which have a list of their own then, and drops those that are too many. Returns how many it
    /// dropped.
    pub(crate) fn pass_some(
        &self,
        nic: &mut dyn Queue,
        waiting: &mut Vec<Frame>,
        first: &mut Vec<Frame>,
        clock: impl Fn() -> Duration,
    ) -> u64 {
        first.extend(waiting.drain(..waiting.len().min(PASSED)));
        self.pass(nic, first, clock);
        let surplus = waiting.drain(waiting.len().min(PASSING)..);
        let count = surplus.len() as u64;
        surplus.for_each(|frame| nic.recycle(frame));
        count
    }

    fn note(&self, took: Duration) {
        let (each, took) = (self.each.load(Relaxed), took.min(MOST).as_nanos() as u64);
        self.each.store(each - each / PART + took / PART, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AT_FIRST, MOST, Toll};

    #[test]
    fn the_average_follows_what_is_measured() {
        let toll = Toll::new(3);
        assert_eq!(toll.charge(), AT_FIRST * 3);
        for took in [25_000, 2000].map(Duration::from_nanos) {
            (0..100).for_each(|_| toll.note(took));
            let charged = toll.charge() / 3;
            assert!(charged.abs_diff(took) < took / 100, "{charged:?} for {took:?}");
        }
        // Once off its core, whoever measures.
        let before = toll.charge();
        toll.note(Duration::from_secs(1));
        assert!(toll.charge() <= before + MOST * 3 / 8);
    }
}
