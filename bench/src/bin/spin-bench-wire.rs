//! `spin-bench-wire`: spind beside other programs on one veth, in interleaved rounds.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use spin_bench::peers::generator;
use spin_bench::peers::lab::{Lab, LabError};
use spin_bench::peers::machine::Load;
use spin_bench::peers::measure::{Effort, Measure};
use spin_bench::peers::peer::{ALL, Kind, Peer};
use spin_bench::peers::results::{About, Results};
use spin_bench::peers::table::print;

/// Measure spind with `udp_pingpong` beside other UDP echoes: throughput and round trips between two namespaces, in interleaved
/// rounds. Needs root and two cores: the program runs on the first, the load on the second.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// Programs to run: those whose names contain one of these
    #[arg(long, value_name = "TEXT", value_delimiter = ',', default_value = "")]
    only: Vec<String>,
    /// Image of the handler
    #[arg(long, value_name = "FILE", default_value = "target/handlers/udp_pingpong.elf")]
    image: PathBuf,
    /// Whether to measure the generator of the load by itself, too
    #[arg(long)]
    generator: bool,
    /// File for the results as JSON
    #[arg(long, value_name = "FILE", default_value = "target/bench/wire.json")]
    json: PathBuf,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-wire: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is measured of a program.
fn measures(peer: Peer) -> Vec<Measure> {
    let busy = [Measure::Throughput(64), Measure::Throughput(1500), Measure::BackToBack(64), Measure::BackToBack(1500)];
    let paused = Measure::Paused(64);
    if peer.sleeps() { vec![paused] } else { busy.into_iter().chain([paused]).collect() }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    if !args.image.exists() {
        return Err(format!("{} is missing: make handlers", args.image.display()).into());
    }
    let mut results = Results::here();
    let mut peers = Vec::new();
    for peer in ALL.into_iter().filter(|peer| args.only.iter().any(|text| peer.name().contains(text))) {
        match peer.missing() {
            Some(reason) => results.missing.push((peer.name(), reason.to_owned())),
            None => peers.push(peer),
        }
    }
    let lab = Lab::new()?;
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for &peer in &peers {
            measure(&lab, peer, args, &mut results)?;
        }
    }
    if args.generator {
        eprintln!("spin-pktgen by itself");
        results.series.extend(generator::measure(&lab, tempfile::tempdir()?.path())?);
    }
    print(&results);
    if let Some(folder) = args.json.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&args.json, serde_json::to_string_pretty(&results)?)?;
    println!("\nall rounds: {}", args.json.display());
    Ok(())
}

/// Takes all measures of a program once.
fn measure(lab: &Lab, peer: Peer, args: &Args, results: &mut Results) -> Result<(), LabError> {
    let folder = tempfile::tempdir()?;
    let running = peer.start(lab, folder.path(), &args.image)?;
    for measure in measures(peer) {
        let before = Load::now();
        let figures = measure.take(lab, Effort::default())?;
        let disturbed = Load::now().disturbed_since(before);
        let (program, ours) = (peer.name(), peer.kind() == Kind::Ours);
        results.add(About { program, ours, measure: measure.name(), unit: measure.unit() }, figures, disturbed);
    }
    drop(running);
    Ok(())
}
