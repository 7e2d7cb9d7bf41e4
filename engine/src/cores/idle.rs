//! When a thread that finds nothing to do goes to sleep.

use std::time::Duration;

use crate::settings::Idle;

/// How long an adaptive thread polls in vain before it sleeps. A sleep with its wake-up costs some tens of microseconds: a thread
/// that has polled for several times as long loses little by it, and a flow whose packets are closer than this never waits.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(200);
/// Empty polls between two reads of the clock.
const POLLS_PER_CLOCK_READ: u32 = 32;

/// Decides when an idle thread sleeps.
#[derive(Debug)]
pub struct IdleBackoff {
    idle: Idle,
    /// Polls in a row that found nothing.
    empty: u32,
    /// When the first of them was noticed.
    since: Option<Duration>,
}

impl IdleBackoff {
    /// State of a thread that begins.
    #[must_use]
    pub const fn new(idle: Idle) -> Self {
        Self { idle, empty: 0, since: None }
    }

    /// A poll had something to do, or the thread has slept.
    pub const fn reset(&mut self) {
        (self.empty, self.since) = (0, None);
    }

    /// A poll found nothing. Returns whether to sleep.
    pub fn should_sleep(&mut self, clock: impl Fn() -> Duration) -> bool {
        match self.idle {
            Idle::Spin => false,
            Idle::Sleep => true,
            Idle::Adaptive => {
                self.empty += 1;
                if !self.empty.is_multiple_of(POLLS_PER_CLOCK_READ) {
                    return false;
                }
                let now = clock();
                now.saturating_sub(*self.since.get_or_insert(now)) >= POLL_BEFORE_SLEEP
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::{IdleBackoff, POLL_BEFORE_SLEEP, POLLS_PER_CLOCK_READ};
    use crate::settings::Idle;

    /// Empty polls of a microsecond each until the thread is to sleep; `None`: not within `most`.
    fn polls(backoff: &mut IdleBackoff, most: u32) -> Option<u32> {
        let now = Cell::new(0);
        (1..=most).find(|_| {
            now.set(now.get() + 1);
            backoff.should_sleep(|| Duration::from_micros(now.get()))
        })
    }

    #[test]
    fn a_sleeping_thread_sleeps_at_once_and_a_spinning_one_never() {
        assert_eq!(polls(&mut IdleBackoff::new(Idle::Sleep), 10), Some(1));
        assert_eq!(polls(&mut IdleBackoff::new(Idle::Spin), 1_000_000), None);
    }

    #[test]
    fn an_adaptive_thread_polls_for_a_while_after_each_packet() {
        let mut backoff = IdleBackoff::new(Idle::Adaptive);
        let limit = u32::try_from(POLL_BEFORE_SLEEP.as_micros()).expect("short");
        let slept = polls(&mut backoff, 10 * limit).expect("in the end");
        assert!((limit..limit + 2 * POLLS_PER_CLOCK_READ).contains(&slept), "{slept}");
        for _ in 0..100 {
            backoff.reset();
            assert_eq!(polls(&mut backoff, limit), None, "a packet came");
        }
        assert!(polls(&mut backoff, 10 * limit).is_some());
    }
}
