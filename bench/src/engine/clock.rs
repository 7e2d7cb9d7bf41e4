//! What reading the clock costs.

use std::time::{Duration, Instant};

/// How often it is read to find out.
const READINGS: usize = 10_001;

/// What of a time that was taken with two readings is the clock's: the median of many with nothing in between.
#[must_use]
pub fn cost() -> Duration {
    let mut times: Vec<Duration> = (0..READINGS).map(|_| Instant::now().elapsed()).collect();
    times.sort_unstable();
    times[READINGS / 2]
}
