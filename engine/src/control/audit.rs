//! Logs who installed, changed and removed contexts, so that the log later shows whose context took which packets.

use crate::cores::Transaction;
use crate::install::{InstallError, Prepared};

/// Target of these lines in the log, where they have a limit of their own: see [`log`](super::log).
pub const TARGET: &str = "spin_engine::control::audit";

/// Log lines for the changes of a transaction.
pub struct AuditLines {
    installs: Vec<String>,
    rules: Vec<String>,
    removals: Vec<String>,
}

impl AuditLines {
    /// Lines for the changes of a transaction, made before it is carried out.
    #[must_use]
    pub fn of(transaction: &Transaction) -> Self {
        Self {
            installs: transaction.installs.iter().map(Prepared::describe).collect(),
            rules: transaction
                .rules
                .iter()
                .map(|(id, user, to)| format!("{user} has context {id} take {}", to.rules()))
                .collect(),
            removals: transaction.removals.iter().map(|(id, user)| format!("{user} removed context {id}")).collect(),
        }
    }

    /// Logs the changes that succeeded.
    pub fn log(
        self,
        installed: &[Result<u32, InstallError>],
        ruled: &[Result<(), InstallError>],
        removed: &[Result<(), InstallError>],
    ) {
        for (what, id) in self.installs.into_iter().zip(installed) {
            if let Ok(id) = id {
                tracing::info!(target: TARGET, "{what} as context {id}");
            }
        }
        let others = self.rules.into_iter().zip(ruled).chain(self.removals.into_iter().zip(removed));
        others.filter(|(_, done)| done.is_ok()).for_each(|(what, _)| tracing::info!(target: TARGET, "{what}"));
    }
}
