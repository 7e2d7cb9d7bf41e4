//! Errors in a configuration.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use spin_abi::map::MachineError;
use spin_matcher::TableError;

use crate::control::endpoint::BadEndpoint;
use crate::control::policy::error::SectionError;
use crate::cores::units::BadUnits;
use crate::install::InstallError;
use crate::settings::MAX_CONTEXTS;

/// All errors of a configuration.
#[derive(Debug, Default)]
pub struct ConfigErrors {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The errors.
    pub errors: Vec<ConfigError>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().collect::<Vec<_>>().join("\nspind: "))
    }
}

impl Error for ConfigErrors {}

impl ConfigErrors {
    /// A line for each error.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let file = self.file.as_ref().map_or(String::new(), |file| format!("configuration {}: ", file.display()));
        self.errors.iter().map(move |error| format!("{file}{error}"))
    }

    /// Keeps an error for later. Returns the value if there is none.
    pub(crate) fn keep<T>(&mut self, result: Result<T, impl Into<ConfigError>>) -> Option<T> {
        result.map_err(|error| self.errors.push(error.into())).ok()
    }
}

/// Reason why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// A line of the file is not valid.
    #[error("line {line}: {key}{message}")]
    Parse {
        /// The line.
        line: usize,
        /// The key, with a colon behind it. Empty: the line is no TOML.
        key: String,
        /// The expected value.
        message: String,
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
    /// More threads than spind can have.
    #[error("{cores} cores to run handlers: give at most {most}")]
    ManyCores {
        /// Cores given.
        cores: usize,
        /// Maximum number.
        most: usize,
    },
    /// The cores cannot be divided into that number of units.
    #[error(transparent)]
    Units(#[from] BadUnits),
    /// A description of a machine that is none.
    #[error("topology {}: {cause}", path.display())]
    Topology {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// A core that the description of the machine does not have.
    #[error("core {0}: the topology has no such core; name it in one of its nodes")]
    NoSuchCore(usize),
    /// Pipeline mode with one core.
    #[error("{0} cores, where one receives for others: give at least 2 (--cores)")]
    FewCores(usize),
    /// Not a share.
    #[error(
        "local_share {0}: between 0 (the first core only receives) and 100 (as much as each other core), in percent"
    )]
    LocalShare(u32),
    /// Several cores for a NIC that only one thread can serve.
    #[error("{0} cores: captures, and loopback in pipeline mode, have one core; give one, or --iface IF")]
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
    /// A context of the configuration cannot be installed.
    #[error("context {number}{}, image {}: {cause}", if name.is_empty() { String::new() } else { format!(" ({name})") }, image.display())]
    Context {
        /// Its number in the file, from 1 on.
        number: usize,
        /// Its name.
        name: String,
        /// Path of its image.
        image: PathBuf,
        /// Cause.
        cause: ContextError,
    },
    /// More contexts than allowed.
    #[error("{count} contexts, and limits.contexts is {most}: remove some, or raise it (1 to {MAX_CONTEXTS})")]
    ManyContexts {
        /// Number of contexts.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The rules of all contexts together do not fit.
    #[error("rules of all contexts together: {0}")]
    Rules(TableError),
    /// There is no account to run as.
    #[error(
        "no account {0} to run as once the NIC is open: create it (useradd --system spind), or name another one with `user`"
    )]
    NoAccount(String),
    /// Not a NIC.
    #[error("{0:?} is not a NIC: expected `loopback` or `pcap:IN,OUT`")]
    BadNic(String),
}

/// Reason why a context of the configuration cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The image cannot be read.
    #[error("cannot be read: {0}")]
    Image(#[from] std::io::Error),
    /// Refused, as a request to install it would be.
    #[error(transparent)]
    Install(Box<InstallError>),
    /// Another context has its name, by which contexts are compared when the configuration is read again.
    #[error("context {0} has the same name: give it another `name`")]
    SameName(usize),
}

impl From<InstallError> for ContextError {
    fn from(error: InstallError) -> Self {
        Self::Install(Box::new(error))
    }
}
