//! Scheduling state of a worker: shares of users and contexts, the order of a batch, the time of a poll.

mod entity;
pub mod scheduler;
pub mod stall_credit;
mod users;
pub mod weights;

use std::time::Duration;

use spin_abi::control::Schedule;
use spin_pspin::ids::Slot;

use crate::ingress::rx_batch::RxBatch;
use crate::sched::scheduler::Scheduler;
use crate::telemetry::latency::nanoseconds;

/// Time of a poll of several contexts after which no more tasks are begun.
pub(crate) const SHARED_TIME: Duration = Duration::from_micros(200);

/// Time per poll for tasks of a single context. Requests of other threads to this one wait meanwhile.
pub(crate) const ALONE_TIME: Duration = Duration::from_millis(1);

/// A timer for the tasks of a poll.
pub(crate) struct PollTimer<C> {
    /// The clock; `None`: no time is needed.
    clock: Option<C>,
    start: Duration,
    last: Duration,
    /// The expected time of work that was deferred to the end of the poll.
    later: Duration,
}

impl<C: Fn() -> Duration> PollTimer<C> {
    pub(crate) fn new(clock: Option<C>) -> Self {
        let start = clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        Self { clock, start, last: start, later: Duration::ZERO }
    }

    /// The time since the last call, or since the timer started.
    pub(crate) fn split(&mut self) -> Duration {
        let now = self.clock.as_ref().map_or(Duration::ZERO, |clock| clock());
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }

    /// The time from the start to the last [split](PollTimer::split).
    pub(crate) fn took(&self) -> Duration {
        self.last.saturating_sub(self.start)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.took() + self.later > SHARED_TIME
    }

    /// Counts the time of work that was deferred to the end of the poll.
    pub(crate) fn defer(&mut self, time: Duration) {
        self.later += time;
    }
}

/// The scheduler, and the budget of a poll.
pub(crate) struct Sched {
    pub(crate) scheduler: Scheduler,
    /// The contexts that have packets in the batch.
    pub(crate) order: BatchOrder,
    /// Polls for which packets of other contexts are expected behind those of the only one that has some.
    pub(crate) recent_contention: u32,
    /// The number of tasks of a single context that fit in a poll.
    pub(crate) task_budget: u32,
    /// Whether a task reached its time limit.
    pub(crate) timed_out: bool,
}

impl Sched {
    pub(crate) fn new(schedule: Schedule) -> Self {
        let scheduler = Scheduler::new(schedule);
        Self { scheduler, order: BatchOrder::default(), recent_contention: 0, task_budget: u32::MAX, timed_out: false }
    }

    /// Notes the duration of a poll with `tasks` tasks, and derives how many fit in one.
    pub(crate) fn note_length(&mut self, tasks: u64, poll: Duration) {
        if tasks > 0 {
            let fitting = nanoseconds(ALONE_TIME).saturating_mul(tasks) / nanoseconds(poll).max(1);
            self.task_budget = u32::try_from(fitting.max(1)).unwrap_or(u32::MAX);
        }
    }
}

/// The contexts of a batch, in scheduling order.
#[derive(Debug, Default)]
pub(crate) struct BatchOrder {
    /// The contexts, the one that is furthest behind first.
    slots: Vec<Slot>,
    /// The position of each context of the batch, by slot.
    places: Vec<Option<u32>>,
}

impl BatchOrder {
    /// The contexts of the batch.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Notes which contexts have packets in the batch.
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

    /// Sorts the batch by context, packets of the context that is furthest behind first.
    pub(crate) fn put_in_order(&mut self, inbound: &mut RxBatch, scheduler: &Scheduler) {
        let Self { slots, places } = self;
        if slots.len() > 1 {
            scheduler.sort(slots);
            // The group with the greatest number comes first.
            (0..).zip(slots.iter().rev()).for_each(|(place, slot)| places[slot.0 as usize] = Some(place));
            inbound.group(slots.len() as u32, |found, place| match found.entry(place).owner {
                Slot::NOBODY => 0,
                owner => places[owner.0 as usize].unwrap_or(0),
            });
        }
        slots.iter().for_each(|slot| places[slot.0 as usize] = None);
    }
}
