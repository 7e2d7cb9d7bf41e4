//! What two tenants get of one thread that has more to do than it can: shares of time and of packets, by scheduler.
//!
//! Packets of both arrive in turn, without end. The first tenant's handlers are short; the second one's are as short, ten
//! times as long, or never end but by their watchdog. What a tenant gets is compared with what it gets when it is alone, on an
//! engine of its own: the engines take turns on one thread, so that whatever else the machine does costs all of them alike.

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

/// Bytes of a frame.
const SIZE: usize = 64;
/// Frames in rotation, of all tenants: more of them would make each dearer.
const FRAMES: u32 = 4096;
/// Messages of all tenants at a time.
const FLOWS: u32 = 512;
/// Processor time that an engine has until the next one does.
const SLICE: Duration = Duration::from_millis(5);
/// Ports of the tenants.
const PORTS: [u16; 2] = [9998, 9999];
/// Microseconds until the watchdog ends what does not end.
const WATCHDOG_US: u64 = 100;
/// No handlers run as long as this between two looks at the clock: the thread was off its core.
const OFF: Duration = Duration::from_micros(WATCHDOG_US * 12);
/// Turns of a short handler's loop, of which a pass runs eight: one or two microseconds.
const SHORT: u32 = 16_000;

/// What the second tenant's handlers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greed {
    /// As much as the first one's.
    Equal,
    /// Ten times as much.
    Tenfold,
    /// They never end.
    Endless,
}

impl Greed {
    /// All, the most modest first.
    pub const ALL: [Self; 3] = [Self::Equal, Self::Tenfold, Self::Endless];

    const fn rounds(self) -> u32 {
        match self {
            Self::Equal => SHORT,
            Self::Tenfold => 10 * SHORT,
            Self::Endless => u32::MAX,
        }
    }
}

/// Two tenants under one scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    /// Who shares the time out.
    pub schedule: Schedule,
    /// The tenants' weights.
    pub weights: [u32; 2],
    /// What the second one does.
    pub greed: Greed,
}

impl Contest {
    /// Every scheduler with every weight and handler.
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

/// What a tenant has when it is alone.
#[derive(Clone, Copy, Debug)]
struct Alone {
    /// Packets per nanosecond of processor time.
    rate: f64,
    /// Nanoseconds that the loop of one handler takes: by how much a packet takes longer than one whose loop has no turn.
    handler: f64,
}

/// What the tenants got of each other's company.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Of the handlers' time.
    pub time: [f64; 2],
    /// Of the packets that were processed.
    pub packets: [f64; 2],
    /// How evenly time is shared, measured in weights: 1 when each has what its weight says.
    pub jain: f64,
    /// Each one's throughput, of its weight's part of what it is alone.
    pub throughput: [f64; 2],
}

/// What all engines have in common.
pub struct Arena {
    loader: Arc<Loader>,
    image: Vec<u8>,
    /// How long each measurement takes; half as long goes before it and is not counted.
    time: Duration,
}

impl Arena {
    /// The handler is in `images` and run by `kind`; each measurement takes `time`.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind, time: Duration) -> Result<Self, Failure> {
        Ok(Self { loader: Arc::new(Loader::new(Machine::PSPIN, kind)), image: read(images, "spin")?, time })
    }

    /// Two tenants of these `weights`, with the second one of each [`Greed`].
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
        // Long loops are measured better than short ones.
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

    /// An engine with these tenants, each with port, weight and turns of its handlers' loop.
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
    /// What `tallies` are for tenants of these weights, which have so much when they are `alone`.
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

/// An engine, and what is counted of it.
struct Game {
    engine: Worker,
    /// Of processor time.
    spent: Duration,
    /// Handlers of each tenant when counting began.
    before: Vec<u64>,
}

/// Each runs for so long, in slices.
fn take_turns(games: &mut [&mut Game], time: Duration, clock: &Clock) -> Result<(), Failure> {
    for _ in 0..time.div_duration_f64(SLICE).ceil() as u64 {
        for game in &mut *games {
            game.run(clock)?;
        }
    }
    Ok(())
}

/// A clock that stands still while the thread is off its core: on a machine that has other things to do, handlers would be charged
/// for them. The kernel's clock of that kind is too slow to be read between handlers.
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
    /// A slice.
    fn run(&mut self, clock: &Clock) -> Result<(), Failure> {
        let (before, mut spent) = (processor_time(), Duration::ZERO);
        while spent < SLICE {
            // The processor's time takes a system call: read after each turn it would cost short turns, which tenants that share have,
            // more than long ones.
            let (begun, left) = (Instant::now(), SLICE - spent);
            while begun.elapsed() < left {
                self.engine.poll(|| clock.now())?;
            }
            spent = processor_time() - before;
        }
        self.spent += spent;
        Ok(())
    }

    /// Counts from here on.
    fn begin(&mut self) {
        (self.spent, self.before) = (Duration::ZERO, runs(&self.engine));
    }

    fn tallies(&self) -> Vec<Tally> {
        let packets = runs(&self.engine).into_iter().zip(&self.before).map(|(after, before)| after - before);
        packets.map(|packets| Tally { packets, rate: packets as f64 / self.spent.as_nanos() as f64 }).collect()
    }
}

/// What was counted of a tenant.
#[derive(Clone, Copy)]
struct Tally {
    packets: u64,
    /// Packets per nanosecond of processor time: what else the machine does counts for nothing.
    rate: f64,
}

/// What this thread has had of its processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // It begins at 0 with the thread.
    Duration::try_from(time).unwrap_or_default()
}

/// Handlers of each tenant so far.
fn runs(engine: &Worker) -> Vec<u64> {
    let name = Counter::PayloadRuns.name();
    let of = |counters: Vec<(String, u64)>| counters.into_iter().find(|(other, _)| other == name).map_or(0, |(_, n)| n);
    engine.context_infos().into_iter().map(|info| of(info.counters)).collect()
}

/// A datagram whose handler's loop turns `rounds` times.
pub(super) fn frame(port: u16, flow: u32, rounds: u32) -> Vec<u8> {
    let mut content = [0; SIZE - 42];
    content[..4].copy_from_slice(&rounds.to_le_bytes());
    let [_, _, high, low] = flow.to_be_bytes();
    let (source, destination) = ([10, 1, high, low].into(), [10, 0, 0, 2].into());
    let payload = datagram(source, destination, [port, port], &content);
    let packet = Ipv4 { source, destination, protocol: UDP, id: 0, fragment: 0, options: Vec::new(), payload };
    ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[], &packet.bytes())
}
