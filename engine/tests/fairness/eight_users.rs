//! Eight users with random demands on one engine: each has its share of time, of the packet buffer and of message queues.
//!
//! A case begins with messages that stay open, of as many flows as a context was given. Together they are more than there are
//! queues. Phases follow. Each begins with a burst of packets that is larger than the packet buffer, while tasks run. Then packets
//! arrive at intervals, for less or more time than the thread has.

use std::cell::Cell;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use spin_abi::counters::Counter;
use spin_engine::settings::Sizes;

use crate::common::NO_END;
use crate::simulation::{Counts, Handlers, Mode, Simulation, Stream, Tenant};
use crate::{FIRST_USER, MICROSECOND, MILLISECOND, told};

const USERS: usize = 8;
const PHASES: usize = 2;
/// Message queues of each thread. A user's share of them is large enough for a tenth of it to be a queue.
const QUEUES: u32 = 128;
/// The packet buffer of each thread.
const HERS: u32 = 1024;
/// The time in which packets of a burst arrive.
const BURST: u64 = 500 * MICROSECOND;
/// The time in which a burst is received.
const RECEIVING_BURST: u64 = 4 * MILLISECOND;
/// The time before shares are measured. Users who had no work may borrow 1 ms for each unit of their weights.
const BORROWING: u64 = 30 * MILLISECOND;
/// The time in which shares are measured.
const TIME: u64 = 100 * MILLISECOND;
/// The longest task.
const LONGEST: u64 = 60 * MICROSECOND;

/// What a context asks for.
#[derive(Clone, Copy, Debug)]
struct Demand {
    weight: u32,
    /// Nanoseconds of each task.
    task: u64,
    /// Open messages on each thread, besides the one whose packets arrive in the phases.
    messages: usize,
    /// Percent of its part of the packet buffer that arrive at once, by phase.
    burst: [u64; PHASES],
    /// Percent of the thread's time that its packets need, by phase.
    time: [u64; PHASES],
}

/// A user: the weight that the policy gives, and the contexts.
type User = (u32, Vec<Demand>);

fn demand() -> impl Strategy<Value = Demand> {
    let busy = (prop::array::uniform2(0..190_u64), prop::array::uniform2(prop_oneof![1 => Just(0), 3 => 3..60_u64]));
    let idle = Just(([0; PHASES], [0; PHASES]));
    let phases = prop_oneof![1 => idle, 5 => busy];
    (1..5_u32, 5 * MICROSECOND..LONGEST, 0..20_usize, phases)
        .prop_map(|(weight, task, messages, (burst, time))| Demand { weight, task, messages, burst, time })
}

fn users() -> impl Strategy<Value = Vec<User>> {
    vec((1..5_u32, vec(demand(), 1..4)), USERS)
}

/// How often a limit was reached, over all cases.
#[derive(Default)]
struct Reached {
    dropped: Cell<u64>,
    evicted: Cell<u64>,
    busy: Cell<u64>,
}

/// One case on an engine.
struct Case<'a> {
    simulation: Simulation,
    users: &'a [User],
    contexts: Vec<Demand>,
    workers: usize,
    /// The flow of each context on each worker whose packets arrive in the phases.
    flows: Vec<Vec<u16>>,
    /// Messages that each context began, or was refused, on each worker.
    begun: Vec<Vec<u64>>,
}

/// What equal users have of `all`: no more than their demand, which others divide.
fn equal_shares(all: u64, demands: &[u64]) -> Vec<f64> {
    let mut order: Vec<_> = (0..demands.len()).collect();
    order.sort_unstable_by_key(|&user| demands[user]);
    let (mut left, mut shares) = (all as f64, vec![0.0; demands.len()]);
    for (taken, user) in order.into_iter().enumerate() {
        shares[user] = (demands[user] as f64).min(left / (demands.len() - taken) as f64);
        left -= shares[user];
    }
    shares
}

/// What a user had in a phase, in nanoseconds.
#[derive(Debug)]
struct Phase {
    weight: u32,
    contexts: Range<usize>,
    /// The time that all packets need which arrived.
    wanted: u64,
    charged: u64,
}

/// What each user would have of the charged time in an ideal fluid: by weight, and no more than the user's packets need.
fn fair(users: &[Phase]) -> Vec<f64> {
    let all = users.iter().map(|user| user.charged).sum::<u64>() as f64;
    let at = |level: f64| {
        users.iter().map(move |user| (user.wanted.max(user.charged) as f64).min(level * f64::from(user.weight)))
    };
    let (mut low, mut high) = (0.0, all);
    for _ in 0..50 {
        let level = f64::midpoint(low, high);
        *(if at(level).sum::<f64>() < all { &mut low } else { &mut high }) = level;
    }
    at(low).collect()
}

impl<'a> Case<'a> {
    fn new(mode: Mode, users: &'a [User]) -> Self {
        let mut tenants = Vec::new();
        for (uid, (user_weight, demands)) in (FIRST_USER..).zip(users) {
            tenants.extend(demands.iter().map(|&Demand { weight, task, .. }| {
                let handlers = Handlers { eom: Some(NO_END), ..told(task, 30) };
                Tenant { uid, user_weight: *user_weight, weight, handlers }
            }));
        }
        let sizes = Sizes { queues: QUEUES, hers: HERS, ..Sizes::default() };
        let simulation = Simulation::sized(mode, &tenants, sizes);
        let contexts: Vec<_> = users.iter().flat_map(|(_, demands)| demands.iter().copied()).collect();
        let workers = mode.workers() as usize;
        let mut case = Self { simulation, users, workers, flows: Vec::new(), begun: Vec::new(), contexts };
        case.open_messages();
        case
    }

    /// Begins the messages of each context, one after the other. Packets of the phases belong to the latest one.
    fn open_messages(&mut self) {
        for context in 0..self.contexts.len() {
            let wanted = 1 + self.contexts[context].messages as u64;
            let (mut flows, mut begun) = (vec![0; self.workers], vec![0; self.workers]);
            for flow in 2000.. {
                if begun.iter().all(|&begun| begun >= wanted) {
                    break;
                }
                let before = self.on_workers();
                let next = self.simulation.now();
                self.simulation.send(Stream { context, flows: vec![flow], next, interval: 1, left: 1 });
                self.drain();
                for (worker, (before, now)) in before.iter().zip(self.on_workers()).enumerate() {
                    let ((lost, run), (lost_before, run_before)) = (now[context], before[context]);
                    begun[worker] += lost + run - lost_before - run_before;
                    if run > run_before {
                        flows[worker] = flow;
                    }
                }
            }
            self.flows.push(flows);
            self.begun.push(begun);
        }
    }

    /// Runs until no packet waits.
    fn drain(&self) {
        let waits = || {
            let held = |context| (0..self.workers).any(|worker| self.simulation.held(worker, context).1 > 0);
            self.simulation.waiting() > 0 || (0..self.contexts.len()).any(held)
        };
        while waits() {
            self.simulation.run_until(self.simulation.now() + 100 * MICROSECOND);
        }
    }

    /// The contexts of each user.
    fn ranges(&self) -> Vec<Range<usize>> {
        let mut next = 0;
        let range = |(_, demands): &User| {
            next += demands.len();
            next - demands.len()..next
        };
        self.users.iter().map(range).collect()
    }

    /// The number of HERs that a context is entitled to on each worker: by weight of users, then by weight of their contexts.
    fn buffer_share(&self, user: usize, demand: &Demand) -> f64 {
        let (weight, demands) = &self.users[user];
        let all: u32 = self.users.iter().map(|(weight, _)| weight).sum();
        let own: u32 = demands.iter().map(|demand| demand.weight).sum();
        f64::from(HERS) * f64::from(*weight) / f64::from(all) * f64::from(demand.weight) / f64::from(own)
    }

    /// Users have equal shares of the queues, whatever their weights.
    fn check_queues(&self, reached: &Reached) -> Result<(), TestCaseError> {
        for worker in 0..self.workers {
            let sum = |range: &Range<usize>, of: &dyn Fn(usize) -> u64| range.clone().map(of).sum::<u64>();
            let ranges = self.ranges();
            let held = |context| u64::from(self.simulation.held(worker, context).0);
            let held: Vec<_> = ranges.iter().map(|range| sum(range, &held)).collect();
            let begun: Vec<_> = ranges.iter().map(|range| sum(range, &|context| self.begun[context][worker])).collect();
            let shares = equal_shares(QUEUES.into(), &begun);
            for (user, (&held, share)) in held.iter().zip(&shares).enumerate() {
                let of = format!("thread {worker}, user {user}: {held} queues of {share}, {begun:?} messages");
                prop_assert!(held as f64 >= 0.9 * share.floor(), "{of}");
            }
            reached.evicted.set(reached.evicted.get() + begun.iter().sum::<u64>() - held.iter().sum::<u64>());
        }
        Ok(())
    }

    /// Contexts lose packets only while they hold their share of the packet buffer.
    fn check_burst(&self, phase: usize, reached: &Reached) -> Result<(), TestCaseError> {
        let ranges = self.ranges();
        let users =
            ranges.iter().enumerate().flat_map(|(user, range)| range.clone().map(move |context| (context, user)));
        let shares: Vec<_> = users.map(|(context, user)| self.buffer_share(user, &self.contexts[context])).collect();
        let start = self.simulation.now();
        let (mut sent, before) = (vec![0; shares.len()], self.counts());
        for (context, demand) in self.contexts.iter().enumerate() {
            for flow in &self.flows[context] {
                let count = (shares[context] * demand.burst[phase] as f64 / 100.0) as u64;
                let interval = BURST.checked_div(count).unwrap_or(1);
                self.simulation.send(Stream { context, flows: vec![*flow], next: start, interval, left: count });
                sent[context] += count;
            }
        }
        while self.simulation.now() < start + RECEIVING_BURST {
            let last = self.on_workers();
            self.simulation.poll_next();
            for (worker, (last, now)) in last.into_iter().zip(self.on_workers()).enumerate() {
                for (context, (last, (dropped, run))) in last.into_iter().zip(now).enumerate() {
                    if dropped > last.0 {
                        // Tasks may have ended in the same poll.
                        let held = u64::from(self.simulation.held(worker, context).1) + run - last.1;
                        let share = shares[context];
                        let of = format!("thread {worker}, context {context}: lost with {held} packets of {share}");
                        prop_assert!(held as f64 >= 0.9 * share.floor(), "{of}");
                    }
                }
            }
        }
        self.drain();
        for (user, range) in ranges.into_iter().enumerate() {
            let counts = |context: usize| self.simulation.counts(context) - before[context];
            let run: u64 = range.clone().map(|context| counts(context).run).sum();
            let least = |context: usize| (sent[context] as f64).min(0.9 * shares[context].floor());
            let least: f64 = range.clone().map(least).sum();
            prop_assert!(run as f64 >= least, "user {user}: {run} packets of a burst for {least}");
            let Counts { lost, dropped, .. } = range.map(counts).fold(Counts::default(), |sum, next| Counts {
                run: sum.run + next.run,
                lost: sum.lost + next.lost,
                dropped: sum.dropped + next.dropped,
            });
            prop_assert_eq!(lost, 0, "the NIC has room for the burst");
            reached.dropped.set(reached.dropped.get() + dropped);
        }
        Ok(())
    }

    fn counts(&self) -> Vec<Counts> {
        (0..self.contexts.len()).map(|context| self.simulation.counts(context)).collect()
    }

    /// Packets that were dropped and that ended, for each worker and context.
    fn on_workers(&self) -> Vec<Vec<(u64, u64)>> {
        let of = [Counter::DropShare, Counter::DropNoMpq, Counter::PayloadRuns];
        let counts = |worker| self.simulation.counters_on(worker, of).into_iter();
        (0..self.workers)
            .map(|worker| counts(worker).map(|[share, queue, run]| (share + queue, run)).collect())
            .collect()
    }

    /// Users have their shares of the time by weight, or the time that they need.
    fn check_time(&self, phase: usize, reached: &Reached) -> Result<(), TestCaseError> {
        let (start, mut wanted) = (self.simulation.now(), vec![0; self.contexts.len()]);
        for (context, demand) in self.contexts.iter().enumerate() {
            let Some(interval) = (demand.task * 100).checked_div(demand.time[phase]) else { continue };
            wanted[context] = TIME / interval * demand.task;
            for &flow in &self.flows[context] {
                let next = start + interval / 2;
                self.simulation.send(Stream {
                    context,
                    flows: vec![flow],
                    next,
                    interval,
                    left: (BORROWING + TIME) / interval,
                });
            }
        }
        self.simulation.run_until(start + BORROWING);
        let lost = self.counts();
        let charged = |worker, context| self.simulation.charged(worker, context);
        let of_all = |worker| (0..wanted.len()).map(|context| charged(worker, context)).collect();
        let before: Vec<Vec<_>> = (0..self.workers).map(of_all).collect();
        self.simulation.run_until(start + BORROWING + TIME);
        for (worker, before) in before.iter().enumerate() {
            let of_user = |(user, range): (usize, Range<usize>)| Phase {
                weight: self.users[user].0,
                wanted: range.clone().map(|context| wanted[context]).sum(),
                charged: range.clone().map(|context| charged(worker, context) - before[context]).sum(),
                contexts: range,
            };
            let had: Vec<_> = self.ranges().into_iter().enumerate().map(of_user).collect();
            for (user, (had, fair)) in had.iter().zip(fair(&had)).enumerate() {
                // A few packets still wait.
                let waiting = (5 * LONGEST) as f64;
                let lost: Vec<_> = had.contexts.clone().map(|at| self.simulation.counts(at) - lost[at]).collect();
                let of = format!("thread {worker}, user {user}: {fair:.0} ns for {had:?}, {lost:?}");
                prop_assert!(had.charged as f64 >= 0.9 * fair - waiting, "{of}");
            }
            let all: u64 = had.iter().map(|user| user.wanted).sum();
            reached.busy.set(reached.busy.get() + u64::from(all > TIME));
        }
        self.drain();
        Ok(())
    }
}

/// Runs random cases. Fails if the users of all cases together did not reach the limits.
fn check(mode: Mode, cases: u32) {
    let reached = Reached::default();
    let config = ProptestConfig { cases, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&users(), |users| {
        let case = Case::new(mode, &users);
        case.check_queues(&reached)?;
        for phase in 0..PHASES {
            case.check_burst(phase, &reached)?;
            case.check_time(phase, &reached)?;
            case.check_queues(&reached)?;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{mode:?}: {error}");
    }
    let [dropped, evicted, busy] = [&reached.dropped, &reached.evicted, &reached.busy].map(Cell::get);
    println!(
        "{mode:?}: {dropped} packets of bursts dropped, {evicted} messages evicted, {busy} phases with too much work"
    );
    assert!(dropped > 0 && evicted > 0 && busy > 0, "demands exceed the engine: {dropped}, {evicted}, {busy}");
}

#[test]
fn eight_users_have_their_shares_of_time_memory_and_queues() {
    check(Mode::RunToCompletion, 8);
}

#[test]
fn eight_users_have_their_shares_on_two_threads() {
    check(Mode::ReceiveOnly, 2);
}
