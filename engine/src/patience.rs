//! `--full wait`: while a packet of a context waits for room, nobody's packets are taken in. Who has others wait pays for that time, and
//! has no more of it than its share.
//!
//! Whether others have packets cannot be told while none are taken in, so all that are there count. A context is charged for the whole
//! time, its own tasks' included. And it runs up a debt, which it works off while others need not wait for it, as much faster as its weight
//! is more than all others'. With a debt of more than [`MOST`] it has others wait no longer: what has no room is dropped until the debt is
//! gone. So of any time but the shortest the others have their part, and a context that is alone waits for as long as it likes.

use std::time::Duration;

use spin_abi::control::Full;

use crate::admission::Admission;
use crate::core::Core;
use crate::latency::nanoseconds;
use crate::sharing::{SHARED_TIME, Sched};
use spin_pspin::ids::Slot;

/// The most that others may be kept waiting in a row: about a turn.
const MOST: Duration = SHARED_TIME;

/// How a context stands that may have others wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// Picoseconds that others waited for it and were not made up for.
    debt: u64,
    /// It has none left until that is nothing.
    over: bool,
}

impl Patience {
    /// Others waited for it.
    fn spend(&mut self, time: Duration) {
        self.debt = self.debt.saturating_add(picoseconds(time));
        self.over |= self.debt > picoseconds(MOST);
    }

    /// They need not have: it is one of this weight, and that is all others'.
    fn regain(&mut self, time: Duration, own: u64, others: u64) {
        let regained = picoseconds(time).saturating_mul(own) / others.max(1);
        self.debt = self.debt.saturating_sub(regained);
        self.over &= self.debt > 0;
    }

    /// Whether it may have others wait.
    #[must_use]
    pub const fn lasts(&self) -> bool {
        !self.over
    }
}

/// So that little of a short time is lost in the division.
fn picoseconds(time: Duration) -> u64 {
    nanoseconds(time).saturating_mul(1000)
}

/// Others wait for a context, which had had so much when that was looked at.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    slot: Slot,
    had: Duration,
}

impl Admission {
    /// Whom others wait for in this poll.
    pub(crate) fn kept_waiting(&self, core: &Core) -> Option<Kept> {
        let slot = self.stalled_on.filter(|_| self.stalled.is_some() && core.contexts.is_shared())?;
        Some(Kept { slot, had: core.sched.scheduler.had(slot.0) })
    }
}

/// Charges the context that stalled reception in a poll for that time. All others regain what they may of the time since the poll before
/// ended.
#[cold]
pub(crate) fn charge_waits(core: &mut Core, kept: Option<Kept>, poll: Duration, since: Duration) {
    let Core { sched: Sched { scheduler, .. }, contexts, .. } = core;
    if let Some(Kept { slot, had }) = kept {
        let own = scheduler.had(slot.0).saturating_sub(had);
        scheduler.charge(slot.0, 0, poll.saturating_sub(own));
    }
    let weights: u64 = contexts.installed().map(|context| u64::from(context.run.weight)).sum();
    for (number, context) in (0..).zip(&mut contexts.list) {
        let Some(context) = context.as_mut().filter(|context| context.run.full == Full::Wait) else { continue };
        let own = u64::from(context.run.weight);
        match kept {
            Some(Kept { slot: Slot(kept), .. }) if kept == number => context.patience.spend(poll),
            _ => context.patience.regain(since, own, weights.saturating_sub(own)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MOST, Patience};

    /// Of how many microseconds others waited for one that always has more than there is room for.
    fn kept(own: u64, others: u64) -> u64 {
        let (mut patience, mut kept) = (Patience::default(), 0);
        let step = Duration::from_micros(1);
        for _ in 0..1_000_000 {
            if patience.lasts() {
                kept += 1;
                patience.spend(step);
            } else {
                patience.regain(step, own, others);
            }
        }
        kept
    }

    #[test]
    fn others_have_their_part_of_the_time() {
        for (own, others) in [(1, 1), (3, 1), (1, 1000), (7, 20)] {
            let fair = 1_000_000 * own / (own + others);
            let kept = kept(own, others);
            assert!(kept.abs_diff(fair) <= fair / 100 + 2 * MOST.as_micros() as u64, "{kept} of {fair}");
        }
    }
}
