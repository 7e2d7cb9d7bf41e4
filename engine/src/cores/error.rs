//! Errors of the engine's threads.

use spin_nic::NicError;

/// The reason why a thread did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The NIC of the thread failed.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The thread cannot run handlers.
    #[error("cannot run handlers: {0}")]
    Failed(String),
}
