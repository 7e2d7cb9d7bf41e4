//! Plans the attachment of a context to a worker.

use std::ops::Range;
use std::sync::Arc;

use spin_matcher::Table;
use spin_matcher::table::CompiledEntry;
use spin_pspin::ids::Slot;

use super::match_spec::check_rules;
use super::{InstallError, Prepared, User};
use crate::context::contexts::Contexts;
use crate::settings::Limits;

/// The changes that attach a context.
pub(super) struct AttachPlan {
    pub(super) id: u32,
    pub(super) entry: Arc<CompiledEntry>,
    /// The context that it replaces.
    pub(super) predecessor: Option<Slot>,
    pub(super) table: Arc<Table>,
    /// The slots of the previous table.
    pub(super) slots: Vec<Slot>,
    /// The range of `slots` that the context's slot replaces: empty at the end, or the replaced context's.
    pub(super) range: Range<usize>,
}

impl Contexts {
    /// Plans the attachment of a context, if it is allowed.
    pub(super) fn plan(
        &self,
        prepared: &Prepared,
        limits: &Limits,
        table: Option<&Arc<Table>>,
    ) -> Result<AttachPlan, InstallError> {
        // Draining contexts count too.
        if self.linked as usize >= limits.contexts {
            return Err(InstallError::Full { most: limits.contexts, ending: self.draining });
        }
        let is_user = prepared.match_spec.send.is_some();
        if is_user {
            self.check_count(prepared.uid, limits)?;
        }
        let id = prepared.handle.map_or(self.next_id + 1, |place| place.id);
        let entry = prepared
            .assigned
            .as_ref()
            .map(|assigned| assigned.entry.clone())
            .map_or_else(|| prepared.compile(id), Ok)?;
        let replaced = prepared.install.replaces;
        let predecessor = replaced.map(|old| self.find(old, User(prepared.uid))).transpose()?;
        let slots = self.routes.slots.clone();
        let place = slots.iter().position(|&slot| Some(slot) == predecessor);
        let range = place.map_or(slots.len()..slots.len(), |place| place..place + 1);
        if let Some(table) = table {
            return Ok(AttachPlan { id, entry, predecessor, table: table.clone(), slots, range });
        }
        let mut entries = self.entries();
        entries.splice(range.clone(), [entry.clone()]);
        let table = Arc::new(Table::of(entries)?);
        if is_user {
            let mut owners = self.owners();
            owners.splice(range.clone(), [prepared.uid]);
            check_rules(&table, &owners, prepared.uid)?;
        }
        Ok(AttachPlan { id, entry, predecessor, table, slots, range })
    }
}
