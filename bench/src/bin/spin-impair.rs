//! `spin-impair`: a relay between two interfaces that loses, repeats, delays, reorders, corrupts and marks frames, by a seed.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use spin_bench::impair::relay::{Counts, Relay};
use spin_bench::impair::settings::{Delay, Rate, Settings, Share};

/// Relay frames between two interfaces, with impairments in both directions. Frames of one number and direction have the same
/// fate in every run with the same seed.
///
/// Needs CAP_NET_RAW. Switch off offloads of the hosts on both sides (ethtool -K IF tso off gso off tx off), or frames are
/// longer than the wire takes and checksums are missing. Stop it with ^C or --seconds.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// One interface
    #[arg(value_name = "IF")]
    one: String,
    /// The other interface
    #[arg(value_name = "IF")]
    other: String,
    /// Share of frames that are lost
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    loss: Share,
    /// Share of frames that arrive twice
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    duplicate: Share,
    /// Share of frames with one inverted bit, behind the Ethernet header
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    corrupt: Share,
    /// Share of frames that are marked "congestion experienced", if their sender is ECN-capable
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    ecn: Share,
    /// Share of frames that are not delayed, and so overtake others; needs --delay
    #[arg(long, value_name = "PERCENT", default_value = "0", requires = "delay")]
    reorder: Share,
    /// Delay of frames, such as 250us or 10ms
    #[arg(long, value_name = "TIME")]
    delay: Option<Delay>,
    /// Greatest change of the delay, up or down; frames keep their order
    #[arg(long, value_name = "TIME", requires = "delay")]
    jitter: Option<Delay>,
    /// Bits per second that leave in each direction, such as 100M [default: no limit]
    #[arg(long, value_name = "BITS")]
    rate: Option<Rate>,
    /// Frames that wait at most in each direction
    #[arg(long, value_name = "FRAMES", default_value_t = 1000)]
    limit: usize,
    /// Seed of all decisions
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// File for the log: a line for each frame, with its direction, number, length and fate
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Time to run, in seconds [default: until ^C]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-impair: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings {
        loss: args.loss,
        duplicate: args.duplicate,
        corrupt: args.corrupt,
        ecn: args.ecn,
        reorder: args.reorder,
        delay: args.delay.unwrap_or_default().0,
        jitter: args.jitter.unwrap_or_default().0,
        rate: args.rate,
        limit: args.limit,
        seed: args.seed,
    };
    let open = |path: &PathBuf| {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(BufWriter::new(file))
    };
    let mut log = args.log.as_ref().map(open).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let relay = Relay::open([&args.one, &args.other], settings, log.as_mut().map(|log| log as &mut dyn Write))?;
    println!("relaying between {} and {}, seed {}", args.one, args.other, args.seed);
    let end = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let counts = relay.run(|| stop.load(Relaxed) || end.is_some_and(|end| Instant::now() >= end))?;
    for (name, counts) in
        [format!("{}>{}", args.one, args.other), format!("{}>{}", args.other, args.one)].iter().zip(counts)
    {
        print(name, &counts);
    }
    Ok(())
}

fn print(name: &str, counts: &Counts) {
    let Counts { received, sent, lost, twice, corrupted, marked, overtaking, overflowed, refused, missed } = counts;
    println!(
        "{name}: {received} received, {sent} sent, {lost} lost, {twice} sent twice, {corrupted} corrupted, {marked} marked,"
    );
    println!(
        "  {overtaking} overtook others, {overflowed} found the queue full, {refused} refused, {missed} missed by the kernel"
    );
}
