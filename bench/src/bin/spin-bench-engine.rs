//! In-memory cost of the engine: nanoseconds per packet (receive, match, order, run, complete, free), latency of a
//! single packet, cost of each stage, and the shares of contexts on one thread. Figures are medians of interleaved
//! rounds. Quote ratios: machines differ and are noisy.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use spin_abi::control::Engine as Kind;
use spin_bench::engine::lab::Failure;
use spin_bench::engine::measured::{Breakdown, Crowds, Latency, Measured, Overflow, Pauses, Tenants, Throughput};
use spin_bench::engine::xdp_rules::XdpRules;
use spin_bench::report::write;

/// Packets per round that follow a pause.
const PAUSES: u64 = 50;
/// Packets per round with long handlers.
const LONG: u64 = 2000;

/// Measure the engine on packets in memory.
#[derive(Debug, Parser)]
struct Args {
    /// Measurement to run [default: all].
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Run only throughput cases whose NAME/SIZE contains this text.
    #[arg(long)]
    filter: Option<String>,
    /// Engine that runs the handlers.
    #[arg(long, default_value_t, value_name = "interp|jit|check")]
    engine: Kind,
    /// Number of rounds, interleaved over all measurements.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Packets per round.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    packets: u64,
    /// Packets per round of the latency measurement.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    lone_packets: u64,
    /// Milliseconds per round for which contexts share a thread.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    share_ms: u64,
    /// Folder of the handler images.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
    /// JSON file for the rows [default: bench/results/engine.json if everything is measured, otherwise none].
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Nanoseconds per packet.
    Throughput,
    /// Latency of a single packet.
    Latency,
    /// Latency of a packet after a pause.
    Idle,
    /// Cost of each stage.
    Stages,
    /// Nanoseconds per packet with several contexts.
    Contexts,
    /// Nanoseconds per decision of the XDP program. Needs root, and is left out otherwise.
    XdpRules,
    /// Shares of contexts on one thread.
    Shares,
    /// One thread's packets processed on two threads.
    Overflow,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-engine: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let mut all = chosen(args)?;
    for _ in 0..args.rounds {
        all.iter_mut().try_for_each(|measured| measured.round())?;
    }
    let mut rows = Vec::new();
    for measured in all {
        let (table, figures) = measured.sum_up();
        println!("{table}");
        rows.extend(figures);
    }
    let all_measured = args.only.is_none() && args.filter.is_none();
    let default = all_measured.then(|| PathBuf::from("bench/results/engine.json"));
    if let Some(path) = args.json.clone().or(default) {
        write(&path, &rows)?;
    }
    Ok(())
}

fn chosen(args: &Args) -> Result<Vec<Box<dyn Measured>>, Failure> {
    let Args { images, engine, packets, lone_packets, .. } = args;
    let wanted = |part| args.only.map_or(args.filter.is_none() || part == Part::Throughput, |only| only == part);
    let mut all: Vec<Box<dyn Measured>> = Vec::new();
    if wanted(Part::Throughput) {
        all.push(Box::new(Throughput::new(images, *engine, *packets, args.filter.as_deref())?));
    }
    if wanted(Part::Latency) {
        all.push(Box::new(Latency::new(images, *engine, *lone_packets)?));
    }
    if wanted(Part::Idle) {
        all.push(Box::new(Pauses::new(images, *engine, PAUSES)?));
    }
    if wanted(Part::Stages) {
        all.push(Box::new(Breakdown::new(images, *engine, *packets)?));
    }
    if wanted(Part::Contexts) {
        all.push(Box::new(Crowds::new(images, *engine, *packets)?));
    }
    if wanted(Part::XdpRules) && (args.only.is_some() || rustix::process::geteuid().is_root()) {
        all.push(Box::new(XdpRules::new()?));
    }
    if wanted(Part::Shares) {
        all.push(Box::new(Tenants::new(images, *engine, Duration::from_millis(args.share_ms))?));
    }
    if wanted(Part::Overflow) {
        all.push(Box::new(Overflow::new(images, *engine, LONG)?));
    }
    Ok(all)
}
