//! What is taken in after a turn that took long. Others' packets may be in the NIC by then, behind those of the context whose tasks it was:
//! with one batch between two such tasks most of them would be lost there.
//!
//! So no queued tasks are run until the NIC has no batch_was_full batch left, for a part of the time that the turn took; what runs as it arrives
//! does. Only while others' packets are seen: a burst of a context that is alone is better off in the NIC than beyond its share here.

use std::time::Duration;

/// What a turn has to take: after a shorter one the next batch will do.
pub(crate) const LONG_POLL: Duration = Duration::from_micros(50);
/// Of the time that a long turn took, one part in so many may go by.
const CATCH_UP_FRACTION: u32 = 8;
/// Batches without a packet of a context that has nothing queued, after which there are none behind them, most likely.
const EXPECTED_BATCHES: u32 = 16;
/// Time of a long turn's part for each packet of which it may be looked up whose it is.
const LOOKUP_TIME: Duration = Duration::from_nanos(20);
/// Turns after a long one in which others may be as long.
const LONG_POLL_MEMORY: u32 = 256;

/// How much there may be to take in.
#[derive(Debug, Default)]
pub(crate) struct RxCatchUp {
    /// The NIC gave as many frames as it was asked for.
    pub(crate) batch_was_full: bool,
    /// The batch had packets for other threads, of several contexts or of one that has nothing queued here.
    pub(crate) others: bool,
    /// For how long queued tasks may wait,
    left: Duration,
    /// as they did in this turn.
    waited: bool,
    /// So many turns may take long.
    long: u32,
    /// For so many batches others' packets are expected.
    expected: u32,
}

impl RxCatchUp {
    /// Whether packets are worth taking though there is work enough.
    pub(crate) const fn is_wanted(&self) -> bool {
        !self.left.is_zero() && self.expected > 0
    }

    /// Packets of others wait.
    pub(crate) const fn expect(&mut self) {
        self.expected = EXPECTED_BATCHES;
    }

    /// How many packets are worth a look: it takes a small part of the time that is left.
    pub(crate) fn worth_a_look(&self) -> usize {
        (self.left.as_nanos() / LOOKUP_TIME.as_nanos()) as usize
    }

    /// Whether it matters if there are packets of others.
    pub(crate) const fn looks_for_others(&self) -> bool {
        !self.left.is_zero()
    }

    /// Whether a turn may take long: who asks for no time otherwise does then, to end it.
    pub(crate) const fn has_long_polls(&self) -> bool {
        self.long > 0
    }

    /// Whether queued tasks wait in this poll. Others have packets and nothing queued: `here`, or on other threads.
    pub(crate) fn wait_for_more(&mut self, here: bool) -> bool {
        let others = std::mem::take(&mut self.others) || here;
        self.expected = if others { EXPECTED_BATCHES } else { self.expected.saturating_sub(1) };
        self.waited = self.batch_was_full && self.expected > 0;
        self.waited
    }

    /// A turn took so long, and so much time went by since the one before ended.
    pub(crate) fn note_poll(&mut self, poll: Duration, since: Duration) {
        self.long = if poll >= LONG_POLL { LONG_POLL_MEMORY } else { self.long.saturating_sub(1) };
        // Whatever took so long: they do not wait on and on.
        let waited = std::mem::take(&mut self.waited);
        self.left =
            if poll >= LONG_POLL && !waited { poll / CATCH_UP_FRACTION } else { self.left.saturating_sub(since) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CATCH_UP_FRACTION, LONG_POLL, RxCatchUp};

    #[test]
    fn queued_tasks_wait_for_a_part_of_what_they_took_and_no_longer() {
        let (mut rx_catch_up, poll) =
            (RxCatchUp { expected: 1, ..RxCatchUp::default() }, LONG_POLL * CATCH_UP_FRACTION);
        assert!(!rx_catch_up.is_wanted());
        for _ in 0..3 {
            rx_catch_up.note_poll(poll, poll);
            let mut waited = Duration::ZERO;
            // Whatever else there is to do in these turns.
            while rx_catch_up.is_wanted() {
                rx_catch_up.waited = true;
                rx_catch_up.note_poll(LONG_POLL, LONG_POLL);
                waited += LONG_POLL;
                assert!(waited <= poll, "on and on");
            }
            assert_eq!(waited, poll / CATCH_UP_FRACTION);
        }
        assert!(rx_catch_up.has_long_polls());
    }
}
