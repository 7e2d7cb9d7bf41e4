//! What an engine tells of its contexts.

use std::sync::Arc;

use spin_abi::control::ContextInfo;
use spin_matcher::{Table, TableEntry};
use spin_shm::Region;

use super::{InstallError, MatchSpec, User};
use crate::context::{Context, Slot};
use crate::inbound::Routes;
use crate::pipeline::Engine;

impl Engine {
    /// Tells at which address the application mapped a context's host memory.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`].
    pub fn map_host(&mut self, id: u32, user: User, address: u64) -> Result<(), InstallError> {
        let slot = self.find(id, user)?;
        let context = self.contexts[slot.0 as usize].as_mut().filter(|context| context.host.is_some());
        let context = context.ok_or(InstallError::NoHostMemory(id))?;
        if let Some(host) = &mut context.host {
            host.address = address;
        }
        context.describe_host();
        Ok(())
    }

    /// A context's descriptor.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`].
    pub fn descriptor(&self, id: u32, user: User) -> Result<Arc<Region>, InstallError> {
        let slot = self.find(id, user)?;
        let context = self.contexts[slot.0 as usize].as_ref().ok_or(InstallError::NoSuchContext(id))?;
        Ok(context.descriptor.region().clone())
    }

    /// A context's host memory and the address handlers know it by.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`].
    pub fn host_memory(&self, id: u32, user: User) -> Result<(Arc<Region>, u64), InstallError> {
        let slot = self.find(id, user)?;
        let host = self.contexts[slot.0 as usize].as_ref().and_then(|context| context.host.as_ref());
        let host = host.ok_or(InstallError::NoHostMemory(id))?;
        Ok((host.region.clone(), host.address))
    }

    /// Contexts in order of priority.
    #[must_use]
    pub fn context_infos(&self) -> Vec<ContextInfo> {
        self.installed().map(info).collect()
    }

    pub(crate) fn installed(&self) -> impl Iterator<Item = &Context> {
        self.routes.slots.iter().filter_map(|slot| self.contexts[slot.0 as usize].as_ref())
    }

    pub(super) fn entries(&self) -> Vec<TableEntry> {
        self.installed().map(|context| context.entry.clone()).collect()
    }

    /// Whether a user may remove a context.
    ///
    /// # Errors
    /// As [`Engine::remove`].
    pub fn may_remove(&self, id: u32, user: User) -> Result<(), InstallError> {
        self.find(id, user).map(|_| ())
    }

    /// Where frames go without contexts that are about to be [unlinked](Engine::unlink).
    ///
    /// # Errors
    /// Never, as long as all contexts' rules fit a table.
    pub fn routes_without(&self, leaving: &[u32]) -> Result<Routes, InstallError> {
        self.routes_after(leaving, &[])
    }

    /// The same when some contexts take what these say.
    ///
    /// # Errors
    /// [`InstallError::Table`].
    pub fn routes_after(&self, leaving: &[u32], rules: &[(u32, MatchSpec)]) -> Result<Routes, InstallError> {
        let stays = |(entry, _): &(TableEntry, Slot)| !leaving.contains(&entry.context);
        let (mut entries, slots): (Vec<_>, _) =
            self.entries().into_iter().zip(self.routes.slots.iter().copied()).filter(stays).unzip();
        for (id, MatchSpec { rules, eom }) in rules {
            for entry in entries.iter_mut().filter(|entry| entry.context == *id) {
                (entry.rules, entry.eom) = (rules.clone(), eom.clone());
            }
        }
        Ok(Routes { table: Table::new(&entries)?, slots })
    }

    pub(super) fn find(&self, id: u32, user: User) -> Result<Slot, InstallError> {
        let found = self.routes.slots.iter().zip(self.installed()).find(|(_, context)| context.id == id);
        let (&slot, context) = found.ok_or(InstallError::NoSuchContext(id))?;
        if user.may_change(context) { Ok(slot) } else { Err(InstallError::NotYours { id, owner: context.uid }) }
    }

    /// Slots that contexts have, those too that were replaced and still have messages.
    #[must_use]
    pub fn slots_taken(&self) -> Vec<bool> {
        self.contexts.iter().map(Option::is_some).collect()
    }
}

fn info(context: &Context) -> ContextInfo {
    ContextInfo {
        context: context.id,
        name: context.name.clone(),
        uid: context.uid,
        rules: context.texts.rules.clone(),
        eom: context.texts.eom.clone(),
        key: context.texts.key.clone(),
        handlers: context.handlers.map(|handler| handler.is_some()),
        host_mem: context.host.as_ref().map_or(0, |host| host.region.len()),
        run: context.run_info(),
        counters: context.counts.named().filter(|(_, value)| *value > 0).collect(),
        faults: context.faults.iter().cloned().collect(),
    }
}
