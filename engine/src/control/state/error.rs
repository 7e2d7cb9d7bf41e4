//! Errors of the state folder.

use std::io;
use std::path::PathBuf;

/// Reason why spind cannot use a state folder.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refuses.
    #[error("state folder {}: {source}; --state DIR names another", path.display())]
    Open {
        /// The folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Another user owns it, who could change entries.
    #[error("state folder {} belongs to user {found}: run `chown -R {needed} {}`, or name another with --state DIR", path.display(), path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        found: u32,
        /// The user that spind runs as.
        needed: u32,
    },
    /// Other users may open it.
    #[error("state folder {} has mode {mode:o}, and others must not open it: run `chmod 700 {}`", path.display(), path.display())]
    Mode {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another spind has it.
    #[error("state folder {} is in use by another spind: stop it, or name another folder with --state DIR", .0.display())]
    Taken(PathBuf),
}

impl StateError {
    /// Whether only an administrator can mend it.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::Owner { .. } | Self::Mode { .. })
    }
}
