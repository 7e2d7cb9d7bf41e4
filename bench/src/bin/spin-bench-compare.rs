//! `spin-bench-compare`: the rows of two programs that were measured in alternating rounds.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use spin_bench::compare::{Row, table};

/// Compare the results of two builds of a bench, measured in alternating rounds: a file for each round.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Results of the base, in the order of rounds
    #[arg(long, num_args = 1.., required = true, value_name = "FILE")]
    base: Vec<PathBuf>,
    /// Results of the new build, in the order of rounds
    #[arg(long, num_args = 1.., required = true, value_name = "FILE")]
    new: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match read(&args.base).and_then(|base| Ok((base, read(&args.new)?))) {
        Ok((base, new)) => {
            print!("{}", table(&base, &new));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("spin-bench-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<Vec<Row>>, String> {
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
    };
    files.iter().map(read).collect()
}
