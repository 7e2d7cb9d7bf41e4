//! What an engine tells of its contexts.

use std::sync::Arc;

use spin_abi::control::ContextInfo;
use spin_shm::Region;

use super::{InstallError, Matching, User};
use crate::inbound::Routes;
use crate::pipeline::Engine;

impl Engine {
    /// Records at which address the application mapped a context's host memory.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`].
    pub fn map_host(&mut self, id: u32, user: User, address: u64) -> Result<(), InstallError> {
        self.contexts.map_host(id, user, address)
    }

    /// A context's descriptor.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`].
    pub fn descriptor(&self, id: u32, user: User) -> Result<Arc<Region>, InstallError> {
        self.contexts.descriptor(id, user)
    }

    /// A context's host memory and the address by which handlers know it.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`].
    pub fn host_memory(&self, id: u32, user: User) -> Result<(Arc<Region>, u64), InstallError> {
        self.contexts.host_memory(id, user)
    }

    /// Contexts in order of priority.
    #[must_use]
    pub fn context_infos(&self) -> Vec<ContextInfo> {
        self.contexts.infos()
    }

    /// Whether a user may remove a context.
    ///
    /// # Errors
    /// As [`Engine::remove`].
    pub fn may_remove(&self, id: u32, user: User) -> Result<(), InstallError> {
        self.contexts.find(id, user).map(|_| ())
    }

    /// Routes without contexts that are about to be [unlinked](Engine::unlink).
    ///
    /// # Errors
    /// Never, as long as all contexts' rules fit a table.
    pub fn routes_without(&self, leaving: &[u32]) -> Result<Routes, InstallError> {
        self.routes_after(leaving, &[])
    }

    /// Routes without some contexts, when others take what `rules` say.
    ///
    /// # Errors
    /// [`InstallError::Table`].
    pub fn routes_after(&self, leaving: &[u32], rules: &[(u32, Matching)]) -> Result<Routes, InstallError> {
        self.contexts.routes_after(leaving, rules)
    }

    /// By slot: whether a context has it, installed or not.
    #[must_use]
    pub fn slots_taken(&self) -> Vec<bool> {
        self.contexts.slots_taken()
    }
}
