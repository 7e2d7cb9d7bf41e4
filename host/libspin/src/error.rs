//! Reasons why requests fail.

use std::path::PathBuf;

use spin_shm::channel::ChannelError;

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// spind cannot be reached.
    #[error("cannot connect to spind at {}: {source}; {}", path.display(), connect_hint(source))]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The connection failed or received an invalid message.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// spind closed the connection.
    #[error("spind closed the connection")]
    Closed,
    /// spind refused the request.
    #[error("{0}")]
    Refused(String),
    /// The reply does not match the request.
    #[error("spind gave an unexpected answer: {0}")]
    Unexpected(String),
    /// No context of this user has that name, and none has that id.
    #[error("no context {0:?} is installed; `spinctl list` shows those that are")]
    NoSuchContext(String),
    /// Several contexts have that name.
    #[error("{} contexts are named {name:?}; name one by its id ({})", ids.len(), listed(ids))]
    Ambiguous {
        /// The name.
        name: String,
        /// Ids of the contexts.
        ids: Vec<u32>,
    },
    /// The context's host memory cannot be mapped.
    #[error("host memory: {0}")]
    HostMemory(#[from] spin_shm::RegionError),
    /// The system has no descriptor, thread or memory left.
    #[error("the system refused: {0}")]
    System(#[from] std::io::Error),
}

fn connect_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "its socket_mode lets only some users in: ask for that, or be root",
        _ => "is it running, and is this its --socket?",
    }
}

fn listed(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
