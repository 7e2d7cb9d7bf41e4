//! The configuration file.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::Error;
use spin_abi::control::{Compat, Engine, Install, Lifetime, Schedule};
use spin_abi::map::Machine;
use spin_abi::units::size;

use super::cores;
use super::machine::MachineSizes;
use crate::control::policy::section::Section;
use crate::settings::{Idle, Limits, Mode, Sizes};

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
    /// Sizes that differ from the preset's.
    pub machine: MachineSizes,
    /// Execution engine for handlers: `jit`, `interp`, or `check`, which compares the two. Default `jit`.
    pub engine: Option<Engine>,
    /// Default message rules of contexts with FPsPIN's handlers: `none` or `fpspin`. Default `none`.
    pub compat: Option<Compat>,
    /// Whether handlers of contexts with the tier `kernel` or `auto` may run in the kernel's XDP hook. Default: false.
    pub kernel_tier: bool,
    /// Path of the control socket. Default [`DEFAULT_SOCKET`](spin_abi::control::DEFAULT_SOCKET).
    pub socket: Option<PathBuf>,
    /// Folder of persistent contexts. Default: `/var/lib/spin` if root serves an interface at the default control socket, and the account is
    /// not `nobody`, else none.
    pub state: Option<PathBuf>,
    /// Account that spind runs as once its interface is open, if root starts it. Default: `spind` if it exists, else `nobody`.
    pub user: Option<String>,
    /// File mode of the control socket, in octal. Default `"0660"`: spind's user and group may connect.
    pub socket_mode: Option<String>,
    /// Address to serve metrics for Prometheus: `ADDRESS:PORT` or `unix:PATH`. Default: none. There is no authentication: everyone who
    /// reaches the address sees all counters and names of contexts.
    pub metrics: Option<String>,
    /// Whether `/tmp/perf-PID.map` names translated handlers for `perf`. Default: false.
    pub perf_map: bool,
    /// Behaviour without waiting packets: `spin`, `adaptive` or `sleep`. Default `adaptive`.
    pub idle: Option<Idle>,
    /// Attachment of the XDP program. Default `auto`.
    pub xdp_mode: Option<XdpMode>,
    /// Cores for the engine's threads, one each. The threads divide the units' clusters and the interface's queues. Default: one
    /// thread, on any core.
    #[serde(deserialize_with = "cores::deserialize")]
    pub cores: Vec<usize>,
    /// Number of units. Default: as few as the cores need, each on one NUMA node, with a core for each cluster at most.
    pub units: Option<u32>,
    /// Description of another machine's NUMA nodes, for tests: `nodes = ["0-31", "32-63"]`. Its cores share those of this machine.
    pub topology: Option<PathBuf>,
    /// Division of work between these threads: `run-to-completion` or `pipeline`. Default `run-to-completion`.
    pub mode: Mode,
    /// Pipeline mode: the receiving core's share of the messages, in percent of another core's share. 0: it runs no handlers. Default 75.
    pub local_share: Option<u32>,
    /// Scheduling policy between contexts: `round-robin`, `weighted` or `wlbvt`. Default `wlbvt`.
    pub schedule: Option<Schedule>,
    /// Sizes of each thread's tables.
    pub sizes: Sizes,
    /// Limits for applications.
    pub limits: Limits,
    /// What ordinary users may match and send.
    pub policy: Section,
    /// Contexts installed at start, in order of priority.
    pub context: Vec<StaticContext>,
    /// Where it was read.
    #[serde(skip)]
    pub path: Option<PathBuf>,
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

/// Attachment of the XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// In the driver if supported, otherwise generic.
    Auto,
    /// In the driver. Fails if the driver does not support it.
    Native,
    /// In the kernel's generic hook.
    Generic,
}

/// A context installed at start.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct StaticContext {
    /// Path of the handler image.
    pub image: PathBuf,
    /// The install request, as an application would send it.
    pub install: Install,
}

/// Written by hand, because `serde(flatten)` accepts unknown keys.
impl TryFrom<toml::Table> for StaticContext {
    type Error = toml::de::Error;

    fn try_from(mut table: toml::Table) -> Result<Self, Self::Error> {
        for key in ["replaces", "lifetime"] {
            if table.contains_key(key) {
                let reason = "is for contexts of applications: one of the configuration replaces none, and is there \
                              while the configuration has it";
                return Err(Error::custom(format!("{key} {reason}")));
            }
        }
        for key in ["host_mem", "handler_mem", "scratchpad", "l1_bytes"] {
            if let Some(value) = table.get_mut(key) {
                let bytes: i64 =
                    size(value.clone()).map_err(|error: Self::Error| Error::custom(format!("{key}: {error}")))?;
                *value = bytes.into();
            }
        }
        let image = table.remove("image").ok_or_else(|| Error::missing_field("image"))?;
        let install = Install { lifetime: Lifetime::Daemon, ..table.try_into()? };
        Ok(Self { image: image.try_into()?, install })
    }
}
