//! `spind`: turns an interface into a NIC with a PsPIN unit.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use spin_abi::control::{Compat, Engine, Schedule};
use spin_engine::control::config::{Config, File, Preset, XdpMode};
use spin_engine::control::daemon::Daemon;
use spin_engine::control::log::LOG;
use spin_engine::settings::{Idle, Mode};
use tracing::warn;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How long the end waits for who reads the log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Turn an interface into a NIC with a PsPIN unit: run sPIN handlers on the packets they match, pass the rest to the
/// kernel.
#[derive(Debug, Parser)]
#[command(version, after_help = "Log level: the environment variable SPIND_LOG (error, warn, info, debug or trace).")]
struct Args {
    /// Interface to serve with AF_XDP.
    #[arg(long, value_name = "IF")]
    iface: Option<String>,
    /// Another NIC: `loopback`, or `pcap:IN,OUT`.
    #[arg(long, value_name = "NIC", conflicts_with = "iface")]
    nic: Option<String>,
    /// Machine that handlers see.
    #[arg(long, value_enum)]
    preset: Option<Preset>,
    /// Clusters of that machine, 1 to 4; its other sizes are in the configuration file, under machine.
    #[arg(long, value_name = "N")]
    clusters: Option<u32>,
    /// HPUs of each cluster, 1 to 8.
    #[arg(long, value_name = "M")]
    hpus_per_cluster: Option<u32>,
    /// What runs handlers: 'jit', 'interp', or 'check', which runs both and compares them, slowly.
    #[arg(long, value_name = "interp|jit|check")]
    engine: Option<Engine>,
    /// Name messages of contexts with FPsPIN's handlers ('--abi fpspin') as that machine does, unless they say otherwise: 16 queues, by
    /// ten bits of the frame, in which ids of different senders collide.
    #[arg(long, value_name = "none|fpspin")]
    compat: Option<Compat>,
    /// Cores for the engine's threads, one each, e.g. 2,3: they share the machine's clusters and the interface's queues.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Vec<usize>,
    /// How these threads share the work: each receives and runs handlers, or the first receives for all others, or for all.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Pipeline mode: the messages whose handlers the first core runs, in percent of another core's share; 0: it only receives [default: 75].
    #[arg(long, value_name = "PERCENT")]
    local_share: Option<u32>,
    /// Whose tasks run next when several contexts have some: as many of each, by weight, or by time and weight.
    #[arg(long, value_name = "round-robin|weighted|wlbvt")]
    schedule: Option<Schedule>,
    /// Configuration file; options given here win over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen for applications.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Serve metrics for Prometheus (GET /metrics) there. Nobody is asked who they are: 127.0.0.1:9464 is for users of this host.
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    metrics: Option<String>,
    /// What to do when no packet waits: poll on, poll for a while and then sleep, or sleep at once.
    #[arg(long, value_enum)]
    idle: Option<Idle>,
    /// How to attach the XDP program.
    #[arg(long, value_enum)]
    xdp_mode: Option<XdpMode>,
}

impl Args {
    /// The configuration file's settings, overridden by those given here.
    fn config(self) -> Result<Config, Box<dyn Error>> {
        let mut file = self.config.as_deref().map(File::read).transpose()?.unwrap_or_default();
        if self.iface.is_some() || self.nic.is_some() {
            (file.iface, file.nic) = (self.iface, self.nic);
        }
        if !self.cores.is_empty() {
            file.cores = self.cores;
        }
        file.preset = self.preset.or(file.preset);
        file.machine.clusters = self.clusters.or(file.machine.clusters);
        file.machine.hpus_per_cluster = self.hpus_per_cluster.or(file.machine.hpus_per_cluster);
        file.engine = self.engine.or(file.engine);
        file.compat = self.compat.or(file.compat);
        file.mode = self.mode.unwrap_or(file.mode);
        file.local_share = self.local_share.or(file.local_share);
        file.schedule = self.schedule.or(file.schedule);
        file.socket = self.socket.or(file.socket);
        file.metrics = self.metrics.or(file.metrics);
        file.idle = self.idle.or(file.idle);
        file.xdp_mode = self.xdp_mode.or(file.xdp_mode);
        Ok(Config::try_from(file)?)
    }
}

fn main() -> ExitCode {
    let Some(filter) = filter(std::env::var("SPIND_LOG").ok()) else {
        let _ = writeln!(stderr(), "spind: SPIND_LOG is none of error, warn, info, debug, trace");
        return ExitCode::FAILURE;
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| &LOG)
        .with_ansi(stderr().is_terminal())
        .with_target(false)
        // It would say so on standard error, which is what cannot be written then, and panic.
        .log_internal_errors(false)
        .init();
    let ran = run(Args::parse());
    if let Err(error) = &ran {
        // By the same way: the end waits for nobody either.
        let _ = (&LOG).write_all(format!("spind: {error}\n").as_bytes());
    }
    LOG.finish(LAST_LINES);
    if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is logged: a level, or, with a `=`, one for each of some modules.
fn filter(asked: Option<String>) -> Option<EnvFilter> {
    let asked = asked.unwrap_or_else(|| "info".to_owned());
    let known = asked.contains('=') || asked.parse::<LevelFilter>().is_ok();
    EnvFilter::try_new(&asked).ok().filter(|_| known)
}

fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let config = args.config()?;
    let stop = Arc::new(AtomicBool::new(false));
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
        // The second one of a kind ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let (statistics, ended) = Daemon::new(&config, &stop)?.run();
    // Whoever does not read them any more misses nothing else.
    if let Err(error) = writeln!(stdout(), "{statistics}") {
        warn!("the last statistics were not printed: {error}");
    }
    Ok(ended?)
}

/// Whether whoever started the process has it ignore a signal, as nohup(1) does: by the mask in proc_pid_status(5).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn a_level_that_is_none_is_not_taken_for_silence() {
        let known = |asked: &str| filter(Some(asked.to_owned())).is_some();
        assert!(
            filter(None).is_some() && known("debug") && known("WARN") && known("off") && known("spin_engine=trace")
        );
        assert!(!known("foo") && !known("inf") && !known("a=b=c"));
    }
}
