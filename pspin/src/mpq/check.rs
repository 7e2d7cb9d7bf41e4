//! Consistency of the queues, for tests.

use super::state::{Queue, State};
use super::types::NONE;
use super::{MpqId, Mpqs, Owned};

impl<C: Copy + Owned, P> Mpqs<C, P> {
    /// Whether a queue is Free: it has no message, no HER and no task in flight.
    #[doc(hidden)]
    #[must_use]
    pub fn is_free(&self, mpq: MpqId) -> bool {
        self.queues[mpq.0 as usize].state == State::Free
    }

    /// Number of tasks in flight.
    #[doc(hidden)]
    #[must_use]
    pub fn tasks_in_flight(&self) -> usize {
        self.queues.iter().map(|queue| queue.in_flight as usize).sum()
    }

    /// Checks queues, the HER pool and the ready lists against each other. Takes time proportional to their sizes.
    ///
    /// # Panics
    /// When they disagree: a bug.
    #[doc(hidden)]
    pub fn check(&self) {
        let mut queued = 0;
        let mut by_owner = vec![0; self.owners.count()];
        for (number, queue) in self.queues.iter().enumerate() {
            self.check_queue(number, queue);
            let (mut at, mut last) = (queue.head, NONE);
            while let Some(slot) = self.pool.get(at) {
                let is_with_task = at == queue.head && queue.in_flight > 0;
                assert!(slot.packet.is_some() || is_with_task, "queue {number}: a HER without packet");
                by_owner[slot.params.context.owner() as usize] += 1;
                queued += 1;
                (last, at) = (at, slot.next);
            }
            assert_eq!(queue.tail, last, "queue {number}: its last HER");
        }
        self.pool.check(queued);
        let listed = self.owners.check(&self.queues, &by_owner);
        let ready = self.queues.iter().filter(|queue| queue.is_ready()).count();
        assert_eq!(listed, ready, "ready queues in their owners' lists");
        assert!(self.cancelled.is_empty(), "packets of cancelled messages are left");
    }

    fn check_queue(&self, number: usize, queue: &Queue<C>) {
        let about = |what: &str| format!("queue {number}, {:?}: {what}", queue.state);
        assert_eq!(queue.is_ready(), queue.listed, "{}", about("ready and not listed, or the other way round"));
        if queue.state == State::Free {
            let is_empty = queue.head == NONE && queue.in_flight == 0 && queue.length == 0;
            assert!(is_empty && queue.params.is_none(), "{}", about("it has a message"));
            assert!(!queue.end_seen && !queue.kept_open && !queue.rejecting, "{}", about("flags of a message"));
        } else {
            assert!(queue.params.is_some() || queue.is_cancelled(), "{}", about("it has no message"));
        }
    }
}
