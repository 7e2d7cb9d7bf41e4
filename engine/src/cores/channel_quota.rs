//! Quotas for packets in transit on a packet channel, by context.
//!
//! A worker that runs a long handler takes nothing from its channel meanwhile. Without quotas, one flow could then fill the
//! channel, and the packets of all other contexts would be lost. So each context may fill its part of the channel, and the
//! distributor drops its packets beyond that.
//!
//! The distributor counts packets per context only while many are out on the channel. It needs no data from the worker to tell
//! which packets those are: the worker takes packets in the order in which they were staged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use spin_pspin::ids::Slot;

use crate::sched::weights::Part;
use crate::settings::MAX_CONTEXTS;

/// Number of slots. A replaced context leaves each thread at a different time; slots beyond this number then share an entry.
const SLOTS: usize = MAX_CONTEXTS;
/// Denominator of the shares.
const WHOLE: u64 = 1 << 16;
/// Packets out on a packet channel up to which nothing is counted.
pub(crate) const UNCOUNTED: usize = 512;

const fn index(slot: Slot) -> usize {
    slot.0 as usize % SLOTS
}

/// Shares of the contexts on the channels to a worker, which writes them when contexts change.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct QuotaTable {
    /// Whether senders enforce quotas: several contexts exist, and none stalls reception when its share is full.
    enforced: AtomicBool,
    /// Shares of the channel by slot, in units of 1/[`WHOLE`].
    shares: Box<[AtomicU32]>,
}

/// Drop counters of one channel, which its sender writes. They are on cache lines of their own: the worker reads `total` in each poll.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Drops {
    /// The sum of all slots, written after `by_slot`.
    total: AtomicU64,
    by_slot: Box<[AtomicU64]>,
}

impl Default for QuotaTable {
    fn default() -> Self {
        Self { enforced: AtomicBool::new(false), shares: (0..SLOTS).map(|_| AtomicU32::new(0)).collect() }
    }
}

impl Default for Drops {
    fn default() -> Self {
        Self { total: AtomicU64::new(0), by_slot: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Drops {
    /// Counts a packet of a context.
    #[cold]
    pub(crate) fn count(&self, slot: Slot) {
        // Only this thread writes the counters.
        let dropped = &self.by_slot[index(slot)];
        dropped.store(dropped.load(Relaxed) + 1, Relaxed);
        self.total.store(self.total.load(Relaxed) + 1, Release);
    }
}

impl QuotaTable {
    /// Sets the shares of all contexts, and whether the distributor enforces them.
    pub(crate) fn set(&self, enforced: bool, parts: impl Iterator<Item = (Slot, Part)>) {
        for (slot, part) in parts {
            // The result is at most `WHOLE`.
            self.shares[index(slot)].store(u32::try_from(part.of(WHOLE)).unwrap_or(u32::MAX), Relaxed);
        }
        self.enforced.store(enforced, Relaxed);
    }
}

/// The worker's view of the drops on a channel.
#[derive(Debug)]
pub(crate) struct DropReader {
    drops: Arc<Drops>,
    total: u64,
    by_slot: Box<[u64]>,
}

impl DropReader {
    pub(crate) fn new(drops: Arc<Drops>) -> Self {
        Self { drops, total: 0, by_slot: vec![0; SLOTS].into() }
    }

    /// Calls `each` with each slot whose packets were dropped since the last call, and with their number.
    #[inline]
    pub(crate) fn read(&mut self, each: impl FnMut(Slot, u64)) {
        if self.drops.total.load(Acquire) != self.total {
            self.read_all(each);
        }
    }

    #[cold]
    fn read_all(&mut self, mut each: impl FnMut(Slot, u64)) {
        self.total = self.drops.total.load(Acquire);
        for ((slot, known), now) in (0..).zip(&mut self.by_slot).zip(&self.drops.by_slot) {
            let now = now.load(Relaxed);
            let new = now - std::mem::replace(known, now);
            if new > 0 {
                each(Slot(slot), new);
            }
        }
    }
}

/// The distributor's count of the packets in transit.
#[derive(Debug)]
pub(crate) struct TransitCount {
    table: Arc<QuotaTable>,
    /// Packets out on the channel, in transit or held by its worker, up to which nothing is counted.
    uncounted: usize,
    active: bool,
    /// The number of packets that may still be staged in this batch.
    room: usize,
    /// The number of packets that the channel could have in transit, for all contexts together.
    capacity: usize,
    /// The number of packets in transit whose contexts are unknown, since they were staged before counting began.
    unattributed: usize,
    /// Contexts of the packets behind the unattributed ones, in order.
    owners: VecDeque<Slot>,
    by_slot: Box<[u32]>,
}

impl TransitCount {
    /// The count of a channel for at most `size` packets. With `uncounted` packets or fewer out, nothing is counted.
    pub(crate) fn new(table: Arc<QuotaTable>, size: usize, uncounted: usize) -> Self {
        Self {
            table,
            uncounted,
            active: false,
            room: 0,
            capacity: 0,
            unattributed: 0,
            owners: VecDeque::with_capacity(size),
            by_slot: vec![0; SLOTS].into(),
        }
    }

    /// Whether the distributor drops packets beyond their context's quota. Otherwise it stops receiving when the channel is full.
    #[inline]
    pub(crate) fn is_enforced(&self) -> bool {
        self.table.enforced.load(Relaxed)
    }

    /// Begins a batch: `out` packets are on the channel, and there is room for `room` more. `in_transit` returns how many of them
    /// the worker has not taken. It reads a cache line that the worker writes, so it is called only while many packets are out.
    #[inline]
    pub(crate) fn begin_batch(&mut self, out: usize, room: usize, in_transit: impl FnOnce() -> usize) {
        if out <= self.uncounted || !self.is_enforced() {
            self.active = false;
        } else {
            self.count(room, in_transit());
        }
    }

    #[cold]
    fn count(&mut self, room: usize, in_transit: usize) {
        if !self.active {
            self.active = true;
            self.by_slot.fill(0);
            self.owners.clear();
            self.unattributed = in_transit;
        }
        let taken = (self.unattributed + self.owners.len()).saturating_sub(in_transit);
        let unattributed = taken.min(self.unattributed);
        self.unattributed -= unattributed;
        for owner in self.owners.drain(..taken - unattributed) {
            self.by_slot[index(owner)] -= 1;
        }
        (self.room, self.capacity) = (room, room + in_transit);
    }

    /// Discards the count.
    pub(crate) const fn reset(&mut self) {
        self.active = false;
    }

    /// Whether a packet of a context may be staged. If so, it counts as in transit.
    #[inline]
    pub(crate) fn admit(&mut self, slot: Slot) -> bool {
        !self.active || self.admit_counted(slot)
    }

    #[cold]
    fn admit_counted(&mut self, slot: Slot) -> bool {
        let share = u64::from(self.table.shares[index(slot)].load(Relaxed));
        let quota = (self.capacity.saturating_sub(self.unattributed) as u64 * share / WHOLE).max(1);
        let count = &mut self.by_slot[index(slot)];
        let is_admitted = u64::from(*count) < quota && self.room > 0;
        if is_admitted {
            *count += 1;
            self.room -= 1;
            self.owners.push_back(slot);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{DropReader, Drops, QuotaTable, TransitCount, UNCOUNTED};
    use crate::sched::weights::Part;
    use spin_pspin::ids::Slot;

    /// The number of packets admitted, out of `count`.
    fn admitted(transit: &mut TransitCount, slot: Slot, count: usize) -> usize {
        (0..count).filter(|_| transit.admit(slot)).count()
    }

    #[test]
    fn a_context_fills_its_share_and_leaves_the_other_s() {
        const SIZE: usize = 4096;
        let [flood, other] = [3, 255].map(Slot);
        for (weights, shares) in [([1, 1], [2048, 2048]), ([1, 1000], [4, 4091]), ([1000, 1], [4091, 4])] {
            let table = Arc::new(QuotaTable::default());
            let part = |weight| Part::new(weight, weights[0] + weights[1]);
            table.set(true, [(flood, part(weights[0])), (other, part(weights[1]))].into_iter());
            let mut transit = TransitCount::new(table, SIZE, UNCOUNTED);
            // All packets that are out are held by the worker.
            transit.begin_batch(UNCOUNTED + 1, SIZE, || 0);
            let flooded = admitted(&mut transit, flood, 5000);
            assert_eq!([flooded, admitted(&mut transit, other, 5000)], shares);
            // The worker takes one packet of the flood, whose place is then free.
            let all = shares[0] + shares[1];
            transit.begin_batch(UNCOUNTED + 1, SIZE + 1 - all, || all - 1);
            assert_eq!([flood, other].map(|slot| admitted(&mut transit, slot, 5)), [1, 0]);
        }
    }

    #[test]
    fn lines_have_one_writer() {
        spin_testing::assert_lines!(QuotaTable { enforced: "the worker", shares: "the worker" });
        spin_testing::assert_lines!(Drops { total: "the sender", by_slot: "the sender" });
    }

    #[test]
    fn drops_are_read_once() {
        let counted = Arc::new(Drops::default());
        let mut drops = DropReader::new(counted.clone());
        for (slot, count) in [(3, 2), (255, 1)] {
            (0..count).for_each(|_| counted.count(Slot(slot)));
        }
        let mut dropped = Vec::new();
        drops.read(|slot, count| dropped.push((slot, count)));
        assert_eq!(dropped, [(Slot(3), 2), (Slot(255), 1)]);
        drops.read(|_, _| unreachable!("all were read"));
    }

    #[test]
    fn nothing_is_counted_while_few_are_out_or_a_context_is_alone() {
        for (out, enforced) in [(UNCOUNTED, true), (5000, false)] {
            let table = Arc::new(QuotaTable::default());
            table.set(enforced, [(Slot(0), Part::new(1, 1001)), (Slot(1), Part::new(1000, 1001))].into_iter());
            let mut transit = TransitCount::new(table, 4096, UNCOUNTED);
            transit.begin_batch(out, 4096, || unreachable!("there is nothing to count"));
            assert_eq!(admitted(&mut transit, Slot(0), 128), 128);
        }
    }
}
