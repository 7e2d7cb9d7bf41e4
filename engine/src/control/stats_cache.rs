//! Counters and contexts, read from all threads for all clients together, at most once every [`READ_INTERVAL`]. A thread needs longer to
//! report a thousand contexts than to process a thousand packets. The interval bounds the cost of clients that ask repeatedly.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use spin_abi::control::{ContextInfo, Reply, Stats, ThreadInfo, TierInfo};
use spin_abi::counter_values::Counters;

use crate::context::ContextPart;
use crate::control::server::{Answer, Responder};
use crate::cores::units::{PlannedWorker, UnitPart};
use crate::cores::{ClusterThread, Poller, WorkerGroup};
use crate::install::{InstallError, User};
use crate::telemetry::context_latency::Distributions;
use crate::telemetry::statistics::Statistics;
use crate::worker::Worker;

/// Shortest time between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// Contexts whose latencies a thread copies between two polls. It copies those of a thousand in 2 ms.
const LATENCIES_AT_A_TIME: usize = 64;

/// Query of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsQuery {
    /// [`Request::List`](spin_abi::control::Request::List).
    Contexts,
    /// [`Request::Stats`](spin_abi::control::Request::Stats).
    Stats,
}

/// A client that waits for the next read.
struct Asker {
    query: StatsQuery,
    /// The user who sees the answer.
    user: User,
    reply: Responder,
}

/// Waiting clients, and the time of the last read.
#[derive(Default)]
pub struct StatsCache {
    asking: Vec<Asker>,
    last: Option<Instant>,
}

impl StatsCache {
    /// Adds a client of a user.
    pub fn ask(&mut self, query: StatsQuery, user: User, reply: Responder) {
        self.asking.push(Asker { query, user, reply });
    }

    /// Time until clients can be answered. `None` without clients.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        let pause = || self.last.map_or(Duration::ZERO, |last| READ_INTERVAL.saturating_sub(last.elapsed()));
        (!self.asking.is_empty()).then(pause)
    }

    /// Answers all clients when the interval has passed. `nic` describes the NIC.
    pub fn answer(&mut self, group: &WorkerGroup, nic: &str) {
        if self.wait() != Some(Duration::ZERO) {
            return;
        }
        self.last = Some(Instant::now());
        let all = self.asking.iter().any(|asker| asker.query == StatsQuery::Stats);
        let snapshots = group.all(move |engine| Snapshot::of(engine, all));
        if snapshots.is_empty() {
            let stopping = |asker: Asker| asker.reply.answer(Err(InstallError::Stopped.to_string()));
            return self.asking.drain(..).for_each(stopping);
        }
        let (mut contexts, counted, latencies) = merge(snapshots);
        for info in &mut contexts {
            group.hooks.of(info.context).into_iter().for_each(|counted| info.counters.add(&counted));
            if let Some((kernel, reason)) = group.hooks.state(info.context) {
                info.tier = Some(TierInfo { kernel, reason: reason.to_owned() });
            }
        }
        if all {
            set_latencies(&mut contexts, latencies, group);
        }
        let stats = all.then(|| stats(group, nic, counted));
        let mut left = self.asking.len();
        for Asker { query, user, reply } in self.asking.drain(..) {
            left -= 1;
            let all = if left == 0 { std::mem::take(&mut contexts) } else { contexts.clone() };
            let contexts = seen_by(user, all);
            let body = match (query, &stats) {
                (StatsQuery::Stats, Some(stats)) => Reply::Stats(Stats { contexts, ..stats.clone() }),
                _ => Reply::Contexts { contexts },
            };
            reply.answer(Ok(Answer::plain(body)));
        }
    }
}

/// State of a thread that runs handlers.
struct Snapshot {
    worker: u16,
    /// The contexts, on the first thread.
    contexts: Vec<ContextInfo>,
    /// Counters and faults of contexts, on the other threads.
    parts: Vec<ContextPart>,
    /// Counters of the thread, and latencies of its first contexts, if requested.
    counted: Option<(ThreadCounters, Latencies)>,
}

/// Latencies of some contexts of a thread, and whether it has more.
type Latencies = (Vec<(u32, Box<Distributions>)>, bool);

impl Snapshot {
    /// The state of a thread. `all`: with its counters and latencies.
    fn of(engine: &mut Worker, all: bool) -> Self {
        let worker = engine.core.part.worker;
        // All threads have the same contexts.
        let (contexts, parts) =
            if worker == 0 { (engine.context_infos(), Vec::new()) } else { (Vec::new(), engine.context_parts()) };
        let counted = all.then(|| (read(engine), engine.context_latencies(0, LATENCIES_AT_A_TIME)));
        Self { worker, contexts, parts, counted }
    }
}

/// Statistics of a thread, and counters of its NIC queue.
type ThreadCounters = (Statistics, Vec<(&'static str, u64)>);

fn read(poller: &mut impl Poller) -> ThreadCounters {
    (poller.statistics(), poller.nic().counters())
}

/// Contexts with the sums of all threads' counters, the counters of each thread, and latencies of all threads.
fn merge(snapshots: Vec<Snapshot>) -> (Vec<ContextInfo>, Vec<(u16, ThreadCounters)>, Vec<Latencies>) {
    let (mut all, mut parts, mut counted, mut latencies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for Snapshot { worker, contexts, parts: more, counted: of } in snapshots {
        all.extend(contexts);
        parts.extend(more);
        let (counters, some) = of.unzip();
        counted.extend(counters.map(|of| (worker, of)));
        latencies.extend(some);
    }
    let by_id: HashMap<u32, usize> =
        all.iter().enumerate().map(|(at, info): (_, &ContextInfo)| (info.context, at)).collect();
    for ContextPart { id, counters, faults } in parts {
        if let Some(info) = by_id.get(&id).and_then(|&at| all.get_mut(at)) {
            info.counters.add(&counters);
            info.faults.extend(faults);
        }
    }
    (all, counted, latencies)
}

/// Sets the latencies of contexts: the sums over all threads. `parts` are those of each thread's first contexts. The others are read some
/// at a time.
fn set_latencies(contexts: &mut [ContextInfo], mut parts: Vec<Latencies>, group: &WorkerGroup) {
    let mut sums: HashMap<u32, Box<Distributions>> = HashMap::with_capacity(contexts.len());
    for first in (0..).step_by(LATENCIES_AT_A_TIME).skip(1) {
        let more = parts.iter().any(|(_, more)| *more);
        for (id, part) in parts.into_iter().flat_map(|(part, _)| part) {
            match sums.entry(id) {
                Entry::Occupied(mut sum) => sum.get_mut().merge(&part),
                Entry::Vacant(none) => _ = none.insert(part),
            }
        }
        if !more {
            break;
        }
        parts = group.all(move |engine| engine.context_latencies(first, LATENCIES_AT_A_TIME));
    }
    for context in contexts {
        context.latencies = sums.get(&context.context).map_or_else(Vec::new, |sum| sum.infos());
    }
}

/// Contexts as a user may see them.
fn seen_by(user: User, contexts: Vec<ContextInfo>) -> Vec<ContextInfo> {
    let seen = |context: ContextInfo| {
        if user.may_change(context.uid) {
            ContextInfo { own: user.0 == context.uid, ..context }
        } else {
            context.hide()
        }
    };
    contexts.into_iter().map(seen).collect()
}

fn stats(group: &WorkerGroup, nic: &str, counted: Vec<(u16, ThreadCounters)>) -> Stats {
    let mut statistics = Statistics::default();
    let mut nic_counters = Counters::default();
    let mut threads = Vec::new();
    let mut add = |(part, counters): ThreadCounters| {
        statistics.merge(&part);
        nic_counters.add(&counters.into_iter().collect());
    };
    for (worker, part) in counted {
        let counters = part.0.counts.named().collect();
        if let Some(ClusterThread { planned, .. }) = group.workers.get(usize::from(worker)) {
            let PlannedWorker { core, node, part: UnitPart { unit, clusters, .. }, .. } = planned;
            let (unit, clusters, core, node) = (*unit, (clusters.start, clusters.end - 1), *core, *node);
            threads.push(ThreadInfo { unit, clusters, core, node, counters });
        }
        add(part);
    }
    if let Some(part) = group.receiver().and_then(|receiver| receiver.ask(read)) {
        add(part);
    }
    let mut engine: Counters = statistics.counts.named().collect();
    engine.add(&group.hooks.sum());
    Stats {
        nic: nic.to_owned(),
        engine,
        threads,
        nic_counters,
        latencies: statistics.latencies.infos().into(),
        contexts: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use spin_abi::control::{ContextInfo, RunInfo, TierInfo};
    use spin_abi::counter_values::Counters;

    use super::{Distributions, User, seen_by};

    #[test]
    fn rules_and_names_are_for_the_owner_and_root() {
        let context = ContextInfo {
            context: 3,
            name: "secret".into(),
            uid: 7,
            rules: vec!["udp dport 1".into()],
            eom: "never".into(),
            key: "flow".into(),
            handlers: [true; 3],
            host_mem: 4096,
            run: RunInfo { weight: 5, watchdog_us: 9, ..RunInfo::default() },
            interpreted: Some("code".into()),
            tier: Some(TierInfo { kernel: false, reason: "off".into() }),
            counters: Counters::from_iter([("payload_runs", 2), ("drop_share", 1)]),
            latencies: Distributions::default().infos(),
            ..ContextInfo::default()
        };
        let seen = |user: u32| seen_by(User(user), vec![context.clone()]).remove(0);
        assert_eq!(seen(0), context);
        assert_eq!(seen(7), ContextInfo { own: true, ..context.clone() });
        let (run, counters) = (RunInfo { weight: 5, ..RunInfo::default() }, Counters::from_iter([("drop_share", 1)]));
        let shown = ContextInfo { context: 3, uid: 7, hidden: true, run, counters, ..ContextInfo::default() };
        assert_eq!(seen(8), shown);
        let roots = ContextInfo { uid: 0, ..context.clone() };
        assert!(seen_by(User(0), vec![roots.clone()])[0].own && seen_by(User(7), vec![roots])[0].hidden);
    }
}
