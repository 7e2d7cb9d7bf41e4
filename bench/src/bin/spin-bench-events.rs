//! Latency from a HostDirect command to the application, by the way in which it waits, in interleaved rounds. Quote the ratio
//! to the wake-up by a bare eventfd of the same run.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use spin_bench::engine::events::{Waiting, measure};
use spin_bench::report::{Row, write};

/// Measure the latency from a HostDirect command to the application.
#[derive(Debug, Parser)]
struct Args {
    /// Number of rounds, interleaved over all ways to wait.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Samples per round.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Python interpreter that can import libspin. Without it, asyncio is left out.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Folder of the handler images.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
    /// JSON file for the rows.
    #[arg(long, default_value = "bench/results/events.json")]
    json: PathBuf,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-events: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error + Send + Sync>> {
    let python = args.python.clone().unwrap_or_default();
    let ways = Waiting::ALL.into_iter().filter(|(waiting, _)| args.python.is_some() || !waiting.needs_python());
    let mut ways: Vec<_> = ways.map(|way| (way, Vec::new())).collect();
    for _ in 0..args.rounds {
        for ((waiting, name), medians) in &mut ways {
            let mut times =
                measure(*waiting, args.samples, &args.images, &python).map_err(|error| format!("{name}: {error}"))?;
            times.sort_unstable_by(f64::total_cmp);
            medians.push(times[times.len() / 2]);
        }
    }
    let rows: Vec<_> =
        ways.into_iter().map(|((_, name), medians)| Row::of("host-direct", name, "ns", medians)).collect();
    println!("{:<22} {:>10} {:>10} {:>10} {:>7}", "medians of rounds", "median us", "min us", "max us", "ratio");
    for row in &rows {
        let [median, min, max] = [row.median, row.min, row.max].map(|ns| ns / 1000.0);
        let ratio = row.median / rows[0].median;
        println!("{:<22} {median:>10.2} {min:>10.2} {max:>10.2} {ratio:>7.2}", row.variant);
    }
    Ok(write(&args.json, &rows)?)
}
