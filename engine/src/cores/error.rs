//! Why the engine's threads do not start, or end early.

use spin_nic::NicError;

/// Why a thread did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// Its NIC failed.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// It cannot run handlers.
    #[error("cannot run handlers: {0}")]
    Failed(String),
}
