//! Charges for reception. Receiving, matching, queueing and dropping a batch takes time. This time is charged to the contexts
//! that have packets in the batch, by their number of packets. The part of packets that match no context is counted as the
//! daemon's.

use std::time::Duration;

use spin_abi::counters::Counter;
use spin_pspin::ids::Slot;

use crate::ingress::rx_batch::RxBatch;
use crate::telemetry::latency::nanoseconds;
use crate::worker::core::Core;

/// The packets of the interval that is being charged.
#[derive(Debug, Default)]
pub(crate) struct RxCharges {
    /// Start of the interval; `None`: nothing is charged.
    start: Option<Duration>,
    /// Contexts with packets.
    slots: Vec<Slot>,
    /// The number of packets, by slot.
    packets: Vec<u32>,
    /// The number of packets that matched no context.
    unmatched: u32,
}

impl RxCharges {
    /// Starts an interval if several contexts share this thread's time and tasks cost time. Otherwise the clock is not read.
    pub(crate) fn begin(&mut self, core: &Core, clock: &impl Fn() -> Duration) {
        let charged = core.contexts.is_shared() && core.sched.scheduler.costs_time();
        self.start = charged.then(clock);
    }

    /// Counts the packets of a batch in the current interval.
    pub(crate) fn count(&mut self, inbound: &RxBatch) {
        if self.start.is_none() {
            return;
        }
        for owner in inbound.owners() {
            if owner == Slot::NOBODY {
                self.unmatched += 1;
                continue;
            }
            let index = owner.0 as usize;
            if self.packets.len() <= index {
                self.packets.resize(index + 1, 0);
            }
            if self.packets[index] == 0 {
                self.slots.push(owner);
            }
            self.packets[index] += 1;
        }
    }

    /// Ends the interval, and charges its time to the contexts of the packets counted.
    pub(crate) fn charge(&mut self, core: &mut Core, clock: &impl Fn() -> Duration) {
        let Some(start) = self.start.take().filter(|_| self.unmatched > 0 || !self.slots.is_empty()) else { return };
        let time = nanoseconds(clock().saturating_sub(start));
        let unmatched = std::mem::take(&mut self.unmatched);
        let all =
            self.slots.iter().map(|slot| u64::from(self.packets[slot.0 as usize])).sum::<u64>() + u64::from(unmatched);
        let part = |packets: u32| time.saturating_mul(packets.into()) / all;
        core.telemetry.counts.add(Counter::UnmatchedTime, part(unmatched));
        for slot in self.slots.drain(..) {
            let part = part(std::mem::take(&mut self.packets[slot.0 as usize]));
            if let Some(Some(context)) = core.contexts.list.get_mut(slot.0 as usize) {
                context.counts.add(Counter::RxTime, part);
                core.sched.scheduler.charge_reception(slot.0, part);
            }
        }
    }
}
