//! The object that a thread polls.

use std::time::Duration;

use spin_nic::{NicError, Queue};

use crate::cores::receive_only::ReceiveOnly;
use crate::telemetry::statistics::Statistics;
use crate::worker::Worker;

/// The object that a thread polls: a worker, or a distributor that feeds workers.
pub trait Poller {
    /// Runs one poll iteration. Returns whether there was work.
    ///
    /// # Errors
    /// When the NIC is no longer usable.
    fn poll(&mut self, clock: &dyn Fn() -> Duration) -> Result<bool, NicError>;

    /// Whether work is under way that must not be cut short. It may take several more polls.
    fn is_busy(&self) -> bool;

    /// Prepares the end: asks other threads for nothing more.
    fn shutdown(&mut self) {}

    /// Whether other threads may still need this one.
    fn has_dependents(&self) -> bool {
        false
    }

    /// Whether sent frames have not left yet.
    fn is_sending(&self) -> bool;

    /// Ends reception from the NIC.
    fn close(&mut self);

    /// Prepares for the thread's sleep.
    fn idle(&mut self) {}

    /// Whether another thread has sent something.
    fn has_pending(&self) -> bool;

    /// Whether nothing will arrive from here on.
    fn is_finished(&self) -> bool;

    /// The queue on which the thread waits for packets.
    fn nic(&mut self) -> &mut dyn Queue;

    /// The current statistics block.
    fn statistics(&self) -> Statistics;
}

impl Poller for Worker {
    fn poll(&mut self, clock: &dyn Fn() -> Duration) -> Result<bool, NicError> {
        let taken = self.poll(clock)?;
        Ok(taken > 0 || self.has_tasks() || self.has_exchanged() || self.is_busy_for_others())
    }

    fn is_busy(&self) -> bool {
        let fed = self.arrivals.as_ref().is_some_and(|arrivals| !arrivals.is_over());
        let handed = self.hand_over.as_ref().is_some_and(|hand_over| hand_over.has_arrivals());
        fed || handed || self.has_tasks() || self.backlog() > 0
    }

    fn shutdown(&mut self) {
        self.stop_lending();
        if let Some(hand_over) = &mut self.hand_over {
            hand_over.end();
        }
    }

    fn has_dependents(&self) -> bool {
        self.may_borrow() || self.hand_over.as_ref().is_some_and(|hand_over| hand_over.may_receive())
    }

    fn is_sending(&self) -> bool {
        self.unsent() > 0
    }

    fn close(&mut self) {
        self.ingress.closed = true;
    }

    fn idle(&mut self) {
        self.runner.executor.mark_idle();
    }

    fn has_pending(&self) -> bool {
        let arrived = self.arrivals.as_ref().is_some_and(|arrivals| !arrivals.is_empty() || arrivals.is_over());
        let handed = self.hand_over.as_ref().is_some_and(|hand_over| hand_over.has_pending());
        arrived || handed || self.has_loans() || self.is_busy_for_others()
    }

    fn is_finished(&self) -> bool {
        match &self.arrivals {
            Some(arrivals) => arrivals.is_over(),
            None => self.out_on_channels() == 0 && !self.has_dependents() && self.core.nic.exhausted(),
        }
    }

    fn nic(&mut self) -> &mut dyn Queue {
        &mut *self.core.nic
    }

    fn statistics(&self) -> Statistics {
        self.statistics()
    }
}

impl Poller for ReceiveOnly {
    fn poll(&mut self, clock: &dyn Fn() -> Duration) -> Result<bool, NicError> {
        Ok(self.poll(clock)? > 0)
    }

    fn is_busy(&self) -> bool {
        self.backlog() > 0
    }

    fn is_sending(&self) -> bool {
        self.unsent() > 0
    }

    fn close(&mut self) {
        self.close();
    }

    fn has_pending(&self) -> bool {
        self.has_news()
    }

    fn is_finished(&self) -> bool {
        self.is_exhausted()
    }

    fn nic(&mut self) -> &mut dyn Queue {
        self.nic()
    }

    fn statistics(&self) -> Statistics {
        self.statistics()
    }
}
