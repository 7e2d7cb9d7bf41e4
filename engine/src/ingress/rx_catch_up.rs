//! Receive catch-up after a long poll. Packets of other contexts may be in the NIC by then, behind those of the context whose
//! tasks took so long. With one batch between two such tasks, most of them would be lost there.
//!
//! Therefore no queued tasks run until the NIC has less than a full batch, for a fraction of the time that the poll took. Packets
//! on the fast path run meanwhile. This applies only while packets of other contexts are seen. A burst of a single context is
//! better kept in the NIC than dropped here beyond its share.

use std::time::Duration;

/// Minimum duration of a long poll. After a shorter one, the next batch is enough.
pub(crate) const LONG_POLL: Duration = Duration::from_micros(50);
/// Divisor: the catch-up may take this fraction of a long poll's duration.
const CATCH_UP_FRACTION: u32 = 8;
/// The catch-up may take this long after a poll that took four times as long or more. Tasks of light users run meanwhile. After a poll of
/// 200 µs, an eighth is the time of one such task and a batch.
const SHORT_CATCH_UP: Duration = Duration::from_micros(50);
/// Batches without a packet of a context that has nothing queued. After that many, there is most likely none behind them.
const EXPECTED_BATCHES: u32 = 16;
/// Catch-up time per packet that is examined for its owner.
const LOOKUP_TIME: Duration = Duration::from_nanos(20);
/// Polls after a long one during which another long one is expected.
const LONG_POLL_MEMORY: u32 = 256;

/// State of the receive catch-up.
#[derive(Debug, Default)]
pub(crate) struct RxCatchUp {
    /// Whether the NIC returned as many frames as requested.
    pub(crate) batch_was_full: bool,
    /// Whether the batch had packets for other threads, of several contexts or of one that has nothing queued here.
    pub(crate) others: bool,
    /// The remaining time for which queued tasks may wait.
    left: Duration,
    /// Whether queued tasks waited in this poll.
    waited: bool,
    /// The number of further polls that may be long.
    long: u32,
    /// The number of further batches in which packets of others are expected.
    expected: u32,
}

impl RxCatchUp {
    /// Whether to receive although there are enough tasks.
    pub(crate) const fn is_wanted(&self) -> bool {
        !self.left.is_zero() && self.expected > 0
    }

    /// Notes that packets of other contexts are waiting.
    pub(crate) const fn expect(&mut self) {
        self.expected = EXPECTED_BATCHES;
    }

    /// The number of packets whose owners may be examined in the remaining time.
    pub(crate) fn worth_a_look(&self) -> usize {
        (self.left.as_nanos() / LOOKUP_TIME.as_nanos()) as usize
    }

    /// Whether packets of other contexts matter in this poll.
    pub(crate) const fn looks_for_others(&self) -> bool {
        !self.left.is_zero()
    }

    /// Whether polls may be long. The clock is then read also where tasks cost no time, to end a poll in time.
    pub(crate) const fn has_long_polls(&self) -> bool {
        self.long > 0
    }

    /// Whether queued tasks wait in this poll. `here`: a context with nothing queued has packets in the batch.
    pub(crate) fn wait_for_more(&mut self, here: bool) -> bool {
        let others = std::mem::take(&mut self.others) || here;
        self.expected = if others { EXPECTED_BATCHES } else { self.expected.saturating_sub(1) };
        self.waited = self.batch_was_full && self.expected > 0;
        self.waited
    }

    /// Notes the duration of a poll, and the time `since` the previous one ended.
    pub(crate) fn note_poll(&mut self, poll: Duration, since: Duration) {
        self.long = if poll >= LONG_POLL { LONG_POLL_MEMORY } else { self.long.saturating_sub(1) };
        // A poll in which queued tasks waited grants no further time, whatever made it long.
        let waited = std::mem::take(&mut self.waited);
        let catch_up = (poll / CATCH_UP_FRACTION).max(SHORT_CATCH_UP.min(poll / 4));
        self.left = if poll >= LONG_POLL && !waited { catch_up } else { self.left.saturating_sub(since) };
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
            // These polls may do other work too.
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
