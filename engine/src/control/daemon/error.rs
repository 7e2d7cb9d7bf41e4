//! Errors that stop spind.

use std::path::PathBuf;

use spin_nic::NicError;

use crate::control::server::ServerError;
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
    /// There is no account to run as.
    #[error(
        "no account {0} to run as once the NIC is open: create it (useradd --system spind), or name another one with `user`"
    )]
    NoAccount(String),
    /// The loader process does not start.
    #[error("cannot start the loader process: {0}")]
    Loader(std::io::Error),
    /// A context of the configuration file cannot be installed.
    #[error("context of image {}: {source}", image.display())]
    Context {
        /// Image of the context.
        image: PathBuf,
        /// Cause.
        source: Box<InstallError>,
    },
    /// An image of the configuration file cannot be read.
    #[error("image {}: {source}", image.display())]
    ReadImage {
        /// Path of the image.
        image: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
}
