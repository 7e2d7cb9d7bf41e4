//! Cost of reading the clock.

use std::time::{Duration, Instant};

/// Number of readings used for the measurement.
const READINGS: usize = 10_001;

/// Returns the part of a time between two readings that the clock itself takes: the median of many consecutive
/// readings.
#[must_use]
pub fn cost() -> Duration {
    let mut times: Vec<Duration> = (0..READINGS).map(|_| Instant::now().elapsed()).collect();
    times.sort_unstable();
    times[READINGS / 2]
}
