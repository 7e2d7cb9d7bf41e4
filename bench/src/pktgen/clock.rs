//! CLOCK_MONOTONIC, which BPF programs read, too.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// Nanoseconds since an unspecified time.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is negative.
    (time.tv_sec as u64) * SECOND + time.tv_nsec as u64
}
