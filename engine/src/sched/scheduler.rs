//! The scheduling policy between contexts: the share of HPU time that each context gets.
//!
//! The virtual time of a context is the cost of its tasks, divided by its weight. The context that is furthest behind is next.
//! * Round robin: a task costs 1, whatever the weights.
//! * Weighted: a task costs 1.
//! * WLBVT, the weight limited borrowed virtual time of the OSMOSIS work: a task costs the time it takes. OSMOSIS also limits the
//!   processing units that a context holds at a time. A thread runs one task at a time, which meets that limit.
//!
//! A context that had nothing to run borrows little from its past (`Scheduler::borrowed`). All policies are work-conserving, and
//! need no clock while a single context has work.

use std::time::Duration;

use spin_abi::control::Schedule;
use spin_pspin::ids::Slot;

use crate::telemetry::latency::nanoseconds;

/// Maximum number of tasks per grant: the clock is read once for them.
const QUANTUM: u32 = 16;
/// Target time of a grant in nanoseconds, estimated from the context's previous tasks.
const SLICE: u64 = 20_000;
/// Maximum lead at weight 1 that tasks of a batch's packets may give a context over others: in tasks, or in nanoseconds. Packets
/// that have to be queued cost twice as much as those that run on arrival. In a virtual machine, an interrupt takes tens of
/// microseconds and is charged to the context that it hits. Several of them should not make a context's packets wait.
const MAX_LEAD: [u64; 2] = [64, 200_000];
/// Maximum lead of all contexts together, and minimum lead of each, in nanoseconds. A context may fall `TOTAL_LEAD` behind the
/// others, whose packets then wait until it has caught up.
const TOTAL_LEAD: u64 = 3_200_000;
const MIN_LEAD: u64 = 50_000;
/// Maximum weight of a context.
pub const MOST_WEIGHT: u32 = 1000;

/// The virtual-time account of a context.
#[derive(Clone, Copy, Debug)]
struct SchedEntity {
    weight: u32,
    /// Virtual time: the cost of its tasks, times [`MOST_WEIGHT`], divided by its weight.
    vruntime: u64,
    /// The cost without weight.
    service: u64,
    /// The number of its latest pick.
    picked: u64,
    /// Average time of its latest tasks in nanoseconds, if tasks cost time.
    each: u64,
    /// Nanoseconds of [deferred work](Scheduler::charge_deferred) of its tasks, which the next [`Scheduler::charge`] returns.
    owed: u64,
}

impl SchedEntity {
    /// The virtual time of a cost at its weight.
    fn share(&self, cost: u64) -> u64 {
        cost.saturating_mul(MOST_WEIGHT.into()) / u64::from(self.weight)
    }

    /// Adds a cost to the account.
    fn add(&mut self, cost: u64) {
        self.service = self.service.wrapping_add(cost);
        self.vruntime = self.vruntime.saturating_add(self.share(cost));
    }
}

/// A grant: the number of tasks of a context to run in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The slot of the context.
    pub owner: u32,
    /// The maximum number of tasks.
    pub tasks: u32,
}

/// Divides a thread's time between contexts.
#[derive(Debug)]
pub struct Scheduler {
    policy: Schedule,
    /// Accounts by slot.
    entities: Vec<SchedEntity>,
    picks: u64,
    /// Virtual time up to which every context with tasks has had its share.
    now: u64,
}

impl Scheduler {
    /// A scheduler without contexts.
    #[must_use]
    pub const fn new(policy: Schedule) -> Self {
        Self { policy, entities: Vec::new(), picks: 0, now: 0 }
    }

    /// Whether a task costs the time that it takes.
    pub(crate) const fn costs_time(&self) -> bool {
        matches!(self.policy, Schedule::Wlbvt)
    }

    /// Assigns the slot `owner` to a context of `weight`: at least 1, at most [`MOST_WEIGHT`].
    pub fn add(&mut self, owner: u32, weight: u32) {
        let weight = if self.policy == Schedule::RoundRobin { 1 } else { weight.clamp(1, MOST_WEIGHT) };
        // The time of its tasks is unknown. The first one is run alone.
        let each = if self.costs_time() { SLICE } else { 0 };
        let entity = SchedEntity { weight, vruntime: self.now, service: 0, picked: 0, each, owed: 0 };
        let slots = self.entities.len().max(owner as usize + 1);
        self.entities.resize(slots, entity);
        self.entities[owner as usize] = entity;
    }

    /// The start tag of a context: its virtual time, limited to what it may borrow, and the number of its latest pick.
    fn start_tag(&self, owner: u32) -> (u64, u64) {
        let SchedEntity { vruntime, picked, .. } = self.entities[owner as usize];
        (vruntime.max(self.now.saturating_sub(self.borrowed())), picked)
    }

    /// Whether a context would be picked before these others if it had tasks.
    #[must_use]
    pub fn is_next(&self, owner: u32, backlogged: impl IntoIterator<Item = u32>) -> bool {
        let start_tag = self.start_tag(owner);
        backlogged.into_iter().all(|other| start_tag <= self.start_tag(other))
    }

    /// The virtual time of the context that is furthest behind.
    #[must_use]
    pub fn min_vtime(&self, contexts: impl IntoIterator<Item = u32>) -> u64 {
        contexts.into_iter().map(|owner| self.start_tag(owner).0).min().unwrap_or(u64::MAX)
    }

    /// Whether a context may run its packets on arrival: its lead over `min_vtime` is within the bound for `contexts` contexts.
    #[must_use]
    pub fn within_lag(&self, owner: u32, min_vtime: u64, contexts: u32) -> bool {
        let [tasks, time] = MAX_LEAD;
        let ahead =
            if self.costs_time() { (TOTAL_LEAD / u64::from(contexts.max(1))).clamp(MIN_LEAD, time) } else { tasks };
        self.start_tag(owner).0 <= min_vtime.saturating_add(ahead * u64::from(MOST_WEIGHT))
    }

    /// The time that a context was charged for since it was added; zero if tasks are counted instead.
    #[must_use]
    pub fn service(&self, owner: u32) -> Duration {
        let timed = self.costs_time();
        Duration::from_nanos(if timed { self.entities[owner as usize].service } else { 0 })
    }

    /// Whether the latest tasks of a context took at least `time` each.
    #[must_use]
    pub fn takes_long(&self, owner: u32, time: Duration) -> bool {
        self.entities[owner as usize].each >= nanoseconds(time)
    }

    /// Sorts contexts, the one that is furthest behind first.
    pub fn sort(&self, contexts: &mut [Slot]) {
        contexts.sort_unstable_by_key(|slot| self.start_tag(slot.0));
    }

    /// Picks the next of the contexts that have tasks.
    pub fn pick(&mut self, backlogged: impl IntoIterator<Item = u32>) -> Option<Grant> {
        let start_tag = backlogged.into_iter().map(|owner| (owner, self.start_tag(owner)));
        let (owner, (vruntime, _)) = start_tag.min_by_key(|&(_, start_tag)| start_tag)?;
        self.now = self.now.max(vruntime);
        self.picks += 1;
        let entity = &mut self.entities[owner as usize];
        (entity.picked, entity.vruntime) = (self.picks, vruntime);
        let fitting = SLICE.checked_div(entity.each).unwrap_or(SLICE).clamp(1, QUANTUM.into());
        Some(Grant { owner, tasks: u32::try_from(fitting).unwrap_or(QUANTUM) })
    }

    /// Virtual time by which a context that had nothing to run may be behind those that had, at weight 1: 1 ms, or 64 tasks.
    /// Enough for queues that are empty now and then, too little to keep others waiting.
    const fn borrowed(&self) -> u64 {
        let cost = match self.policy {
            Schedule::RoundRobin | Schedule::Weighted => 64,
            Schedule::Wlbvt => 1_000_000,
        };
        cost * MOST_WEIGHT as u64
    }

    /// Charges a context for `tasks` tasks of a grant, which took `time` in all. Returns the time of their [deferred
    /// work](Scheduler::charge_deferred).
    pub fn charge(&mut self, owner: u32, tasks: u32, time: Duration) -> Duration {
        let cost = self.cost(tasks, time);
        let entity = &mut self.entities[owner as usize];
        let owed = std::mem::take(&mut entity.owed);
        if tasks > 0 {
            entity.each = nanoseconds(time).saturating_add(owed) / u64::from(tasks);
        }
        entity.add(cost);
        Duration::from_nanos(owed)
    }

    /// Charges a context for work that the thread does for it at the end of the poll. Where tasks are counted, it counts as one
    /// task.
    pub fn charge_deferred(&mut self, owner: u32, time: Duration) {
        let cost = self.cost(1, time);
        self.charge_unpicked(owner, cost);
        if self.costs_time() {
            self.entities[owner as usize].owed += cost;
        }
    }

    /// Charges a context for reception of its packets, in nanoseconds. Where tasks are counted, reception is free.
    pub fn charge_reception(&mut self, owner: u32, time: u64) {
        if self.costs_time() {
            self.charge_unpicked(owner, time);
        }
    }

    /// Charges a context outside of a pick, from its start tag on.
    fn charge_unpicked(&mut self, owner: u32, cost: u64) {
        let (start_tag, _) = self.start_tag(owner);
        let entity = &mut self.entities[owner as usize];
        entity.vruntime = start_tag;
        entity.add(cost);
    }

    /// The cost of `tasks` tasks that took `time` in all.
    fn cost(&self, tasks: u32, time: Duration) -> u64 {
        match self.policy {
            Schedule::RoundRobin | Schedule::Weighted => tasks.into(),
            Schedule::Wlbvt => nanoseconds(time),
        }
    }
}

/// Fairness of `shares` as Jain's index: 1 when all are equal, 1/n when one has all.
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use spin_abi::control::Schedule;

    use super::{MOST_WEIGHT, QUANTUM, Scheduler, jain};

    /// Nanoseconds that each context got in `picks` picks while all of them had tasks.
    fn shares(policy: Schedule, contexts: &[(u32, u64)], picks: u32) -> Vec<u64> {
        let mut scheduler = Scheduler::new(policy);
        let all: Vec<u32> = (0..contexts.len() as u32).collect();
        all.iter().zip(contexts).for_each(|(&owner, &(weight, _))| scheduler.add(owner, weight));
        let mut got = vec![0; contexts.len()];
        for _ in 0..picks {
            let pick = scheduler.pick(all.iter().copied()).expect("all have tasks");
            let time = u64::from(pick.tasks) * contexts[pick.owner as usize].1;
            got[pick.owner as usize] += time;
            scheduler.charge(pick.owner, pick.tasks, Duration::from_nanos(time));
        }
        got
    }

    #[test]
    fn round_robin_shares_tasks_and_weights_multiply_them() {
        let each = u64::from(QUANTUM);
        assert_eq!(shares(Schedule::RoundRobin, &[(4, 1), (1, 10)], 1000), [500 * each, 500 * 10 * each]);
        assert_eq!(shares(Schedule::Weighted, &[(4, 1), (1, 10)], 1000), [800 * each, 200 * 10 * each]);
    }

    #[test]
    fn the_more_contexts_the_less_one_may_be_ahead() {
        let lead = |policy, contexts| {
            let mut scheduler = Scheduler::new(policy);
            (0..2).for_each(|owner| scheduler.add(owner, 1));
            let mut lead = 0;
            while scheduler.within_lag(0, scheduler.min_vtime([1]), contexts) {
                scheduler.charge(0, 1, Duration::from_micros(1));
                lead += 1;
            }
            lead
        };
        assert_eq!(
            [1, 2, 16, 32, 64, 1000].map(|contexts| lead(Schedule::Wlbvt, contexts)),
            [201, 201, 201, 101, 51, 51]
        );
        assert_eq!([1, 64].map(|contexts| lead(Schedule::RoundRobin, contexts)), [65, 65]);
    }

    #[test]
    fn who_would_be_next_is_who_is_picked() {
        let mut scheduler = Scheduler::new(Schedule::Wlbvt);
        (0..3).for_each(|owner| scheduler.add(owner, 1 + owner));
        for round in 0..1000_u64 {
            let next: Vec<u32> = (0..3).filter(|&owner| scheduler.is_next(owner, [0, 1, 2])).collect();
            let pick = scheduler.pick([0, 1, 2]).expect("all have tasks");
            // Before their first picks, all contexts are equal.
            assert!(next.contains(&pick.owner) && (round < 3 || next.len() == 1), "{round}: {next:?}, {pick:?}");
            scheduler.charge(pick.owner, pick.tasks, Duration::from_nanos(500 + 7 * (round % 13)));
        }
    }

    #[test]
    fn rows_of_long_tasks_are_short() {
        let mut scheduler = Scheduler::new(Schedule::Wlbvt);
        scheduler.add(0, 1);
        let mut row = |each: u64| {
            let tasks = scheduler.pick([0]).expect("it has tasks").tasks;
            scheduler.charge(0, tasks, Duration::from_nanos(each * u64::from(tasks)));
            tasks
        };
        assert_eq!([100, 100, 5000, 5000, 1_000_000, 50, 50].map(&mut row), [1, 16, 16, 4, 4, 1, 16]);
    }

    /// The number of tasks run by two contexts with tasks of 1 us. Each task of the first one also defers work of time `owed`.
    fn runs_when_one_owes(policy: Schedule, owed: Duration, most: u32) -> [u32; 2] {
        let mut scheduler = Scheduler::new(policy);
        (0..2).for_each(|owner| scheduler.add(owner, 1));
        let (mut runs, mut told) = ([0; 2], Duration::ZERO);
        while runs[1] < most {
            let pick = scheduler.pick([0, 1]).expect("both have tasks");
            if pick.owner == 0 {
                (0..pick.tasks).for_each(|_| scheduler.charge_deferred(0, owed));
            }
            told += scheduler.charge(pick.owner, pick.tasks, Duration::from_micros(pick.tasks.into()));
            runs[pick.owner as usize] += pick.tasks;
        }
        assert_eq!(told, if policy == Schedule::Wlbvt { owed * runs[0] } else { Duration::ZERO });
        runs
    }

    #[test]
    fn what_a_context_owes_is_part_of_its_share() {
        let owed = Duration::from_micros(24);
        let [its, others] = runs_when_one_owes(Schedule::Wlbvt, owed, 25_000);
        assert!(its.abs_diff(others / 25) <= QUANTUM, "{its} of {others}");
        // Where tasks are counted, deferred work counts as one more task, however long it takes.
        let [its, others] = runs_when_one_owes(Schedule::Weighted, owed, 3200);
        assert!(its.abs_diff(others / 2) <= QUANTUM, "{its} of {others}");
    }

    #[test]
    fn a_context_that_slept_borrows_little() {
        let mut scheduler = Scheduler::new(Schedule::Wlbvt);
        (0..2).for_each(|owner| scheduler.add(owner, 1));
        for _ in 0..1000 {
            assert_eq!(scheduler.pick([0]).map(|pick| pick.owner), Some(0));
            scheduler.charge(0, QUANTUM, Duration::from_millis(1));
        }
        let mut alone = Duration::ZERO;
        while scheduler.pick([0, 1]).is_some_and(|pick| pick.owner == 1) {
            scheduler.charge(1, QUANTUM, Duration::from_micros(10));
            alone += Duration::from_micros(10);
        }
        let most = Duration::from_nanos(scheduler.borrowed() / u64::from(MOST_WEIGHT)) + Duration::from_millis(1);
        assert!(alone <= most + Duration::from_micros(10), "{alone:?}");
    }

    #[test]
    fn jain_of_equal_and_of_one() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-9);
        assert!((jain(&[]) - 1.0).abs() < 1e-9);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn wlbvt_shares_time_by_weight(contexts in proptest::collection::vec((1..20_u32, 1..1000_u64), 1..6)) {
            let got = shares(Schedule::Wlbvt, &contexts, 20_000);
            let (sum, weights) = (got.iter().sum::<u64>() as f64, contexts.iter().map(|&(weight, _)| weight).sum::<u32>());
            // Each context is within one quantum of its share, and within the delay that quanta of all others may cause.
            let slack: u64 = contexts.iter().map(|&(_, cost)| u64::from(QUANTUM) * cost).sum();
            for (&got, &(weight, _)) in got.iter().zip(&contexts) {
                let fair = sum * f64::from(weight) / f64::from(weights);
                prop_assert!((got as f64 - fair).abs() <= slack as f64 * 20.0, "{got} of {fair}");
            }
        }

        #[test]
        fn nobody_waits_for_ever(policy in 0..3_usize, contexts in proptest::collection::vec((1..100_u32, 1..100_u64), 1..8)) {
            let policy = [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt][policy];
            let got = shares(policy, &contexts, 100_000);
            prop_assert!(got.iter().all(|&got| got > 0), "{got:?}");
        }
    }
}
