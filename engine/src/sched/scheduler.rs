//! The scheduling policy between contexts: the share of HPU time that each context gets.
//!
//! There are two levels. Users divide the time of a thread by the users' weights. The contexts of a user divide the user's share by
//! their own weights. A user thus gets no larger share by heavier contexts, or by more of them.
//!
//! The virtual time of a user is the cost of the user's tasks, divided by the user's weight. The virtual time of a context is the
//! cost of its tasks, divided by its weight. The user who is furthest behind is next, with the context that is furthest behind
//! among the user's.
//! * Round robin: a task costs 1, whatever the weights.
//! * Weighted: a task costs 1.
//! * WLBVT, the weight limited borrowed virtual time of the OSMOSIS work: a task costs the time it takes. OSMOSIS also limits the
//!   processing units that a context holds at a time. A thread runs one task at a time, which meets that limit.
//!
//! A user or a context that had nothing to run borrows little from the past (`Scheduler::borrowed`). All policies are
//! work-conserving at both levels, and need no clock while a single context has work.

use std::time::Duration;

use spin_abi::control::Schedule;
use spin_pspin::ids::Slot;

use super::entity::SchedEntity;
use super::users::{UserEntity, Users};
use crate::telemetry::latency::nanoseconds;

pub use super::entity::MOST_WEIGHT;

/// Maximum number of tasks per grant: the clock is read once for them.
const QUANTUM: u32 = 16;
/// Target time of a grant in nanoseconds, estimated from the context's previous tasks.
const SLICE: u64 = 20_000;
/// Maximum lead at weight 1 that tasks of a batch's packets may give a user or a context over others: in tasks, or in nanoseconds.
/// Packets that have to be queued cost twice as much as those that run on arrival. In a virtual machine, an interrupt takes tens of
/// microseconds and is charged to the context that it hits. Several of them should not make a context's packets wait.
const MAX_LEAD: [u64; 2] = [64, 200_000];
/// Maximum lead of all users, or of all contexts of a user, together, and minimum lead of each, in nanoseconds. One of them may fall
/// `TOTAL_LEAD` behind the others, whose packets then wait until it has caught up.
const TOTAL_LEAD: u64 = 3_200_000;
const MIN_LEAD: u64 = 50_000;

/// The account of a context.
#[derive(Clone, Copy, Debug)]
struct ContextEntity {
    /// Virtual time within the user's share.
    entity: SchedEntity,
    /// The number of the user's account.
    user: u32,
    /// The cost without weight.
    service: u64,
    /// Average time of its latest tasks in nanoseconds, if tasks cost time.
    each: u64,
    /// Nanoseconds of [deferred work](Scheduler::charge_deferred) of its tasks, which the next [`Scheduler::charge`] returns.
    owed: u64,
}

/// The start tags of a context's user and of the context: each the virtual time, limited to what may be borrowed, and the number
/// of the latest pick. Tags of contexts of one user differ only in the second part.
type StartTag = ((u64, u64), (u64, u64));

/// A grant: the number of tasks of a context to run in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The slot of the context.
    pub owner: u32,
    /// The maximum number of tasks.
    pub tasks: u32,
}

/// Divides a thread's time between users, and their shares between contexts.
#[derive(Debug)]
pub struct Scheduler {
    policy: Schedule,
    users: Users,
    /// Accounts of contexts by slot.
    contexts: Vec<ContextEntity>,
    picks: u64,
}

impl Scheduler {
    /// A scheduler without contexts.
    #[must_use]
    pub const fn new(policy: Schedule) -> Self {
        Self { policy, users: Users::new(), contexts: Vec::new(), picks: 0 }
    }

    /// Whether a task costs the time that it takes.
    pub(crate) const fn costs_time(&self) -> bool {
        matches!(self.policy, Schedule::Wlbvt)
    }

    /// Assigns the slot `owner` to a context of `weight`, which belongs to the user `uid` of weight `user_weight`. Weights are at
    /// least 1, at most [`MOST_WEIGHT`]. All contexts of a user share the latest `user_weight`.
    pub fn add(&mut self, owner: u32, weight: u32, uid: u32, user_weight: u32) {
        let of_policy =
            |weight: u32| if self.policy == Schedule::RoundRobin { 1 } else { weight.clamp(1, MOST_WEIGHT) };
        let (weight, user_weight) = (of_policy(weight), of_policy(user_weight));
        let user = self.users.add_context(uid, user_weight);
        // The time of its tasks is unknown. The first one is run alone.
        let each = if self.costs_time() { SLICE } else { 0 };
        let entity = SchedEntity::new(weight, self.users.get(user).now);
        let context = ContextEntity { entity, user, service: 0, each, owed: 0 };
        let slots = self.contexts.len().max(owner as usize + 1);
        self.contexts.resize(slots, context);
        self.contexts[owner as usize] = context;
        self.set_max_leads(user);
    }

    /// Frees the slot of a context.
    pub fn remove(&mut self, owner: u32) {
        let user = self.user(owner);
        self.users.remove_context(user);
        self.set_max_leads(user);
    }

    /// Derives the lag bounds from the number of users and of contexts of a user.
    fn set_max_leads(&mut self, user: u32) {
        self.users.max_lead = self.max_lead(self.users.count);
        self.users.get_mut(user).max_lead = self.max_lead(self.users.get(user).contexts);
    }

    /// The number of the account of a context's user.
    #[must_use]
    pub fn user(&self, owner: u32) -> u32 {
        self.contexts[owner as usize].user
    }

    /// The start tag of a user.
    #[inline]
    fn user_tag(&self, user: &UserEntity) -> (u64, u64) {
        self.users.start_tag(user, self.borrowed())
    }

    /// The start tag of a context within its user's share.
    #[inline]
    fn context_tag(&self, context: &ContextEntity, user: &UserEntity) -> (u64, u64) {
        context.entity.start_tag(user.now.saturating_sub(self.borrowed()))
    }

    #[inline]
    fn start_tag(&self, owner: u32) -> StartTag {
        let context = &self.contexts[owner as usize];
        let user = self.users.get(context.user);
        (self.user_tag(user), self.context_tag(context, user))
    }

    /// Whether a context would be picked before these others if it had tasks.
    #[must_use]
    pub fn is_next(&self, owner: u32, backlogged: impl IntoIterator<Item = u32>) -> bool {
        let start_tag = self.start_tag(owner);
        backlogged.into_iter().all(|other| start_tag <= self.start_tag(other))
    }

    /// The virtual times of a context's user, and of the context within the user's share.
    #[must_use]
    pub fn vtimes(&self, owner: u32) -> (u64, u64) {
        let ((user, _), (context, _)) = self.start_tag(owner);
        (user, context)
    }

    /// Notes the contexts that have work: the bounds of [`Scheduler::within_lag`] are relative to the one that is furthest behind.
    pub fn note_backlog(&mut self, contexts: impl IntoIterator<Item = u32>) {
        self.users.begin_note();
        for owner in contexts {
            let context = &self.contexts[owner as usize];
            let vtime = self.context_tag(context, self.users.get(context.user)).0;
            self.users.note(context.user, vtime);
        }
        self.users.end_note(self.borrowed());
    }

    /// Whether a context may run its packets on arrival: its user is [within the lag bound](Scheduler::user_within_lag), and so is
    /// [the context](Scheduler::context_within_lag).
    #[must_use]
    pub fn within_lag(&mut self, owner: u32) -> bool {
        self.user_within_lag(owner) && self.context_within_lag(owner)
    }

    /// Whether the lead of a context's user over other users with [work](Scheduler::note_backlog) is within the bound.
    #[must_use]
    pub fn user_within_lag(&mut self, owner: u32) -> bool {
        let user = self.user(owner);
        self.leads_little(user) || {
            // The others may have advanced since the backlog was noted. There are fewer users than contexts.
            self.users.end_note(self.borrowed());
            self.leads_little(user)
        }
    }

    fn leads_little(&self, user: u32) -> bool {
        let least = self.users.min_vtime_of_others(user);
        self.user_tag(self.users.get(user)).0 <= least.saturating_add(self.users.max_lead)
    }

    /// Whether the lead of a context over contexts of its user with [work](Scheduler::note_backlog) is within the bound.
    #[must_use]
    pub fn context_within_lag(&self, owner: u32) -> bool {
        let context = &self.contexts[owner as usize];
        let user = self.users.get(context.user);
        let least = self.users.min_vtime_in(user);
        self.context_tag(context, user).0 <= least.saturating_add(user.max_lead)
    }

    /// The maximum lead of one of `count` users, or of one of a user's `count` contexts, at weight 1.
    fn max_lead(&self, count: u32) -> u64 {
        let [tasks, time] = MAX_LEAD;
        let lead = if self.costs_time() { (TOTAL_LEAD / u64::from(count.max(1))).clamp(MIN_LEAD, time) } else { tasks };
        lead * u64::from(MOST_WEIGHT)
    }

    /// The time that a context was charged for since it was added; zero if tasks are counted instead.
    #[must_use]
    pub fn service(&self, owner: u32) -> Duration {
        let timed = self.costs_time();
        Duration::from_nanos(if timed { self.contexts[owner as usize].service } else { 0 })
    }

    /// Whether the latest tasks of a context took at least `time` each.
    #[must_use]
    pub fn takes_long(&self, owner: u32, time: Duration) -> bool {
        self.contexts[owner as usize].each >= nanoseconds(time)
    }

    /// Sorts contexts, the one that is furthest behind first.
    pub fn sort(&self, contexts: &mut [Slot]) {
        contexts.sort_unstable_by_key(|slot| self.start_tag(slot.0));
    }

    /// Picks the next of the contexts that have tasks.
    pub fn pick(&mut self, backlogged: impl IntoIterator<Item = u32>) -> Option<Grant> {
        let start_tag = backlogged.into_iter().map(|owner| (owner, self.start_tag(owner)));
        let (owner, start_tag) = start_tag.min_by_key(|&(_, start_tag)| start_tag)?;
        let ((user_vtime, _), (vtime, _)) = start_tag;
        self.picks += 1;
        self.users.now = self.users.now.max(user_vtime);
        let context = &mut self.contexts[owner as usize];
        let user = self.users.get_mut(context.user);
        user.now = user.now.max(vtime);
        (user.entity.picked, user.entity.vruntime) = (self.picks, user_vtime);
        (context.entity.picked, context.entity.vruntime) = (self.picks, vtime);
        let fitting = SLICE.checked_div(context.each).unwrap_or(SLICE).clamp(1, QUANTUM.into());
        Some(Grant { owner, tasks: u32::try_from(fitting).unwrap_or(QUANTUM) })
    }

    /// Virtual time by which a user or a context that had nothing to run may be behind those that had, at weight 1: 1 ms, or 64
    /// tasks. Enough for queues that are empty now and then, too little to keep others waiting.
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
        let context = &mut self.contexts[owner as usize];
        let owed = std::mem::take(&mut context.owed);
        if tasks > 0 {
            context.each = nanoseconds(time).saturating_add(owed) / u64::from(tasks);
        }
        self.add_cost(owner, cost);
        Duration::from_nanos(owed)
    }

    /// Charges a context for work that the thread does for it at the end of the poll. Where tasks are counted, it counts as one
    /// task.
    pub fn charge_deferred(&mut self, owner: u32, time: Duration) {
        let cost = self.cost(1, time);
        self.charge_unpicked(owner, cost);
        if self.costs_time() {
            self.contexts[owner as usize].owed += cost;
        }
    }

    /// Charges a context for reception of its packets, in nanoseconds. Where tasks are counted, reception is free.
    pub fn charge_reception(&mut self, owner: u32, time: u64) {
        if self.costs_time() {
            self.charge_unpicked(owner, time);
        }
    }

    /// Charges a context outside of a pick, from the start tags on.
    fn charge_unpicked(&mut self, owner: u32, cost: u64) {
        let (user_vtime, vtime) = self.vtimes(owner);
        let context = &mut self.contexts[owner as usize];
        context.entity.vruntime = vtime;
        self.users.get_mut(context.user).entity.vruntime = user_vtime;
        self.add_cost(owner, cost);
    }

    /// Adds a cost to the accounts of a context and of its user.
    fn add_cost(&mut self, owner: u32, cost: u64) {
        let context = &mut self.contexts[owner as usize];
        context.service = context.service.wrapping_add(cost);
        context.entity.add(cost);
        self.users.get_mut(context.user).entity.add(cost);
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
    use spin_pspin::ids::Slot;

    use super::{MOST_WEIGHT, QUANTUM, Scheduler, jain};

    /// Nanoseconds that each context got in `picks` picks while all of them had tasks.
    fn shares(policy: Schedule, contexts: &[(u32, u64)], picks: u32) -> Vec<u64> {
        let mut scheduler = Scheduler::new(policy);
        let all: Vec<u32> = (0..contexts.len() as u32).collect();
        all.iter().zip(contexts).for_each(|(&owner, &(weight, _))| scheduler.add(owner, weight, 0, 1));
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
        // The contexts of one user, or users with one context each.
        let lead = |policy, contexts: u32, users: bool| {
            let mut scheduler = Scheduler::new(policy);
            (0..contexts).for_each(|owner| scheduler.add(owner, 1, if users { owner } else { 0 }, 1));
            let mut lead = 0;
            scheduler.note_backlog([1]);
            while scheduler.within_lag(0) {
                scheduler.charge(0, 1, Duration::from_micros(1));
                lead += 1;
            }
            lead
        };
        for users in [false, true] {
            assert_eq!(
                [2, 16, 32, 64, 1000].map(|contexts| lead(Schedule::Wlbvt, contexts, users)),
                [201, 201, 101, 51, 51]
            );
            assert_eq!([2, 64].map(|contexts| lead(Schedule::RoundRobin, contexts, users)), [65, 65]);
        }
    }

    /// `users`: the users of the contexts.
    fn next_is_picked(users: [u32; 3]) {
        let mut scheduler = Scheduler::new(Schedule::Wlbvt);
        (0..).zip(users).for_each(|(owner, user)| scheduler.add(owner, 1 + owner, user, 1 + user));
        for round in 0..1000_u64 {
            let next: Vec<u32> = (0..3).filter(|&owner| scheduler.is_next(owner, [0, 1, 2])).collect();
            let mut sorted = [0, 1, 2].map(Slot);
            scheduler.sort(&mut sorted);
            let pick = scheduler.pick([0, 1, 2]).expect("all have tasks");
            // Before their first picks, all contexts are equal.
            assert!(next.contains(&pick.owner) && (round < 8 || next.len() == 1), "{round}: {next:?}, {pick:?}");
            assert!(next.contains(&sorted[0].0), "{round}: {next:?}, {sorted:?}");
            scheduler.charge(pick.owner, pick.tasks, Duration::from_nanos(500 + 7 * (round % 13)));
        }
    }

    #[test]
    fn who_would_be_next_is_who_is_picked() {
        [[0; 3], [0, 1, 1], [0, 1, 0], [0, 1, 2]].into_iter().for_each(next_is_picked);
    }

    #[test]
    fn contexts_of_a_user_lead_together_by_no_more_than_one() {
        for (policy, lead) in [(Schedule::Wlbvt, 201), (Schedule::RoundRobin, 65)] {
            let mut scheduler = Scheduler::new(policy);
            (0..61).for_each(|owner| scheduler.add(owner, MOST_WEIGHT, u32::from(owner > 0), 1));
            scheduler.note_backlog(0..61);
            let mut tasks = 0;
            while let Some(owner) = (1..61).find(|&owner| scheduler.within_lag(owner)) {
                scheduler.charge(owner, 1, Duration::from_micros(1));
                tasks += 1;
            }
            assert_eq!(tasks, lead, "{policy}");
            assert!(scheduler.within_lag(0));
            // The bound follows the other user.
            scheduler.charge(0, 1, Duration::from_micros(1));
            assert!(scheduler.user_within_lag(1), "{policy}");
        }
    }

    /// A user with a context of their own, and one whose context had the time before.
    fn one_user_ahead() -> Scheduler {
        let mut scheduler = Scheduler::new(Schedule::Wlbvt);
        (0..2).for_each(|owner| scheduler.add(owner, 1, owner, 1));
        scheduler.pick([0, 1]).expect("both have tasks");
        scheduler.charge(0, 1, Duration::from_micros(500));
        scheduler
    }

    #[test]
    fn a_user_has_the_same_account_with_new_contexts() {
        let mut scheduler = one_user_ahead();
        scheduler.remove(0);
        scheduler.add(0, 1, 0, 1);
        scheduler.add(2, MOST_WEIGHT, 0, 1);
        assert_eq!([0, 1, 2].map(|owner| scheduler.is_next(owner, [0, 1, 2])), [false, true, false]);
    }

    #[test]
    fn accounts_of_gone_users_are_used_again() {
        let mut scheduler = one_user_ahead();
        scheduler.remove(0);
        scheduler.add(0, 1, 7, 1);
        assert_eq!(scheduler.user(0), 0);
        assert!(scheduler.is_next(0, [1]) && scheduler.is_next(1, [0]), "the new user begins with the others");
    }

    #[test]
    fn rows_of_long_tasks_are_short() {
        let mut scheduler = Scheduler::new(Schedule::Wlbvt);
        scheduler.add(0, 1, 0, 1);
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
        (0..2).for_each(|owner| scheduler.add(owner, 1, 0, 1));
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

    /// `users`: the users of two contexts.
    fn one_that_slept_borrows_little(users: [u32; 2]) {
        let mut scheduler = Scheduler::new(Schedule::Wlbvt);
        (0..).zip(users).for_each(|(owner, user)| scheduler.add(owner, 1, user, 1));
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
    fn a_context_or_a_user_that_slept_borrows_little() {
        [[0, 0], [0, 1]].into_iter().for_each(one_that_slept_borrows_little);
    }

    /// A context of a random case: its user, its weight, and nanoseconds of each of its tasks.
    #[derive(Clone, Copy, Debug)]
    struct Context {
        user: usize,
        weight: u32,
        each: u64,
    }

    /// Runs `picks` picks of the contexts `working`, and returns what each context was charged: time, or tasks.
    fn charged(scheduler: &mut Scheduler, contexts: &[Context], working: &[usize], picks: u32) -> Vec<f64> {
        let mut got = vec![0; contexts.len()];
        for _ in 0..picks {
            let pick = scheduler.pick(working.iter().map(|&owner| owner as u32)).expect("all have tasks");
            let time = u64::from(pick.tasks) * contexts[pick.owner as usize].each;
            got[pick.owner as usize] += if scheduler.costs_time() { time } else { pick.tasks.into() };
            scheduler.charge(pick.owner, pick.tasks, Duration::from_nanos(time));
        }
        got.into_iter().map(|got| got as f64).collect()
    }

    /// Checks what the contexts `working` got against shares of an ideal fluid: users divide all by their weights, and the contexts
    /// of each user what the user got. At weight 1, nobody differs by more than `slack`.
    fn check_shares(got: &[f64], users: &[u32], contexts: &[Context], working: &[usize], slack: f64) {
        let of_user = |user| working.iter().copied().filter(move |&owner| contexts[owner].user == user);
        let sum = |owners: &mut dyn Iterator<Item = usize>| owners.map(|owner| got[owner]).sum::<f64>();
        let active: Vec<usize> = (0..users.len()).filter(|&user| of_user(user).count() > 0).collect();
        let all = sum(&mut working.iter().copied());
        let user_weights: u32 = active.iter().map(|&user| users[user]).sum();
        for user in active {
            let (weight, of_this) = (f64::from(users[user]), sum(&mut of_user(user)));
            let fair = all * weight / f64::from(user_weights);
            assert!((of_this - fair).abs() <= slack * weight, "user {user}: {of_this} of {fair}, slack {slack}");
            let weights: u32 = of_user(user).map(|owner| contexts[owner].weight).sum();
            for owner in of_user(user) {
                let weight = f64::from(contexts[owner].weight);
                let (got, fair) = (got[owner], of_this * weight / f64::from(weights));
                assert!((got - fair).abs() <= slack * weight, "context {owner}: {got} of {fair}, slack {slack}");
            }
        }
    }

    /// Contexts of three users, some of which have no tasks in some of the phases.
    fn check_phases(policy: Schedule, users: [u32; 3], contexts: &[Context], phases: &[u16]) {
        const PICKS: u32 = 4000;
        let mut scheduler = Scheduler::new(policy);
        for (owner, context) in (0..).zip(contexts) {
            scheduler.add(owner, context.weight, context.user as u32, users[context.user]);
        }
        let by_weight = policy != Schedule::RoundRobin;
        let users = users.map(|weight| if by_weight { weight } else { 1 });
        let weight = |context: &Context| Context { weight: if by_weight { context.weight } else { 1 }, ..*context };
        let contexts: Vec<_> = contexts.iter().map(weight).collect();
        // Two grants, and what the divisions by weights round off.
        let grants = if scheduler.costs_time() { 2.0 * 40_000.0 } else { f64::from(2 * QUANTUM) };
        let mut slack = grants + f64::from(PICKS) / 1000.0;
        for mask in phases {
            let working: Vec<usize> = (0..contexts.len()).filter(|owner| mask >> owner & 1 == 1).collect();
            if !working.is_empty() {
                let got = charged(&mut scheduler, &contexts, &working, PICKS);
                check_shares(&got, &users, &contexts, &working, slack);
                // Those who had nothing to run may borrow from then on.
                slack = grants + f64::from(PICKS) / 1000.0 + (scheduler.borrowed() / u64::from(MOST_WEIGHT)) as f64;
            }
        }
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
        fn users_share_first_and_their_contexts_share_that(
            users in (1..5_u32, 1..1000_u32, 1..5_u32),
            contexts in proptest::collection::vec((0..3_usize, 1..20_u32, 1000..20_000_u64), 1..10),
            phases in proptest::collection::vec(1..1024_u16, 1..4),
        ) {
            let of = |(user, weight, each)| Context { user, weight, each };
            let contexts: Vec<_> = contexts.into_iter().map(of).collect();
            // All have tasks at first.
            let phases = [vec![u16::MAX], phases].concat();
            for policy in [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt] {
                check_phases(policy, [users.0, users.1, users.2], &contexts, &phases);
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
