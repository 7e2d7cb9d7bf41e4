//! Contexts come, change and go.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use spin_abi::control::{ContextInfo, Install};
use spin_abi::counters::Counter;
use spin_abi::events::What;
use spin_abi::map::PACKET_WINDOW;
use spin_matcher::{Rules, Table, TableEntry};
use spin_nic::affinity::drop_in_background;
use spin_shm::Region;

use super::{HOST_ADDRESS, InstallError, MatchSpec, Prepared, User, warn_of_rules};
use crate::context::event_ring::{DoorbellPending, EventRing};
use crate::context::{Context, ContextLog, Matching, Program, Replacement, Share};
use crate::cores::packet_channel::PacketRx;
use crate::ingress::rx_batch::RoutingTable;
use crate::sched::stall_credit::StallCredit;
use crate::settings::Limits;
use crate::worker::Worker;
use crate::worker::core::Core;
use crate::worker::runner::TaskRunner;
use spin_pspin::counts::Counts;
use spin_pspin::host_memory::HostMemory;
use spin_pspin::ids::Slot;

/// How long an open message of a context that was replaced may wait for its next packet.
const REPLACED: Duration = Duration::from_secs(10);
/// How long they may stay open in all: a flow need not end.
const REPLACED_IN_ALL: Duration = Duration::from_secs(60);

/// What is to change when a context is linked in.
struct AttachPlan {
    id: u32,
    entry: TableEntry,
    /// The context that it replaces.
    predecessor: Option<Slot>,
    table: Table,
    /// Those of the table before.
    slots: Vec<Slot>,
    /// Where its own goes there.
    range: Range<usize>,
}

impl Worker {
    /// Links a prepared context in as [`Worker::link`] does, tells the NIC, and returns its id: for an engine that has the NIC
    /// to itself.
    ///
    /// # Errors
    /// As there, and [`InstallError::Nic`]; nothing has changed then.
    pub fn install(&mut self, prepared: Prepared, limits: &Limits) -> Result<u32, InstallError> {
        let id = self.link(prepared, limits)?;
        if let Err(error) = self.steer(&self.core.contexts.routes) {
            self.undo_link(id)?;
            return Err(error);
        }
        self.retire_replaced(id)?;
        Ok(id)
    }

    /// Links a prepared context in, behind all others in priority or in place of the one that it replaces, and returns its id.
    /// The NIC does not know yet: see [`spin_nic::Queue::steering`].
    ///
    /// # Errors
    /// [`InstallError::Full`], [`InstallError::Table`], and [`InstallError::NoSuchContext`] or [`InstallError::NotYours`] of the
    /// one that it replaces; nothing has changed then.
    pub fn link(&mut self, prepared: Prepared, limits: &Limits) -> Result<u32, InstallError> {
        let planned = self.plan_link(&prepared, limits);
        let AttachPlan { id, entry, predecessor, table, mut slots, range } = match planned {
            Ok(planned) => planned,
            Err(error) => {
                drop_in_background(prepared);
                return Err(error);
            }
        };
        self.core.contexts.next_id = id;
        let slot = self.core.contexts.slot_of(prepared.handle);
        slots.splice(range, [slot]);
        self.set_routes(RoutingTable { table, slots });
        self.core.table.messages.add_context(slot);
        self.core.table.mpqs.add_owner(slot.0);
        self.core.sched.scheduler.add(slot.0, prepared.run.weight);
        self.core.contexts.timeouts += u32::from(prepared.run.message_timeout_us.is_some());
        let (cluster, doorbell_pending) = (self.core.clusters.start, &self.core.telemetry.doorbell_pending);
        let context = link(prepared, entry, predecessor, cluster, doorbell_pending);
        self.core.contexts.list[slot.0 as usize] = Some(context);
        self.core.contexts.linked += 1;
        self.share_buffer();
        Ok(id)
    }

    /// What is to change when a context is linked in, if it may be.
    fn plan_link(&self, prepared: &Prepared, limits: &Limits) -> Result<AttachPlan, InstallError> {
        // Those that were replaced and are not gone yet count too.
        if self.core.contexts.linked as usize >= limits.contexts {
            return Err(InstallError::Full { most: limits.contexts, ending: self.core.contexts.draining });
        }
        let id = prepared.handle.map_or(self.core.contexts.next_id + 1, |place| place.id);
        let entry = TableEntry {
            context: id,
            rules: prepared.match_spec.rules.clone(),
            eom: prepared.match_spec.eom.clone(),
            key: prepared.key.clone(),
        };
        let replaced = prepared.install.replaces;
        let predecessor = replaced.map(|old| self.core.contexts.find(old, User(prepared.uid))).transpose()?;
        let (mut entries, slots) = (self.core.contexts.entries(), self.core.contexts.routes.slots.clone());
        let place = slots.iter().position(|&slot| Some(slot) == predecessor);
        let range = place.map_or(entries.len()..entries.len(), |place| place..place + 1);
        entries.splice(range.clone(), [entry.clone()]);
        let table = Table::new(&entries)?;
        Ok(AttachPlan { id, entry, predecessor, table, slots, range })
    }

    /// Lets the context go that a context replaces, with its last message: all frames that are not of its open messages go
    /// elsewhere from here on.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn retire_replaced(&mut self, id: u32) -> Result<(), InstallError> {
        let slot = self.core.contexts.find(id, User(0))?;
        // More than one, where they were replaced together.
        while let Some(old) = self.core.contexts.to_be_replaced(slot) {
            self.retire(old);
        }
        Ok(())
    }

    /// Lets a context go with its last message, to which no frames are led any more.
    fn retire(&mut self, slot: Slot) {
        let to_come = self.arrivals.as_ref().map_or(0, |arrivals| arrivals.len()) + self.rx_backlog();
        let drain_mark = self.ingress.processed + to_come as u64;
        let now = self.core.telemetry.last_end;
        let context = self.core.contexts.get(slot);
        context.replacement.draining = true;
        context.replacement.drain_mark = drain_mark;
        // Packets that came since then would have moved it.
        context.replacement.drain_deadline = now + REPLACED_IN_ALL;
        let had_none = context.message_timeout.is_none();
        context.message_timeout = Some(context.message_timeout.map_or(REPLACED, |timeout| timeout.min(REPLACED)));
        self.core.contexts.timeouts += u32::from(had_none);
        self.core.contexts.draining += 1;
    }

    /// Frames of a context that was linked in, and that the NIC does not know, go to the one again that it was to replace, if there is
    /// one: those too that are still found to be the new one's, but for what belongs to messages that this has begun.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn rollback_replace(&mut self, id: u32) -> Result<(), InstallError> {
        let slot = self.core.contexts.find(id, User(0))?;
        let replaced = self.core.contexts.to_be_replaced(slot);
        if let Some(old) = replaced {
            // Now that one replaces it, and those that it was to replace too and that go already.
            let last = self.core.contexts.replaced_by(slot).take_while(|&gone| gone != old).last().unwrap_or(slot);
            let older = self.core.contexts.get(old).replacement.predecessor.replace(slot);
            self.core.contexts.get(last).replacement.predecessor = older;
            self.core.contexts.get(slot).replacement.falls_back_to = Some(old);
            self.core.contexts.rolled_back += 1;
        }
        let slots = &mut self.core.contexts.routes.slots;
        if let Some(place) = slots.iter().position(|&other| other == slot) {
            slots.splice(place..=place, replaced);
        }
        let slots = slots.clone();
        self.set_routes(RoutingTable { table: Table::new(&self.core.contexts.entries())?, slots });
        self.reroute();
        self.share_buffer();
        Ok(())
    }

    /// Packets that were matched to contexts whose installation was rolled back belong to others.
    pub(crate) fn reroute(&mut self) {
        let Self { ingress, admission, core: Core { contexts, .. }, .. } = self;
        contexts.reroute(&mut ingress.inbound);
        admission.stalled.iter_mut().for_each(|arrival| arrival.slot = contexts.owner_of(arrival.slot));
    }

    /// Takes a context out again that the NIC does not know: at once, or with the messages that were begun by it in the place of another
    /// one, since that one's packets are not to be lost.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn undo_link(&mut self, id: u32) -> Result<(), InstallError> {
        // It may have done so before.
        let _ = self.rollback_replace(id);
        let slot = self.core.contexts.slot_with(id).ok_or(InstallError::NoSuchContext(id))?;
        if self.core.contexts.get(slot).replacement.falls_back_to.is_some() {
            self.retire(slot);
        } else {
            drop_in_background(self.clear(slot));
        }
        Ok(())
    }

    /// Lets contexts go that were replaced and have no message any more, or had time enough.
    #[inline]
    pub(crate) fn end_drained(&mut self) {
        if self.core.contexts.draining > 0 {
            self.end_drained_now();
        }
    }

    #[cold]
    fn end_drained_now(&mut self) {
        for index in 0..self.core.contexts.list.len() {
            let slot = Slot(u32::try_from(index).unwrap_or(u32::MAX));
            let matches_none = |context: &Context| {
                context.replacement.draining && self.ingress.processed >= context.replacement.drain_mark
            };
            let Some(context) = self.core.contexts.list[index].as_ref().filter(|context| matches_none(context)) else {
                continue;
            };
            let is_over = self.core.telemetry.last_end > context.replacement.drain_deadline;
            if is_over || self.core.table.messages.held(slot) == 0 && !self.core.has_parked(slot.0) {
                for mpq in self.core.table.messages.of_context(slot).collect::<Vec<_>>() {
                    self.core.emit_end(slot, mpq, Counter::MessagesTimedOut, What::TimedOut);
                }
                self.core.contexts.draining -= 1;
                drop_in_background(self.clear(slot));
            }
        }
    }

    /// Frames go where `routes` lead from here on: those too that this thread has matched and not queued.
    fn set_routes(&mut self, routes: RoutingTable) {
        self.core.contexts.routes = routes;
        if self.arrivals.is_none() && self.local_share.is_none() {
            self.ingress.inbound.find(&self.core.contexts.routes, |_, _| 0);
        }
    }

    /// Shares the packet buffer out between contexts, and the channel from the thread that receives for this one.
    fn share_buffer(&mut self) {
        let Core { contexts, table, .. } = &mut self.core;
        contexts.share_buffer(table.hers);
        if let Some(arrivals) = &self.arrivals {
            arrivals.set_quotas(contexts.is_shared() && !contexts.stalls, contexts.weights());
        }
    }

    /// Where frames of all contexts go.
    #[must_use]
    pub fn routes(&self) -> RoutingTable {
        self.core.contexts.routes.clone()
    }

    /// Has the NIC hand over the frames that have somewhere to go.
    fn steer(&self, routes: &RoutingTable) -> Result<(), InstallError> {
        Ok(self.core.nic.steering().set_rules(routes.table.tests())?)
    }

    /// Removes a context: for an engine that has the NIC to itself.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`]; nothing has changed then.
    pub fn remove(&mut self, id: u32, user: User) -> Result<(), InstallError> {
        self.may_remove(id, user)?;
        if let Err(error) = self.steer(&self.routes_without(&[id])?) {
            warn_of_rules(&error);
        }
        self.unlink(id, user)?;
        Ok(())
    }

    /// Unlinks a context. What its messages still hold is dropped and counted. Returns the context if it was there: giving its
    /// memory back takes time that this thread may not have.
    ///
    /// # Errors
    /// As [`Worker::remove`].
    pub fn unlink(&mut self, id: u32, user: User) -> Result<Option<Box<Context>>, InstallError> {
        let slot = self.core.contexts.find(id, user)?;
        self.set_routes(self.routes_without(&[id])?);
        Ok(self.clear(slot))
    }

    /// Drops what a context's messages still hold, and frees its slot.
    fn clear(&mut self, slot: Slot) -> Option<Box<Context>> {
        self.drop_arrivals(slot);
        TaskRunner::abandon_parked(&mut self.core, self.helpers.as_deref_mut(), slot);
        let held: Vec<_> = self.core.table.messages.of_context(slot).collect();
        for mpq in held {
            let (nic, counts) = (&mut self.core.nic, &mut self.core.telemetry.counts);
            self.core.table.mpqs.abandon(mpq, |packet| {
                counts.add(Counter::DropRemoved, 1);
                nic.recycle(packet.frame);
            });
            self.core.table.messages.release(mpq);
        }
        self.core.table.mpqs.remove_backlog(slot.0);
        let gone = self.core.contexts.take(slot);
        if let Some(context) = &gone {
            self.core.telemetry.counts.merge(&context.counts);
        }
        self.share_buffer();
        gone.map(Box::new)
    }

    /// Drops arrivals that were matched and not queued.
    fn drop_arrivals(&mut self, slot: Slot) {
        let handed = self.arrivals.as_mut().map(PacketRx::take_all).unwrap_or_default();
        let gone = self.ingress.inbound.retain(handed, |of| of == slot);
        let waiting = self.admission.stalled.take_if(|arrival| arrival.slot == slot);
        for frame in waiting.map(|arrival| arrival.frame).into_iter().chain(gone) {
            self.ingress.processed += 1;
            self.core.telemetry.counts.add(Counter::DropRemoved, 1);
            self.core.nic.recycle(frame);
        }
    }

    /// Has a context take other packets and, where all of them fit a table, those too that it took before, which are returned.
    ///
    /// # Errors
    /// As [`Worker::set_rules`].
    pub fn widen_rules(&mut self, id: u32, user: User, matching: MatchSpec) -> Result<MatchSpec, InstallError> {
        let slot = self.core.contexts.find(id, user)?;
        let before = &self.core.contexts.get(slot).matching.entry.rules.rules;
        let rules = Rules { rules: [&matching.rules.rules[..], before].concat() };
        match self.set_rules(id, user, MatchSpec { rules, eom: matching.eom.clone() }) {
            Err(InstallError::Table(_)) => self.set_rules(id, user, matching),
            set => set,
        }
    }

    /// Has a context take other packets than before, and returns which those were. The NIC does not know yet: see
    /// [`spin_nic::Queue::steering`].
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::Table`]; nothing has changed then.
    pub fn set_rules(&mut self, id: u32, user: User, matching: MatchSpec) -> Result<MatchSpec, InstallError> {
        let slot = self.core.contexts.find(id, user)?;
        let mut entries = self.core.contexts.entries();
        let Some(entry) = entries.iter_mut().find(|entry| entry.context == id) else {
            return Err(InstallError::NoSuchContext(id));
        };
        let MatchSpec { rules, eom } = matching;
        let before = std::mem::replace(entry, TableEntry { context: id, rules, eom, key: entry.key.clone() });
        let entry = entry.clone();
        self.set_routes(RoutingTable { table: Table::new(&entries)?, slots: self.core.contexts.routes.slots.clone() });
        let context = self.core.contexts.get(slot);
        context.matching = Matching::of(entry);
        Ok(MatchSpec { rules: before.rules, eom: before.eom })
    }

    /// Records at which address the application mapped a context's host memory.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`].
    pub fn map_host(&mut self, id: u32, user: User, address: u64) -> Result<(), InstallError> {
        self.core.contexts.map_host(id, user, address)
    }

    /// A context's descriptor.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`].
    pub fn event_ring(&self, id: u32, user: User) -> Result<Arc<Region>, InstallError> {
        self.core.contexts.event_ring(id, user)
    }

    /// A context's host memory and the address by which handlers know it.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`].
    pub fn host_memory(&self, id: u32, user: User) -> Result<(Arc<Region>, u64), InstallError> {
        self.core.contexts.host_memory(id, user)
    }

    /// Contexts in order of priority.
    #[must_use]
    pub fn context_infos(&self) -> Vec<ContextInfo> {
        self.core.contexts.infos()
    }

    /// Whether a user may remove a context.
    ///
    /// # Errors
    /// As [`Worker::remove`].
    pub fn may_remove(&self, id: u32, user: User) -> Result<(), InstallError> {
        self.core.contexts.find(id, user).map(|_| ())
    }

    /// Routes without contexts that are about to be [unlinked](Worker::unlink).
    ///
    /// # Errors
    /// Never, as long as all contexts' rules fit a table.
    pub fn routes_without(&self, leaving: &[u32]) -> Result<RoutingTable, InstallError> {
        self.routes_after(leaving, &[])
    }

    /// Routes without some contexts, when others take what `rules` say.
    ///
    /// # Errors
    /// [`InstallError::Table`].
    pub fn routes_after(&self, leaving: &[u32], rules: &[(u32, MatchSpec)]) -> Result<RoutingTable, InstallError> {
        self.core.contexts.routes_after(leaving, rules)
    }

    /// By slot: whether a context has it, installed or not.
    #[must_use]
    pub fn slots_taken(&self) -> Vec<bool> {
        self.core.contexts.slots_taken()
    }
}

fn link(
    prepared: Prepared,
    entry: TableEntry,
    predecessor: Option<Slot>,
    cluster: u32,
    doorbell_pending: &DoorbellPending,
) -> Context {
    let Install { name, l1_bytes, .. } = prepared.install;
    let doorbell_delay = Duration::from_micros(prepared.run.doorbell_us.unwrap_or(0));
    let program = Program {
        handlers: prepared.image.entries.handlers,
        image: prepared.image,
        translation: prepared.translation,
        options: prepared.options,
        l1_bytes: l1_bytes.unwrap_or(PACKET_WINDOW) as usize,
        limits: prepared.limits,
    };
    let mut context = Context {
        id: entry.context,
        name,
        uid: prepared.uid,
        matching: Matching::of(entry),
        program,
        hpus: prepared.hpus,
        host: prepared.host.map(|region| HostMemory { region, address: HOST_ADDRESS }),
        message_timeout: prepared.run.message_timeout_us.map(Duration::from_micros),
        // Set when it is one of several.
        share: Share { hers: 0, soft_limit: 0 },
        stall_credit: StallCredit::default(),
        run: prepared.run,
        counts: Counts::default(),
        replacement: Replacement { predecessor, ..Replacement::default() },
        event_ring: EventRing::new(prepared.event_ring, cluster, doorbell_delay, doorbell_pending),
        log: ContextLog::default(),
    };
    context.describe_host();
    context
}
