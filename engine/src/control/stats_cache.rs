//! Counters and contexts for all who ask: read from the engine's threads together, and not oftener than every [`PAUSE`]. A thread
//! takes longer to tell of a thousand contexts than of a thousand packets; so whoever asks again and again costs packets little.

use std::ops::Range;
use std::time::{Duration, Instant};

use spin_abi::control::{ContextInfo, Reply, Stats, ThreadInfo};

use crate::control::server::{Answer, Responder};
use crate::cores::group::Fleet;
use crate::cores::thread::Part;
use crate::install::InstallError;
use crate::statistics::Statistics;

/// Time between two readings.
const PAUSE: Duration = Duration::from_millis(10);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// [`Request::List`](spin_abi::control::Request::List).
    Contexts,
    /// [`Request::Stats`](spin_abi::control::Request::Stats).
    Stats,
}

/// Who asks, and when the last ones were answered.
#[derive(Default)]
pub struct Readings {
    asking: Vec<(Reading, Responder)>,
    last: Option<Instant>,
}

impl Readings {
    /// Notes who is to be answered.
    pub fn ask(&mut self, reading: Reading, reply: Responder) {
        self.asking.push((reading, reply));
    }

    /// How long they have to wait; `None` when nobody asks.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        let pause = || self.last.map_or(Duration::ZERO, |last| PAUSE.saturating_sub(last.elapsed()));
        (!self.asking.is_empty()).then(pause)
    }

    /// Answers all who ask, if it is time to. `nic` is what the NIC is, in words.
    pub fn answer(&mut self, fleet: &Fleet, nic: &str) {
        if self.wait() != Some(Duration::ZERO) {
            return;
        }
        self.last = Some(Instant::now());
        let all = self.asking.iter().any(|(reading, _)| *reading == Reading::Stats);
        let told = fleet.all(move |engine| Told {
            contexts: engine.context_infos(),
            counted: all.then(|| (engine.clusters.clone(), read(engine))),
        });
        if told.is_empty() {
            let stopping = |(_, reply): (_, Responder)| reply.answer(Err(InstallError::Stopped.to_string()));
            return self.asking.drain(..).for_each(stopping);
        }
        let (contexts, counted): (Vec<_>, Vec<_>) = told.into_iter().map(|told| (told.contexts, told.counted)).unzip();
        let contexts = together(contexts);
        let stats = all.then(|| stats(fleet, nic, counted.into_iter().flatten(), contexts.clone()));
        for (reading, reply) in self.asking.drain(..) {
            let body = match (reading, &stats) {
                (Reading::Stats, Some(stats)) => Reply::Stats(stats.clone()),
                _ => Reply::Contexts { contexts: contexts.clone() },
            };
            reply.answer(Ok(Answer::plain(body)));
        }
    }
}

/// What a thread that runs handlers tells.
struct Told {
    contexts: Vec<ContextInfo>,
    /// Its clusters and counters, if they are asked for.
    counted: Option<(Range<u32>, Read)>,
}

/// Statistics of a thread's part, and what its NIC counts.
type Read = (Statistics, Vec<(&'static str, u64)>);

fn read(part: &mut impl Part) -> Read {
    (part.statistics(), part.nic().counters())
}

/// Contexts as all threads together have them.
fn together(threads: Vec<Vec<ContextInfo>>) -> Vec<ContextInfo> {
    let mut threads = threads.into_iter();
    let mut all = threads.next().unwrap_or_default();
    for infos in threads {
        for (sum, info) in all.iter_mut().zip(infos) {
            sum.merge(info);
        }
    }
    all
}

fn stats(
    fleet: &Fleet,
    nic: &str,
    counted: impl Iterator<Item = (Range<u32>, Read)>,
    contexts: Vec<ContextInfo>,
) -> Stats {
    let mut statistics = Statistics::default();
    let mut nic_counters: Vec<(String, u64)> = Vec::new();
    let mut threads = Vec::new();
    let mut add = |(part, counters): Read| {
        statistics.merge(&part);
        let named = counters.into_iter().map(|(name, value)| (name.to_owned(), value));
        spin_abi::counters::add_named(&mut nic_counters, named);
    };
    for (clusters, part) in counted {
        let counters = part.0.counts.named().collect();
        // One that has none has others run its handlers.
        if !clusters.is_empty() {
            threads.push(ThreadInfo { clusters: (clusters.start, clusters.end - 1), counters });
        }
        add(part);
    }
    if let Some(part) = fleet.receiver().and_then(|receiver| receiver.ask(read)) {
        add(part);
    }
    Stats {
        nic: nic.to_owned(),
        engine: statistics.counts.named().collect(),
        threads,
        nic_counters,
        latencies: statistics.latencies.infos().into(),
        contexts,
    }
}
