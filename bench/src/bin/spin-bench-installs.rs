//! Contexts installed and removed while two threads are under load: at which rate, what that costs other contexts' packets, and
//! what of memory stays behind.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::event::{EventfdFlags, eventfd};
use serde::Serialize;
use spin_abi::control::{Engine as Kind, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_bench::engine::case::{CASES, Case};
use spin_bench::report::write;
use spin_engine::config::{Idle, Limits, Sizes};
use spin_engine::counts::Counts;
use spin_engine::install::{Prepared, User};
use spin_engine::loader::Loader;
use spin_engine::pipeline::Engine;
use spin_engine::threads::{Common, Feed, Worker};
use spin_nic::Rotation;

const CLUSTERS: u32 = 2;
const MACHINE: Machine = Machine { clusters: CLUSTERS, ..Machine::PSPIN };
/// `lui t0, 0xabcde` of `new_code.c`.
const MARK: [u8; 4] = 0xabcd_e2b7_u32.to_le_bytes();

type Failure = Box<dyn Error + Send + Sync>;

/// Measure installing and removing contexts under load.
#[derive(Debug, Parser)]
struct Args {
    /// How long, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Installs and removals of a known image to aim at, a second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    known: u32,
    /// Installs and removals of new images to aim at, a second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    new: u32,
    /// Folder of the handlers' images.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
    /// Where to write the row as JSON.
    #[arg(long, default_value = "bench/results/installs.json")]
    json: PathBuf,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Row {
    seconds: f64,
    known_per_second: f64,
    new_per_second: f64,
    packets: u64,
    lost: u64,
    mappings_before: usize,
    mappings_after: usize,
    rss_kib_before: usize,
    rss_kib_after: usize,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-installs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let (known, new) = (read(&args.images, "empty")?, read(&args.images, "new_code")?);
    let live = Live::start()?;
    live.install(&known, &Case::rule(), Case::eom(&CASES[0]))?;
    live.common.go.store(true, Relaxed);
    // What comes with a first time, whatever it is.
    live.cycle(&known)?;
    live.cycle(&changed(&new, 0)?)?;
    let (mappings_before, rss_kib_before) = held()?;
    let (start, length) = (Instant::now(), Duration::from_secs(args.seconds.into()));
    let (mut known_done, mut new_done) = (0_u32, 0_u32);
    while start.elapsed() < length {
        let due = |rate: u32| start.elapsed().as_secs_f64() * f64::from(rate);
        let (more_known, more_new) = (due(args.known) >= known_done.into(), due(args.new) >= new_done.into());
        if more_new {
            new_done += 1;
            live.cycle(&changed(&new, new_done)?)?;
        }
        if more_known {
            known_done += 1;
            live.cycle(&known)?;
        }
        if !more_known && !more_new {
            thread::sleep(Duration::from_micros(100));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let (mappings_after, rss_kib_after) = held()?;
    let counts = live.stop()?;
    let packets = counts.get(Counter::RxPackets);
    let row = Row {
        seconds,
        known_per_second: f64::from(known_done) / seconds,
        new_per_second: f64::from(new_done) / seconds,
        packets,
        lost: packets - counts.get(Counter::Released).min(counts.get(Counter::PayloadRuns)),
        mappings_before,
        mappings_after,
        rss_kib_before,
        rss_kib_after,
    };
    print(&row);
    write(&args.json, std::slice::from_ref(&row))?;
    if row.lost > 0 { Err(format!("{} packets of other contexts were lost", row.lost).into()) } else { Ok(()) }
}

fn print(row: &Row) {
    println!("installed and removed a second: {:.0} known, {:.1} new images", row.known_per_second, row.new_per_second);
    println!("packets of others: {}, lost: {}", row.packets, row.lost);
    println!("mappings: {} before, {} after", row.mappings_before, row.mappings_after);
    println!("resident: {} KiB before, {} KiB after", row.rss_kib_before, row.rss_kib_after);
}

fn read(images: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let path = images.join(name).with_extension("elf");
    Ok(std::fs::read(&path).map_err(|error| format!("{}: {error}; `make bench-installs` builds it", path.display()))?)
}

/// The image of `new_code.c` as number `number`, of which there are 2^20.
fn changed(image: &[u8], number: u32) -> Result<Vec<u8>, Failure> {
    let mut file = image.to_vec();
    let at = file.windows(4).position(|word| word == MARK).ok_or("new_code.elf is not what it was")?;
    file[at..at + 4].copy_from_slice(&(number << 12 | 0x2b7).to_le_bytes());
    Ok(file)
}

/// Mappings and resident KiB of this process.
fn held() -> Result<(usize, usize), Failure> {
    let maps = std::fs::read_to_string("/proc/self/maps")?.lines().count();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    Ok((maps, rss.ok_or("the kernel does not tell VmRSS")?))
}

/// Two threads with packets that never end.
struct Live {
    workers: Vec<Worker<Engine>>,
    common: Common,
}

impl Live {
    fn start() -> Result<Self, Failure> {
        let common = Common {
            loader: Arc::new(Loader::new(MACHINE, Kind::Jit)),
            sizes: Sizes { queues: 1 << 14, ..Sizes::default() },
            schedule: Schedule::default(),
            idle: Idle::Spin,
            go: Arc::default(),
            stop: Arc::new(AtomicBool::new(false)),
            start: Instant::now(),
            ended: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        };
        let frames: Vec<_> = CASES[0].frames().collect();
        let worker = |cluster: u32| {
            let nic = Rotation::new(&frames, CASES[0].size, 0)?;
            Ok(Worker::start_engine(common.clone(), Feed::of_nic(Box::new(nic))?, cluster..cluster + 1, None)?)
        };
        let workers = (0..CLUSTERS).map(worker).collect::<Result<_, Failure>>()?;
        Ok(Self { workers, common })
    }

    /// Links a context in on each thread, as spind does.
    fn install(&self, file: &[u8], rule: &str, eom: &str) -> Result<u32, Failure> {
        let limits = Limits::default();
        let install = Install { rules: vec![rule.into()], eom: Some(eom.into()), ..Install::default() };
        let mut rest = Some(Prepared::new(install, file, 0, &self.common.loader, &limits)?);
        let mut id = 0;
        for (index, worker) in (0..CLUSTERS).zip(&self.workers) {
            let Some(mut part) = rest.take() else { break };
            let next = index + 1;
            rest = (next < CLUSTERS).then(|| part.split_off(next));
            id = worker.ask(move |engine| engine.install(part, &limits)).ok_or("a thread ended")??;
        }
        Ok(id)
    }

    /// Installs a context that nothing arrives for, and removes it.
    fn cycle(&self, file: &[u8]) -> Result<(), Failure> {
        let id = self.install(file, "udp dport 1", "always")?;
        for worker in &self.workers {
            worker.ask(move |engine| engine.remove(id, User(0))).ok_or("a thread ended")??;
        }
        Ok(())
    }

    fn stop(self) -> Result<Counts, Failure> {
        self.common.stop.store(true, Relaxed);
        let mut sum = Counts::default();
        for worker in self.workers {
            sum.merge(&worker.join()?.counts);
        }
        Ok(sum)
    }
}
