//! What an install changes in the state folder: a persistent context gets an entry, and the entry of a context that it replaces goes.

use spin_abi::control::{Install, Lifetime};

use crate::control::state::{Claim, Entry, Staged, State};
use crate::install::User;
use crate::settings::Limits;

/// Changes that wait for the control thread to install a context.
pub struct StateChange<'s> {
    state: Option<&'s State>,
    staged: Option<Staged<'s>>,
    replaced: Option<Claim<'s>>,
}

impl<'s> StateChange<'s> {
    /// Prepares the changes that a request makes. Writes what may not find room.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn prepare(
        state: Option<&'s State>,
        install: &Install,
        image: &[u8],
        (user, gid): (User, u32),
        limits: &Limits,
    ) -> Result<Self, String> {
        let replaced = state.zip(install.replaces).and_then(|(state, old)| state.claim(old, user));
        let staged = match (install.lifetime, state) {
            (Lifetime::Connection | Lifetime::Daemon, _) => None,
            (Lifetime::Persistent, None) => {
                return Err("spind has no state folder for persistent contexts: start it with --state DIR".to_owned());
            }
            (Lifetime::Persistent, Some(state)) => {
                if replaced.is_none() {
                    state.check_count(user.0, limits)?;
                }
                let entry = Entry { uid: user.0, gid, install: install.clone(), administrator: None };
                Some(state.stage(&entry, image)?)
            }
        };
        Ok(Self { state, staged, replaced })
    }

    /// Carries out the changes, now that the context is installed. They are durable on return.
    ///
    /// # Errors
    /// The context is not to stay: it has no entry, or the entry of the replaced one remains.
    pub fn commit(self, context: u32) -> Result<(), String> {
        if let (Some(state), Some(staged)) = (self.state, self.staged) {
            state.announced(context).save(staged)?;
        }
        self.replaced.map_or(Ok(()), Claim::delete)
    }
}
