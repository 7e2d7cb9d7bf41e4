//! Installing and removing contexts while two threads are under load: the rate, the effect on other contexts' packets,
//! and the memory that remains. Several applications do so at the same time. A thread carries out their requests as
//! spind's control thread does, without the socket in between.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
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
use spin_engine::context::loader::Loader;
use spin_engine::cores::units::{PlannedWorker, plan};
use spin_engine::cores::{
    ChangeResult, ClusterThread, PollThread, Receiving, SharedConfig, Transaction, WorkerGroup, WorkerLinks,
};
use spin_engine::install::{InstallError, Prepared, User};
use spin_engine::settings::{Idle, Limits, Sizes};
use spin_nic::SyntheticSource;
use spin_nic::steering::AcceptAll;
use spin_pspin::counts::Counts;

const CLUSTERS: u32 = 2;
const MACHINE: Machine = Machine { clusters: CLUSTERS, ..Machine::PSPIN };
/// `lui t0, 0xabcde` of `new_code.c`.
const MARK: [u8; 4] = 0xabcd_e2b7_u32.to_le_bytes();
/// Installs per application that are not counted.
const WARM_UP: u32 = 5;
/// Maximum number of requests carried out together, as in spind.
const TOGETHER: usize = 64;

type Failure = Box<dyn Error + Send + Sync>;

/// Measure installing and removing contexts under load.
#[derive(Debug, Parser)]
struct Args {
    /// Duration in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Target rate of installs and removals of a known image, per second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    known: u32,
    /// Target rate of installs and removals of new images, per second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    new: u32,
    /// Number of applications that install and remove at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    applications: u32,
    /// Folder of the handler images.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
    /// JSON file for the row.
    #[arg(long, default_value = "bench/results/installs.json")]
    json: PathBuf,
}

/// Result of a run.
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
    live.group.install(prepare(&live.common.loader, &known, &Case::rule(), Case::eom(&CASES[0]))?)?;
    live.common.go.store(true, Relaxed);
    let start = Instant::now();
    let wanted = Wanted::new(args, known, new);
    // Warm-up: first-time costs such as the allocator's arenas and the largest images.
    live.serve(args.applications, |control| {
        (0..WARM_UP).try_for_each(|_| {
            wanted.cycle(control, &wanted.known)?;
            wanted.cycle(control, &wanted.changed(0)?)
        })
    })?;
    let (mappings_before, rss_kib_before) = held()?;
    let setup = start.elapsed();
    live.serve(args.applications, |control| wanted.apply(control, start + setup))?;
    let seconds = (start.elapsed() - setup).as_secs_f64();
    let (mappings_after, rss_kib_after) = held()?;
    let counts = live.stop()?;
    let packets = counts.get(Counter::RxPackets);
    let per_second = |done: &AtomicU32| f64::from(done.load(Relaxed)) / seconds;
    let row = Row {
        seconds,
        known_per_second: per_second(&wanted.known_done),
        new_per_second: per_second(&wanted.new_done),
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

/// Returns the number of mappings and the resident KiB of this process.
fn held() -> Result<(usize, usize), Failure> {
    let maps = std::fs::read_to_string("/proc/self/maps")?.lines().count();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    Ok((maps, rss.ok_or("the kernel does not tell VmRSS")?))
}

/// Makes a context for packets that match `rule`.
fn prepare(loader: &Loader, file: &[u8], rule: &str, eom: &str) -> Result<Prepared, InstallError> {
    let install = Install { rules: vec![rule.into()], eom: Some(eom.into()), ..Install::default() };
    Prepared::new(install, file, 0, loader, &Limits::default())
}

/// A request of an application, with the channel for the reply.
enum Request {
    Install(Box<Prepared>, SyncSender<Result<u32, InstallError>>),
    Remove(u32, SyncSender<Result<(), InstallError>>),
}

/// An application's connection to the control thread.
struct Control<'l> {
    requests: Sender<Request>,
    loader: &'l Loader,
}

impl Control<'_> {
    fn ask<R>(&self, request: impl FnOnce(SyncSender<R>) -> Request) -> Result<R, Failure> {
        let (reply, answer) = sync_channel(1);
        self.requests.send(request(reply)).map_err(|_| "the control thread ended")?;
        Ok(answer.recv()?)
    }
}

/// Work of the applications.
struct Wanted {
    known: Vec<u8>,
    new: Vec<u8>,
    length: Duration,
    /// Target rate per second.
    known_rate: u32,
    new_rate: u32,
    /// Number done in total.
    known_done: AtomicU32,
    new_done: AtomicU32,
}

impl Wanted {
    fn new(args: &Args, known: Vec<u8>, new: Vec<u8>) -> Self {
        let length = Duration::from_secs(args.seconds.into());
        let (known_rate, new_rate) = (args.known, args.new);
        Self { known, new, length, known_rate, new_rate, known_done: AtomicU32::new(0), new_done: AtomicU32::new(0) }
    }

    /// Installs and removes at the target rates until the end.
    fn apply(&self, control: &Control<'_>, start: Instant) -> Result<(), Failure> {
        while start.elapsed() < self.length {
            // Claims the next operation if it is due, before it is done.
            let due = |done: &AtomicU32, rate: u32| {
                let most = start.elapsed().as_secs_f64() * f64::from(rate);
                done.fetch_update(Relaxed, Relaxed, |done| (most >= done.into()).then_some(done + 1)).ok()
            };
            if let Some(number) = due(&self.new_done, self.new_rate) {
                self.cycle(control, &self.changed(number + 1)?)?;
            } else if due(&self.known_done, self.known_rate).is_some() {
                self.cycle(control, &self.known)?;
            } else {
                thread::sleep(Duration::from_micros(500));
            }
        }
        Ok(())
    }

    /// Installs a context that gets no packets, and removes it.
    fn cycle(&self, control: &Control<'_>, file: &[u8]) -> Result<(), Failure> {
        let prepared = Box::new(prepare(control.loader, file, "udp dport 1", "always")?);
        let id = control.ask(|reply| Request::Install(prepared, reply))??;
        Ok(control.ask(|reply| Request::Remove(id, reply))??)
    }

    /// Returns the image of `new_code.c` with variant `number`, of 2^20 variants.
    fn changed(&self, number: u32) -> Result<Vec<u8>, Failure> {
        let mut file = self.new.clone();
        let at = file.windows(4).position(|word| word == MARK).ok_or("new_code.elf is not what it was")?;
        file[at..at + 4].copy_from_slice(&(number << 12 | 0x2b7).to_le_bytes());
        Ok(file)
    }
}

/// Two threads with an endless supply of packets.
struct Live {
    group: WorkerGroup,
    common: SharedConfig,
}

impl Live {
    fn start() -> Result<Self, Failure> {
        let common = SharedConfig {
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
        let worker = |planned: PlannedWorker| {
            let nic = SyntheticSource::new(&frames, CASES[0].size, 0)?;
            let worker = PollThread::start_engine(
                common.clone(),
                WorkerLinks::from_nic(Box::new(nic))?,
                planned.part.clone(),
                None,
            )?;
            Ok(ClusterThread { planned, worker })
        };
        let cores: Vec<usize> = (0..CLUSTERS as usize).collect();
        let planned = plan(&cores, |_| 0, CLUSTERS, None)?;
        let workers = planned.into_iter().map(worker).collect::<Result<_, Failure>>()?;
        Ok(Self { group: WorkerGroup::new(workers, Receiving::Each, Arc::new(AcceptAll), Limits::default()), common })
    }

    /// Carries out the requests of several applications; requests that wait at the same time are carried out together.
    fn serve(
        &self,
        applications: u32,
        life: impl Fn(&Control<'_>) -> Result<(), Failure> + Sync,
    ) -> Result<(), Failure> {
        let (requests, asked) = channel();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..applications)
                .map(|_| {
                    let control = Control { requests: requests.clone(), loader: &self.common.loader };
                    let life = &life;
                    scope.spawn(move || life(&control))
                })
                .collect();
            drop(requests);
            self.carry_out(&asked);
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
        })
    }

    /// Carries out requests until no sender is left.
    fn carry_out(&self, asked: &Receiver<Request>) {
        while let Ok(first) = asked.recv() {
            let (mut installs, mut installers, mut removals, mut removers) = (vec![], vec![], vec![], vec![]);
            for request in std::iter::once(first).chain(asked.try_iter().take(TOGETHER - 1)) {
                match request {
                    Request::Install(prepared, reply) => {
                        installs.push(*prepared);
                        installers.push(reply);
                    }
                    Request::Remove(id, reply) => {
                        removals.push((id, User(0)));
                        removers.push(reply);
                    }
                }
            }
            let ChangeResult { installed, removed, .. } =
                self.group.change(Transaction { installs, removals, ..Transaction::default() });
            // The installers wait for these replies.
            installers.into_iter().zip(installed).for_each(|(reply, installed)| drop(reply.send(installed)));
            removers.into_iter().zip(removed).for_each(|(reply, removed)| drop(reply.send(removed)));
        }
    }

    fn stop(self) -> Result<Counts, Failure> {
        self.common.stop.store(true, Relaxed);
        let mut sum = Counts::default();
        for thread in self.group.workers {
            sum.merge(&thread.worker.join()?.counts);
        }
        Ok(sum)
    }
}
