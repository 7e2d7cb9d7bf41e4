//! Nanoseconds per packet through the engine in memory, beside a native function doing the handler's work on the same
//! frames in the same run. Medians of interleaved rounds; quote ratios, machines differ and are noisy.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;
use spin_abi::control::{Engine as Kind, Install};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_bench::wire::{Ipv4, UDP, datagram, ethernet};
use spin_engine::config::Limits;
use spin_engine::install::Prepared;
use spin_engine::loader::Loader;
use spin_engine::pipeline::Engine;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Frame, Queue};

/// Frames the engine is given at once: its batch.
const BATCH: usize = 64;
/// Datagram sizes, as UDP payload bytes.
const SIZES: [usize; 3] = [18, 256, 1472];

const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Measure the engine on packets in memory.
#[derive(Debug, Parser)]
struct Args {
    /// Image of udp_pingpong.
    #[arg(long, default_value = "target/handlers/udp_pingpong.elf")]
    image: PathBuf,
    /// What runs the handler.
    #[arg(long, default_value_t, value_name = "interp|jit|check")]
    engine: Kind,
    /// Rounds, interleaved over sizes and variants.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Batches in a round.
    #[arg(long, default_value_t = 400)]
    batches: usize,
    /// Where to write the rows as JSON.
    #[arg(long, default_value = "bench/results/engine.json")]
    json: PathBuf,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    case: String,
    variant: &'static str,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    rounds: usize,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let mut lab = Lab::new(args)?;
    let mut times = vec![(Vec::new(), Vec::new()); SIZES.len()];
    for _ in 0..args.rounds {
        for (size, (engine, native)) in SIZES.iter().zip(&mut times) {
            engine.push(lab.engine_round(*size, args.batches)?);
            native.push(lab.native_round(*size, args.batches));
        }
    }
    lab.verify((args.rounds * args.batches * BATCH * SIZES.len()) as u64)?;
    let mut rows = Vec::new();
    let variant = match args.engine {
        Kind::Interp => "interp",
        Kind::Jit => "jit",
        Kind::Check => "check",
    };
    println!("{:<14} {:>16} {:>16} {:>8}", "case", "engine ns/packet", "native ns/packet", "ratio");
    for (size, (engine, native)) in SIZES.iter().zip(times) {
        let case = format!("pingpong/{}", size + 42);
        let (engine, native) = (row(&case, variant, engine), row(&case, "native-swap", native));
        println!("{case:<14} {:>16.1} {:>16.1} {:>8.1}", engine.median, native.median, engine.median / native.median);
        rows.extend([engine, native]);
    }
    if let Some(folder) = args.json.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&args.json, serde_json::to_vec_pretty(&rows)?)?;
    Ok(())
}

fn row(case: &str, variant: &'static str, mut times: Vec<f64>) -> Row {
    times.sort_by(f64::total_cmp);
    let (min, max) = (times[0], times[times.len() - 1]);
    Row { case: case.into(), variant, unit: "ns/packet", median: times[times.len() / 2], min, max, rounds: times.len() }
}

struct Lab {
    engine: Engine,
    far: MemoryQueue,
    frames: Vec<Frame>,
}

impl Lab {
    fn new(args: &Args) -> Result<Self, Box<dyn std::error::Error>> {
        let (near, far) = pair(4 * BATCH)?;
        let loader = Arc::new(Loader::new(Machine::PSPIN, args.engine));
        let mut engine = Engine::new(loader.clone(), Box::new(near))?;
        let install = Install { rules: vec!["udp dport 9999".into()], ..Install::default() };
        let limits = Limits::default();
        let image = std::fs::read(&args.image)
            .map_err(|error| format!("{}: {error}; `make handlers` builds it", args.image.display()))?;
        engine.install(Prepared::new(install, &image, 0, &loader, &limits)?, &limits)?;
        Ok(Self { engine, far, frames: Vec::with_capacity(BATCH) })
    }

    /// A batch of frames of distinct flows.
    fn fill(&mut self, size: usize) {
        for flow in 0..BATCH {
            let mut frame = self.far.allocate().expect("the pair holds several batches");
            let port = 1024 + u16::try_from(flow).expect("a batch is small");
            frame.fill(&request(port, size)).expect("shorter than a buffer");
            self.frames.push(frame);
        }
    }

    /// Nanoseconds per packet of the engine's turn: receive, match, order, run, send, recycle.
    fn engine_round(&mut self, size: usize, batches: usize) -> Result<f64, Box<dyn std::error::Error>> {
        let mut spent = Duration::ZERO;
        for _ in 0..batches {
            self.fill(size);
            self.far.send(&mut self.frames);
            self.far.flush()?;
            let start = Instant::now();
            let arrived = self.engine.turn(|| Duration::ZERO)?;
            spent += start.elapsed();
            if arrived != BATCH {
                return Err(format!("a turn took {arrived} of {BATCH} frames").into());
            }
            self.far.receive(&mut self.frames, BATCH);
            self.recycle();
        }
        Ok(per_packet(spent, batches))
    }

    /// Nanoseconds per packet of what the handler does, as a native function.
    fn native_round(&mut self, size: usize, batches: usize) -> f64 {
        self.fill(size);
        let mut spent = Duration::ZERO;
        for _ in 0..batches {
            let start = Instant::now();
            for frame in &mut self.frames {
                swap(std::hint::black_box(frame));
            }
            spent += start.elapsed();
        }
        self.recycle();
        per_packet(spent, batches)
    }

    fn recycle(&mut self) {
        for frame in self.frames.drain(..) {
            self.far.recycle(frame);
        }
    }

    /// Every packet was answered, or the figures mean nothing.
    fn verify(&self, packets: u64) -> Result<(), String> {
        let counts = self.engine.statistics().counts;
        let sent = counts.get(Counter::TxPackets);
        if sent == packets { Ok(()) } else { Err(format!("{sent} of {packets} packets were answered")) }
    }
}

/// A datagram of `size` bytes from `port`, to the handler's.
fn request(port: u16, size: usize) -> Vec<u8> {
    let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let payload = datagram(source, destination, [port, 9999], &vec![0x5a; size]);
    let packet = Ipv4 { source, destination, protocol: UDP, id: 0, fragment: 0, options: Vec::new(), payload };
    ethernet(SERVER, CLIENT, &[], &packet.bytes())
}

fn per_packet(spent: Duration, batches: usize) -> f64 {
    spent.as_nanos() as f64 / (batches * BATCH) as f64
}

/// MAC addresses, IPv4 addresses, ports.
fn swap(frame: &mut [u8]) {
    let Some(headers) = frame.first_chunk_mut::<42>() else { return };
    let (to, from) = headers[..12].split_at_mut(6);
    to.swap_with_slice(from);
    let (source, destination) = headers[26..34].split_at_mut(4);
    source.swap_with_slice(destination);
    let (source, destination) = headers[34..38].split_at_mut(2);
    source.swap_with_slice(destination);
}
