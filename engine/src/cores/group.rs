//! All threads of an engine as a group. Contexts are changed on every thread, and queries go to every thread.
//!
//! A thread may be off its core, so that its reply can take milliseconds. Therefore all threads are asked at once. Pending
//! changes are carried out together, and wait for no more replies than a single change.

use std::cell::RefCell;
use std::sync::Arc;

use spin_abi::rules::RuleSet;
use spin_matcher::Eom;
use spin_nic::FlowSteering;
use spin_nic::affinity::drop_in_background;

use super::error::ThreadError;
use super::hooks::Hooks;
use super::placements::Placements;
use super::slot_allocator::SlotAllocator;
use super::thread::{PendingReply, PollThread};
use super::transaction::{ChangeResult, Transaction};
use super::units::PlannedWorker;
use crate::cores::receive_only::ReceiveOnly;
use crate::ingress::rx_batch::RoutingTable;
use crate::install::{Assigned, InstallError, MatchSpec, Prepared, User, warn_of_rules};
use crate::settings::Limits;
use crate::telemetry::statistics::Statistics;
use crate::worker::Worker;
use crate::worker::hook_reports::make_hook_commands;

/// A thread that runs handlers.
pub struct ClusterThread {
    /// Core, unit and clusters.
    pub planned: PlannedWorker,
    /// The thread.
    pub worker: PollThread<Worker>,
}

/// The threads that receive packets.
pub enum Receiving {
    /// Each thread that runs handlers receives its own packets.
    Each,
    /// The first thread that runs handlers receives for all.
    First,
    /// A thread that runs no handlers receives for all.
    Apart(PollThread<ReceiveOnly>),
}

/// All threads of an engine.
pub struct WorkerGroup {
    /// The threads that run handlers: at least one, in the order of units and clusters.
    pub workers: Vec<ClusterThread>,
    receiving: Receiving,
    steering: Arc<dyn FlowSteering>,
    limits: Limits,
    slots: RefCell<SlotAllocator>,
    placements: RefCell<Placements>,
    /// Programs in the XDP hook.
    pub hooks: Hooks,
}

impl WorkerGroup {
    /// A group of threads that run handlers. `steering` programs the NIC's filter. Only the group may install contexts on the
    /// threads.
    #[must_use]
    pub fn new(
        workers: Vec<ClusterThread>,
        receiving: Receiving,
        steering: Arc<dyn FlowSteering>,
        limits: Limits,
    ) -> Self {
        let placements = RefCell::new(Placements::new(workers.iter().map(|thread| &thread.planned.part)));
        Self { workers, receiving, steering, limits, slots: RefCell::default(), placements, hooks: Hooks::default() }
    }

    /// Sets the limits for contexts that are installed from now on.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Installs a context: attaches it on every thread, then programs the NIC. Returns the context's id.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn install(&self, prepared: Prepared) -> Result<u32, InstallError> {
        let transaction = Transaction { installs: vec![prepared], ..Transaction::default() };
        self.change(transaction).installed.pop().unwrap_or(Err(InstallError::Stopped))
    }

    /// Installs a context of an earlier run with the id that it had.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn restore(&self, mut prepared: Prepared, id: u32) -> Result<(), InstallError> {
        prepared.handle = Some(self.slots.borrow_mut().with_id(id));
        self.install(prepared).map(drop)
    }

    /// Lets ids of new contexts begin behind `last`.
    pub fn reserve_ids(&self, last: u32) {
        self.slots.borrow_mut().reserve_ids(last);
    }

    /// Removes a context. Its rules are removed from the NIC first. Otherwise the NIC would still hand over its frames, which
    /// would be dropped.
    ///
    /// # Errors
    /// See [`Worker::remove`].
    pub fn remove(&self, id: u32, user: User) -> Result<(), InstallError> {
        let transaction = Transaction { removals: vec![(id, user)], ..Transaction::default() };
        self.change(transaction).removed.pop().unwrap_or(Err(InstallError::Stopped))
    }

    /// Carries out changes. The NIC is programmed once for all of them.
    pub fn change(&self, Transaction { installs, rules, removals }: Transaction) -> ChangeResult {
        let replaced: Vec<Option<u32>> = installs.iter().map(Prepared::replaces).collect();
        let hooks: Vec<_> = installs.iter().map(|prepared| (prepared.uid, prepared.program.hook.clone())).collect();
        let installed = self.attach(installs);
        let attached = installed.iter().zip(hooks);
        self.hooks.activate(attached.filter_map(|(id, (uid, hook))| Some((*id.as_ref().ok()?, uid, hook?))));
        let (mut before, mut new_rules) = (Vec::new(), Vec::new());
        let widen = |(id, user, rules): (u32, User, MatchSpec)| {
            if rules.eom != Eom::Always {
                self.hooks.leave(id, "its messages have several packets since its rules were changed");
            }
            before.push((id, self.widen_rules(id, user, rules.clone())?));
            new_rules.push((id, rules));
            Ok(())
        };
        let ruled: Vec<_> = rules.into_iter().map(widen).collect();
        let changed = installed.iter().any(Result::is_ok) || !before.is_empty();
        let (removed, programmed) = self.program_routes(removals.clone(), new_rules.clone(), changed);
        let gone = removals.iter().zip(&removed).filter(|(_, removed)| removed.is_ok()).map(|((id, _), _)| *id);
        let gone: Vec<u32> = gone.collect();
        let mut result = ChangeResult { installed, ruled, removed };
        if programmed.is_err() {
            self.hooks.keep_places(result.installed.iter().flatten().chain(&gone).copied());
        }
        match programmed {
            Err(error) if changed => {
                self.roll_back(&result.installed, before, &gone);
                result.refuse(&error);
            }
            Err(error) => {
                warn_of_rules(&error);
                self.set_distribution(gone.clone());
            }
            Ok(()) => self.set_rules(new_rules),
        }
        let new = result.installed.iter().zip(replaced).filter_map(|(id, old)| Some((*id.as_ref().ok()?, old?)));
        let (new, old): (Vec<u32>, Vec<u32>) = new.unzip();
        if !gone.is_empty() || !new.is_empty() {
            // No packet is in the programs of these contexts: the NIC was programmed since.
            self.make_hook_commands();
            self.hooks.retire(&old);
            self.forget(&old);
            self.commit(new, gone);
        }
        result
    }

    /// Has commands of programs in the hook that wait made, each on a thread that runs the context.
    pub(super) fn make_hook_commands(&self) {
        for (context, commands) in self.hooks.take_commands() {
            let made = self.worker_of(context).ask(move |engine| make_hook_commands(engine, context, &commands));
            if made.is_none() {
                return;
            }
        }
    }

    /// Adds rules to a context on every thread. The old rules stay valid, since the NIC applies them until it is programmed.
    /// Returns the old rules.
    fn widen_rules(&self, id: u32, user: User, rules: MatchSpec) -> Result<MatchSpec, InstallError> {
        let before = self.all(move |engine| engine.widen_rules(id, user, rules));
        let before = before.into_iter().collect::<Result<Vec<_>, _>>()?;
        before.into_iter().next().ok_or(InstallError::Stopped)
    }

    /// Replaces the rules of contexts on every thread.
    fn set_rules(&self, rules: Vec<(u32, MatchSpec)>) {
        if rules.is_empty() {
            return;
        }
        self.all(move |engine| {
            // The contexts exist, and the table is no longer than it was with wider rules.
            rules.into_iter().for_each(|(id, rules)| drop(engine.set_rules(id, User(0), rules)));
        });
    }

    /// Places contexts in units, and attaches them on every thread.
    fn attach(&self, installs: Vec<Prepared>) -> Vec<Result<u32, InstallError>> {
        let (placed, refused): (Vec<_>, Vec<_>) = installs
            .into_iter()
            .map(|prepared| self.place(prepared))
            .enumerate()
            .partition(|(_, placed)| placed.is_ok());
        let (order, placed): (Vec<_>, Vec<_>) =
            placed.into_iter().filter_map(|(index, placed)| Some((index, placed.ok()?))).unzip();
        let refused = refused.into_iter().filter_map(|(index, refused)| Some((index, Err(refused.err()?))));
        let mut all: Vec<_> = order.into_iter().zip(self.attach_placed(placed)).chain(refused).collect();
        all.sort_unstable_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, result)| result).collect()
    }

    /// Gives a context its id and slot, its units, and its compiled rules.
    fn place(&self, mut prepared: Prepared) -> Result<Prepared, InstallError> {
        let handle = prepared.handle.unwrap_or_else(|| self.slots.borrow_mut().next());
        prepared.handle = Some(handle);
        let placed = self.placements.borrow_mut().place(handle.id, &prepared);
        let assigned =
            placed.and_then(|(units, workers)| Ok(Assigned::new(units, workers, prepared.compile(handle.id)?)));
        match assigned {
            Ok(assigned) => {
                prepared.assigned = Some(assigned);
                Ok(prepared)
            }
            Err(error) => {
                self.forget(&[handle.id]);
                self.slots.borrow_mut().give_back(handle.slot);
                drop_in_background(prepared);
                Err(error)
            }
        }
    }

    /// Attaches contexts that have a place on every thread.
    fn attach_placed(&self, installs: Vec<Prepared>) -> Vec<Result<u32, InstallError>> {
        let ids: Vec<u32> = installs.iter().filter_map(|prepared| Some(prepared.handle?.id)).collect();
        let attached = self
            .attach_everywhere(installs)
            .unwrap_or_else(|| ids.iter().map(|_| vec![Err(InstallError::Stopped)]).collect());
        // A thread may have no room, because a replaced context is still there. Start with the last context: a later one may
        // replace an earlier one.
        let mut results: Vec<_> = attached.into_iter().rev().map(|attached| self.all_or_none(attached)).collect();
        results.reverse();
        let refused = ids.into_iter().zip(&results).filter(|(_, result)| result.is_err());
        self.forget(&refused.map(|(id, _)| id).collect::<Vec<_>>());
        results
    }

    /// Divides contexts between all threads, and attaches them: on the first one, then on the others, which get its table of rules. Returns
    /// the results of each context; `None`: a thread has ended.
    fn attach_everywhere(&self, installs: Vec<Prepared>) -> Option<Vec<Vec<Result<u32, InstallError>>>> {
        if installs.is_empty() {
            return Some(Vec::new());
        }
        let (limits, mut parts) = (self.limits, self.divide(installs));
        let others = parts.split_off(1);
        let (first, table, mut taken) = self.workers.first()?.worker.ask(move |engine| {
            let attached: Vec<_> = parts.pop().into_iter().flatten().map(|part| engine.link(part, &limits)).collect();
            (attached, engine.routes().table, vec![engine.slots_taken()])
        })?;
        let accepted: Vec<bool> = first.iter().map(Result::is_ok).collect();
        let mut replies = Vec::new();
        for (thread, parts) in self.workers.iter().skip(1).zip(others) {
            let (parts, refused): (Vec<_>, Vec<_>) =
                parts.into_iter().zip(&accepted).partition(|(_, accepted)| **accepted);
            drop(refused);
            let (parts, table): (Vec<_>, _) = (parts.into_iter().map(|(part, _)| part).collect(), table.clone());
            replies.push(
                thread.worker.begin(move |engine| (engine.link_all(parts, &limits, &table), engine.slots_taken())),
            );
        }
        let mut results: Vec<Vec<_>> = first.into_iter().map(|result| vec![result]).collect();
        for reply in replies {
            let (attached, slots) = reply.wait()?;
            let accepted = results.iter_mut().zip(&accepted).filter(|(_, accepted)| **accepted);
            accepted.zip(attached).for_each(|((of, _), result)| of.push(result));
            taken.push(slots);
        }
        self.slots.borrow_mut().update(&taken);
        Some(results)
    }

    /// The parts of contexts, by worker.
    fn divide(&self, installs: Vec<Prepared>) -> Vec<Vec<Prepared>> {
        let workers: Vec<_> = self.workers.iter().map(|thread| thread.planned.part.clone()).collect();
        let mut all: Vec<Vec<_>> = workers.iter().map(|_| Vec::with_capacity(installs.len())).collect();
        for prepared in installs {
            all.iter_mut().zip(prepared.parts(&workers)).for_each(|(parts, part)| parts.push(part));
        }
        all
    }

    /// Forgets where contexts that are gone ran.
    fn forget(&self, ids: &[u32]) {
        let mut placements = self.placements.borrow_mut();
        ids.iter().for_each(|&id| placements.remove(id));
    }

    /// A thread that runs a context, or the first one.
    pub(super) fn worker_of(&self, context: u32) -> &PollThread<Worker> {
        let index = self.placements.borrow().first_worker(context);
        &self.workers[usize::from(index)].worker
    }

    /// Keeps a context that is attached on all threads, and detaches any other.
    fn all_or_none(&self, attached: Vec<Result<u32, InstallError>>) -> Result<u32, InstallError> {
        let (attached, refused): (Vec<_>, Vec<_>) = attached.into_iter().partition(Result::is_ok);
        let (id, refusal) = (attached.into_iter().next(), refused.into_iter().next());
        match (id, refusal) {
            (Some(Ok(id)), Some(refusal)) => {
                self.undo_attach(vec![id]);
                refusal
            }
            (id, refusal) => refusal.or(id).unwrap_or(Err(InstallError::Stopped)),
        }
    }

    /// Programs the NIC for all contexts except `removals`, with new `rules` for some of them. Does nothing if there is no
    /// removal and nothing else has `changed`. Returns which contexts may be removed, and whether the NIC has taken the rules.
    fn program_routes(
        &self,
        removals: Vec<(u32, User)>,
        rules: Vec<(u32, MatchSpec)>,
        changed: bool,
    ) -> (Vec<Result<(), InstallError>>, Result<(), InstallError>) {
        let (count, distributes) = (removals.len(), self.distributes());
        // Without those the routes stay as they are once the NIC has its rules.
        let narrows = !removals.is_empty() || !rules.is_empty();
        let reply = self.first(move |engine| {
            let allowed: Vec<_> = removals.iter().map(|&(id, user)| engine.may_remove(id, user)).collect();
            let leaving = removals.iter().zip(&allowed).filter(|(_, allowed)| allowed.is_ok());
            let leaving: Vec<u32> = leaving.map(|((id, _), _)| *id).collect();
            let changes = changed || !leaving.is_empty();
            let routes = changes.then(|| engine.routes_after(&leaving, &rules));
            Ok((allowed, routes, distributes.then(|| engine.routes())))
        });
        match reply {
            Ok((allowed, None, _)) => (allowed, Ok(())),
            Ok((allowed, Some(then), now)) => (allowed, then.and_then(|then| self.program_filter(now, then, narrows))),
            Err(stopped) => ((0..count).map(|_| Err(InstallError::Stopped)).collect(), Err(stopped)),
        }
    }

    /// Programs the NIC's filter with the routes `then`. Until that is done, the distributor uses the routes `now` for frames of
    /// the old filter. Called on the control thread, since the kernel may take long.
    fn program_filter(&self, now: Option<RoutingTable>, then: RoutingTable, narrows: bool) -> Result<(), InstallError> {
        now.map_or(Ok(()), |now| self.set_routes(now))?;
        self.steering.set_rules(then.table.rules())?;
        if narrows { self.set_routes(then) } else { Ok(()) }
    }

    /// Sets the routes of the distributor, or of all threads that receive packets for each other.
    fn set_routes(&self, routes: RoutingTable) -> Result<(), InstallError> {
        match &self.receiving {
            Receiving::Each if self.workers.len() == 1 => Ok(()),
            Receiving::Each => {
                self.all(move |engine| engine.set_distribution(routes));
                Ok(())
            }
            Receiving::First => self.first(move |engine| {
                engine.set_distribution(routes);
                Ok(())
            }),
            Receiving::Apart(receiver) => {
                receiver.ask(move |receiver| receiver.set_routes(routes)).ok_or(InstallError::Stopped)
            }
        }
    }

    /// The thread that only receives, if there is one.
    pub const fn receiver(&self) -> Option<&PollThread<ReceiveOnly>> {
        match &self.receiving {
            Receiving::Apart(receiver) => Some(receiver),
            Receiving::Each | Receiving::First => None,
        }
    }

    /// Whether threads receive packets for others.
    const fn distributes(&self) -> bool {
        !matches!(self.receiving, Receiving::Each) || self.workers.len() > 1
    }

    /// Rolls back after the NIC has refused the rules of attached contexts, or of contexts whose rules were changed from
    /// `before`. Removed contexts stay removed.
    fn roll_back(&self, installed: &[Result<u32, InstallError>], before: Vec<(u32, MatchSpec)>, gone: &[u32]) {
        // Reverse order, since a later change may depend on an earlier one.
        self.all(move |engine| {
            // The rules fitted the table before.
            before.into_iter().rev().for_each(|(id, rules)| drop(engine.set_rules(id, User(0), rules)));
        });
        let attached: Vec<u32> = installed.iter().rev().flatten().copied().collect();
        let yielding = attached.clone();
        self.all(move |engine| {
            // A thread that refused a context does not have it.
            yielding.iter().for_each(|&id| drop(engine.rollback_replace(id)));
        });
        self.hooks.retire(&attached);
        self.forget(&attached);
        self.set_distribution(gone.to_vec());
        self.undo_attach(attached);
    }

    /// Sets the distributor's routes to those of all contexts except `leaving`, whatever rules the NIC has.
    fn set_distribution(&self, leaving: Vec<u32>) {
        if !self.distributes() {
            return;
        }
        if let Ok(routes) = self.first(move |engine| engine.routes_without(&leaving)) {
            // When the receiving thread has ended, all threads end.
            let _ = self.set_routes(routes);
        }
    }

    fn undo_attach(&self, ids: Vec<u32>) {
        self.all(move |engine| {
            // A thread that refused a context has nothing to detach.
            ids.iter().for_each(|&id| drop(engine.undo_link(id)));
        });
    }

    /// Detaches removed contexts, and starts draining replaced ones.
    fn commit(&self, new: Vec<u32>, gone: Vec<u32>) {
        let (new, gone): (Arc<[u32]>, Arc<[u32]>) = (new.into(), gone.into());
        let retired = gone.clone();
        let replies = self.all(move |engine| {
            // The contexts exist: only the group removes contexts.
            new.iter().for_each(|&id| drop(engine.retire_replaced(id)));
            let contexts: Vec<_> = gone.iter().filter_map(|&id| engine.unlink(id, User(0)).ok().flatten()).collect();
            (contexts, engine.slots_taken())
        });
        self.hooks.retire(&retired);
        self.forget(&retired);
        // The memory of the contexts is freed on this thread.
        let taken: Vec<_> = replies.into_iter().map(|(_, taken)| taken).collect();
        self.slots.borrow_mut().update(&taken);
    }

    /// Calls `what` on the first thread.
    ///
    /// # Errors
    /// The error of `what`, or [`InstallError::Stopped`].
    pub fn first<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Worker) -> Result<R, InstallError> + Send + 'static,
    ) -> Result<R, InstallError> {
        self.workers.first().and_then(|thread| thread.worker.ask(what)).unwrap_or(Err(InstallError::Stopped))
    }

    /// Calls `what` on every thread. Returns the results of the threads that have not ended.
    pub fn all<R: Send + 'static>(&self, what: impl FnOnce(&mut Worker) -> R + Clone + Send + 'static) -> Vec<R> {
        let replies: Vec<_> = self.workers.iter().map(|thread| thread.worker.begin(what.clone())).collect();
        replies.into_iter().filter_map(PendingReply::wait).collect()
    }

    /// Whether all threads answer. Waits for their answers.
    #[must_use]
    pub fn all_answer(&self) -> bool {
        let answered = self.all(|_| ()).len();
        let receives = self.receiver().is_none_or(|receiver| receiver.ask(|_| ()).is_some());
        answered == self.workers.len() && receives
    }

    /// Waits until all threads have ended. The caller has stopped them by other means. Returns the sum of their statistics, and
    /// the first error that ended one of them.
    pub fn finish(self) -> (Statistics, Result<(), ThreadError>) {
        // Each thread clears the rules too, but this thread may have set new ones since.
        if let Err(error) = self.steering.set_rules(&RuleSet::default()) {
            tracing::debug!("the NIC keeps its rules: {error}");
        }
        // Wait for all threads, also after an error: each still has frames to send.
        let workers: Vec<_> = self.workers.into_iter().map(|thread| thread.worker.finish()).collect();
        let receiver = if let Receiving::Apart(receiver) = self.receiving { Some(receiver.finish()) } else { None };
        let (mut all, mut result) = (Statistics::default(), Ok(()));
        for (statistics, ended) in workers.into_iter().chain(receiver) {
            all.merge(&statistics);
            result = result.and(ended);
        }
        (all, result)
    }

    /// Whether one of the threads has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.receiver().is_some_and(PollThread::ended) || self.workers.iter().any(|thread| thread.worker.ended())
    }
}
