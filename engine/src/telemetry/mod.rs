//! What a worker counts and measures.

pub mod latency;
pub mod statistics;

use std::time::Duration;

use crate::context::event_ring::DoorbellPending;
use crate::telemetry::latency::Latencies;
use spin_pspin::counts::Counts;
use spin_pspin::ids::Timestamp;

/// Of so many packets the time of one task is measured at most: where packets come one by one, each would wait for the clock.
const SAMPLE_PACKETS: u64 = 16;
/// At least so many batches lie between two measured tasks: reading the clock takes as long as some packets.
const SAMPLE_BATCHES: u64 = 8;

/// Counters, latencies and doorbells of one worker.
pub(crate) struct Telemetry {
    /// Counters of what belongs to no context.
    pub(crate) counts: Counts,
    pub(crate) latencies: Latencies,
    /// Packet buffers released since a task was last measured.
    pub(crate) unsampled: u64,
    /// Arrival time of the packet whose buffer was released last.
    pub(crate) released: Timestamp,
    /// Applications are to be woken.
    pub(crate) doorbell_pending: DoorbellPending,
    first_arrival: Option<Duration>,
    /// When tasks ended last.
    pub(crate) last_end: Duration,
}

impl Telemetry {
    pub(crate) fn new() -> Self {
        Self {
            counts: Counts::default(),
            latencies: Latencies::default(),
            // The first task is measured.
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

    /// Whether a task was measured so recently that none is measured now, with so many packets in the batch.
    pub(crate) fn is_sampled(&self, batch: usize) -> bool {
        self.unsampled < SAMPLE_PACKETS.max(batch as u64 * SAMPLE_BATCHES)
    }

    /// Tasks of a poll have ended at `end`, with which so many packet buffers were released. Returns when tasks had ended before.
    pub(crate) fn end_tasks(&mut self, released: u64, end: Duration) -> Duration {
        self.unsampled += released;
        // All packets of the batch count as if they had waited as long as its last one.
        self.latencies.record_total(released, self.released.before(end));
        std::mem::replace(&mut self.last_end, end)
    }

    /// From the first arrival to the last end of a task.
    pub(crate) fn active(&self) -> Duration {
        self.last_end.saturating_sub(self.first_arrival.unwrap_or_default())
    }
}
