//! Why spind stops with an error.

use std::path::PathBuf;

use spin_nic::NicError;

use crate::control::server::ServerError;
use crate::cores::ThreadError;
use crate::install::InstallError;

/// Why spind stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The NIC.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The control socket.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The NIC went away.
    #[error("the NIC is gone: {0}")]
    Gone(String),
    /// A thread of the engine.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// Requests cannot be waited for.
    #[error("cannot wait for requests: {0}")]
    Wait(rustix::io::Errno),
    /// Capabilities cannot be given up.
    #[error("cannot give up capabilities: {0}")]
    Privileges(rustix::io::Errno),
    /// A context of the configuration file.
    #[error("context of image {}: {source}", image.display())]
    Context {
        /// Its image.
        image: PathBuf,
        /// What was wrong.
        source: Box<InstallError>,
    },
    /// An image of the configuration file cannot be read.
    #[error("image {}: {source}", image.display())]
    ReadImage {
        /// The image.
        image: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
