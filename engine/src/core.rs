//! What tasks and packets of a worker change: contexts, messages, accounts, and the way out.

use std::ops::Range;

use spin_abi::control::Schedule;
use spin_abi::map::Machine;
use spin_nic::Queue;

use crate::contexts::Contexts;
use crate::egress::Egress;
use crate::parked::Parked;
use crate::settings::Sizes;
use crate::sharing::Sched;
use crate::table::MessageTable;
use crate::tasks::{idle_hpu, runnable};
use crate::telemetry::Telemetry;
use spin_pspin::ids::Slot;
use spin_pspin::ids::{MessageRef, Packet};
use spin_pspin::mpq::Task;

/// The state of a worker that running a task may change.
pub(crate) struct Core {
    pub(crate) machine: Machine,
    /// Its clusters, of the machine's.
    pub(crate) clusters: Range<u32>,
    pub(crate) nic: Box<dyn Queue>,
    pub(crate) contexts: Contexts,
    pub(crate) table: MessageTable,
    pub(crate) sched: Sched,
    /// Tasks that wait on their HPUs.
    pub(crate) parked: Vec<Parked>,
    pub(crate) egress: Egress,
    pub(crate) telemetry: Telemetry,
}

impl Core {
    pub(crate) fn new(
        machine: Machine,
        nic: Box<dyn Queue>,
        sizes: Sizes,
        schedule: Schedule,
        clusters: Range<u32>,
    ) -> Self {
        Self {
            machine,
            nic,
            contexts: Contexts::default(),
            table: MessageTable::new(sizes, clusters.start),
            clusters,
            sched: Sched::new(schedule),
            parked: Vec::new(),
            egress: Egress::new(sizes),
            telemetry: Telemetry::new(),
        }
    }

    /// Whether tasks of a context wait on their HPUs.
    #[inline]
    pub(crate) fn has_parked(&self, owner: u32) -> bool {
        self.parked.iter().any(|parked| parked.task.context.slot.0 == owner)
    }

    /// Contexts with a task that has an HPU to run on.
    #[inline]
    pub(crate) fn runnable(&self) -> impl Iterator<Item = u32> + '_ {
        runnable(&self.parked, &self.table.mpqs, &self.contexts.list)
    }

    /// Where an owner's next task can run: `None` when the HPUs of its cluster are taken, and it may not overflow to others (PsPIN
    /// paper §III-B1). While tasks wait on HPUs, others of their context run one at a time: each looks for an idle HPU.
    pub(crate) fn place(
        &self,
        owner: u32,
        next: Option<&Task<MessageRef, Packet>>,
    ) -> Option<(Option<spin_pspin::hpu::memory::HpuId>, bool)> {
        if !self.has_parked(owner) {
            return Some((None, false));
        }
        debug_assert!(next.is_none(), "nothing is taken beforehand while tasks wait");
        let Some((binding, stage)) = self.table.mpqs.peek(owner) else { return Some((None, true)) };
        let hpu = idle_hpu(&self.contexts.list, binding, stage)?;
        Some((Some(hpu), true))
    }

    /// Virtual time of the context that is furthest behind, of those that have packets in the batch or tasks.
    pub(crate) fn least(&self) -> u64 {
        let arrived = self.sched.ranks.slots().iter().map(|slot| slot.0);
        self.sched.scheduler.least(arrived.chain(self.runnable()))
    }

    /// Whether a context comes before all that have tasks.
    pub(crate) fn is_next(&self, slot: Slot) -> bool {
        self.sched.scheduler.is_next(slot.0, self.runnable())
    }

    /// Whether a context may leave one more packet to the kernel, behind others of a message which it did not want. Passing is done at
    /// once, so it has the same bound as what runs at once.
    #[cold]
    pub(crate) fn may_pass(&mut self, slot: Slot) -> bool {
        !self.contexts.is_shared() || {
            let least = self.least();
            self.sched.scheduler.keeps_pace(slot.0, least, self.contexts.linked)
                && self.sched.scheduler.pick([slot.0]).is_some()
        }
    }
}
