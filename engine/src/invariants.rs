//! Consistency of a worker's accounts, for tests.

use crate::context::Context;
use crate::pipeline::Engine;

impl Engine {
    /// Checks a worker's accounts against each other: message table, queues, parked tasks and contexts. A queue is held exactly
    /// when it is not free. Call it between polls.
    ///
    /// # Panics
    /// When they disagree: a bug.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        let (core, table) = (&self.core, &self.core.table);
        table.mpqs.check();
        table.messages.check(|mpq| table.mpqs.is_free(mpq));
        let own = core.parked.iter().filter(|parked| parked.borrowed.is_none()).count();
        let in_flight = table.mpqs.tasks_in_flight();
        assert!(in_flight == own || in_flight > own && self.has_loans(), "{in_flight} tasks in flight, {own} parked");
        let contexts = &core.contexts;
        let count = |has: fn(&Context) -> bool| contexts.list.iter().flatten().filter(|context| has(context)).count();
        let counted = [
            count(|_| true),
            count(|context| context.message_timeout.is_some()),
            count(|context| context.retired),
            count(|context| context.heir.is_some()),
        ];
        let noted = [contexts.linked, contexts.timeouts, contexts.draining, contexts.rolled_back];
        assert_eq!(counted, noted.map(|number| number as usize), "contexts: all, with timeout, draining, rolled back");
    }

    /// Queues that messages of an installed context hold.
    #[doc(hidden)]
    #[must_use]
    pub fn queues_held(&self, id: u32) -> u32 {
        self.core.contexts.slot_with(id).map_or(0, |slot| self.core.table.messages.held(slot))
    }
}
