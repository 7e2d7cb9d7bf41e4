//! The event ring of an execution context in host memory: the page of one thread. See [`spin_abi::events`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use spin_abi::events::{DOORBELL, Event, PAGE, RECORDS};
use spin_pspin::hpu::command::EventSink;
use spin_shm::{Region, RegionError};

/// Maximum number of unsignalled events: an application that is woken has to read them before they are overwritten.
const MAX_UNSIGNALLED: u64 = RECORDS / 2;

/// Whether contexts of a thread have unsignalled events.
#[derive(Clone, Debug, Default)]
pub struct DoorbellPending(Arc<AtomicBool>);

impl DoorbellPending {
    /// Returns the flag and clears it.
    #[inline]
    pub fn take(&self) -> bool {
        self.0.load(Relaxed) && self.0.swap(false, Relaxed)
    }

    fn note(&self) {
        self.0.store(true, Relaxed);
    }
}

/// The events of a context from one thread, for the context's application.
#[derive(Debug)]
pub struct EventRing {
    region: Arc<Region>,
    /// The offset of the thread's page.
    page: u64,
    written: u64,
    /// The number of events since the doorbell was rung.
    unsignalled: u64,
    /// The first flow id of the thread's unit.
    first_flow: u32,
    /// The time when unsignalled events were first seen by [`EventRing::ring`].
    since: Option<Duration>,
    /// Maximum time for which events may wait for further ones.
    doorbell_delay: Duration,
    doorbell_pending: DoorbellPending,
}

impl EventRing {
    /// Bytes of the memory of `pages` pages.
    #[must_use]
    pub fn bytes(pages: u32) -> u64 {
        u64::from(pages) * PAGE
    }

    /// Memory of `pages` pages: one for each possible thread.
    ///
    /// # Errors
    /// See [`RegionError`].
    pub fn create(pages: u32) -> Result<Arc<Region>, RegionError> {
        Region::create(Self::bytes(pages)).map(Arc::new)
    }

    /// The event ring of a thread on page `number`. Events may wait for further ones for up to `doorbell_delay`.
    /// `doorbell_pending` is the thread's flag.
    #[must_use]
    pub fn new(region: Arc<Region>, number: u32, doorbell_delay: Duration, doorbell_pending: &DoorbellPending) -> Self {
        let page = u64::from(number) * PAGE;
        Self {
            region,
            page,
            written: 0,
            unsignalled: 0,
            first_flow: 0,
            since: None,
            doorbell_delay,
            doorbell_pending: doorbell_pending.clone(),
        }
    }

    /// Numbers messages from `first_flow` on: the context runs in several units.
    #[must_use]
    pub const fn numbered_from(mut self, first_flow: u32) -> Self {
        self.first_flow = first_flow;
        self
    }

    /// The memory to hand to the application.
    #[must_use]
    pub const fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Writes an event of a message that handlers of a unit know by this flow id, and rings the doorbell later.
    #[cold]
    pub fn emit_event(&mut self, event: Event) {
        self.write(Event { flow: self.first_flow + event.flow, ..event });
    }

    /// Writes an event. The count is written after the record, so that counted records are complete.
    #[cold]
    fn write(&mut self, event: Event) {
        let number = self.written;
        self.written += 1;
        let record = self.region.write(self.page + Event::place(number), &event.encode(number));
        let count = self.region.write(self.page, &self.written.to_le_bytes());
        debug_assert!(record.is_ok() && count.is_ok(), "a page for each cluster");
        self.unsignalled += 1;
        if self.unsignalled == 1 {
            self.doorbell_pending.note();
        } else if self.unsignalled == MAX_UNSIGNALLED {
            self.ring(None);
        }
    }

    /// Rings the doorbell if events have waited long enough at `now`; `None`: if there are any. Otherwise they stay pending.
    pub fn ring(&mut self, now: Option<Duration>) {
        if self.unsignalled == 0 {
            return;
        }
        let waited = now.map(|now| now.saturating_sub(*self.since.get_or_insert(now)));
        if waited.is_some_and(|waited| waited < self.doorbell_delay) {
            return self.doorbell_pending.note();
        }
        self.region.ring(DOORBELL);
        (self.unsignalled, self.since) = (0, None);
    }
}

impl EventSink for EventRing {
    /// Handlers name the message by the flow id that they know.
    fn emit(&mut self, event: Event) {
        self.write(event);
    }
}

/// Rings the doorbell for the last events.
impl Drop for EventRing {
    fn drop(&mut self) {
        self.ring(None);
    }
}

#[cfg(test)]
mod tests {
    use super::{DoorbellPending, EventRing, MAX_UNSIGNALLED};
    use spin_abi::events::{DOORBELL, Event, What};
    use std::time::Duration;

    const EVENT: Event = Event { flow: 1, what: What::TimedOut };

    #[test]
    fn events_wait_for_others_and_are_rung_for_together() {
        let (region, doorbell_pending) = (EventRing::create(1).expect("memory"), DoorbellPending::default());
        let mut event_ring = EventRing::new(region.clone(), 0, Duration::from_micros(10), &doorbell_pending);
        let at = |micros| Some(Duration::from_micros(micros));
        assert!(!doorbell_pending.take());
        (0..5).for_each(|_| event_ring.emit_event(EVENT));
        for early in [100, 109] {
            assert!(doorbell_pending.take());
            event_ring.ring(at(early));
        }
        assert_eq!((region.rings(DOORBELL), doorbell_pending.take()), (0, true));
        event_ring.ring(at(110));
        assert_eq!((region.rings(DOORBELL), doorbell_pending.take()), (1, false));
        // The doorbell is not rung without events. Without a time, events do not wait.
        event_ring.ring(None);
        assert_eq!(region.rings(DOORBELL), 1);
        event_ring.emit_event(EVENT);
        event_ring.ring(None);
        assert_eq!(region.rings(DOORBELL), 2);
    }

    #[test]
    fn nobody_sleeps_until_events_are_overwritten_or_the_context_is_gone() {
        let (region, doorbell_pending) = (EventRing::create(1).expect("memory"), DoorbellPending::default());
        let mut event_ring = EventRing::new(region.clone(), 0, Duration::MAX, &doorbell_pending);
        (0..MAX_UNSIGNALLED).for_each(|_| event_ring.emit_event(EVENT));
        assert_eq!(region.rings(DOORBELL), 1);
        event_ring.emit_event(EVENT);
        event_ring.ring(Some(Duration::ZERO));
        assert_eq!(region.rings(DOORBELL), 1);
        drop(event_ring);
        assert_eq!(region.rings(DOORBELL), 2);
    }
}
