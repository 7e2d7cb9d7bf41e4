//! Configuration: a file, overridden by the command line, checked once into something that cannot be wrong.

mod machine;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use spin_abi::control::{Compat, DEFAULT_SOCKET, Engine, Install, MAX_JSON, Schedule};
use spin_abi::map::{Machine, MachineError};

use crate::control::endpoint::{BadEndpoint, Endpoint};
use crate::settings::{Idle, Limits, Mode, Sizes};

pub use machine::MachineSizes;
pub(crate) use machine::max_image_size;

/// Most queues, and most packets that wait.
const MOST: u32 = 1 << 20;
/// Least and most bytes copied at a time.
const COPIED: [u32; 2] = [64, 1 << 20];

/// The configuration file, TOML. Every key is optional.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Interface to serve with AF_XDP.
    pub iface: Option<String>,
    /// Another NIC: `loopback`, or `pcap:IN,OUT`.
    pub nic: Option<String>,
    /// Machine that handlers see: `pspin` or `fpspin`. Default `pspin`.
    pub preset: Option<Preset>,
    /// Where that machine's sizes are to be others.
    pub machine: MachineSizes,
    /// What runs handlers: `jit`, `interp`, or `check`, which compares the two. Default `jit`.
    pub engine: Option<Engine>,
    /// Whose rules of messages contexts with FPsPIN's handlers have that say nothing of it: `none` or `fpspin`. Default `none`.
    pub compat: Option<Compat>,
    /// Where to listen for applications. Default [`DEFAULT_SOCKET`].
    pub socket: Option<PathBuf>,
    /// Who may connect there, as an octal file mode. Default `"0660"`: spind's user and group. Whoever may connect can
    /// take any packet of the interface.
    pub socket_mode: Option<String>,
    /// Where to serve metrics for Prometheus: `ADDRESS:PORT` or `unix:PATH`. Default: nowhere. Nobody is asked who they are:
    /// an address that others reach shows them all counters, and names of contexts.
    pub metrics: Option<String>,
    /// What to do when there is nothing to do: `spin`, `adaptive` or `sleep`. Default `adaptive`.
    pub idle: Option<Idle>,
    /// Attach the XDP program in this mode. Default `auto`.
    pub xdp_mode: Option<XdpMode>,
    /// Cores for the engine's threads, one each, which share the machine's clusters and the interface's queues. Default: one
    /// thread, on any core.
    pub cores: Vec<usize>,
    /// How these threads share the work: `run-to-completion` or `pipeline`. Default `run-to-completion`.
    pub mode: Mode,
    /// Pipeline mode: the messages whose handlers the receiving core runs, in percent of another core's share; 0: it only receives.
    /// Default 75.
    pub local_share: Option<u32>,
    /// Whose tasks run next when several contexts have some: `round-robin`, `weighted` or `wlbvt`. Default `wlbvt`.
    pub schedule: Option<Schedule>,
    /// How much each thread has room for.
    pub sizes: Sizes,
    /// What applications may take.
    pub limits: Limits,
    /// Contexts installed at start, in order of priority.
    pub context: Vec<StaticContext>,
}

/// Machines by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// 4 clusters of 8 HPUs, 1 MiB of L1 each (the paper's).
    Pspin,
    /// 2 clusters of 8 HPUs, 256 KiB of L1 each (the FPGA's).
    Fpspin,
}

impl Preset {
    /// The machine of that name.
    #[must_use]
    pub const fn machine(self) -> Machine {
        match self {
            Self::Pspin => Machine::PSPIN,
            Self::Fpspin => Machine::FPSPIN,
        }
    }
}

/// The receiving core's share of messages in pipeline mode, in percent of another core's: receiving takes about a quarter of its time.
const LOCAL_SHARE: u32 = 75;

/// How the XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// In the driver if it can, else generic.
    Auto,
    /// In the driver, or fail.
    Native,
    /// In the kernel's generic hook.
    Generic,
}

/// Most contexts there may be: what `list` shows of all of them, 16 KiB of each at the most, has to fit a message.
const MOST_CONTEXTS: usize = MAX_JSON >> 14;

/// The longest that a handler may run, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// A context installed at start.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct StaticContext {
    /// Path of the handler image.
    pub image: PathBuf,
    /// The rest, as an application would ask for it.
    pub install: Install,
}

/// `serde(flatten)` would take keys that nobody knows.
impl TryFrom<toml::Table> for StaticContext {
    type Error = toml::de::Error;

    fn try_from(mut table: toml::Table) -> Result<Self, Self::Error> {
        for key in ["replaces", "persistent"] {
            if table.contains_key(key) {
                let reason = "is for contexts of applications: one of the configuration replaces none, and stays";
                return Err(serde::de::Error::custom(format!("{key} {reason}")));
            }
        }
        let image = table.remove("image").ok_or_else(|| serde::de::Error::missing_field("image"))?;
        Ok(Self { image: image.try_into()?, install: table.try_into()? })
    }
}

/// Which NIC to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nic {
    /// AF_XDP on an interface.
    Interface(String),
    /// A pair in memory; frames come by `spinctl replay`.
    Loopback,
    /// Frames from one capture, replies into another.
    Pcap {
        /// Read to its end, then spind stops.
        input: PathBuf,
        /// Written.
        output: PathBuf,
    },
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not valid.
    #[error("configuration {}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected.
        source: Box<toml::de::Error>,
    },
    /// Neither interface nor NIC.
    #[error("no NIC to serve: give --iface IF, --nic loopback or --nic pcap:IN,OUT")]
    NoNic,
    /// Both.
    #[error("both an interface ({iface}) and a NIC ({nic}) are given: choose one")]
    TwoNics {
        /// The interface.
        iface: String,
        /// The other.
        nic: String,
    },
    /// Not a file mode.
    #[error("socket_mode {0:?} is not an octal file mode such as \"0660\"")]
    BadMode(String),
    /// A machine that cannot be.
    #[error("machine.{0}")]
    Machine(#[from] MachineError),
    /// Nothing can listen there.
    #[error(transparent)]
    Metrics(#[from] BadEndpoint),
    /// A core twice.
    #[error("core {0} is given twice: each thread needs one of its own")]
    SameCore(usize),
    /// More threads than clusters.
    #[error("{cores} cores to run handlers of {clusters} clusters: at most one each")]
    ManyCores {
        /// Cores given.
        cores: usize,
        /// Clusters of the machine.
        clusters: u32,
    },
    /// A pipeline of one.
    #[error("{0} cores, where one receives for others: give at least 2 (--cores)")]
    FewCores(usize),
    /// A share that is none.
    #[error(
        "local_share {0}: between 0 (the first core only receives) and 100 (as much as each other core), in percent"
    )]
    LocalShare(u32),
    /// A NIC that only one thread can serve.
    #[error("{0} cores: only an interface can be served by more than one")]
    OneQueue(usize),
    /// No room at all, or more than there may be.
    #[error("sizes.{name} {size}: between {least} and {most}")]
    Size {
        /// Which.
        name: &'static str,
        /// What was asked for.
        size: u32,
        /// The smallest there may be.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// More contexts than can be listed.
    #[error("limits.contexts {0}: at most {MOST_CONTEXTS}")]
    Contexts(usize),
    /// A limit that lets nobody in.
    #[error("limits.{0} is 0: no application could have any")]
    Nobody(&'static str),
    /// A limit that lets nothing run.
    #[error("limits.{0} is 0: no handler could run")]
    NoTime(&'static str),
    /// Handlers that wait are looked at by the clock, which such a limit would stop.
    #[error("limits.watchdog_us is more than {0}, an hour: a handler that waits in vain would hold its thread up")]
    TooMuchTime(u64),
    /// Not a NIC.
    #[error("{0:?} is not a NIC: expected `loopback` or `pcap:IN,OUT`")]
    BadNic(String),
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError::Read`], [`ConfigError::Parse`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        toml::from_str(&text).map_err(|source| ConfigError::Parse { path: path.into(), source: Box::new(source) })
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The NIC.
    pub nic: Nic,
    /// The machine handlers see.
    pub machine: Machine,
    /// What runs them.
    pub engine: Engine,
    /// Whose rules of messages contexts have that say nothing of it.
    pub compat: Compat,
    /// Where to listen.
    pub socket: PathBuf,
    /// Its file mode.
    pub socket_mode: u32,
    /// Where to serve metrics.
    pub metrics: Option<Endpoint>,
    /// What to do when idle.
    pub idle: Idle,
    /// XDP attachment.
    pub xdp_mode: XdpMode,
    /// Cores of the engine's threads; none: one thread on any.
    pub cores: Vec<usize>,
    /// How they share the work.
    pub mode: Mode,
    /// Pipeline mode: the receiving core's messages, in percent of another core's share.
    pub local_share: u32,
    /// Whose tasks run next.
    pub schedule: Schedule,
    /// Room for messages and packets.
    pub sizes: Sizes,
    /// Limits.
    pub limits: Limits,
    /// Contexts to start with.
    pub contexts: Vec<StaticContext>,
}

impl TryFrom<File> for Config {
    type Error = ConfigError;

    fn try_from(file: File) -> Result<Self, ConfigError> {
        let nic = match (file.iface, file.nic) {
            (Some(iface), None) => Nic::Interface(iface),
            (None, Some(nic)) => nic.parse()?,
            (None, None) => return Err(ConfigError::NoNic),
            (Some(iface), Some(nic)) => return Err(ConfigError::TwoNics { iface, nic }),
        };
        let machine = file.machine.over(file.preset.unwrap_or(Preset::Pspin).machine())?;
        let local_share = local_share(file.local_share)?;
        check_cores(&file.cores, file.mode, local_share, &nic, &machine)?;
        let Sizes { queues, hers, dma_chunk } = file.sizes;
        for (name, size, least, most) in
            [("queues", queues, 1, MOST), ("hers", hers, 1, MOST), ("dma_chunk", dma_chunk, COPIED[0], COPIED[1])]
        {
            if !(least..=most).contains(&size) {
                return Err(ConfigError::Size { name, size, least, most });
            }
        }
        for (name, limit) in [("contexts", file.limits.contexts), ("connections", file.limits.connections)] {
            if limit == 0 {
                return Err(ConfigError::Nobody(name));
            }
        }
        if file.limits.contexts > MOST_CONTEXTS {
            return Err(ConfigError::Contexts(file.limits.contexts));
        }
        if file.limits.watchdog_us == 0 {
            return Err(ConfigError::NoTime("watchdog_us"));
        }
        if file.limits.watchdog_us > LONGEST_US {
            return Err(ConfigError::TooMuchTime(LONGEST_US));
        }
        if file.limits.instruction_limit == Some(0) {
            return Err(ConfigError::NoTime("instruction_limit"));
        }
        Ok(Self {
            nic,
            machine,
            engine: file.engine.unwrap_or_default(),
            compat: file.compat.unwrap_or_default(),
            socket: file.socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
            socket_mode: file.socket_mode.map_or(Ok(0o660), |text| octal(&text))?,
            metrics: file.metrics.map(|text| text.parse()).transpose()?,
            idle: file.idle.unwrap_or_default(),
            xdp_mode: file.xdp_mode.unwrap_or(XdpMode::Auto),
            cores: file.cores,
            mode: file.mode,
            local_share,
            schedule: file.schedule.unwrap_or_default(),
            sizes: file.sizes,
            limits: file.limits,
            contexts: file.context,
        })
    }
}

fn check_cores(cores: &[usize], mode: Mode, local_share: u32, nic: &Nic, machine: &Machine) -> Result<(), ConfigError> {
    let again = cores.iter().enumerate().find(|(index, core)| cores[..*index].contains(core));
    if let Some((_, &core)) = again {
        return Err(ConfigError::SameCore(core));
    }
    let receiving = usize::from(mode == Mode::Pipeline && local_share == 0);
    if mode != Mode::RunToCompletion && cores.len() < 2 {
        return Err(ConfigError::FewCores(cores.len()));
    }
    if cores.len() - receiving.min(cores.len()) > machine.clusters as usize {
        return Err(ConfigError::ManyCores { cores: cores.len() - receiving, clusters: machine.clusters });
    }
    if cores.len() > 1 && !matches!(nic, Nic::Interface(_)) {
        return Err(ConfigError::OneQueue(cores.len()));
    }
    Ok(())
}

fn local_share(percent: Option<u32>) -> Result<u32, ConfigError> {
    let percent = percent.unwrap_or(LOCAL_SHARE);
    if percent <= 100 { Ok(percent) } else { Err(ConfigError::LocalShare(percent)) }
}

fn octal(text: &str) -> Result<u32, ConfigError> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| ConfigError::BadMode(text.to_owned()))
}

impl std::str::FromStr for Nic {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::BadNic(text.to_owned());
        if text == "loopback" {
            return Ok(Self::Loopback);
        }
        match text.strip_prefix("pcap:").ok_or_else(bad)?.split_once(',') {
            Some((input, output)) if !input.is_empty() && !output.is_empty() => {
                Ok(Self::Pcap { input: input.into(), output: output.into() })
            }
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, ConfigError, File, Nic, XdpMode};
    use crate::control::endpoint::Endpoint;
    use crate::settings::{Idle, Limits, Mode};
    use spin_abi::control::{Engine, Placement};
    use spin_abi::map::Machine;

    fn config(text: &str) -> Result<Config, ConfigError> {
        Config::try_from(toml::from_str::<File>(text).expect("parses"))
    }

    #[test]
    fn a_whole_file() {
        let config = config(
            r#"
            iface = "eth0"
            preset = "fpspin"
            engine = "check"
            socket = "/tmp/s"
            [limits]
            contexts = 3
            [[context]]
            image = "/opt/echo.elf"
            name = "echo"
            rules = ["icmp echo"]
            placement = "home"
            "#,
        )
        .unwrap();
        assert_eq!(config.nic, Nic::Interface("eth0".into()));
        assert_eq!(config.machine, Machine::FPSPIN);
        assert_eq!(config.limits.contexts, 3);
        assert_eq!(config.limits.connections, 32, "defaults fill in");
        assert_eq!(config.contexts[0].install.rules, ["icmp echo"]);
        assert_eq!(config.contexts[0].install.placement, Placement::Home);
        assert_eq!(config.engine, Engine::Check);
    }

    #[test]
    fn the_sample_is_valid_and_shows_the_defaults() {
        let config = config(include_str!("../../../../deploy/spind.toml")).unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.machine, Machine::PSPIN);
        assert_eq!((config.idle, config.xdp_mode, config.socket_mode), (Idle::Adaptive, XdpMode::Auto, 0o660));
        assert_eq!(config.engine, Engine::Jit);
        assert_eq!(config.contexts.len(), 2);
    }

    #[test]
    fn nics() {
        assert!(matches!(config(""), Err(ConfigError::NoNic)));
        assert!(matches!(config("iface='a'\nnic='loopback'"), Err(ConfigError::TwoNics { .. })));
        assert_eq!("pcap:a,b".parse::<Nic>().unwrap(), Nic::Pcap { input: "a".into(), output: "b".into() });
        for bad in ["pcap:", "pcap:a", "pcap:a,", "pcap:,b", "eth0", ""] {
            assert!(bad.parse::<Nic>().is_err(), "{bad}");
        }
    }

    #[test]
    fn metrics_are_served_where_it_says() {
        assert_eq!(config("nic = 'loopback'").unwrap().metrics, None);
        let unix = config("nic = 'loopback'\nmetrics = 'unix:/run/m'").unwrap().metrics;
        assert_eq!(unix, Some(Endpoint::Unix("/run/m".into())));
        assert!(matches!(config("nic = 'loopback'\nmetrics = 'lo:1'"), Err(ConfigError::Metrics(_))));
    }

    #[test]
    fn misspelt_keys_are_refused() {
        assert!(toml::from_str::<File>("ifacce = 'eth0'").is_err());
        assert!(toml::from_str::<File>("[limits]\ncontext = 3").is_err());
        assert!(toml::from_str::<File>("engine = 'steam'").is_err());
        let context = |keys: &str| toml::from_str::<File>(&format!("[[context]]\n{keys}"));
        let known = context("image = 'a.elf'\nrules = ['udp']\nwatchdog_us = 7").expect("all of it is known");
        assert_eq!((known.context[0].image.to_str(), known.context[0].install.watchdog_us), (Some("a.elf"), Some(7)));
        for (keys, named) in [
            ("image = 'a.elf'\nisolatoin = 'message'", "isolatoin"),
            ("rules = ['udp']", "image"),
            ("image = 'a.elf'\nreplaces = 'b'", "replaces is for contexts of applications"),
            ("image = 'a.elf'\npersistent = false", "persistent is for"),
        ] {
            let refused = context(keys).expect_err("nobody knows that").to_string();
            assert!(refused.contains(named), "{refused}");
        }
    }

    #[test]
    fn each_thread_has_a_core_and_a_cluster() {
        assert_eq!(config("iface = 'a'\ncores = [1, 0]").unwrap().cores, [1, 0]);
        assert!(matches!(config("iface = 'a'\ncores = [1, 1]"), Err(ConfigError::SameCore(1))));
        assert!(matches!(config("iface = 'a'\ncores = [0, 1, 2, 3, 4]"), Err(ConfigError::ManyCores { .. })));
        assert!(matches!(config("nic = 'loopback'\ncores = [0, 1]"), Err(ConfigError::OneQueue(2))));
        let pipeline =
            |cores: &str| config(&format!("iface = 'a'\nmode = 'pipeline'\nlocal_share = 0\ncores = {cores}"));
        assert!(matches!(pipeline("[0]"), Err(ConfigError::FewCores(1))));
        assert_eq!(pipeline("[0, 1, 2, 3, 4]").unwrap().mode, Mode::Pipeline);
        assert!(matches!(pipeline("[0, 1, 2, 3, 4, 5]"), Err(ConfigError::ManyCores { cores: 5, .. })));
        // The word for a pipeline whose first core runs handlers too, before that was the default.
        for word in ["pipeline", "spread"] {
            let shared = |cores: &str| config(&format!("iface = 'a'\nmode = '{word}'\ncores = {cores}"));
            assert!(matches!(shared("[0]"), Err(ConfigError::FewCores(1))));
            let Config { mode, local_share, .. } = shared("[0, 1]").unwrap();
            assert_eq!((mode, local_share), (Mode::Pipeline, 75));
            assert!(matches!(shared("[0, 1, 2, 3, 4]"), Err(ConfigError::ManyCores { cores: 5, .. })));
        }
        let refused = config("iface = 'a'\nmode = 'pipeline'\nlocal_share = 101\ncores = [0, 1]");
        assert!(matches!(refused, Err(ConfigError::LocalShare(101))));
    }

    #[test]
    fn sizes_have_bounds() {
        assert_eq!(config("nic = 'loopback'\n[sizes]\nqueues = 4096").unwrap().sizes.queues, 4096);
        let from_one = ["queues = 0", "hers = 0", "queues = 2000000"].map(|bad| (bad, "between 1 and 1048576"));
        let copied = ["dma_chunk = 63", "dma_chunk = 2000000"].map(|bad| (bad, "between 64 and 1048576"));
        for (bad, bounds) in from_one.into_iter().chain(copied) {
            let refused = config(&format!("nic = 'loopback'\n[sizes]\n{bad}")).unwrap_err().to_string();
            assert!(refused.contains(bounds), "{refused}");
        }
    }

    #[test]
    fn a_machine_of_other_sizes() {
        let text = "nic = 'loopback'\npreset = 'fpspin'\n[machine]\nclusters = 1\nl1_size = 0x8_0000";
        assert_eq!(config(text).unwrap().machine, Machine { clusters: 1, l1_size: 0x8_0000, ..Machine::FPSPIN });
        let refused = config("nic = 'loopback'\n[machine]\nl1_size = 5000").unwrap_err().to_string();
        assert_eq!(refused, "machine.l1_size 0x1388: a multiple of 4096 (a page), such as 0x1000");
        let refused = config("nic = 'loopback'\n[machine]\nl1_size = 1").unwrap_err().to_string();
        assert!(refused.ends_with("such as 0x1000"), "{refused}");
        let few = config("iface = 'a'\ncores = [0, 1]\n[machine]\nclusters = 1");
        assert!(matches!(few, Err(ConfigError::ManyCores { cores: 2, clusters: 1 })));
        assert!(toml::from_str::<File>("[machine]\nl3_size = 1").is_err());
    }

    #[test]
    fn limits_that_let_nothing_run_are_refused() {
        for limit in ["watchdog_us", "instruction_limit"] {
            let refused = config(&format!("nic = 'loopback'\n[limits]\n{limit} = 0")).unwrap_err().to_string();
            assert!(refused.contains(limit), "{refused}");
        }
        for limit in ["contexts", "connections"] {
            let refused = config(&format!("nic = 'loopback'\n[limits]\n{limit} = 0")).unwrap_err().to_string();
            assert_eq!(refused, format!("limits.{limit} is 0: no application could have any"));
        }
        let refused = config("nic = 'loopback'\n[limits]\ncontexts = 257").unwrap_err().to_string();
        assert!(refused.contains("limits.contexts 257: at most 256"), "{refused}");
        let refused = config("nic = 'loopback'\n[limits]\nwatchdog_us = 9223372036854775807").unwrap_err().to_string();
        assert!(refused.contains("limits.watchdog_us is more than 3600000000"), "{refused}");
    }
}
