//! Doorbells in shared memory. Ringing wakes sleepers and enters the kernel only if there are any.
//!
//! A doorbell has two words: the number of rings and the number of sleepers. A sleeper increments the second word, then
//! sleeps unless the doorbell was rung since it read the first. A ringer increments the first word, then reads the
//! second. In any order of these steps, at least one of the two sees the other. A ring wakes one sleeper, and each
//! sleeper wakes the next, so the ringer's cost does not depend on the number of sleepers.
#![allow(unsafe_code, reason = "refers to words of shared memory as atomics")]

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::thread::futex::{self, Flags};

use crate::mapping::Mapping;

/// Size and alignment of a doorbell in bytes.
const LEN: u64 = 8;

impl Mapping {
    /// Rings the doorbell at `offset`. An offset outside the region or without alignment has no effect.
    pub fn ring(&self, offset: u64) {
        let Some([rings, sleepers]) = self.doorbell(offset) else { return };
        rings.fetch_add(1, SeqCst);
        if sleepers.load(SeqCst) != 0 {
            // The futex is shared between processes, hence not private. A failure only delays the sleeper until its
            // timeout.
            let _ = futex::wake(rings, Flags::empty(), 1);
        }
    }

    /// Returns the number of rings of the doorbell at `offset`. Read it before checking for the event that the doorbell
    /// signals.
    #[must_use]
    pub fn rings(&self, offset: u64) -> u32 {
        self.doorbell(offset).map_or(0, |[rings, _]| rings.load(SeqCst))
    }

    /// Sleeps until the doorbell at `offset` was rung more than `heard` times, or for `longest`. It may return earlier.
    pub fn sleep(&self, offset: u64, heard: u32, longest: Duration) {
        let Some([rings, sleepers]) = self.doorbell(offset) else { return };
        let longest = Timespec::try_from(longest).ok();
        sleepers.fetch_add(1, SeqCst);
        // A ring, an interruption and the timeout need no distinction: the caller checks again.
        let _ = futex::wait(rings, Flags::empty(), heard, longest.as_ref());
        if sleepers.fetch_sub(1, SeqCst) > 1 {
            let _ = futex::wake(rings, Flags::empty(), 1);
        }
    }

    fn doorbell(&self, offset: u64) -> Option<&[AtomicU32; 2]> {
        if !offset.is_multiple_of(LEN) || offset.checked_add(LEN)? > self.len() {
            return None;
        }
        let at = usize::try_from(offset).ok()?;
        // SAFETY: the words lie within the mapping, which lives as long as `self`. They are aligned, since the mapping
        // starts at a page. Both sides access them atomically or by the functions of `copy`, and any bit pattern is a
        // valid number.
        Some(unsafe { &*self.as_ptr().add(at).cast() })
    }
}

#[cfg(test)]
mod tests {
    use crate::Region;
    use std::thread;
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn who_sleeps_is_woken_by_the_same_memory_elsewhere() {
        let region = Region::create(64).expect("memory");
        let fd = region.fd().try_clone_to_owned().expect("a descriptor");
        let other = Region::from_fd(fd, 64).expect("the same memory");
        let sleeper = thread::spawn(move || {
            let begun = Instant::now();
            let mut woken = 0;
            for round in 0..1000 {
                while other.rings(8) == round && begun.elapsed() < LONG {
                    other.sleep(8, round, LONG);
                }
                woken = other.rings(8);
                other.ring(16);
            }
            (woken, begun.elapsed())
        });
        let begun = Instant::now();
        for round in 0..1000 {
            region.ring(8);
            while region.rings(16) == round && begun.elapsed() < LONG {
                region.sleep(16, round, LONG);
            }
        }
        let (woken, slept) = sleeper.join().expect("no panic");
        assert_eq!((woken, region.rings(16)), (1000, 1000));
        assert!(slept < LONG, "slept through a ring");
    }

    #[test]
    fn one_ring_wakes_all() {
        let region = Region::create(64).expect("memory");
        let heard = region.rings(0);
        let slept = thread::scope(|scope| {
            let sleep = || {
                let begun = Instant::now();
                while region.rings(0) == heard && begun.elapsed() < LONG {
                    region.sleep(0, heard, LONG);
                }
                begun.elapsed()
            };
            let sleepers: Vec<_> = (0..8).map(|_| scope.spawn(sleep)).collect();
            thread::sleep(Duration::from_millis(20));
            region.ring(0);
            sleepers.into_iter().map(|sleeper| sleeper.join().expect("no panic")).max()
        });
        assert!(slept < Some(LONG), "one slept through the ring");
    }

    #[test]
    fn what_was_rung_before_is_not_slept_through() {
        let region = Region::create(64).expect("memory");
        let heard = region.rings(0);
        region.ring(0);
        let begun = Instant::now();
        region.sleep(0, heard, LONG);
        assert!(begun.elapsed() < LONG);
        region.sleep(0, region.rings(0), Duration::from_millis(1));
    }

    #[test]
    fn there_is_no_doorbell_outside() {
        let region = Region::create(64).expect("memory");
        for offset in [4, 60, 64, u64::MAX - 7, u64::MAX] {
            region.ring(offset);
            region.sleep(offset, 0, LONG);
            assert_eq!(region.rings(offset), 0);
        }
    }
}
