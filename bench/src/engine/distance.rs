//! Communication latency between two cores, which determines the cost of passing work between threads. The host of a
//! virtual machine may change it at any moment by moving virtual processors.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::thread;
use std::time::{Duration, Instant};

use super::cores::{end, start};
use super::lab::Failure;

/// Duration of the measurement.
const TIME: Duration = Duration::from_millis(2);
/// Round trips between two readings of the clock.
const TRIPS: u32 = 64;
/// Value that ends the measurement.
const OVER: u32 = u32::MAX;

/// Returns the nanoseconds of a word's round trip between this thread and the second core.
///
/// # Errors
/// The other thread panicked.
pub fn round_trip() -> Result<f64, Failure> {
    let word = AtomicU32::new(0);
    let until = |known: u32| loop {
        match word.load(Acquire) {
            said if said == known => spin_loop(),
            said => return said,
        }
    };
    thread::scope(|scope| {
        let other = start(scope, 1, || {
            let mut said = 0;
            loop {
                said = until(said);
                if said == OVER {
                    return Ok(());
                }
                said += 1;
                word.store(said, Release);
            }
        });
        let mut said = 0;
        let mut trip = || {
            word.store(said + 1, Release);
            said = until(said + 1);
        };
        // Wait for the other thread to begin.
        trip();
        let (begun, mut trips) = (Instant::now(), 0);
        while begun.elapsed() < TIME {
            (0..TRIPS).for_each(|_| trip());
            trips += TRIPS;
        }
        let spent = begun.elapsed();
        word.store(OVER, Release);
        end(other)?;
        Ok(spent.as_secs_f64() * 1e9 / f64::from(trips))
    })
}
