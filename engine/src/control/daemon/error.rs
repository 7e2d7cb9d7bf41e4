//! Errors that stop spind.

use spin_nic::NicError;

use crate::control::config::ConfigErrors;
use crate::control::server::ServerError;
use crate::control::socket_file::SocketError;
use crate::control::state::StateError;
use crate::cores::ThreadError;
use crate::install::InstallError;

/// Error that stopped spind.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Error of the NIC.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// Error of the control socket.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The NIC went away.
    #[error("the NIC is gone: {0}")]
    Gone(String),
    /// Error of an engine thread.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The wait for requests failed.
    #[error("cannot wait for requests: {0}")]
    Wait(rustix::io::Errno),
    /// Privileges cannot be given up.
    #[error("cannot give up privileges: {0}")]
    Privileges(std::io::Error),
    /// The loader process does not start.
    #[error("cannot start the loader process: {0}")]
    Loader(std::io::Error),
    /// The descriptor process does not start.
    #[error("cannot start the descriptor process: {0}")]
    DescriptorProcess(std::io::Error),
    /// Error of the configuration, or of its contexts.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The state folder cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The engine refused a context of the configuration.
    #[error("context {name}: {source}")]
    Context {
        /// Name of the context.
        name: String,
        /// Cause.
        source: InstallError,
    },
    /// The system refuses something that every program may do.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// Exit codes, of sysexits.h. deploy/spind.service names those after which a restart is of no use; docs/service.md has the table.
mod exit {
    /// Wrong command line.
    pub const USAGE: u8 = 64;
    /// The NIC, a socket or an address is missing, busy, or went away.
    pub const UNAVAILABLE: u8 = 69;
    /// The system refuses a thread, memory or a system call.
    pub const SYSTEM: u8 = 71;
    /// Missing privileges.
    pub const NO_PERMISSION: u8 = 77;
    /// Wrong configuration.
    pub const CONFIG: u8 = 78;
}

/// Exit code after a wrong command line.
pub const USAGE: u8 = exit::USAGE;

impl DaemonError {
    /// The code with which spind ends after this error.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Nic(NicError::Privileges { .. }) => exit::NO_PERMISSION,
            Self::Server(ServerError::Socket(SocketError::NotASocket(_))) => exit::CONFIG,
            Self::Config(_) | Self::Context { .. } => exit::CONFIG,
            Self::State(error) if error.is_lasting() => exit::CONFIG,
            Self::Nic(_) | Self::Server(_) | Self::Gone(_) | Self::State(_) | Self::Thread(ThreadError::Nic(_)) => {
                exit::UNAVAILABLE
            }
            Self::Thread(_) | Self::Wait(_) | Self::Privileges(_) => exit::SYSTEM,
            Self::Loader(_) | Self::DescriptorProcess(_) | Self::System(_) => exit::SYSTEM,
        }
    }
}
