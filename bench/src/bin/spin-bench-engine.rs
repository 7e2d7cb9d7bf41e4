//! Nanoseconds per packet through the engine in memory: receive, match, order, run, feed back, free. Medians of
//! interleaved rounds; quote ratios, machines differ and are noisy.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use spin_abi::control::Engine as Kind;
use spin_bench::engine::case::CASES;
use spin_bench::engine::lab::{Failure, Setting};
use spin_bench::report::{Row, write};

/// Numbers of clusters, each on a thread of its own.
const THREADS: [u32; 2] = [1, 2];

/// Measure the engine on packets in memory.
#[derive(Debug, Parser)]
struct Args {
    /// Only cases whose NAME/SIZE contains this.
    #[arg(long)]
    filter: Option<String>,
    /// What runs the handlers.
    #[arg(long, default_value_t, value_name = "interp|jit|check")]
    engine: Kind,
    /// Rounds, interleaved over cases.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Packets in a round.
    #[arg(long, default_value_t = 200_000)]
    packets: u64,
    /// Folder of the handlers' images.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
    /// Where to write the rows as JSON.
    #[arg(long, default_value = "bench/results/engine.json")]
    json: PathBuf,
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
    let chosen = CASES.iter().filter(|case| args.filter.as_ref().is_none_or(|part| case.to_string().contains(part)));
    let mut measured = Vec::new();
    for case in chosen {
        measured.push((case, Setting::new(*case, &args.images, args.engine)?, THREADS.map(|_| Vec::new())));
    }
    for _ in 0..args.rounds {
        for (case, setting, times) in &mut measured {
            for (clusters, times) in THREADS.into_iter().zip(times) {
                let round = setting.round(clusters, args.packets);
                times.push(round.map_err(|error| format!("{case}, clusters {clusters}: {error}"))?);
            }
        }
    }
    println!("{:<18}{:>10}{:>12}{:>12}{:>12}  ns/packet", "case", "clusters", "median", "min", "max");
    let mut rows = Vec::new();
    for (case, _, times) in measured {
        for (clusters, times) in THREADS.into_iter().zip(times) {
            let row = Row::new(case, "run-to-completion", times);
            println!("{:<18}{clusters:>10}{:>12.1}{:>12.1}{:>12.1}", row.case, row.median, row.min, row.max);
            rows.push(OfClusters { row, clusters });
        }
    }
    if args.filter.is_none() {
        write(&args.json, &rows)?;
    }
    Ok(())
}

/// The figures of so many clusters together.
#[derive(Serialize)]
struct OfClusters {
    #[serde(flatten)]
    row: Row,
    clusters: u32,
}
