//! Errors in a configuration.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use spin_abi::map::MachineError;

use crate::control::endpoint::BadEndpoint;
use crate::control::policy::error::SectionError;
use crate::settings::MAX_CONTEXTS;

/// All errors of a configuration.
#[derive(Debug)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.0.iter().enumerate() {
            let line = if place == 0 { "" } else { "\nspind: " };
            write!(f, "{line}{error}")?;
        }
        Ok(())
    }
}

impl Error for ConfigErrors {}

impl ConfigErrors {
    /// Keeps an error for later. Returns the value if there is none.
    pub(super) fn keep<T>(&mut self, result: Result<T, impl Into<ConfigError>>) -> Option<T> {
        result.map_err(|error| self.0.push(error.into())).ok()
    }
}

/// Reason why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file is not valid.
    #[error("configuration {}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column and expected value.
        source: Box<toml::de::Error>,
    },
    /// Neither an interface nor a NIC is given.
    #[error("no NIC to serve: give --iface IF, --nic loopback or --nic pcap:IN,OUT")]
    NoNic,
    /// Both an interface and a NIC are given.
    #[error("both an interface ({iface}) and a NIC ({nic}) are given: choose one")]
    TwoNics {
        /// The interface.
        iface: String,
        /// The other NIC.
        nic: String,
    },
    /// Not a file mode.
    #[error("socket_mode {0:?} is not an octal file mode such as \"0660\"")]
    BadMode(String),
    /// A machine that is not possible.
    #[error("machine.{0}")]
    Machine(#[from] MachineError),
    /// Not an address for metrics.
    #[error(transparent)]
    Metrics(#[from] BadEndpoint),
    /// A core is given twice.
    #[error("core {0} is given twice: each thread needs one of its own, so name it once")]
    SameCore(usize),
    /// More threads than clusters.
    #[error(
        "{cores} cores to run handlers of {clusters} clusters: give at most {clusters} cores, or more clusters (machine.clusters)"
    )]
    ManyCores {
        /// Cores given.
        cores: usize,
        /// Clusters of the machine.
        clusters: u32,
    },
    /// Pipeline mode with one core.
    #[error("{0} cores, where one receives for others: give at least 2 (--cores)")]
    FewCores(usize),
    /// Not a share.
    #[error(
        "local_share {0}: between 0 (the first core only receives) and 100 (as much as each other core), in percent"
    )]
    LocalShare(u32),
    /// Several cores for a NIC that only one thread can serve.
    #[error("{0} cores: only an interface can be served by more than one, so give one core or --iface IF")]
    OneQueue(usize),
    /// A size out of its bounds.
    #[error("sizes.{name} is {size}: give {least} to {most}")]
    Size {
        /// Name of the size.
        name: &'static str,
        /// Requested value.
        size: u32,
        /// Smallest allowed value.
        least: u32,
        /// Largest allowed value.
        most: u32,
    },
    /// More contexts than `list` can show.
    #[error("limits.contexts is {0}: give 1 to {MAX_CONTEXTS}")]
    Contexts(usize),
    /// A limit of 0 that excludes every application.
    #[error("limits.{0} is 0: no application could have any, so give at least 1")]
    Nobody(&'static str),
    /// A limit of 0 that lets no handler run.
    #[error("limits.{0} is 0: no handler could run, so give at least 1")]
    NoTime(&'static str),
    /// A time limit that is too long: a waiting handler is checked by the clock, which such a limit would defeat.
    #[error(
        "limits.watchdog_us is {given}: a handler that waits in vain would hold its thread up, so give at most {most} (an hour)"
    )]
    TooMuchTime {
        /// The limit given.
        given: u64,
        /// The longest allowed.
        most: u64,
    },
    /// An error in the policy.
    #[error(transparent)]
    Policy(#[from] SectionError),
    /// Not a NIC.
    #[error("{0:?} is not a NIC: expected `loopback` or `pcap:IN,OUT`")]
    BadNic(String),
}
