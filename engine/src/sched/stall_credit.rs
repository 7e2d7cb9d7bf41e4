//! `--full wait`: while a packet of a context waits for room, nobody's packets are taken in. Who has others wait pays for that time, and
//! has no more of it than its share.
//!
//! Whether others have packets cannot be told while none are taken in, so all that are there count. A context is charged for the batch_was_full
//! time, its own tasks' included. And it runs up a debt, which it works off while others need not wait for it, as much faster as its weight
//! is more than all others'. With a debt of more than 200 µs it has others wait no longer: what has no room is dropped until the debt is
//! gone. So of any time but the shortest the others have their part, and a context that is alone waits for as long as it likes.

use std::time::Duration;

use crate::sched::SHARED_TIME;
use crate::telemetry::latency::nanoseconds;

/// The most that others may be kept waiting in a row: about a turn.
const MAX_DEBT: Duration = SHARED_TIME;

/// How a context stands that may have others wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCredit {
    /// Picoseconds that others waited for it and were not made up for.
    debt: u64,
    /// It has none left until that is nothing.
    over: bool,
}

impl StallCredit {
    /// Others waited for it.
    pub(crate) fn debit(&mut self, time: Duration) {
        self.debt = self.debt.saturating_add(picoseconds(time));
        self.over |= self.debt > picoseconds(MAX_DEBT);
    }

    /// They need not have: it is one of this weight, and that is all others'.
    pub(crate) fn repay(&mut self, time: Duration, own: u64, others: u64) {
        let regained = picoseconds(time).saturating_mul(own) / others.max(1);
        self.debt = self.debt.saturating_sub(regained);
        self.over &= self.debt > 0;
    }

    /// Whether it may have others wait.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        !self.over
    }
}

/// So that little of a short time is lost in the division.
fn picoseconds(time: Duration) -> u64 {
    nanoseconds(time).saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MAX_DEBT, StallCredit};

    /// Of how many microseconds others waited for one that always has more than there is room for.
    fn stalled(own: u64, others: u64) -> u64 {
        let (mut credit, mut stalled) = (StallCredit::default(), 0);
        let step = Duration::from_micros(1);
        for _ in 0..1_000_000 {
            if credit.is_available() {
                stalled += 1;
                credit.debit(step);
            } else {
                credit.repay(step, own, others);
            }
        }
        stalled
    }

    #[test]
    fn others_have_their_part_of_the_time() {
        for (own, others) in [(1, 1), (3, 1), (1, 1000), (7, 20)] {
            let fair = 1_000_000 * own / (own + others);
            let stalled = stalled(own, others);
            assert!(stalled.abs_diff(fair) <= fair / 100 + 2 * MAX_DEBT.as_micros() as u64, "{stalled} of {fair}");
        }
    }
}
