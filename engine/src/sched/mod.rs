//! Scheduling state of a worker: shares of contexts, the order of a batch, the time of a poll.

pub mod scheduler;
pub mod stall_credit;

use std::time::Duration;

use spin_abi::control::Schedule;
use spin_pspin::ids::Slot;

use crate::ingress::rx_batch::RxBatch;
use crate::sched::scheduler::Scheduler;
use crate::telemetry::latency::nanoseconds;

/// Time of a poll of several contexts after which no more tasks are begun.
pub(crate) const SHARED_TIME: Duration = Duration::from_micros(200);

/// For so long tasks of a context that is alone are run in a turn: who asks something of its thread waits meanwhile.
pub(crate) const ALONE_TIME: Duration = Duration::from_millis(1);

/// The time that tasks of a turn take.
pub(crate) struct PollTimer<C> {
    /// `None`: nobody asks.
    clock: Option<C>,
    start: Duration,
    last: Duration,
    /// What is put off to the end of the turn.
    later: Duration,
}

impl<C: Fn() -> Duration> PollTimer<C> {
    pub(crate) fn new(clock: Option<C>) -> Self {
        let start = clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        Self { clock, start, last: start, later: Duration::ZERO }
    }

    /// Since it was called last, or the shift began.
    pub(crate) fn split(&mut self) -> Duration {
        let now = self.clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }

    /// From its start to the last lap.
    pub(crate) fn took(&self) -> Duration {
        self.last.saturating_sub(self.start)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.took() + self.later > SHARED_TIME
    }

    /// What was run takes so long once the shift is over: that is its time, too.
    pub(crate) fn defer(&mut self, time: Duration) {
        self.later += time;
    }
}

/// Whose tasks run next, and how many in a poll.
pub(crate) struct Sched {
    pub(crate) scheduler: Scheduler,
    /// The contexts of a batch that several have packets in.
    pub(crate) order: BatchOrder,
    /// Polls for which other contexts are expected to have packets behind those of the only one that has some.
    pub(crate) recent_contention: u32,
    /// Tasks of a single context that a poll has time for.
    pub(crate) task_budget: u32,
    /// A task reached its time limit.
    pub(crate) timed_out: bool,
}

impl Sched {
    pub(crate) fn new(schedule: Schedule) -> Self {
        let scheduler = Scheduler::new(schedule);
        Self { scheduler, order: BatchOrder::default(), recent_contention: 0, task_budget: u32::MAX, timed_out: false }
    }

    /// A poll with so many tasks took so long. From that follows how many fit in one.
    pub(crate) fn note_length(&mut self, tasks: u64, poll: Duration) {
        if tasks > 0 {
            let fitting = nanoseconds(ALONE_TIME).saturating_mul(tasks) / nanoseconds(poll).max(1);
            self.task_budget = u32::try_from(fitting.max(1)).unwrap_or(u32::MAX);
        }
    }
}

/// The contexts of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchOrder {
    /// The one that is furthest behind first.
    slots: Vec<Slot>,
    /// By slot, of those that are there: the place there.
    places: Vec<Option<u32>>,
}

impl BatchOrder {
    /// Them.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Notes whose packets there are.
    pub(crate) fn note(&mut self, inbound: &RxBatch) {
        let Self { slots, places } = self;
        slots.clear();
        for slot in inbound.slots() {
            let index = slot.0 as usize;
            if places.len() <= index {
                places.resize(index + 1, None);
            }
            if places[index].replace(0).is_none() {
                slots.push(slot);
            }
        }
        slots.iter().for_each(|slot| places[slot.0 as usize] = None);
    }

    /// Puts packets of the same context next to each other, those first whose context is furthest behind.
    pub(crate) fn put_in_order(&mut self, inbound: &mut RxBatch, scheduler: &Scheduler) {
        let Self { slots, places } = self;
        if slots.len() > 1 {
            scheduler.sort(slots);
            // Groups of the greatest numbers are the first ones.
            (0..).zip(slots.iter().rev()).for_each(|(place, slot)| places[slot.0 as usize] = Some(place));
            inbound.group(slots.len() as u32, |found, place| match found.entry(place).owner {
                Slot::NOBODY => 0,
                owner => places[owner.0 as usize].unwrap_or(0),
            });
        }
        slots.iter().for_each(|slot| places[slot.0 as usize] = None);
    }
}
