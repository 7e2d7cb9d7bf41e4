//! Idle backoff: when a thread without work goes to sleep.

use std::time::Duration;

use crate::settings::Idle;

/// Time without work after which an adaptive thread sleeps. A sleep with its wake-up costs some tens of microseconds. A thread
/// that has polled for several times as long loses little by it. Flows with shorter gaps between packets never wait.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(200);
/// Polls without work between two reads of the clock.
const POLLS_PER_CLOCK_READ: u32 = 32;

/// Decides when an idle thread sleeps.
#[derive(Debug)]
pub struct IdleBackoff {
    idle: Idle,
    /// The number of consecutive polls without work.
    empty: u32,
    /// The time when the clock was first read in this idle period.
    since: Option<Duration>,
}

impl IdleBackoff {
    /// The state of a thread that starts.
    #[must_use]
    pub const fn new(idle: Idle) -> Self {
        Self { idle, empty: 0, since: None }
    }

    /// Ends the idle period, after a poll with work.
    pub const fn reset(&mut self) {
        (self.empty, self.since) = (0, None);
    }

    /// Counts a poll without work. Returns whether to sleep.
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

    /// The number of empty polls of 1 µs each until the thread sleeps; `None`: more than `most`.
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
