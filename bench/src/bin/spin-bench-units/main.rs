//! Measures units: the cost of one of eight beside one of one, and the throughput of two threads beside that of one and of a model. Runs
//! several for a count of the cache lines that two of them write (`bench/unit-lines.sh`).

mod scaling;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use spin_abi::control::{Engine, Install, Schedule, UnitCount};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_bench::peers::results::median;
use spin_engine::context::loader::Loader;
use spin_engine::cores::hand_over::HandOver;
use spin_engine::cores::units::UnitPart;
use spin_engine::ingress::rx_batch::RoutingTable;
use spin_engine::install::{Home, Prepared, WorkerRange};
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::{SyntheticSource, Wakeup};

use scaling::{Costs, Rates};

type Failure = Box<dyn Error + Send + Sync>;

const SIZES: Sizes = Sizes { queues: 1024, hers: 1024, dma_chunk: 1024 };
/// Units of which the measured one is the first.
const UNITS: usize = 8;
/// Duration of a measurement.
const SPAN: Duration = Duration::from_millis(60);
/// Clusters of a unit.
const CLUSTERS: u32 = 4;
/// Polls before a measurement.
const WARM_UP: usize = 200;
/// Frames of a thread, and so few that they are in the second-level cache.
const FRAMES: usize = 512;
const FEW_FRAMES: usize = 128;
/// Rounds of turns of each case in a pass over all.
const ROUNDS: u32 = 8;
/// Handlers and sizes of their frames.
const CASES: [(&str, usize); 5] =
    [("empty", 64), ("udp_pingpong", 64), ("udp_pingpong", 1514), ("empty_three", 64), ("histogram", 1024)];

/// Cases of scaling: whether each unit has handler memory of its own, and the lines that a packet writes and other units do, too.
const SCALED: [((&str, usize), bool, f64); 7] = [
    (("empty", 64), true, 0.0),
    (("udp_pingpong", 64), true, 0.0),
    (("udp_pingpong", 1514), true, 0.0),
    (("empty_three", 64), true, 0.0),
    (("histogram", 1024), true, 0.0),
    (("units", 128), true, 0.0),
    // Its counters are in one line.
    (("units", 128), false, 1.0),
];

#[derive(Debug, Parser)]
struct Args {
    /// Folder of the handlers' images.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Time per packet in one of eight units, beside that in the only unit.
    Cost {
        #[arg(long, default_value_t = 15)]
        rounds: usize,
    },
    /// Packets per second of two threads of two units beside one, and what a model says of these and of more threads.
    Threads {
        #[arg(long, default_value_t = 11)]
        passes: usize,
    },
    /// Polls units in turn, each on its thread, with a mark for a trace of memory accesses before each poll.
    Lines { units: usize, polls: usize },
}

/// The worker of a unit, with an endless supply of packets.
struct Unit(Worker);

impl Unit {
    /// Polls once. Returns how many packets were run.
    fn poll(&mut self) -> Result<u64, Failure> {
        Ok(self.0.poll(|| Duration::ZERO)? as u64)
    }

    /// Polls some times. Returns how many packets were run.
    fn poll_times(&mut self, times: usize) -> Result<u64, Failure> {
        (0..times).try_fold(0, |sum, _| Ok(sum + self.poll()?))
    }

    fn runs(&self) -> u64 {
        self.0.statistics().counts.get(Counter::Released)
    }

    /// Nanoseconds per packet.
    fn measure(&mut self) -> Result<f64, Failure> {
        let (before, begun) = (self.runs(), Instant::now());
        while begun.elapsed() < SPAN {
            self.poll_times(100)?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / (self.runs() - before) as f64)
    }
}

/// What a worker is made of, on its own thread.
struct Made {
    loader: Arc<Loader>,
    frames: Arc<[Vec<u8>]>,
    size: usize,
    /// Number of frame buffers.
    count: usize,
    part: UnitPart,
    context: Prepared,
    hand_over: Option<HandOver>,
}

/// The workers of `units` units, each of which runs the context. With several, they might hand packets to each other.
fn made(
    args: &Args,
    (handler, size): (&str, usize),
    units: usize,
    clusters: u32,
    (count, per_unit): (usize, bool),
) -> Result<Vec<Made>, Failure> {
    let image = std::fs::read(args.images.join(handler).with_extension("elf"))?;
    let loader = Arc::new(
        Loader::new(Machine { clusters, ..Machine::PSPIN }, Engine::Jit).with_units(units as u32, SIZES.queues),
    );
    let install = Install {
        rules: vec!["udp dport 9-24".into()],
        units: Some(UnitCount::ALL),
        handler_mem_per_unit: per_unit,
        host_mem: 4096,
        scratchpad: 32 << 10,
        ..Install::default()
    };
    let prepared = Prepared::new(install, &image, 0, &loader, &Limits::default())?;
    let parts: Vec<UnitPart> =
        (0..units as u16).map(|unit| UnitPart { worker: unit, unit: unit.into(), clusters: 0..clusters }).collect();
    let wakeups: Vec<_> = (0..units).map(|_| Wakeup::new().map_err(|_| "no eventfd")).collect::<Result<_, _>>()?;
    let mut hand_over = if units > 1 { HandOver::of(&wakeups) } else { Vec::new() }.into_iter();
    let frames: Arc<[_]> = (0..256).map(|flow| frame(9 + flow % 16, 9 + flow / 16, size)).collect();
    let contexts = prepared.spread(&parts)?;
    let all = parts.into_iter().zip(contexts).map(|(part, context)| {
        let (loader, frames, hand_over) = (loader.clone(), frames.clone(), hand_over.next());
        Made { loader, frames, size, count, part, context, hand_over }
    });
    Ok(all.collect())
}

impl Made {
    /// Starts a worker, and lets it poll some times.
    fn start(self, polls: usize) -> Result<Unit, Failure> {
        let Self { loader, frames, size, count, part, context, hand_over } = self;
        let nic = Box::new(SyntheticSource::new(&frames, size, count)?);
        let worker = Worker::new(loader, nic, SIZES, Schedule::default(), part.clusters.clone())?;
        let mut worker = worker.in_unit(part.worker, part.unit);
        if let Some(hand_over) = hand_over {
            worker = worker.with_hand_over(hand_over);
        }
        worker.install(context, &Limits::default())?;
        // Other workers may hand over packets of the context, and it looks for them.
        let home = Home { workers: WorkerRange { first: part.worker, count: 1 }, by_key: false };
        let routes = worker.routes();
        worker.set_distribution(RoutingTable { homes: vec![home; 64].into(), ..routes });
        let mut unit = Unit(worker);
        unit.poll_times(polls)?;
        Ok(unit)
    }
}

fn units(args: &Args, case: (&str, usize), units: usize) -> Result<Vec<Unit>, Failure> {
    made(args, case, units, CLUSTERS, (FRAMES, false))?.into_iter().map(|made| made.start(WARM_UP)).collect()
}

/// A UDP frame. Its ports match the rule also after a handler has swapped them.
fn frame(from: u16, to: u16, size: usize) -> Vec<u8> {
    let mut frame = vec![7; size];
    frame[..42].fill(0);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&(size as u16 - 14).to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&from.to_be_bytes());
    frame[36..38].copy_from_slice(&to.to_be_bytes());
    frame[38..40].copy_from_slice(&(size as u16 - 34).to_be_bytes());
    frame
}

/// Lowest and highest of several values.
fn spread(values: &[f64]) -> [f64; 2] {
    [f64::min, f64::max].map(|take| values.iter().copied().reduce(take).unwrap_or(f64::NAN))
}

fn cost(args: &Args, rounds: usize) -> Result<(), Failure> {
    println!("{:<20} {:>10} {:>10} {:>8} {:>16}", "case", "one of one", "of eight", "ratio", "spread");
    let mut product = 1.0;
    for case in CASES {
        let (mut alone, mut of_eight) = (units(args, case, 1)?, units(args, case, UNITS)?);
        let mut times = [Vec::new(), Vec::new()];
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let pair = [alone[0].measure()?, of_eight[0].measure()?];
            times.iter_mut().zip(pair).for_each(|(times, time)| times.push(time));
            ratios.push(pair[1] / pair[0]);
        }
        let ([least, most], ratio) = (spread(&ratios), median(&ratios));
        product *= ratio;
        let [one, eight] = times.map(|times| median(&times));
        println!(
            "{:<20} {one:>7.1} ns {eight:>7.1} ns {ratio:>8.3} {least:>7.3} {most:>8.3}",
            format!("{}/{}", case.0, case.1)
        );
    }
    println!("geometric mean {:.3}", product.powf(1.0 / CASES.len() as f64));
    Ok(())
}

/// Rates of two units, each on a thread of its own, with so many frames each.
fn rates(args: &Args, case: (&str, usize), frames: usize, per_unit: bool, rounds: u32) -> Result<Rates, Failure> {
    let made = made(args, case, 2, CLUSTERS, (frames, per_unit))?;
    let made: Vec<_> = made.into_iter().map(|made| Mutex::new(Some(made))).collect();
    scaling::measure(rounds, |number| {
        let made = made[number].lock().map_err(|_| "a thread panicked")?.take();
        made.ok_or("a thread has one unit")?.start(WARM_UP)
    })
}

fn threads(args: &Args, passes: usize) -> Result<(), Failure> {
    let (mut machines, mut measured) = (Vec::new(), SCALED.map(|_| Vec::new()));
    for _ in 0..passes {
        machines.push(scaling::Machine::measure(ROUNDS)?);
        for (&(case, per_unit, _), all) in SCALED.iter().zip(&mut measured) {
            let of = |frames| rates(args, case, frames, per_unit, ROUNDS);
            all.push((of(FRAMES)?, of(FEW_FRAMES)?));
        }
    }
    let machine = scaling::Machine::median(&machines);
    println!(
        "slowdown by a second thread: instructions {:.3}, memory {:.3}; a line that both write: {:.1} ns\n",
        machine.instructions,
        machine.memory,
        machine.shared_line * 1e9
    );
    println!(
        "{:<20} {:>9} {:>9} {:>6} {:>7} {:>16} {:>7} {:>7} {:>20}",
        "case", "one", "memory", "lines", "two", "spread", "model", "error", "model: four, eight"
    );
    for ((case, per_unit, shared_lines), all) in SCALED.into_iter().zip(measured) {
        let time =
            |of: fn(&(Rates, Rates)) -> Rates| median(&all.iter().map(|pass| 1.0 / of(pass).alone).collect::<Vec<_>>());
        let (many, few) = (time(|pass| pass.0), time(|pass| pass.1));
        let costs = Costs { instructions: few.min(many), memory: (many - few).max(0.0), shared_lines };
        let [two, four, eight] = [2, 4, 8].map(|threads| costs.predict(machine, threads));
        let ratios: Vec<f64> = all.iter().map(|(many, _)| many.ratio()).collect();
        let ([least, most], ratio) = (spread(&ratios), median(&ratios));
        let name = format!("{}/{}{}", case.0, case.1, if per_unit { "" } else { ", shared" });
        println!(
            "{name:<20} {:>6.1} ns {:>6.1} ns {shared_lines:>6} {ratio:>7.3} {:>16} {two:>7.3} {:>6.1}% {four:>10.2} {eight:>9.2}",
            many * 1e9,
            costs.memory * 1e9,
            format!("{least:.3} to {most:.3}"),
            (ratio / two - 1.0) * 100.0
        );
    }
    Ok(())
}

/// Polls units in turn, each on a thread of its own. Marks the polls for a trace of memory accesses.
fn lines(args: &Args, count: usize, polls: usize) -> Result<(), Failure> {
    let marks: Vec<Mark> = (0..=count).map(|_| Mark::default()).collect();
    for mark in &marks {
        eprintln!("mark {:#x}", std::ptr::from_ref(&mark.0).addr());
    }
    let (turn, marks) = (&AtomicUsize::new(0), &marks);
    let poll = |number: usize, made: Made| -> Result<u64, Failure> {
        // A trace of more takes long.
        let mut unit = made.start(WARM_UP / 40)?;
        for round in 0..polls {
            while turn.load(Acquire) != round * count + number {
                thread::sleep(Duration::from_millis(1));
            }
            marks[number].0.store(1, Relaxed);
            unit.poll()?;
            marks[count].0.store(1, Relaxed);
            turn.store(round * count + number + 1, Release);
        }
        Ok(unit.runs())
    };
    let packets = thread::scope(|scope| {
        let poll = &poll;
        let start = |(number, made)| scope.spawn(move || poll(number, made));
        // valgrind has less room for address spaces of guests.
        let threads: Vec<_> =
            made(args, ("udp_pingpong", 64), count, 1, (FRAMES, false))?.into_iter().enumerate().map(start).collect();
        let mut sum = 0;
        for thread in threads {
            sum += thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok::<u64, Failure>(sum)
    })?;
    eprintln!("packets {packets}");
    Ok(())
}

/// A line of its own, whose address a trace shows.
#[derive(Default)]
#[repr(align(64))]
struct Mark(AtomicU64);

fn run() -> Result<(), Failure> {
    let args = Args::parse();
    match args.what {
        What::Cost { rounds } => cost(&args, rounds),
        What::Threads { passes } => threads(&args, passes),
        What::Lines { units, polls } => lines(&args, units, polls),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-units: {error}");
            ExitCode::FAILURE
        }
    }
}
