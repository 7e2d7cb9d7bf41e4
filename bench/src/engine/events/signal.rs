//! One sample after the other: when it was sent, and when it was taken.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::Failure;

/// Pause before each sample: the waiting thread is asleep by then.
const PAUSE: Duration = Duration::from_micros(500);
/// Longest wait for a sample to be taken.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Nanoseconds of the monotonic clock, which all processes share.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Samples of one way to wait.
#[derive(Debug)]
pub(super) struct Signals {
    /// Number of samples.
    pub(super) samples: u32,
    /// Time at which the latest sample was taken; 0 until then.
    taken: AtomicU64,
    /// Whether the waiter is ready, or has failed.
    state: AtomicU64,
}

const READY: u64 = 1;
const FAILED: u64 = 2;

impl Signals {
    pub(super) fn new(samples: u32) -> Arc<Self> {
        Arc::new(Self { samples, taken: AtomicU64::new(0), state: AtomicU64::new(0) })
    }

    /// Says that the waiter waits for the first sample.
    pub(super) fn ready(&self) {
        self.state.store(READY, SeqCst);
    }

    /// Says that the waiter has ended with an error.
    pub(super) fn fail(&self) {
        self.state.store(FAILED, SeqCst);
    }

    /// Takes the sample that was sent last, at time `at`.
    pub(super) fn take(&self, at: u64) {
        self.taken.store(at, SeqCst);
    }

    /// Sends all samples by `signal`. Returns the nanoseconds until each was taken.
    ///
    /// # Errors
    /// The waiter has failed, or takes no sample.
    pub(super) fn send(&self, mut signal: impl FnMut() -> Result<(), Failure>) -> Result<Vec<f64>, Failure> {
        self.wait_until(|| self.state.load(SeqCst) == READY)?;
        let mut times = Vec::with_capacity(self.samples as usize);
        for _ in 0..self.samples {
            let pause = Instant::now();
            while pause.elapsed() < PAUSE {
                spin_loop();
            }
            self.taken.store(0, SeqCst);
            let sent = now();
            signal()?;
            self.wait_until(|| self.taken.load(SeqCst) != 0)?;
            times.push(self.taken.load(SeqCst).saturating_sub(sent) as f64);
        }
        Ok(times)
    }

    fn wait_until(&self, is_so: impl Fn() -> bool) -> Result<(), Failure> {
        let begun = Instant::now();
        while !is_so() {
            if self.state.load(SeqCst) == FAILED {
                return Err("the thread that waits has failed".into());
            }
            if begun.elapsed() > LONGEST_WAIT {
                return Err("a signal was lost".into());
            }
            spin_loop();
        }
        Ok(())
    }
}
