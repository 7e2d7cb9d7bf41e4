//! `spin-bench-report`: the results files of a run as one HTML page.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use spin_bench::page::sections::{render, summary};
use spin_bench::page::source::Inputs;

/// Write the results of the benches as one HTML page with plots and tables. A section whose file is missing is left out.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Results of spin-bench-wire
    #[arg(long, value_name = "FILE", default_value = "target/bench/wire.json")]
    wire: PathBuf,
    /// Results of spin-bench-engine
    #[arg(long, value_name = "FILE", default_value = "target/bench/engine.json")]
    engine: PathBuf,
    /// Results of spin-bench-handlers
    #[arg(long, value_name = "FILE", default_value = "target/bench/handlers.json")]
    handlers: PathBuf,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "target/bench/report.html")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-report: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let inputs = Inputs::read(&args.wire, &args.engine, &args.handlers);
    if inputs.missing().len() == 3 {
        return Err(format!("there are no results:\n{}", inputs.missing().join("\n")));
    }
    for line in summary(&inputs) {
        println!("{line}");
    }
    let failed = |error| format!("{}: {error}", args.out.display());
    if let Some(folder) = args.out.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(&args.out, render(&inputs)).map_err(failed)?;
    println!("report: {}", args.out.display());
    Ok(())
}
