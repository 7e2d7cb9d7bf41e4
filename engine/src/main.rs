//! `spind`: turns an interface into a NIC with a PsPIN unit.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use spin_abi::control::{Compat, Engine, Schedule};
use spin_engine::control::check::{check, checked};
use spin_engine::control::config::{Config, ConfigErrors, CoreList, File, Preset, XdpMode};
use spin_engine::control::daemon::{Daemon, DaemonError, USAGE};
use spin_engine::control::log::LOG;
use spin_engine::control::reload::HangUps;
use spin_engine::control::{descriptor_process, hook_process, loader_process, privileges};
use spin_engine::settings::{Idle, Mode};
use spin_shm::Forker;
use tracing::warn;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Longest wait at exit for the last lines of the log.
const LOG_FLUSH_TIME: Duration = Duration::from_secs(1);

/// Turn an interface into a NIC with a PsPIN unit. Runs sPIN handlers on the packets that they match and passes the rest to the kernel.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "spind",
    version,
    after_help = "Log level: the environment variable SPIND_LOG (error, warn, info, debug or trace)."
)]
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
    /// Clusters of that machine, 1 to 4. The configuration file sets its other sizes, in section machine.
    #[arg(long, value_name = "N")]
    clusters: Option<u32>,
    /// HPUs of each cluster, 1 to 8.
    #[arg(long, value_name = "M")]
    hpus_per_cluster: Option<u32>,
    /// Execution engine for handlers: 'jit', 'interp', or 'check', which runs both and compares them (slow).
    #[arg(long, value_name = "interp|jit|check")]
    engine: Option<Engine>,
    /// Default message rules of contexts with FPsPIN's handlers ('--abi fpspin'). 'fpspin': those of that machine, with 16 queues
    /// selected by ten bits of the frame. Ids of different senders then collide.
    #[arg(long, value_name = "none|fpspin")]
    compat: Option<Compat>,
    /// Cores for the engine's threads, one each, e.g. 2,3. The threads divide the units' clusters and the interface's queues.
    #[arg(long, value_name = "LIST")]
    cores: Option<CoreList>,
    /// Number of units: PsPIN units with clusters and message queues of their own [default: as few as the cores need, each on one NUMA node,
    /// with a core for each cluster at most].
    #[arg(long, value_name = "N")]
    units: Option<u32>,
    /// Description of another machine's NUMA nodes, for tests. Its cores share those of this machine.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Division of work between these threads ('spread' is the old word for 'pipeline').
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Pipeline mode: the first core's share of the messages, in percent of another core's share, 0 to 100. 0: it only receives
    /// [default: 75].
    #[arg(long, value_name = "PERCENT")]
    local_share: Option<u32>,
    /// Scheduling policy between contexts: equal numbers of tasks, numbers by weight, or time by weight.
    #[arg(long, value_name = "round-robin|weighted|wlbvt")]
    schedule: Option<Schedule>,
    /// Configuration file. Options given here override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Path of the control socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Folder of persistent contexts, which are installed again at each start [default: /var/lib/spin if root serves an interface at the
    /// default socket and the account that spind runs as is not nobody].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Serve metrics for Prometheus (GET /metrics) on this address. There is no authentication: all users of this host can read
    /// 127.0.0.1:9464.
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    metrics: Option<String>,
    /// Name translated handlers for `perf`, in the file /tmp/perf-PID.map.
    #[arg(long)]
    perf_map: bool,
    /// Behaviour without waiting packets.
    #[arg(long, value_enum)]
    idle: Option<Idle>,
    /// Attachment of the XDP program.
    #[arg(long, value_enum)]
    xdp_mode: Option<XdpMode>,
    /// Check the configuration file and its contexts, print all errors, and exit with 0 or 1.
    #[arg(long, requires = "config")]
    check: bool,
}

impl Args {
    /// The settings of the configuration file, overridden by the command line.
    fn file(self) -> Result<File, ConfigErrors> {
        let mut file = self.config.as_deref().map(File::read).transpose()?.unwrap_or_default();
        if self.iface.is_some() || self.nic.is_some() {
            (file.iface, file.nic) = (self.iface, self.nic);
        }
        if let Some(CoreList(cores)) = self.cores {
            file.cores = cores;
        }
        file.preset = self.preset.or(file.preset);
        file.machine.clusters = self.clusters.or(file.machine.clusters);
        file.machine.hpus_per_cluster = self.hpus_per_cluster.or(file.machine.hpus_per_cluster);
        file.engine = self.engine.or(file.engine);
        file.compat = self.compat.or(file.compat);
        file.units = self.units.or(file.units);
        file.topology = self.topology.or(file.topology);
        file.mode = self.mode.unwrap_or(file.mode);
        file.local_share = self.local_share.or(file.local_share);
        file.schedule = self.schedule.or(file.schedule);
        file.socket = self.socket.or(file.socket);
        file.state = self.state.or(file.state);
        file.metrics = self.metrics.or(file.metrics);
        file.perf_map |= self.perf_map;
        file.idle = self.idle.or(file.idle);
        file.xdp_mode = self.xdp_mode.or(file.xdp_mode);
        Ok(file)
    }

    /// The checked settings.
    fn config(self) -> Result<Config, ConfigErrors> {
        self.file().and_then(checked)
    }
}

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(first) if first == loader_process::ARGUMENT => return auxiliary_process("loader process", loader_process),
        Some(first) if first == descriptor_process::ARGUMENT => {
            return auxiliary_process("descriptor process", descriptor_process);
        }
        Some(first) if first == hook_process::ARGUMENT => return auxiliary_process("hook process", hook_process),
        _ => {}
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // A closed output is not an error.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let Some(filter) = filter(std::env::var("SPIND_LOG").ok()) else {
        let _ = writeln!(stderr(), "spind: SPIND_LOG is none of error, warn, info, debug, trace");
        return ExitCode::from(USAGE);
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(&LOG)
        .with_ansi(stderr().is_terminal())
        .with_target(false)
        // Otherwise it would report errors on standard error and panic if that cannot be written.
        .log_internal_errors(false)
        .init();
    if args.check {
        return check_file(args);
    }
    let ran = run(args);
    if let Err(error) = &ran {
        // Use the log, which does not block.
        LOG.write_text(&format!("spind: {error}\n"));
    }
    LOG.finish(LOG_FLUSH_TIME);
    ran.map_or_else(|error| ExitCode::from(error.exit_code()), |()| ExitCode::SUCCESS)
}

/// Checks the configuration file, and prints the result.
fn check_file(args: Args) -> ExitCode {
    let path = args.config.clone().unwrap_or_default();
    let checked = args.file().and_then(check);
    // Closed outputs are not errors.
    let _ = match &checked {
        Ok(()) => writeln!(stdout(), "{}: fine", path.display()),
        Err(errors) => writeln!(stderr(), "spind: {errors}"),
    };
    ExitCode::from(u8::from(checked.is_err()))
}

/// Another process of a spind, to which its standard input is a socket. It ends when spind has ended, not before.
fn auxiliary_process(name: &str, serve: impl FnOnce(&UnixStream) -> Result<(), Box<dyn Error>>) -> ExitCode {
    let run = || -> Result<(), Box<dyn Error>> {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        serve(&UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(stderr(), "spind's {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn loader_process(spind: &UnixStream) -> Result<(), Box<dyn Error>> {
    privileges::keep_those_of_loader()?;
    privileges::confine_loader()?;
    Ok(loader_process::serve::serve(spind)?)
}

fn hook_process(spind: &UnixStream) -> Result<(), Box<dyn Error>> {
    privileges::keep_those_of_hook_process()?;
    privileges::confine_hook_process()?;
    // A panic of the translator is the answer to a request, and no user may fill the log with lines.
    std::panic::set_hook(Box::new(|_| {}));
    Ok(hook_process::serve::serve(spind)?)
}

fn descriptor_process(spind: &UnixStream) -> Result<(), Box<dyn Error>> {
    let forker = Forker::new()?;
    if let Some(account) = std::env::args().nth(2) {
        privileges::become_user(&account.parse()?)?;
    }
    privileges::drop_all()?;
    privileges::confine_descriptor_process()?;
    Ok(descriptor_process::serve::serve(spind, &forker)?)
}

/// Filter of the log: a level, or, with a `=`, levels for some modules.
fn filter(asked: Option<String>) -> Option<EnvFilter> {
    let asked = asked.unwrap_or_else(|| "info".to_owned());
    let known = asked.contains('=') || asked.parse::<LevelFilter>().is_ok();
    EnvFilter::try_new(&asked).ok().filter(|_| known)
}

fn run(args: Args) -> Result<(), DaemonError> {
    privileges::gain_none()?;
    let config = args.clone().config()?;
    let stop = Arc::new(AtomicBool::new(false));
    let reads_again = config.file.is_some();
    let hang_up = (!reads_again && !is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
        // A second signal of the same kind ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let hang_ups = reads_again.then(|| HangUps::catch(move || args.clone().config())).transpose()?;
    let (statistics, ended) = Daemon::new(&config, &stop, hang_ups)?.run();
    // A closed standard output is not an error.
    if let Err(error) = writeln!(stdout(), "{statistics}") {
        warn!("the last statistics were not printed: {error}");
    }
    ended
}

/// Whether the process was started with a signal ignored, as by nohup(1). Read from the mask in proc_pid_status(5).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use spin_engine::settings::Mode;

    use super::{Args, filter};

    #[test]
    fn the_old_word_for_pipeline_mode_is_accepted() {
        let config = |mode: &str| {
            let args = Args::try_parse_from([
                "spind",
                "--iface",
                "a",
                "--cores",
                "0,1",
                "--mode",
                mode,
                "--local-share",
                "50",
            ]);
            args.expect("known options").config().expect("a valid configuration")
        };
        for mode in ["pipeline", "spread"] {
            assert_eq!((config(mode).mode, config(mode).local_share), (Mode::Pipeline, 50));
        }
        assert!(Args::try_parse_from(["spind", "--mode", "fixed"]).is_err());
    }

    #[test]
    fn the_version_names_the_program_and_cores_may_be_a_range() {
        assert!(Args::command().render_version().starts_with("spind "));
        let args = Args::try_parse_from(["spind", "--iface", "a", "--cores", "0-1"]).expect("known options");
        assert_eq!(args.config().expect("a valid configuration").cores, [0, 1]);
    }

    #[test]
    fn an_unknown_level_is_refused() {
        let known = |asked: &str| filter(Some(asked.to_owned())).is_some();
        assert!(
            filter(None).is_some() && known("debug") && known("WARN") && known("off") && known("spin_engine=trace")
        );
        assert!(!known("foo") && !known("inf") && !known("a=b=c"));
    }
}
