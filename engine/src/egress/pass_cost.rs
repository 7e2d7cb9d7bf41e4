//! Cost of passing a frame to the kernel. The context that leaves the frame to the kernel is charged for it. Each frame is a
//! system call at the end of a poll, after the context's tasks. Therefore a running average is charged.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use spin_nic::{Frame, Queue};

/// Cost before the first measurement. It is a few microseconds on fast machines, and about 25 on slow ones.
const INITIAL_COST: Duration = Duration::from_micros(10);
/// Maximum time that counts for one frame: longer times result from preemption.
const MAX_COST: Duration = Duration::from_millis(1);
/// Divisor: the weight of one batch in the running average.
const EWMA_FRACTION: u64 = 8;

/// Maximum number of frames that a distributor passes in one poll, so that the NIC's receive ring does not overflow meanwhile.
pub(crate) const MAX_PASSED: usize = 8;
/// Maximum number of frames that wait to be passed. Other packets need buffers too.
pub(crate) const MAX_PASSING: usize = 1024;

/// Cost of a frame, as measured by the thread that passes frames.
#[derive(Debug)]
#[repr(align(64))]
pub struct PassCost {
    /// Running average in nanoseconds. One thread writes it.
    each: AtomicU64,
    /// The number of threads whose frames are passed by one thread. None of them knows how many the others have passed.
    threads: u32,
}

impl PassCost {
    /// The cost on a thread that passes the frames of `threads` threads.
    #[must_use]
    pub const fn new(threads: u32) -> Self {
        Self { each: AtomicU64::new(INITIAL_COST.as_nanos() as u64), threads }
    }

    /// The time that a context is charged for a frame. Where one thread passes frames of several threads, each of these divides
    /// only its part of that thread's time between contexts.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        Duration::from_nanos(self.each.load(Relaxed)) * self.threads
    }

    /// Passes frames to the kernel. Returns how long that took.
    pub fn pass(&self, nic: &mut dyn Queue, frames: &mut Vec<Frame>, clock: impl Fn() -> Duration) -> Duration {
        let (count, start) = (frames.len() as u32, clock());
        nic.pass_to_kernel(frames);
        let took = clock().saturating_sub(start);
        if count > 0 {
            self.note(took / count);
        }
        took
    }

    /// Passes the first [`MAX_PASSED`] of the waiting frames, by way of the scratch list `first`, and drops those beyond
    /// [`MAX_PASSING`]. Returns how many it dropped.
    pub(crate) fn pass_bounded(
        &self,
        nic: &mut dyn Queue,
        waiting: &mut Vec<Frame>,
        first: &mut Vec<Frame>,
        clock: impl Fn() -> Duration,
    ) -> u64 {
        first.extend(waiting.drain(..waiting.len().min(MAX_PASSED)));
        self.pass(nic, first, clock);
        let surplus = waiting.drain(waiting.len().min(MAX_PASSING)..);
        let count = surplus.len() as u64;
        surplus.for_each(|frame| nic.recycle(frame));
        count
    }

    fn note(&self, took: Duration) {
        let (each, took) = (self.each.load(Relaxed), took.min(MAX_COST).as_nanos() as u64);
        self.each.store(each - each / EWMA_FRACTION + took / EWMA_FRACTION, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{INITIAL_COST, MAX_COST, PassCost};

    #[test]
    fn the_thread_that_passes_frames_alone_writes_its_line() {
        spin_testing::assert_lines!(PassCost { each: "the thread that passes frames", threads: "" });
    }

    #[test]
    fn the_average_follows_what_is_measured() {
        let pass_cost = PassCost::new(3);
        assert_eq!(pass_cost.estimate(), INITIAL_COST * 3);
        for took in [25_000, 2000].map(Duration::from_nanos) {
            (0..100).for_each(|_| pass_cost.note(took));
            let charged = pass_cost.estimate() / 3;
            assert!(charged.abs_diff(took) < took / 100, "{charged:?} for {took:?}");
        }
        // The measuring thread is off its core once.
        let before = pass_cost.estimate();
        pass_cost.note(Duration::from_secs(1));
        assert!(pass_cost.estimate() <= before + MAX_COST * 3 / 8);
    }
}
