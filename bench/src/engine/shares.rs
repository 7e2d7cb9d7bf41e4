//! Shares of time and of packets of two tenants on one overloaded thread, by scheduling policy. A tenant is a context.
//!
//! Packets of both arrive alternately without end. The first tenant's handlers are short. Those of the second are
//! equally short, ten times as long, or endless until the watchdog ends them. A tenant's throughput is compared with
//! its throughput alone on an engine of its own. The engines run alternately on one thread, so other load of the
//! machine affects all of them equally.

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use spin_abi::control::{Engine as Kind, Install, Placement, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::install::Prepared;
use spin_engine::sched::scheduler::jain;
use spin_engine::settings::Limits;
use spin_engine::worker::Worker;
use spin_nic::SyntheticSource;

use super::cores::on_first;
use super::lab::{Failure, SIZES, read};
use crate::wire::{Ipv4, UDP, datagram, ethernet};

/// Frame size in bytes.
const SIZE: usize = 64;
/// Frames in rotation over all tenants; more frames would make each packet more expensive.
const FRAMES: u32 = 4096;
/// Open messages over all tenants.
const FLOWS: u32 = 512;
/// Processor time of an engine's slice.
const SLICE: Duration = Duration::from_millis(5);
/// UDP ports of the tenants.
const PORTS: [u16; 2] = [9998, 9999];
/// Watchdog limit in microseconds.
const WATCHDOG_US: u64 = 100;
/// Gap between two clock readings that is longer than any handler run; the thread was preempted.
const OFF: Duration = Duration::from_micros(WATCHDOG_US * 12);
/// Loop iterations of a short handler, eight of them per pass: one or two microseconds.
const SHORT: u32 = 16_000;

/// Behaviour of the second tenant's handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greed {
    /// As long as the first tenant's.
    Equal,
    /// Ten times as long.
    Tenfold,
    /// Endless.
    Endless,
}

impl Greed {
    /// All variants, the shortest first.
    pub const ALL: [Self; 3] = [Self::Equal, Self::Tenfold, Self::Endless];

    const fn rounds(self) -> u32 {
        match self {
            Self::Equal => SHORT,
            Self::Tenfold => 10 * SHORT,
            Self::Endless => u32::MAX,
        }
    }
}

/// Two tenants under one scheduling policy.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    /// Scheduling policy.
    pub schedule: Schedule,
    /// Weights of the tenants.
    pub weights: [u32; 2],
    /// Behaviour of the second tenant.
    pub greed: Greed,
}

impl Contest {
    /// Returns every combination of policy, weights and behaviour.
    pub fn all() -> impl Iterator<Item = Self> {
        let schedules = [Schedule::RoundRobin, Schedule::Weighted, Schedule::Wlbvt];
        schedules.into_iter().flat_map(|schedule| {
            [[1, 1], [1, 4]]
                .into_iter()
                .flat_map(move |weights| Greed::ALL.into_iter().map(move |greed| Self { schedule, weights, greed }))
        })
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.weights;
        let greed = match self.greed {
            Greed::Equal => "equal",
            Greed::Tenfold => "tenfold",
            Greed::Endless => "endless",
        };
        write!(f, "{}/{first}:{second}/{greed}", self.schedule)
    }
}

/// Figures of a tenant that runs alone.
#[derive(Clone, Copy, Debug)]
struct Alone {
    /// Packets per nanosecond of processor time.
    rate: f64,
    /// Nanoseconds of one handler's loop: the difference to a packet whose loop has no iterations.
    handler: f64,
}

/// Figures of two tenants that run together.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Shares of the handlers' time.
    pub time: [f64; 2],
    /// Shares of the processed packets.
    pub packets: [f64; 2],
    /// Jain's fairness index of the time shares divided by the weights: 1 when each tenant has its weight's share.
    pub jain: f64,
    /// Throughput of each tenant relative to its weight's part of its throughput alone.
    pub throughput: [f64; 2],
}

/// State shared by all engines.
pub struct Arena {
    loader: Arc<Loader>,
    image: Vec<u8>,
    /// Duration of each measurement; a warm-up of half that time precedes it.
    time: Duration,
}

impl Arena {
    /// Reads the handler from `images`, which `kind` runs; each measurement takes `time`.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind, time: Duration) -> Result<Self, Failure> {
        Ok(Self { loader: Arc::new(Loader::new(Machine::PSPIN, kind)), image: read(images, "spin")?, time })
    }

    /// Measures two tenants of these `weights`, with each [`Greed`] of the second one.
    ///
    /// # Errors
    /// An engine fails, or runs no handler.
    pub fn contests(&self, schedule: Schedule, weights: [u32; 2]) -> Result<[Shares; Greed::ALL.len()], Failure> {
        on_first(|| self.contests_here(schedule, weights))
    }

    fn contests_here(&self, schedule: Schedule, weights: [u32; 2]) -> Result<[Shares; Greed::ALL.len()], Failure> {
        let mut rest = self.game(schedule, &[(PORTS[0], 1, 0)])?;
        let mut alone = self.games(|greed| self.game(schedule, &[(PORTS[0], 1, greed.rounds())]))?;
        let tenants = |greed: Greed| [(PORTS[0], weights[0], SHORT), (PORTS[1], weights[1], greed.rounds())];
        let mut together = self.games(|greed| self.game(schedule, &tenants(greed)))?;
        let mut all: Vec<_> = std::iter::once(&mut rest).chain(&mut alone).chain(&mut together).collect();
        let clock = Clock::default();
        take_turns(&mut all, self.time / 2, &clock)?;
        all.iter_mut().for_each(|game| game.begin());
        take_turns(&mut all, self.time, &clock)?;
        let rest = rest.tallies()[0].rate.recip();
        let alone = alone.iter().map(|game| game.tallies()[0].rate);
        let mut alone: Vec<_> = alone.map(|rate| Alone { rate, handler: rate.recip() - rest }).collect();
        if alone.iter().any(|alone| alone.rate <= 0.0) {
            return Err("a tenant alone ran no handler".into());
        }
        // A long loop is measured more precisely than a short one.
        alone[Greed::Equal as usize].handler = alone[Greed::Tenfold as usize].handler / 10.0;
        let modest = alone[Greed::Equal as usize];
        let shares: Vec<_> = together
            .iter()
            .zip(alone)
            .map(|(game, other)| Shares::new(weights, [modest, other], &game.tallies()))
            .collect();
        shares.try_into().map_err(|_| "a contest is missing".into())
    }

    fn games(&self, game: impl Fn(Greed) -> Result<Game, Failure>) -> Result<Vec<Game>, Failure> {
        Greed::ALL.into_iter().map(game).collect()
    }

    /// Makes an engine with these tenants: port, weight and loop iterations of the handlers.
    fn game(&self, schedule: Schedule, tenants: &[(u16, u32, u32)]) -> Result<Game, Failure> {
        let each = |all: u32| all / tenants.len() as u32;
        let of_flow = |flow| tenants.iter().map(move |&(port, _, rounds)| frame(port, flow, rounds));
        let frames: Vec<_> = (0..each(FRAMES)).flat_map(|index| of_flow(index % each(FLOWS))).collect();
        let nic = SyntheticSource::new(&frames, SIZE, 0)?;
        let mut engine = Worker::new(self.loader.clone(), Box::new(nic), SIZES, schedule, 0..1)?;
        for &(port, weight, _) in tenants {
            let install = Install {
                rules: vec![format!("udp dport {port}")],
                placement: Placement::Home,
                watchdog_us: Some(WATCHDOG_US),
                weight: Some(weight),
                ..Install::default()
            };
            engine.install(
                Prepared::new(install, &self.image, 0, &self.loader, &Limits::default())?,
                &Limits::default(),
            )?;
        }
        Ok(Game { engine, spent: Duration::ZERO, before: vec![0; tenants.len()] })
    }
}

impl Shares {
    /// Computes the figures from `tallies`, given the tenants' weights and their figures when `alone`.
    fn new(weights: [u32; 2], alone: [Alone; 2], tallies: &[Tally]) -> Self {
        let each = [0, 1];
        let weights = weights.map(f64::from);
        let part = |of: [f64; 2]| of.map(|one| one / (of[0] + of[1]));
        let time = part(each.map(|one| tallies[one].packets as f64 * alone[one].handler));
        let fair = part(weights);
        Self {
            time,
            packets: part(each.map(|one| tallies[one].packets as f64)),
            jain: jain(&each.map(|one| time[one] / weights[one])),
            throughput: each.map(|one| tallies[one].rate / (alone[one].rate * fair[one])),
        }
    }
}

/// An engine and its counts.
struct Game {
    engine: Worker,
    /// Processor time used.
    spent: Duration,
    /// Handler runs of each tenant when counting began.
    before: Vec<u64>,
}

/// Runs each engine for `time`, alternately in slices.
fn take_turns(games: &mut [&mut Game], time: Duration, clock: &Clock) -> Result<(), Failure> {
    for _ in 0..time.div_duration_f64(SLICE).ceil() as u64 {
        for game in &mut *games {
            game.run(clock)?;
        }
    }
    Ok(())
}

/// A clock that stops while the thread is preempted; otherwise handlers would be charged for other load of the machine.
/// The kernel's clock of that kind is too slow to be read between handlers.
struct Clock {
    read: Cell<Instant>,
    now: Cell<Duration>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { read: Cell::new(Instant::now()), now: Cell::default() }
    }
}

impl Clock {
    fn now(&self) -> Duration {
        let instant = Instant::now();
        let passed = instant.saturating_duration_since(self.read.replace(instant));
        if passed < OFF {
            self.now.set(self.now.get() + passed);
        }
        self.now.get()
    }
}

impl Game {
    /// Runs one slice.
    fn run(&mut self, clock: &Clock) -> Result<(), Failure> {
        let (before, mut spent) = (processor_time(), Duration::ZERO);
        while spent < SLICE {
            // Reading the processor time takes a system call. Read after each poll, it would cost short polls, which
            // tenants that share have, more than long ones.
            let (begun, left) = (Instant::now(), SLICE - spent);
            while begun.elapsed() < left {
                self.engine.poll(|| clock.now())?;
            }
            spent = processor_time() - before;
        }
        self.spent += spent;
        Ok(())
    }

    /// Begins counting.
    fn begin(&mut self) {
        (self.spent, self.before) = (Duration::ZERO, runs(&self.engine));
    }

    fn tallies(&self) -> Vec<Tally> {
        let packets = runs(&self.engine).into_iter().zip(&self.before).map(|(after, before)| after - before);
        packets.map(|packets| Tally { packets, rate: packets as f64 / self.spent.as_nanos() as f64 }).collect()
    }
}

/// Counts of a tenant.
#[derive(Clone, Copy)]
struct Tally {
    packets: u64,
    /// Packets per nanosecond of processor time, which excludes other load of the machine.
    rate: f64,
}

/// Returns the processor time used by this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock begins at 0 with the thread.
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the handler runs of each tenant so far.
fn runs(engine: &Worker) -> Vec<u64> {
    engine.context_infos().into_iter().map(|info| info.counters.get(Counter::PayloadRuns)).collect()
}

/// Makes a datagram whose handler's loop runs `rounds` iterations.
pub(super) fn frame(port: u16, flow: u32, rounds: u32) -> Vec<u8> {
    let mut content = [0; SIZE - 42];
    content[..4].copy_from_slice(&rounds.to_le_bytes());
    let [_, _, high, low] = flow.to_be_bytes();
    let (source, destination) = ([10, 1, high, low].into(), [10, 0, 0, 2].into());
    let payload = datagram(source, destination, [port, port], &content);
    let packet = Ipv4 { source, destination, protocol: UDP, id: 0, fragment: 0, options: Vec::new(), payload };
    ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[], &packet.bytes())
}
