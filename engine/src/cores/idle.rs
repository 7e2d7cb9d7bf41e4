//! When a thread that finds nothing to do goes to sleep.

use std::time::Duration;

use crate::settings::Idle;

/// How long an adaptive thread polls in vain before it sleeps. A sleep with its wake-up costs some tens of microseconds: whoever
/// has polled for several times as long has lost little by it, and a flow whose packets are closer than this never waits.
const PATIENCE: Duration = Duration::from_micros(200);
/// Turns without a packet between two looks at the clock.
const TURNS: u32 = 32;

/// What a thread knows of its idleness.
#[derive(Debug)]
pub struct Rest {
    idle: Idle,
    /// Turns in a row that found nothing.
    empty: u32,
    /// When the first of them was noticed.
    since: Option<Duration>,
}

impl Rest {
    /// Of a thread that begins.
    #[must_use]
    pub const fn new(idle: Idle) -> Self {
        Self { idle, empty: 0, since: None }
    }

    /// A turn had something to do, or the thread has slept.
    pub const fn over(&mut self) {
        (self.empty, self.since) = (0, None);
    }

    /// A turn found nothing. Returns whether to sleep.
    pub fn wanted(&mut self, clock: impl Fn() -> Duration) -> bool {
        match self.idle {
            Idle::Spin => false,
            Idle::Sleep => true,
            Idle::Adaptive => {
                self.empty += 1;
                if !self.empty.is_multiple_of(TURNS) {
                    return false;
                }
                let now = clock();
                now.saturating_sub(*self.since.get_or_insert(now)) >= PATIENCE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::{PATIENCE, Rest, TURNS};
    use crate::settings::Idle;

    /// Empty turns of a microsecond each until it wants to sleep, of at most so many.
    fn turns(rest: &mut Rest, most: u32) -> Option<u32> {
        let now = Cell::new(0);
        (1..=most).find(|_| {
            now.set(now.get() + 1);
            rest.wanted(|| Duration::from_micros(now.get()))
        })
    }

    #[test]
    fn a_thread_that_sleeps_does_so_at_once_and_one_that_spins_never() {
        assert_eq!(turns(&mut Rest::new(Idle::Sleep), 10), Some(1));
        assert_eq!(turns(&mut Rest::new(Idle::Spin), 1_000_000), None);
    }

    #[test]
    fn an_adaptive_one_has_patience_after_each_packet() {
        let mut rest = Rest::new(Idle::Adaptive);
        let patience = u32::try_from(PATIENCE.as_micros()).expect("short");
        let slept = turns(&mut rest, 10 * patience).expect("in the end");
        assert!((patience..patience + 2 * TURNS).contains(&slept), "{slept}");
        for _ in 0..100 {
            rest.over();
            assert_eq!(turns(&mut rest, patience), None, "a packet came");
        }
        assert!(turns(&mut rest, 10 * patience).is_some());
    }
}
