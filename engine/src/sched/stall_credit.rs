//! The stall credit of `--full wait`. While a packet of such a context waits for room, packets of all contexts wait in the NIC.
//! The context is charged for that time, and may stall for no more than its share of the time.
//!
//! Whether other contexts have packets is unknown while nothing is received. So all installed contexts count. The context is
//! charged for the full time, including that of its own tasks. The stall also adds to a debt. The context repays it while it does
//! not stall, at a rate of its [part](Part) of the time divided by that of all others. With more than 200 µs of debt, it may not stall: its
//! packets without room are dropped until the debt is zero. Over any but the shortest time, others therefore get their share. A
//! context that is alone may stall without limit.

use std::time::Duration;

use crate::sched::SHARED_TIME;
use crate::sched::weights::Part;
use crate::telemetry::latency::nanoseconds;

/// Maximum debt, and so the longest consecutive stall: about one poll.
const MAX_DEBT: Duration = SHARED_TIME;

/// The stall credit of a context with `--full wait`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCredit {
    /// The context's part of the time.
    part: Part,
    /// Picoseconds of stalls that are not repaid.
    debt: u64,
    /// Whether the debt exceeded [`MAX_DEBT`] and is not zero again.
    over: bool,
}

impl StallCredit {
    /// Sets the context's part of the time, among all contexts.
    pub(crate) const fn set_part(&mut self, part: Part) {
        self.part = part;
    }

    /// Adds the time of a stall to the debt.
    pub(crate) fn debit(&mut self, time: Duration) {
        self.debt = self.debt.saturating_add(picoseconds(time));
        self.over |= self.debt > picoseconds(MAX_DEBT);
    }

    /// Repays debt for a time without a stall, at the rate of the context's part to that of all others.
    pub(crate) fn repay(&mut self, time: Duration) {
        let regained = self.part.relative_to_others(picoseconds(time));
        self.debt = self.debt.saturating_sub(regained);
        self.over &= self.debt > 0;
    }

    /// Whether the context may stall.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        self.part.is_whole() || !self.over
    }
}

/// The unit keeps rounding errors of the division small for short times.
fn picoseconds(time: Duration) -> u64 {
    nanoseconds(time).saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MAX_DEBT, StallCredit};
    use crate::sched::weights::Part;

    /// Microseconds of stalls by a context that always has more packets than room.
    fn stalled(own: u64, others: u64) -> u64 {
        let (mut credit, mut stalled) = (StallCredit::default(), 0);
        credit.set_part(Part::new(own, own + others));
        let step = Duration::from_micros(1);
        for _ in 0..1_000_000 {
            if credit.is_available() {
                stalled += 1;
                credit.debit(step);
            } else {
                credit.repay(step);
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
