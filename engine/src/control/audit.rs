//! Who has installed, changed and removed contexts, in the log: who took which packets is to be found there later.

use crate::cores::group::Changes;
use crate::install::{InstallError, Prepared};

/// Changes of contexts in words.
pub struct Wanted {
    installs: Vec<String>,
    rules: Vec<String>,
    removals: Vec<String>,
}

impl Wanted {
    /// What is asked for.
    #[must_use]
    pub fn of(changes: &Changes) -> Self {
        Self {
            installs: changes.installs.iter().map(Prepared::in_words).collect(),
            rules: changes
                .rules
                .iter()
                .map(|(id, user, to)| format!("{user} has context {id} take {}", to.rules()))
                .collect(),
            removals: changes.removals.iter().map(|(id, user)| format!("{user} removed context {id}")).collect(),
        }
    }

    /// Logs those of which something came.
    pub fn log(
        self,
        installed: &[Result<u32, InstallError>],
        ruled: &[Result<(), InstallError>],
        removed: &[Result<(), InstallError>],
    ) {
        for (what, id) in self.installs.into_iter().zip(installed) {
            if let Ok(id) = id {
                tracing::info!("{what} as context {id}");
            }
        }
        let others = self.rules.into_iter().zip(ruled).chain(self.removals.into_iter().zip(removed));
        others.filter(|(_, done)| done.is_ok()).for_each(|(what, _)| tracing::info!("{what}"));
    }
}
