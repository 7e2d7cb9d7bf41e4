//! Attaching, changing and detaching contexts.

use std::sync::Arc;
use std::time::Duration;

use spin_abi::control::{Abi, ContextInfo};
use spin_abi::counters::Counter;
use spin_abi::events::What;
use spin_matcher::{Rules, Table, TableEntry};
use spin_nic::affinity::drop_in_background;
use spin_shm::Region;

use super::match_spec::check_rules;
use super::plan::AttachPlan;
use super::{InstallError, MatchSpec, Prepared, User, attach, warn_of_rules};
use crate::context::{Context, ContextPart, Matching, Replacement, Texts};
use crate::cores::packet_channel::PacketRx;
use crate::ingress::rx_batch::RoutingTable;
use crate::settings::Limits;
use crate::telemetry::context_latency::Distributions;
use crate::worker::Worker;
use crate::worker::core::Core;
use crate::worker::runner::TaskRunner;
use spin_pspin::host_memory::HostMemory;
use spin_pspin::ids::Slot;

/// Maximum time for which an open message of a draining context may wait for its next packet.
const REPLACED: Duration = Duration::from_secs(10);
/// Maximum time for which a context drains: a flow need not end.
const REPLACED_IN_ALL: Duration = Duration::from_secs(60);

impl Worker {
    /// Attaches a prepared context as [`Worker::link`] does, programs the NIC, and returns the context's id. For a worker that
    /// has the NIC to itself.
    ///
    /// # Errors
    /// The errors of [`Worker::link`], and [`InstallError::Nic`]. Nothing has changed then.
    pub fn install(&mut self, prepared: Prepared, limits: &Limits) -> Result<u32, InstallError> {
        let id = self.link(prepared, limits)?;
        if let Err(error) = self.steer(&self.core.contexts.routes) {
            self.undo_link(id)?;
            return Err(error);
        }
        self.retire_replaced(id)?;
        Ok(id)
    }

    /// Attaches a prepared context, and returns its id. Its priority is the lowest, or that of the context that it replaces. The
    /// NIC is programmed separately: see [`spin_nic::Queue::steering`].
    ///
    /// # Errors
    /// [`InstallError::Full`], [`InstallError::UserContexts`], [`InstallError::Table`], [`InstallError::UserRules`], and [`InstallError::NoSuchContext`] or [`InstallError::NotYours`] of the
    /// replaced context. Nothing has changed then.
    pub fn link(&mut self, prepared: Prepared, limits: &Limits) -> Result<u32, InstallError> {
        self.link_with(prepared, limits, None)
    }

    /// Attaches contexts that another worker has attached, whose rules are then `table`. The threads of an engine share the table, as it
    /// takes long to build.
    pub(crate) fn link_all(
        &mut self,
        all: Vec<Prepared>,
        limits: &Limits,
        table: &Arc<Table>,
    ) -> Vec<Result<u32, InstallError>> {
        let mut users: Vec<_> = all.iter().map(|prepared| (prepared.uid, prepared.user_weight)).collect();
        users.dedup();
        let linked: Vec<_> = all.into_iter().map(|prepared| self.link_with(prepared, limits, Some(table))).collect();
        users.into_iter().for_each(|(uid, weight)| self.core.contexts.set_user_weight(uid, weight));
        let (slots, homes) = (self.core.contexts.routes.slots.clone(), self.core.contexts.homes());
        let table = if linked.iter().all(Result::is_ok) {
            Ok(table.clone())
        } else {
            Table::of(self.core.contexts.entries()).map(Arc::new)
        };
        // The entries fit a table on the other worker, which had as many.
        if let Ok(table) = table {
            self.set_routes(RoutingTable { table, slots, homes });
        }
        self.share_buffer();
        linked
    }

    /// Attaches a context. With a `shared` table, its caller does what is done once for all contexts.
    fn link_with(
        &mut self,
        prepared: Prepared,
        limits: &Limits,
        shared: Option<&Arc<Table>>,
    ) -> Result<u32, InstallError> {
        let planned = self.core.contexts.plan(&prepared, limits, shared);
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
        let (uid, user_weight) = (prepared.uid, prepared.user_weight);
        self.core.sched.scheduler.add(slot.0, prepared.run.weight, uid, user_weight);
        let pspin = matches!(prepared.run.abi, Abi::Pspin | Abi::Fpspin);
        self.core.table.add_context(slot, self.core.sched.scheduler.user(slot.0), pspin);
        let context = attach::context(prepared, entry, predecessor, &self.core);
        let runs_here = context.runs_here();
        self.core.contexts.timeouts += u32::from(context.may_time_out());
        self.core.contexts.list[slot.0 as usize] = Some(context);
        if runs_here {
            self.core.telemetry.by_slot.add(slot);
        }
        self.core.contexts.linked += 1;
        if shared.is_some() {
            self.core.contexts.routes.slots = slots;
            return Ok(id);
        }
        self.core.contexts.set_user_weight(uid, user_weight);
        let homes = self.core.contexts.homes();
        self.set_routes(RoutingTable { table, slots, homes });
        self.share_buffer();
        Ok(id)
    }

    /// Starts draining the contexts that a context replaces. From here on, they get only frames of their open messages.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn retire_replaced(&mut self, id: u32) -> Result<(), InstallError> {
        let slot = self.core.contexts.find(id, User(0))?;
        // There may be several, if they were replaced in one transaction.
        while let Some(old) = self.core.contexts.to_be_replaced(slot) {
            self.retire(old);
        }
        Ok(())
    }

    /// Starts draining a context that has no routes.
    fn retire(&mut self, slot: Slot) {
        let to_come = self.arrivals.as_ref().map_or(0, |arrivals| arrivals.len()) + self.rx_backlog();
        let drain_mark = self.ingress.processed + to_come as u64;
        let drain_round = self.hand_over.as_ref().and_then(|hand_over| hand_over.round_after_all());
        let now = self.core.telemetry.last_end;
        let context = self.core.contexts.get(slot);
        context.replacement.draining = true;
        context.replacement.drain_round = drain_round;
        context.replacement.drain_mark = drain_mark;
        // The time is recent enough: later packets would have updated it.
        context.replacement.drain_deadline = now + REPLACED_IN_ALL;
        let timed_out = context.may_time_out();
        context.message_timeout = Some(context.message_timeout.map_or(REPLACED, |timeout| timeout.min(REPLACED)));
        let times_out = context.may_time_out();
        self.core.contexts.timeouts += u32::from(times_out && !timed_out);
        self.core.contexts.draining += 1;
    }

    /// Rolls back the routes of an attached context that the NIC does not know. Its frames go to the context that it was to
    /// replace, if there is one. This includes frames that were matched to it already, except those of messages that it has
    /// begun.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn rollback_replace(&mut self, id: u32) -> Result<(), InstallError> {
        let slot = self.core.contexts.find(id, User(0))?;
        let replaced = self.core.contexts.to_be_replaced(slot);
        if let Some(old) = replaced {
            // From here on `old` replaces this context, and the draining ones between them.
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
        let (table, homes) = (Table::of(self.core.contexts.entries())?.into(), self.core.contexts.homes());
        self.set_routes(RoutingTable { table, slots, homes });
        self.reroute();
        self.share_buffer();
        Ok(())
    }

    /// Reroutes matched packets of rolled-back contexts.
    pub(crate) fn reroute(&mut self) {
        let Self { ingress, admission, core: Core { contexts, .. }, .. } = self;
        contexts.reroute(&mut ingress.inbound);
        admission.stalled.iter_mut().for_each(|arrival| arrival.slot = contexts.owner_of(arrival.slot));
    }

    /// Detaches a context that the NIC does not know. A context that was to replace another one is drained instead: it may have
    /// begun messages with packets of that one, which must not be lost.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn undo_link(&mut self, id: u32) -> Result<(), InstallError> {
        // The caller may have done so before.
        let _ = self.rollback_replace(id);
        let slot = self.core.contexts.slot_with(id).ok_or(InstallError::NoSuchContext(id))?;
        if self.core.contexts.get(slot).replacement.falls_back_to.is_some() {
            self.retire(slot);
        } else {
            drop_in_background(self.clear(slot));
        }
        Ok(())
    }

    /// Removes draining contexts that have no message left, or have reached their deadline.
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
            self.note_drain_round(slot);
            let matches_none = |context: &Context| {
                let Replacement { draining, drain_mark, drain_round, .. } = context.replacement;
                draining && drain_round.is_none() && self.ingress.processed >= drain_mark
            };
            let Some(context) = self.core.contexts.list[index].as_ref().filter(|context| matches_none(context)) else {
                continue;
            };
            let is_over = self.core.telemetry.last_end > context.replacement.drain_deadline;
            if is_over || !self.core.table.is_in_use(slot) && !self.core.has_parked(slot.0) {
                for mpq in self.core.table.messages.of_context(slot).collect::<Vec<_>>() {
                    self.core.emit_end(slot, mpq, Counter::MessagesTimedOut, What::TimedOut);
                }
                self.core.contexts.draining -= 1;
                drop_in_background(self.clear(slot));
            }
        }
    }

    /// Notes which packets of a draining context are left, once all that other workers handed over are here.
    fn note_drain_round(&mut self, slot: Slot) {
        let left = self.rx_backlog() as u64;
        let Some(context) = &mut self.core.contexts.list[slot.0 as usize] else { return };
        let completed = |round: u64| self.hand_over.as_ref().is_none_or(|hand_over| hand_over.has_completed(round));
        if context.replacement.drain_round.is_some_and(completed) {
            context.replacement.drain_round = None;
            context.replacement.drain_mark = context.replacement.drain_mark.max(self.ingress.processed + left);
        }
    }

    /// Sets the routes, also for packets that this thread has matched and not queued.
    fn set_routes(&mut self, routes: RoutingTable) {
        self.core.contexts.routes = routes;
        // Others have routes of their own for packets that arrive.
        if self.arrivals.is_none() && self.local_share.is_none() && self.hand_over.is_none() {
            self.ingress.inbound.find(&self.core.contexts.routes, |_, _| 0);
        }
    }

    /// Divides the packet buffer, and the packet channel from the distributor, between contexts.
    pub(crate) fn share_buffer(&mut self) {
        let Core { contexts, table, .. } = &mut self.core;
        contexts.share_buffer(table.hers);
        if let Some(arrivals) = &self.arrivals {
            arrivals.set_quotas(contexts.is_shared() && !contexts.stalls, contexts.parts());
        }
        if let Some(hand_over) = &self.hand_over {
            hand_over.set_quotas(contexts.is_shared(), contexts.parts());
        }
    }

    /// The routes of all contexts.
    #[must_use]
    pub fn routes(&self) -> RoutingTable {
        self.core.contexts.routes.clone()
    }

    /// Programs the NIC's filter with the rules of `routes`.
    fn steer(&self, routes: &RoutingTable) -> Result<(), InstallError> {
        Ok(self.core.nic.steering().set_rules(routes.table.rules())?)
    }

    /// Removes a context. For a worker that has the NIC to itself.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`]. Nothing has changed then.
    pub fn remove(&mut self, id: u32, user: User) -> Result<(), InstallError> {
        self.may_remove(id, user)?;
        if let Err(error) = self.steer(&self.routes_without(&[id])?) {
            warn_of_rules(&error);
        }
        self.unlink(id, user)?;
        Ok(())
    }

    /// Detaches a context. Drops and counts the packets of its messages. Returns the context, since freeing its memory may take
    /// longer than this thread can wait.
    ///
    /// # Errors
    /// The errors of [`Worker::remove`].
    pub fn unlink(&mut self, id: u32, user: User) -> Result<Option<Box<Context>>, InstallError> {
        let listed = self.core.contexts.find(id, user);
        // Without its routes it is gone for all but root.
        let slot = listed.or_else(|error| self.core.contexts.slot_with(id).filter(|_| user == User(0)).ok_or(error))?;
        if self.core.contexts.routes.slots.contains(&slot) {
            self.set_routes(self.routes_without(&[id])?);
        }
        Ok(self.clear(slot))
    }

    /// Drops the packets of a context's messages, and frees its slot.
    fn clear(&mut self, slot: Slot) -> Option<Box<Context>> {
        // Another context may get the slot.
        self.take_drops();
        self.drop_arrivals(slot);
        TaskRunner::abandon_parked(&mut self.core, self.helpers.as_deref_mut(), slot);
        for mpq in self.core.table.queues_of(slot) {
            let (nic, counts) = (&mut self.core.nic, &mut self.core.telemetry.counts);
            self.core.table.mpqs.abandon(mpq, |packet| {
                counts.add(Counter::DropRemoved, 1);
                nic.recycle(packet.frame);
            });
        }
        self.core.table.release_messages(slot);
        self.core.table.mpqs.remove_backlog(slot.0);
        let gone = self.core.contexts.take(slot);
        self.core.telemetry.by_slot.remove(slot);
        if let Some(context) = &gone {
            self.core.sched.scheduler.remove(slot.0);
            self.core.telemetry.counts.merge(&context.counts);
        }
        self.share_buffer();
        gone.map(Box::new)
    }

    /// Drops a context's packets that were matched and not queued.
    fn drop_arrivals(&mut self, slot: Slot) {
        if let Some(hand_over) = &mut self.hand_over {
            self.core.telemetry.counts.add(Counter::DropRemoved, hand_over.drop_of(slot));
        }
        let handed = self.arrivals.as_mut().map(PacketRx::take_all).unwrap_or_default();
        let gone = self.ingress.inbound.retain(handed, |of| of == slot);
        let waiting = self.admission.stalled.take_if(|arrival| arrival.slot == slot);
        for frame in waiting.map(|arrival| arrival.frame).into_iter().chain(gone) {
            self.ingress.processed += 1;
            self.core.telemetry.counts.add(Counter::DropRemoved, 1);
            self.core.nic.recycle(frame);
        }
    }

    /// Sets new rules of a context and, if all fit the table, keeps the old ones too. Returns the old ones.
    ///
    /// # Errors
    /// The errors of [`Worker::set_rules`].
    pub fn widen_rules(&mut self, id: u32, user: User, matching: MatchSpec) -> Result<MatchSpec, InstallError> {
        let slot = self.core.contexts.find(id, user)?;
        let before = &self.core.contexts.get(slot).matching.entry.entry().rules.rules;
        let rules = Rules { rules: [&matching.rules.rules[..], before].concat() };
        let wide = MatchSpec { rules, ..matching.clone() };
        match self.set_rules(id, user, wide) {
            Err(InstallError::Table(_) | InstallError::UserRules { .. }) => self.set_rules(id, user, matching),
            set => set,
        }
    }

    /// Sets new rules of a context, and returns the old ones. The NIC is programmed separately: see
    /// [`spin_nic::Queue::steering`].
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::Table`], [`InstallError::UserRules`]. Nothing has
    /// changed then.
    pub fn set_rules(&mut self, id: u32, user: User, matching: MatchSpec) -> Result<MatchSpec, InstallError> {
        let slot = self.core.contexts.find(id, user)?;
        let mut entries = self.core.contexts.entries();
        let Some(entry) = entries.iter_mut().find(|entry| entry.entry().context == id) else {
            return Err(InstallError::NoSuchContext(id));
        };
        let context = self.core.contexts.get(slot);
        matching.check_handlers(&context.program.handlers, context.matching.header.is_some())?;
        let MatchSpec { rules, eom, ports, send } = matching;
        let compiled = entry.with_rules(rules, eom)?;
        let before = std::mem::replace(entry, Arc::new(compiled));
        let entry = entry.clone();
        let table = Table::of(entries)?;
        if send.is_some() {
            let owner = self.core.contexts.get(slot).weights.uid;
            check_rules(&table, &self.core.contexts.owners(), owner)?;
        }
        let (slots, homes) = (self.core.contexts.routes.slots.clone(), self.core.contexts.homes());
        self.set_routes(RoutingTable { table: table.into(), slots, homes });
        let context = self.core.contexts.get(slot);
        let home = context.matching.home;
        let (former_ports, former_send) = (context.matching.ports.clone(), context.matching.send.clone());
        let (ports, send) = match send {
            Some(send) => (ports, send),
            None => (former_ports.clone(), former_send.clone()),
        };
        let texts = Texts::of(entry.entry()).into();
        context.matching = Matching::of((entry, texts), context.matching.header.take(), ports, send, home);
        if context.matching.is_per_packet() {
            self.core.table.close_messages(slot);
        }
        let TableEntry { rules, eom, .. } = before.entry().clone();
        Ok(MatchSpec { rules, eom, ports: former_ports, send: Some(former_send) })
    }

    /// Records the address at which the application mapped a context's host memory.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`], [`InstallError::HostAddress`].
    pub fn map_host(&mut self, id: u32, user: User, address: u64) -> Result<(), InstallError> {
        self.core.contexts.map_host(id, user, address)
    }

    /// A context's host memory, to attach and detach regions.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`].
    pub fn host_of(&mut self, id: u32, user: User) -> Result<&mut HostMemory, InstallError> {
        self.core.contexts.host_of(id, user)
    }

    /// A context's event ring.
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

    /// Descriptions of the installed contexts, in order of priority.
    #[must_use]
    pub fn context_infos(&self) -> Vec<ContextInfo> {
        self.core.contexts.infos()
    }

    /// What this thread has counted of the installed contexts.
    pub(crate) fn context_parts(&self) -> Vec<ContextPart> {
        self.core.contexts.installed().filter_map(Context::part).collect()
    }

    /// Ids and latencies of `count` contexts from the `first` one on, among the installed ones that run here; and whether there are more.
    /// Those that did not run are left out.
    #[must_use]
    pub fn context_latencies(&self, first: usize, count: usize) -> (Vec<(u32, Box<Distributions>)>, bool) {
        let Core { contexts, telemetry, .. } = &self.core;
        let mut slots = contexts.routes.slots.iter().filter(|&&slot| contexts.runs_here(slot)).skip(first);
        let recorded =
            |&slot: &Slot| Some((contexts.list[slot.0 as usize].as_ref()?.id, telemetry.by_slot.recorded(slot)?));
        let some = slots.by_ref().take(count).filter_map(recorded).collect();
        (some, slots.next().is_some())
    }

    /// Checks that a user may remove a context.
    ///
    /// # Errors
    /// The errors of [`Worker::remove`].
    pub fn may_remove(&self, id: u32, user: User) -> Result<(), InstallError> {
        self.core.contexts.find(id, user).map(|_| ())
    }

    /// The routes without contexts that are about to be [detached](Worker::unlink).
    ///
    /// # Errors
    /// None, as long as all contexts' rules fit a table.
    pub fn routes_without(&self, leaving: &[u32]) -> Result<RoutingTable, InstallError> {
        self.routes_after(leaving, &[])
    }

    /// The routes without the contexts in `leaving`, and with new `rules` for others.
    ///
    /// # Errors
    /// [`InstallError::Table`].
    pub fn routes_after(&self, leaving: &[u32], rules: &[(u32, MatchSpec)]) -> Result<RoutingTable, InstallError> {
        self.core.contexts.routes_after(leaving, rules)
    }

    /// Whether a slot has a context, installed or not, by slot.
    #[must_use]
    pub fn slots_taken(&self) -> Vec<bool> {
        self.core.contexts.slots_taken()
    }
}
