//! When a worker checks the watchdogs of other threads: see [`hpu_vm::jit::Executor::poll_peers`].

use std::time::Duration;

/// Polls without a task between two reads of the clock.
const TURNS: u32 = 64;

/// The schedule of watchdog checks.
#[derive(Debug, Default)]
pub(crate) struct WatchdogPoll {
    /// The time of the next check.
    due: Duration,
    /// The time when tasks last ended.
    ended: Duration,
    /// The number of polls since then.
    idle: u32,
}

impl WatchdogPoll {
    /// Calls `look` when its deadline has passed; `look` returns the delay until the next call. `ended` is the time when tasks
    /// last ended. The clock is read only after 64 polls without one.
    #[inline]
    pub(crate) fn keep(&mut self, ended: Duration, clock: impl FnOnce() -> Duration, look: impl FnOnce() -> Duration) {
        let now = if ended == self.ended {
            self.idle += 1;
            if self.idle < TURNS {
                return;
            }
            clock()
        } else {
            ended
        };
        (self.ended, self.idle) = (ended, 0);
        if now >= self.due {
            self.due = now + look();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::{TURNS, WatchdogPoll};

    #[test]
    fn it_looks_when_it_is_time_to_by_tasks_that_ended_or_else_by_the_clock() {
        let (looks, clocks, mut watchdog_poll) = (Cell::new(0), Cell::new(0), WatchdogPoll::default());
        let mut keep = |ended, now| {
            let clock = || {
                clocks.set(clocks.get() + 1);
                Duration::from_micros(now)
            };
            let look = || {
                looks.set(looks.get() + 1);
                Duration::from_micros(100)
            };
            watchdog_poll.keep(Duration::from_micros(ended), clock, look);
            (looks.get(), clocks.get())
        };
        for (ended, looks) in [(1, 1), (2, 1), (100, 1), (101, 2), (102, 2), (300, 3)] {
            assert_eq!(keep(ended, 0), (looks, 0), "{ended}");
        }
        // No task ends from here on.
        for (round, looks) in [(1_u32, 3), (2, 4), (3, 4)] {
            (1..TURNS).for_each(|_| assert_eq!(keep(300, 0).1, round - 1));
            assert_eq!(keep(300, 300 + 60 * u64::from(round)), (looks, round));
        }
    }
}
