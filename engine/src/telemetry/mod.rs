//! Counters and measurements of a worker.

pub mod context_latency;
pub mod latency;
pub mod statistics;

use std::time::Duration;

use crate::context::event_ring::DoorbellPending;
use crate::telemetry::context_latency::LatenciesBySlot;
use crate::telemetry::latency::Latencies;
use spin_pspin::counts::Counts;
use spin_pspin::ids::{Slot, Timestamp};

/// At most one task in this number of packets is timed. Where packets arrive one by one, each would otherwise wait for the clock.
const SAMPLE_PACKETS: u64 = 16;
/// Minimum number of batches between two timed tasks: reading the clock takes as long as some packets.
const SAMPLE_BATCHES: u64 = 8;

/// Counters, latencies and doorbells of one worker.
pub(crate) struct Telemetry {
    /// Counters of events that belong to no context.
    pub(crate) counts: Counts,
    pub(crate) latencies: Latencies,
    /// Latencies of contexts.
    pub(crate) by_slot: LatenciesBySlot,
    /// The number of packet buffers released since a task was last timed.
    pub(crate) unsampled: u64,
    /// Arrival time of the packet whose buffer was released last.
    released: Timestamp,
    /// Whether applications are to be woken.
    pub(crate) doorbell_pending: DoorbellPending,
    first_arrival: Option<Duration>,
    /// The time when tasks last ended.
    pub(crate) last_end: Duration,
}

impl Telemetry {
    pub(crate) fn new() -> Self {
        Self {
            counts: Counts::default(),
            latencies: Latencies::default(),
            by_slot: LatenciesBySlot::new(),
            // The first task is timed.
            unsampled: u64::from(u32::MAX),
            released: Timestamp::at(Duration::ZERO),
            doorbell_pending: DoorbellPending::default(),
            first_arrival: None,
            last_end: Duration::ZERO,
        }
    }

    pub(crate) fn note_first_arrival(&mut self, time: Duration) {
        self.first_arrival.get_or_insert(time);
    }

    /// Whether a task was timed recently enough, with `batch` packets in the batch.
    pub(crate) fn is_sampled(&self, batch: usize) -> bool {
        self.unsampled < SAMPLE_PACKETS.max(batch as u64 * SAMPLE_BATCHES)
    }

    /// Notes that packets of a context released `count` buffers, the last one that of a packet which arrived at `arrived`.
    #[inline]
    pub(crate) fn note_released(&mut self, slot: Slot, count: u64, arrived: Timestamp) {
        self.released = arrived;
        self.by_slot.note_released(slot, count, arrived);
    }

    /// Records the queueing time of a context's sampled task, from its packet's arrival to the start of its handler, and its run
    /// time.
    #[inline]
    pub(crate) fn sample(&mut self, slot: Slot, queueing: Duration, handler: Duration) {
        self.latencies.sample(queueing, handler);
        self.by_slot.sample(slot, queueing, handler);
    }

    /// Notes that tasks of a poll ended at `end` and released `released` packet buffers. Returns the time when tasks ended
    /// before.
    pub(crate) fn end_tasks(&mut self, released: u64, end: Duration) -> Duration {
        self.unsampled += released;
        // All packets of the batch count with the latency of its last one.
        self.latencies.record_total(released, self.released.before(end));
        self.by_slot.end_poll(end);
        std::mem::replace(&mut self.last_end, end)
    }

    /// The time from the first arrival to the last end of a task.
    pub(crate) fn active(&self) -> Duration {
        self.last_end.saturating_sub(self.first_arrival.unwrap_or_default())
    }
}
