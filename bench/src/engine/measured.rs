//! Measurements of the engine in rounds, and their tables and rows.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use spin_abi::control::{Engine as Kind, Placement};

use super::case::{BREAKDOWN, CASES, Case, PINGPONG, UNLOADED};
use super::cores::on_first;
use super::crowd::{CROWDS, Crowd, SCHEDULES};
use super::distance::round_trip;
use super::idle::{MODES, PAUSES};
use super::lab::{Failure, Setting};
use super::latency::Unloaded;
use super::overflow::{LOOPS, OneSided};
use super::shares::{Arena, Contest, Greed, Shares};
use super::stages::{OTHER, STAGES};
use crate::page::published::LATENCY;
use crate::report::Row;

/// Thread configurations: name and number of clusters. With `pipeline`, one thread receives for a cluster of its own
/// and for the other thread's. With `receive-only` it receives for the other thread's alone. With `run-to-completion`
/// each cluster has a thread. With `one-thread` one thread has all of PsPIN's clusters, which is spind's default.
const WAYS: [(&str, u32); 5] =
    [("run-to-completion", 1), ("run-to-completion", 2), (RECEIVE_ONLY, 1), (PIPELINE, 2), (ONE_THREAD, 4)];
const RECEIVE_ONLY: &str = "receive-only";
const PIPELINE: &str = "pipeline";
const ONE_THREAD: &str = "one-thread";

/// A measurement whose rounds are interleaved with others.
pub trait Measured {
    /// Runs one more round.
    ///
    /// # Errors
    /// The measured code does not behave as required.
    fn round(&mut self) -> Result<(), Failure>;

    /// Returns the table as text and the rows for JSON.
    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>);
}

/// A row with its number of clusters.
#[derive(Debug, Serialize)]
pub struct OfClusters {
    #[serde(flatten)]
    row: Row,
    clusters: u32,
}

/// Makes a row of one cluster.
pub(super) const fn single(row: Row) -> OfClusters {
    OfClusters { row, clusters: 1 }
}

/// Nanoseconds per packet of several contexts on one thread.
pub struct Crowds {
    packets: u64,
    crowd: Crowd,
    /// Rounds by number of contexts and scheduling policy.
    rounds: [[Vec<f64>; SCHEDULES.len()]; CROWDS.len()],
}

impl Crowds {
    /// Makes the measurement with rounds of `packets`.
    ///
    /// # Errors
    /// An image cannot be read.
    pub fn new(images: &Path, kind: Kind, packets: u64) -> Result<Self, Failure> {
        Ok(Self { packets, crowd: Crowd::new(images, kind)?, rounds: Default::default() })
    }
}

impl Measured for Crowds {
    fn round(&mut self) -> Result<(), Failure> {
        for (contexts, rounds) in CROWDS.into_iter().zip(&mut self.rounds) {
            for ((schedule, _), rounds) in SCHEDULES.into_iter().zip(rounds) {
                rounds.push(on_first(|| self.crowd.round(schedule, contexts, self.packets))?);
            }
        }
        Ok(())
    }

    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>) {
        let [first, second] = SCHEDULES.map(|(_, name)| name);
        let mut table = format!("{:<18}{first:>12}{second:>12}  ns/packet of all contexts together\n", "contexts");
        let mut rows = Vec::new();
        for (contexts, rounds) in CROWDS.into_iter().zip(self.rounds) {
            let of = |((_, name), rounds)| Row::new(format!("empty-of-{contexts}/64"), name, rounds);
            let figures: Vec<Row> = SCHEDULES.into_iter().zip(rounds).map(of).collect();
            let _ = writeln!(table, "{contexts:<18}{:>12.1}{:>12.1}", figures[0].median, figures[1].median);
            rows.extend(figures.into_iter().map(single));
        }
        (table, rows)
    }
}

/// Nanoseconds per packet of cases, with one cluster and with several.
pub struct Throughput {
    packets: u64,
    cases: Vec<(Setting, [Vec<f64>; WAYS.len()])>,
    /// Communication latency between two cores before each round of a pipeline.
    distances: Vec<f64>,
}

impl Throughput {
    /// Selects the cases whose name contains `filter`, with rounds of `packets`.
    ///
    /// # Errors
    /// An image cannot be read.
    pub fn new(images: &Path, kind: Kind, packets: u64, filter: Option<&str>) -> Result<Self, Failure> {
        let chosen = CASES.iter().filter(|case| filter.is_none_or(|part| case.to_string().contains(part)));
        let setting = |case: &Case| Ok::<_, Failure>((Setting::new(*case, images, kind)?, WAYS.map(|_| Vec::new())));
        Ok(Self { packets, cases: chosen.map(setting).collect::<Result<_, _>>()?, distances: Vec::new() })
    }
}

impl Measured for Throughput {
    fn round(&mut self) -> Result<(), Failure> {
        for (setting, times) in &mut self.cases {
            for ((way, clusters), times) in WAYS.into_iter().zip(times) {
                let round = on_first(|| match way {
                    RECEIVE_ONLY => {
                        self.distances.push(round_trip()?);
                        setting.receive_only(self.packets)
                    }
                    PIPELINE => setting.pipeline(self.packets),
                    ONE_THREAD => setting.one_thread(clusters, self.packets),
                    _ => setting.round(clusters, self.packets),
                });
                times.push(round.map_err(|error| format!("{}, {way}, clusters {clusters}: {error}", setting.case))?);
            }
        }
        Ok(())
    }

    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>) {
        let mut table = format!(
            "{:<18}{:<18}{:>10}{:>12}{:>12}{:>12}  ns/packet\n",
            "case", "", "clusters", "median", "min", "max"
        );
        let mut rows = Vec::new();
        for (setting, times) in self.cases {
            for ((way, clusters), times) in WAYS.into_iter().zip(times) {
                let row = Row::new(setting.case, way, times);
                let Row { case, median, min, max, .. } = &row;
                let _ = writeln!(table, "{case:<18}{way:<18}{clusters:>10}{median:>12.1}{min:>12.1}{max:>12.1}");
                rows.push(OfClusters { row, clusters });
            }
        }
        if !self.distances.is_empty() {
            let row = Row::of("cores", "round-trip", "ns", self.distances);
            let Row { median, min, .. } = row;
            let _ = writeln!(
                table,
                "there and back between two cores: {median:.0} ns, {min:.0} at the least; a pipeline takes longer with it"
            );
            rows.push(single(row));
        }
        (table, rows)
    }
}

/// Latency of single packets.
pub struct Latency {
    packets: u64,
    cases: Vec<(Setting, Vec<Unloaded>)>,
}

impl Latency {
    /// Makes the measurement with rounds of `packets`.
    ///
    /// # Errors
    /// An image cannot be read.
    pub fn new(images: &Path, kind: Kind, packets: u64) -> Result<Self, Failure> {
        let setting = |case| Ok::<_, Failure>((Setting::new(case, images, kind)?, Vec::new()));
        Ok(Self { packets, cases: UNLOADED.into_iter().map(setting).collect::<Result<_, _>>()? })
    }
}

impl Measured for Latency {
    fn round(&mut self) -> Result<(), Failure> {
        for (setting, rounds) in &mut self.cases {
            let round = setting.unloaded(self.packets);
            rounds.push(round.map_err(|error| format!("{}, unloaded: {error}", setting.case))?);
        }
        Ok(())
    }

    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>) {
        let mut table = format!(
            "{:<18}{:>12}{:>12}{:>12}{:>16}  ns from receive to release, unloaded\n",
            "case", "median", "p99", "PsPIN", "median/PsPIN"
        );
        let (mut rows, mut clocks) = (Vec::new(), Vec::new());
        for ((setting, rounds), (_, pspin)) in self.cases.into_iter().zip(LATENCY) {
            let row = |variant, figure: fn(&Unloaded) -> f64| {
                Row::of(setting.case, variant, "ns", rounds.iter().map(figure).collect())
            };
            let (median, p99) = (row("latency-median", |round| round.median), row("latency-p99", |round| round.p99));
            let pspin = f64::from(pspin);
            let ratio = median.median / pspin;
            let Row { case, median: half, .. } = &median;
            let _ = writeln!(table, "{case:<18}{half:>12.1}{:>12.1}{pspin:>12.1}{ratio:>16.2}", p99.median);
            clocks.extend(rounds.iter().map(|round| round.clock));
            rows.extend([single(median), single(p99)]);
        }
        let clock = Row::of("clock", "clock", "ns", clocks).median;
        let _ = writeln!(table, "subtracted: {clock:.0} ns, what taking a time costs");
        (table, rows)
    }
}

/// Latency of packets after a pause, by the thread's idle mode.
pub struct Pauses {
    packets: u64,
    setting: Setting,
    /// Rounds by mode and pause.
    rounds: [[Vec<f64>; PAUSES.len()]; MODES.len()],
}

impl Pauses {
    /// Makes the measurement with rounds of `packets`.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind, packets: u64) -> Result<Self, Failure> {
        Ok(Self { packets, setting: Setting::new(PINGPONG, images, kind)?, rounds: Default::default() })
    }
}

impl Measured for Pauses {
    fn round(&mut self) -> Result<(), Failure> {
        for ((mode, name), rounds) in MODES.into_iter().zip(&mut self.rounds) {
            for ((pause, _), rounds) in PAUSES.into_iter().zip(rounds) {
                let median = self.setting.after_pauses(mode, pause, self.packets);
                rounds.push(median.map_err(|error| format!("idle {name}: {error}"))?);
            }
        }
        Ok(())
    }

    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>) {
        let heads: String = PAUSES.iter().map(|(_, pause)| format!("{pause:>14}")).collect();
        let mut table = format!("{:<18}{heads}  ns from a client to a handler and back\n", "idle");
        let mut rows = Vec::new();
        for ((_, mode), rounds) in MODES.into_iter().zip(self.rounds) {
            let _ = write!(table, "{mode:<18}");
            for ((_, pause), rounds) in PAUSES.into_iter().zip(rounds) {
                let row = Row::of(format!("idle-{mode}"), pause, "ns", rounds);
                let _ = write!(table, "{:>14.0}", row.median);
                rows.push(single(row));
            }
            table.push('\n');
        }
        (table, rows)
    }
}

/// Cost of each stage of a poll, and of the whole poll.
pub struct Breakdown {
    packets: u64,
    setting: Setting,
    whole: Vec<f64>,
    stages: [Vec<f64>; STAGES.len()],
    other: Vec<f64>,
}

impl Breakdown {
    /// Makes the measurement with rounds of `packets`.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind, packets: u64) -> Result<Self, Failure> {
        let setting = Setting::new(BREAKDOWN, images, kind)?;
        Ok(Self { packets, setting, whole: Vec::new(), stages: STAGES.map(|_| Vec::new()), other: Vec::new() })
    }
}

impl Measured for Breakdown {
    fn round(&mut self) -> Result<(), Failure> {
        let whole = self.setting.round(1, self.packets)?;
        let stages = self.setting.stages(self.packets).map_err(|error| format!("stages: {error}"))?;
        self.whole.push(whole);
        self.other.push(whole - stages.iter().sum::<f64>());
        self.stages.iter_mut().zip(stages).for_each(|(rounds, stage)| rounds.push(stage));
        Ok(())
    }

    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>) {
        let case = self.setting.case;
        let whole = Row::new(case, "stage:turn", self.whole);
        let poll = whole.median;
        let stages = STAGES.into_iter().zip(self.stages).chain([(OTHER, self.other)]);
        let rows: Vec<_> =
            stages.map(|(stage, times)| Row::new(case, stage, times)).chain([whole]).map(single).collect();
        let mut table = format!(
            "{:<18}{:<18}{:>12}{:>12}{:>12}{:>10}  ns/packet\n",
            "case", "stage", "median", "min", "max", "of turn"
        );
        for OfClusters { row: Row { case, variant, median, min, max, .. }, .. } in &rows {
            let of_turn = median / poll;
            let _ = writeln!(table, "{case:<18}{variant:<18}{median:>12.1}{min:>12.1}{max:>12.1}{of_turn:>10.2}");
        }
        (table, rows)
    }
}

/// A figure of [`Shares`] and its name in rows.
type Figure = (&'static str, fn(&Shares) -> f64);

const FIGURES: [Figure; 7] = [
    ("time:first", |shares| shares.time[0]),
    ("time:second", |shares| shares.time[1]),
    ("packets:first", |shares| shares.packets[0]),
    ("packets:second", |shares| shares.packets[1]),
    ("jain", |shares| shares.jain),
    ("throughput:first", |shares| shares.throughput[0]),
    ("throughput:second", |shares| shares.throughput[1]),
];

/// Shares of contexts that compete for one thread.
pub struct Tenants {
    arena: Arena,
    contests: Vec<(Contest, Vec<Shares>)>,
}

impl Tenants {
    /// Makes the measurement with `time` per engine and round.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind, time: Duration) -> Result<Self, Failure> {
        let contests = Contest::all().map(|contest| (contest, Vec::new())).collect();
        Ok(Self { arena: Arena::new(images, kind, time)?, contests })
    }
}

impl Measured for Tenants {
    fn round(&mut self) -> Result<(), Failure> {
        for contests in self.contests.chunks_mut(Greed::ALL.len()) {
            let Contest { schedule, weights, .. } = contests[0].0;
            let shares = self.arena.contests(schedule, weights).map_err(|error| format!("{schedule}: {error}"))?;
            contests.iter_mut().zip(shares).for_each(|((_, rounds), shares)| rounds.push(shares));
        }
        Ok(())
    }

    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>) {
        let heads: String = FIGURES.iter().map(|(name, _)| format!("{name:>19}")).collect();
        let mut table = format!("{:<28}{heads}\n", "scheduler/weights/second");
        let mut rows = Vec::new();
        for (contest, rounds) in self.contests {
            let _ = write!(table, "{:<28}", contest.to_string());
            for (name, figure) in FIGURES {
                let row = Row::of(contest, name, "share", rounds.iter().map(figure).collect());
                let _ = write!(table, "{:>19.3}", row.median);
                rows.push(single(row));
            }
            table.push('\n');
        }
        (table, rows)
    }
}

/// Placements of one thread's tasks.
const PLACES: [(Placement, &str); 2] = [(Placement::Home, "home"), (Placement::Any, "overflow")];

/// Benefit of an idle thread for a busy one.
pub struct Overflow {
    packets: u64,
    threads: OneSided,
    /// Rounds by loop and placement.
    rounds: [[Vec<f64>; PLACES.len()]; LOOPS.len()],
}

impl Overflow {
    /// Makes the measurement with rounds of `packets` for the longest handlers, and of more for shorter ones.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind, packets: u64) -> Result<Self, Failure> {
        Ok(Self { packets, threads: OneSided::new(images, kind)?, rounds: Default::default() })
    }
}

impl Measured for Overflow {
    fn round(&mut self) -> Result<(), Failure> {
        let [.., (longest, _)] = LOOPS;
        for ((polls, _), rounds) in LOOPS.into_iter().zip(&mut self.rounds) {
            for ((placement, name), rounds) in PLACES.into_iter().zip(rounds) {
                let packets = self.packets * u64::from(longest / polls).isqrt();
                let round = on_first(|| self.threads.round(polls, placement, packets));
                rounds.push(round.map_err(|error| format!("overflow, {name}: {error}"))?);
            }
        }
        Ok(())
    }

    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>) {
        let mut table = format!(
            "{:<18}{:>12}{:>12}{:>12}  ns/packet, one thread's packets on two threads\n",
            "loop", "home", "overflow", "gain"
        );
        let mut rows = Vec::new();
        for ((_, name), rounds) in LOOPS.into_iter().zip(self.rounds) {
            let of = |((_, place), rounds)| Row::new(format!("spin-{name}/64"), place, rounds);
            let figures: Vec<Row> = PLACES.into_iter().zip(rounds).map(of).collect();
            let medians: Vec<f64> = figures.iter().map(|row| row.median).collect();
            let gain = medians[0] / medians[1];
            let _ = writeln!(table, "{name:<18}{:>12.1}{:>12.1}{gain:>12.2}", medians[0], medians[1]);
            rows.extend(figures.into_iter().map(|row| OfClusters { row, clusters: 2 }));
        }
        (table, rows)
    }
}
