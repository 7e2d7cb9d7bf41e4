//! What two tenants get of one thread that has more to do than it can: shares of time and of packets, by scheduler.
//!
//! Packets of both arrive in turn, without end. The first tenant's handlers are short; the second one's are as short, ten
//! times as long, or never end but by their watchdog.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use spin_abi::control::{Engine as Kind, Install, Placement, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::config::Limits;
use spin_engine::install::Prepared;
use spin_engine::loader::Loader;
use spin_engine::pipeline::Engine;
use spin_engine::schedule::jain;
use spin_nic::Rotation;

use super::lab::{Failure, SIZES, read};
use crate::wire::{Ipv4, UDP, datagram, ethernet};

/// Bytes of a frame.
const SIZE: usize = 64;
/// Frames in rotation, of each tenant that there is.
const FRAMES: u32 = 2048;
/// Messages of a tenant at a time.
const FLOWS: u32 = 256;
/// Ports of the tenants.
const PORTS: [u16; 2] = [9998, 9999];
/// Microseconds until the watchdog ends what does not end.
const WATCHDOG_US: u64 = 100;
/// Turns of a short handler's loop: some hundred nanoseconds.
const SHORT: u32 = 4000;

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
pub struct Alone {
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

    /// A tenant with nobody else there, of each [`Greed`].
    ///
    /// # Errors
    /// The engine fails, or runs no handler.
    pub fn alone(&self) -> Result<[Alone; Greed::ALL.len()], Failure> {
        let rate = |rounds| {
            let [tally] = self.measure(Schedule::default(), [(PORTS[0], 1, rounds)])?;
            if tally.packets > 0 { Ok::<_, Failure>(tally.rate) } else { Err("a tenant alone ran no handler".into()) }
        };
        let (rest, rates) = (rate(0)?.recip(), Greed::ALL.map(|greed| rate(greed.rounds())));
        let [equal, tenfold, endless] = rates;
        let alone = |rate: f64| Alone { rate, handler: rate.recip() - rest };
        let (tenfold, endless) = (alone(tenfold?), alone(endless?));
        // Long loops are measured better than short ones.
        Ok([Alone { rate: equal?, handler: tenfold.handler / 10.0 }, tenfold, endless])
    }

    /// Two tenants, compared with what each has `alone`.
    ///
    /// # Errors
    /// The engine fails.
    pub fn contest(&self, contest: Contest, alone: [Alone; 2]) -> Result<Shares, Failure> {
        let Contest { schedule, weights, greed } = contest;
        let tenants = [(PORTS[0], weights[0], SHORT), (PORTS[1], weights[1], greed.rounds())];
        let tallies = self.measure(schedule, tenants)?;
        let each = [0, 1];
        let weights = weights.map(f64::from);
        let part = |of: [f64; 2]| of.map(|one| one / (of[0] + of[1]));
        let time = part(each.map(|one| tallies[one].packets as f64 * alone[one].handler));
        let fair = part(weights);
        Ok(Shares {
            time,
            packets: part(tallies.map(|tally| tally.packets as f64)),
            jain: jain(&each.map(|one| time[one] / weights[one])),
            throughput: each.map(|one| tallies[one].rate / (alone[one].rate * fair[one])),
        })
    }

    /// So many tenants, each with port, weight and turns of its handlers' loop, on an engine and a thread of their own.
    fn measure<const N: usize>(
        &self,
        schedule: Schedule,
        tenants: [(u16, u32, u32); N],
    ) -> Result<[Tally; N], Failure> {
        let round = || self.measure_here(schedule, tenants);
        thread::scope(|scope| scope.spawn(round).join()).unwrap_or_else(|_| Err("a thread panicked".into()))
    }

    fn measure_here<const N: usize>(
        &self,
        schedule: Schedule,
        tenants: [(u16, u32, u32); N],
    ) -> Result<[Tally; N], Failure> {
        let frames: Vec<_> =
            (0..FRAMES).flat_map(|flow| tenants.map(|(port, _, rounds)| frame(port, flow % FLOWS, rounds))).collect();
        let nic = Rotation::new(&frames, SIZE, 0)?;
        let mut engine = Engine::new(self.loader.clone(), Box::new(nic), SIZES, schedule, 0..1)?;
        for (port, weight, _) in tenants {
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
        let clock = Instant::now();
        let mut go_on = |until: Duration| {
            loop {
                engine.turn(|| clock.elapsed())?;
                if clock.elapsed() >= until {
                    break;
                }
            }
            Ok::<_, Failure>((clock.elapsed(), processor_time(), runs(&engine)))
        };
        let (now, start, before) = go_on(self.time / 2)?;
        let (_, end, after) = go_on(now + self.time)?;
        let elapsed = (end - start).as_nanos() as f64;
        Ok(std::array::from_fn(|tenant| {
            let packets = after[tenant] - before[tenant];
            Tally { packets, rate: packets as f64 / elapsed }
        }))
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
fn runs(engine: &Engine) -> Vec<u64> {
    let name = Counter::PayloadRuns.name();
    let of = |counters: Vec<(String, u64)>| counters.into_iter().find(|(other, _)| other == name).map_or(0, |(_, n)| n);
    engine.context_infos().into_iter().map(|info| of(info.counters)).collect()
}

/// A datagram whose handler's loop turns `rounds` times.
fn frame(port: u16, flow: u32, rounds: u32) -> Vec<u8> {
    let mut content = [0; SIZE - 42];
    content[..4].copy_from_slice(&rounds.to_le_bytes());
    let [_, _, high, low] = flow.to_be_bytes();
    let (source, destination) = ([10, 1, high, low].into(), [10, 0, 0, 2].into());
    let payload = datagram(source, destination, [port, port], &content);
    let packet = Ipv4 { source, destination, protocol: UDP, id: 0, fragment: 0, options: Vec::new(), payload };
    ethernet([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], &[], &packet.bytes())
}
