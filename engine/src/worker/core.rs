//! The state that running tasks changes: contexts, messages, accounts, and outgoing frames.

use std::ops::Range;

use spin_abi::control::{Placement, Schedule};
use spin_abi::map::Machine;
use spin_nic::Queue;

use crate::context::Context;
use crate::context::contexts::Contexts;
use crate::cores::units::UnitPart;
use crate::egress::Egress;
use crate::message::MessageTable;
use crate::sched::Sched;
use crate::settings::Sizes;
use crate::telemetry::Telemetry;
use crate::worker::parked::Parked;
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::ids::{MessageRef, Packet, Slot};
use spin_pspin::mpq::{Mpqs, Stage, Task};

/// The state of a worker that running a task may change.
pub(crate) struct Core {
    pub(crate) machine: Machine,
    /// The worker's part of the units.
    pub(crate) part: UnitPart,
    /// The worker's share of its unit's clusters.
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
            table: MessageTable::new(sizes, clusters.clone(), machine.clusters),
            part: UnitPart::from(clusters.clone()),
            clusters,
            sched: Sched::new(schedule),
            parked: Vec::new(),
            egress: Egress::new(sizes),
            telemetry: Telemetry::new(),
        }
    }

    /// Whether a context has parked tasks.
    #[inline]
    pub(crate) fn has_parked(&self, owner: u32) -> bool {
        self.parked.iter().any(|parked| parked.task.context.slot.0 == owner)
    }

    /// Contexts whose next task has an HPU to run on.
    #[inline]
    pub(crate) fn runnable(&self) -> impl Iterator<Item = u32> + '_ {
        runnable(&self.parked, &self.table.mpqs, &self.contexts.list)
    }

    /// The HPU for an owner's next task, and whether that task has to run alone. Returns `None` when all HPUs of its home cluster
    /// are taken and it may not overflow to another cluster (PsPIN paper §III-B1). An HPU of `None` stands for the first one of
    /// the home cluster. While a context has parked tasks, its other tasks run one at a time, since each one has to look for an
    /// idle HPU.
    pub(crate) fn place(&self, owner: u32, next: Option<&Task<MessageRef, Packet>>) -> Option<(Option<HpuId>, bool)> {
        if !self.has_parked(owner) {
            return Some((None, false));
        }
        debug_assert!(next.is_none(), "nothing is taken beforehand while tasks wait");
        let Some((binding, stage)) = self.table.mpqs.peek(owner) else { return Some((None, true)) };
        let hpu = idle_hpu(&self.contexts.list, binding, stage)?;
        Some((Some(hpu), true))
    }

    /// Notes the contexts that have packets in the batch or runnable tasks, for the lag bound.
    pub(crate) fn note_backlog(&mut self) {
        let Self { sched: Sched { scheduler, order, .. }, parked, table, contexts, .. } = self;
        let arrived = order.slots().iter().map(|slot| slot.0);
        scheduler.note_backlog(arrived.chain(runnable(parked, &table.mpqs, &contexts.list)));
    }

    /// Whether a context may run its packets on arrival.
    pub(crate) fn within_lag(&mut self, slot: Slot) -> bool {
        if !self.sched.scheduler.user_within_lag(slot.0) {
            return false;
        }
        if !self.sched.scheduler.context_within_lag(slot.0) {
            // Other contexts of the user may have advanced since the backlog was noted.
            self.note_backlog();
        }
        self.sched.scheduler.context_within_lag(slot.0)
    }

    /// Whether a context comes before all contexts with runnable tasks.
    pub(crate) fn is_next(&self, slot: Slot) -> bool {
        self.sched.scheduler.is_next(slot.0, self.runnable())
    }

    /// Whether a context may pass one more packet to the kernel, behind others of a message that it did not want. Passing happens
    /// at once, so it has the bound of packets that run on arrival.
    #[cold]
    pub(crate) fn may_pass(&mut self, slot: Slot) -> bool {
        !self.contexts.is_shared() || {
            self.note_backlog();
            self.sched.scheduler.within_lag(slot.0) && self.sched.scheduler.pick([slot.0]).is_some()
        }
    }
}

/// An idle HPU for a task: on its home cluster, or on the least loaded one if the task may overflow.
pub(crate) fn idle_hpu(contexts: &[Option<Context>], binding: MessageRef, stage: Stage) -> Option<HpuId> {
    let context = contexts[binding.slot.0 as usize].as_ref()?;
    let overflows = stage == Stage::Payload && context.run.placement == Placement::Any;
    context.hpus.idle(binding.home()).or_else(|| context.hpus.idle_on_least_loaded().filter(|_| overflows))
}

/// Owners with tasks, whose next task has an idle HPU. Parked tasks may occupy all of them.
#[inline]
pub(crate) fn runnable<'e>(
    parked: &'e [Parked],
    mpqs: &'e Mpqs<MessageRef, Packet>,
    contexts: &'e [Option<Context>],
) -> impl Iterator<Item = u32> + 'e {
    let blocked = move |&owner: &u32| {
        let is_taken = |(binding, stage)| idle_hpu(contexts, binding, stage).is_none();
        !parked.is_empty() && mpqs.peek(owner).is_some_and(is_taken)
    };
    mpqs.backlogged().iter().copied().filter(move |owner| !blocked(owner))
}
