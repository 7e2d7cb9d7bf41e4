//! What the engine costs in memory: nanoseconds per packet (receive, match, order, run, feed back, free), latency of a packet
//! that is alone, cost of each stage, and what tenants get of a thread that they share. Medians of interleaved rounds;
//! quote ratios, machines differ and are noisy.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use spin_abi::control::Engine as Kind;
use spin_bench::engine::lab::Failure;
use spin_bench::engine::measured::{Breakdown, Crowds, Latency, Measured, Overflow, Pauses, Tenants, Throughput};
use spin_bench::report::write;

/// Packets after a pause, in a round.
const PAUSES: u64 = 50;
/// Packets whose handlers take long, in a round.
const LONG: u64 = 2000;

/// Measure the engine on packets in memory.
#[derive(Debug, Parser)]
struct Args {
    /// Only this.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Only nanoseconds per packet of cases whose NAME/SIZE contains this.
    #[arg(long)]
    filter: Option<String>,
    /// What runs the handlers.
    #[arg(long, default_value_t, value_name = "interp|jit|check")]
    engine: Kind,
    /// Rounds, interleaved over all that is measured.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Packets in a round.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    packets: u64,
    /// Packets in a round of those that are alone.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    lone_packets: u64,
    /// Milliseconds that tenants share a thread for in a round.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    share_ms: u64,
    /// Folder of the handlers' images.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
    /// Where to write the rows as JSON, if all of them are measured.
    #[arg(long, default_value = "bench/results/engine.json")]
    json: PathBuf,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Nanoseconds per packet.
    Throughput,
    /// Latency of a packet that is alone.
    Latency,
    /// Latency of a packet that comes after a pause.
    Idle,
    /// What each stage costs.
    Stages,
    /// Nanoseconds per packet of several contexts.
    Contexts,
    /// What tenants get of a thread.
    Shares,
    /// One thread's packets on two threads.
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
    if args.only.is_none() && args.filter.is_none() {
        write(&args.json, &rows)?;
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
    if wanted(Part::Shares) {
        all.push(Box::new(Tenants::new(images, *engine, Duration::from_millis(args.share_ms))?));
    }
    if wanted(Part::Overflow) {
        all.push(Box::new(Overflow::new(images, *engine, LONG)?));
    }
    Ok(all)
}
