//! Measures units: the cost of one of eight beside one of one, and the scaling from one thread to two. Runs several for a count of the cache
//! lines that two of them write (`bench/unit-lines.sh`).

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use spin_abi::control::{Engine, Install, Schedule, UnitCount};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::hand_over::HandOver;
use spin_engine::cores::units::UnitPart;
use spin_engine::ingress::rx_batch::RoutingTable;
use spin_engine::install::{Home, Prepared, WorkerRange};
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::{SyntheticSource, Wakeup};

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
/// Handlers and sizes of their frames.
const CASES: [(&str, usize); 5] =
    [("empty", 64), ("udp_pingpong", 64), ("udp_pingpong", 1514), ("empty_three", 64), ("histogram", 1024)];

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
    /// Packets per second of two threads of two units, beside one.
    Threads {
        #[arg(long, default_value_t = 15)]
        rounds: usize,
    },
    /// Polls units in turn, each on its thread, with a mark for a trace of memory accesses before each poll.
    Lines { units: usize, polls: usize },
}

/// The worker of a unit, with an endless supply of packets.
struct Unit(Worker);

impl Unit {
    fn poll(&mut self) -> Result<(), Failure> {
        self.0.poll(|| Duration::ZERO)?;
        Ok(())
    }

    fn runs(&self) -> u64 {
        self.0.statistics().counts.get(Counter::Released)
    }

    /// Nanoseconds per packet.
    fn measure(&mut self) -> Result<f64, Failure> {
        let (before, begun) = (self.runs(), Instant::now());
        while begun.elapsed() < SPAN {
            (0..100).try_for_each(|_| self.poll())?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / (self.runs() - before) as f64)
    }
}

/// What a worker is made of, on its own thread.
struct Made {
    loader: Arc<Loader>,
    frames: Arc<[Vec<u8>]>,
    size: usize,
    part: UnitPart,
    context: Prepared,
    hand_over: Option<HandOver>,
}

/// The workers of `units` units, each of which runs the context. With several, they might hand packets to each other.
fn made(args: &Args, (handler, size): (&str, usize), units: usize, clusters: u32) -> Result<Vec<Made>, Failure> {
    let image = std::fs::read(args.images.join(handler).with_extension("elf"))?;
    let loader = Arc::new(
        Loader::new(Machine { clusters, ..Machine::PSPIN }, Engine::Jit).with_units(units as u32, SIZES.queues),
    );
    let install = Install {
        rules: vec!["udp dport 9-24".into()],
        units: Some(UnitCount::ALL),
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
        Made { loader, frames, size, part, context, hand_over }
    });
    Ok(all.collect())
}

impl Made {
    /// Starts a worker, and lets it poll some times.
    fn start(self, polls: usize) -> Result<Unit, Failure> {
        let Self { loader, frames, size, part, context, hand_over } = self;
        let nic = Box::new(SyntheticSource::new(&frames, size, 512)?);
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
        (0..polls).try_for_each(|_| unit.poll())?;
        Ok(unit)
    }
}

fn units(args: &Args, case: (&str, usize), units: usize) -> Result<Vec<Unit>, Failure> {
    made(args, case, units, CLUSTERS)?.into_iter().map(|made| made.start(WARM_UP)).collect()
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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
        let (least, most) =
            ratios.iter().fold((f64::MAX, 0.0_f64), |(least, most), &ratio| (least.min(ratio), most.max(ratio)));
        let ratio = median(ratios);
        product *= ratio;
        let [one, eight] = times.map(median);
        println!(
            "{:<20} {one:>7.1} ns {eight:>7.1} ns {ratio:>8.3} {least:>7.3} {most:>8.3}",
            format!("{}/{}", case.0, case.1)
        );
    }
    println!("geometric mean {:.3}", product.powf(1.0 / CASES.len() as f64));
    Ok(())
}

/// Packets per second of units, each on a thread and core of its own.
fn throughput(made: Vec<Made>) -> Result<f64, Failure> {
    let begin = Barrier::new(made.len());
    let measure = |core: usize, made: Made| -> Result<f64, Failure> {
        spin_nic::affinity::pin(core)?;
        let unit = made.start(WARM_UP);
        begin.wait();
        Ok(1e9 / unit?.measure()?)
    };
    thread::scope(|scope| {
        let measure = &measure;
        let start = |(core, made)| scope.spawn(move || measure(core, made));
        let threads: Vec<_> = made.into_iter().enumerate().map(start).collect();
        let mut sum = 0.0;
        for thread in threads {
            sum += thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(sum)
    })
}

fn threads(args: &Args, rounds: usize) -> Result<(), Failure> {
    println!("{:<20} {:>12} {:>12} {:>8}", "case", "one thread", "two threads", "ratio");
    for case in CASES {
        let mut rates = [Vec::new(), Vec::new()];
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let mut alone = made(args, case, 2, CLUSTERS)?;
            alone.truncate(1);
            let pair = [throughput(alone)?, throughput(made(args, case, 2, CLUSTERS)?)?];
            rates.iter_mut().zip(pair).for_each(|(rates, rate)| rates.push(rate));
            ratios.push(pair[1] / pair[0]);
        }
        let [one, two] = rates.map(median);
        let name = format!("{}/{}", case.0, case.1);
        println!("{name:<20} {:>7.2} Mpps {:>7.2} Mpps {:>8.3}", one / 1e6, two / 1e6, median(ratios));
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
        let threads: Vec<_> = made(args, ("udp_pingpong", 64), count, 1)?.into_iter().enumerate().map(start).collect();
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
        What::Threads { rounds } => threads(&args, rounds),
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
