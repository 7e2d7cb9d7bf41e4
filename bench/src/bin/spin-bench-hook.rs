//! `spin-bench-hook`: handlers in the kernel's XDP hook beside XDP_TX, the kernel's own ICMP, and user space.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;
use spin_bench::hook::bounds::{Bound, bounds};
use spin_bench::hook::round::Bench;
use spin_bench::peers::lab::Lab;
use spin_bench::peers::measure::Effort;
use spin_bench::peers::results::Results;
use spin_bench::peers::table::print;

/// Frames of a measurement of throughput: ten rounds then take less than five minutes.
const FRAMES: u32 = 1 << 21;

/// Measure handlers in the kernel's XDP hook: throughput and round trips of UDP echo beside a plain XDP_TX program and user space, and
/// round trips of ICMP echo beside the kernel. It makes and removes two namespaces with a veth. Needs root and two cores.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// Start no round that would end later, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    time: u64,
    /// Frames of a measurement of throughput
    #[arg(long, value_name = "N", default_value_t = FRAMES)]
    frames: u32,
    /// Round trips of a measurement; with pauses a twentieth
    #[arg(long, value_name = "N", default_value_t = Effort::default().round_trips)]
    round_trips: u32,
    /// Folder of the handlers' images
    #[arg(long, value_name = "DIR", default_value = "target/handlers")]
    images: PathBuf,
    /// File for the results as JSON
    #[arg(long, value_name = "FILE", default_value = "target/bench/hook.json")]
    json: PathBuf,
}

/// The results file.
#[derive(Serialize)]
struct File<'r> {
    #[serde(flatten)]
    results: &'r Results,
    ratios: &'r [Bound],
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-hook: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let mut results = Results::here();
    let lab = Lab::new()?;
    let Args { frames, round_trips, .. } = *args;
    let effort = Effort { frames, round_trips, paused_round_trips: round_trips.div_ceil(20) };
    let bench = Bench { lab: &lab, images: &args.images, effort };
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    for round in 0..args.rounds {
        if begin.elapsed() + longest > Duration::from_secs(args.time) {
            eprintln!("{round} rounds take {} s: no more of them", begin.elapsed().as_secs());
            break;
        }
        eprintln!("round {} of {}", round + 1, args.rounds);
        let start = Instant::now();
        bench.round(&mut results)?;
        longest = longest.max(start.elapsed());
    }
    let machine = &results.machine;
    println!(
        "{}, {} cores, Linux {}, {}, {}",
        machine.processor, machine.cores, machine.kernel, machine.commit, machine.date
    );
    print(&results);
    println!("\nratios, median of the rounds");
    let ratios = bounds(&results);
    ratios.iter().for_each(|ratio| println!("  {ratio}"));
    if let Some(folder) = args.json.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&args.json, serde_json::to_string_pretty(&File { results: &results, ratios: &ratios })?)?;
    println!("\nall rounds: {}", args.json.display());
    Ok(())
}
