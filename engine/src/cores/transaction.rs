//! Changes of contexts that are carried out together.

use crate::install::{InstallError, MatchSpec, Prepared, User};

/// Changes to carry out together, in this order.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Contexts to install, in order of priority.
    pub installs: Vec<Prepared>,
    /// Contexts whose rules change, and their new rules.
    pub rules: Vec<(u32, User, MatchSpec)>,
    /// Contexts to remove.
    pub removals: Vec<(u32, User)>,
}

/// Results of a [`Transaction`], in its order.
#[derive(Debug)]
pub struct ChangeResult {
    /// The ids of the installed contexts.
    pub installed: Vec<Result<u32, InstallError>>,
    /// The changes of rules.
    pub ruled: Vec<Result<(), InstallError>>,
    /// The removals.
    pub removed: Vec<Result<(), InstallError>>,
}

impl ChangeResult {
    /// Fails all changes but removals, after the NIC refused the new rules.
    pub fn refuse(&mut self, error: &InstallError) {
        refuse_all(&mut self.installed, error);
        refuse_all(&mut self.ruled, error);
    }
}

fn refuse_all<T>(results: &mut [Result<T, InstallError>], error: &InstallError) {
    for result in results.iter_mut().filter(|result| result.is_ok()) {
        *result = Err(match error {
            InstallError::Nic(error) => InstallError::Nic(error.clone()),
            _ => InstallError::Stopped,
        });
    }
}
