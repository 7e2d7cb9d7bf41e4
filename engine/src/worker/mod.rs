//! A packet's path on one thread: receive → match → order → run → commands → complete → send. Handlers are run by
//! [`crate::worker::runner`].

mod admission;
mod complete;
pub(crate) mod core;
mod fast_path;
pub mod hook_reports;
pub(crate) mod parked;
mod poll;
mod resume;
mod run;
pub mod runner;
pub(crate) mod shared_tasks;
mod task;
mod watchdog_poll;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hpu_vm::jit::TrapError;
use spin_abi::control::Schedule;
use spin_abi::counters::Counter;
use spin_nic::{NicError, Queue};
use spin_pspin::ids::{BatchTime, Slot, Timestamp};

use crate::context::Context;
use crate::context::loader::Loader;
use crate::context::packet_rules::home;
use crate::cores::hand_over::HandOver;
use crate::cores::helpers::Helpers;
use crate::cores::local_share::LocalShare;
use crate::cores::packet_channel::PacketRx;
use crate::cores::packet_channels::PacketChannels;
use crate::cores::units::UnitPart;
use crate::egress::pass_cost::MAX_PASSING;
use crate::ingress::Ingress;
use crate::ingress::rx_batch::{BATCH, RoutingTable};
use crate::settings::Sizes;
use crate::telemetry::latency::nanoseconds;
use crate::telemetry::statistics::Statistics;
use crate::worker::admission::{Admission, charge_waits};
use crate::worker::core::Core;
use crate::worker::poll::{Poll, shared_batch};
use crate::worker::runner::TaskRunner;

/// Minimum number of frames to receive while there is room: some may be for contexts that have nothing queued.
const MIN_RX: usize = 8;

/// A per-core data plane: NIC queue, message queues, and contexts with their HPUs. One thread owns all of it.
pub struct Worker {
    pub(crate) core: Core,
    pub(crate) runner: TaskRunner,
    pub(crate) ingress: Ingress,
    pub(crate) admission: Admission,
    /// The packet channel from the distributor, if another thread receives and matches packets.
    pub(crate) arrivals: Option<PacketRx>,
    /// The distributing part of a worker that also receives for other threads: see [`crate::cores::local_share`].
    pub(crate) local_share: Option<Box<LocalShare>>,
    /// Threads with which it shares tasks: see [`crate::worker::shared_tasks`].
    pub(crate) helpers: Option<Box<Helpers>>,
    /// Packets that arrive at one worker and run on another, if there are several with NIC queues.
    pub(crate) hand_over: Option<Box<HandOver>>,
}

impl Worker {
    /// A worker without contexts for `clusters` of the machine, to be polled on this thread. `loader` has to be the one that
    /// [prepares](crate::install::Prepared) its contexts.
    ///
    /// # Errors
    /// When this thread cannot run handlers.
    ///
    /// # Panics
    /// When `clusters` is empty.
    pub fn new(
        loader: Arc<Loader>,
        nic: Box<dyn Queue>,
        sizes: Sizes,
        schedule: Schedule,
        clusters: Range<u32>,
    ) -> Result<Self, TrapError> {
        assert!(!clusters.is_empty(), "a thread has a cluster at least");
        Ok(Self {
            core: Core::new(loader.machine, nic, sizes, schedule, clusters),
            runner: TaskRunner::new(loader)?,
            ingress: Ingress::default(),
            admission: Admission::default(),
            arrivals: None,
            local_share: None,
            helpers: None,
            hand_over: None,
        })
    }

    /// Takes packets from another thread's packet channel instead of the NIC. `nic` then returns their frames, and allocates
    /// frames to send.
    #[must_use]
    pub fn fed_by(mut self, arrivals: PacketRx) -> Self {
        self.core.egress.pass_cost = arrivals.pass_cost.clone();
        self.arrivals = Some(arrivals);
        self
    }

    /// Shares payload tasks with other threads, in both directions.
    #[must_use]
    pub fn with_helpers(mut self, helpers: Helpers) -> Self {
        self.helpers = Some(Box::new(helpers));
        self
    }

    /// Sets the worker's index and unit. Its clusters stay as they are.
    #[must_use]
    pub fn in_unit(mut self, worker: u16, unit: u32) -> Self {
        self.core.part = UnitPart { worker, unit, clusters: self.core.clusters.clone() };
        self
    }

    /// Hands packets to the workers that run them, and takes theirs.
    #[must_use]
    pub fn with_hand_over(mut self, hand_over: HandOver) -> Self {
        self.hand_over = Some(Box::new(hand_over));
        self
    }

    /// Also receives for the workers at the other ends of `channels`.
    #[must_use]
    pub fn with_local_share(mut self, channels: PacketChannels) -> Self {
        // All frames that other threads hold may return in one poll.
        self.core.egress.reserve(channels.size() + MAX_PASSING);
        self.core.egress.pass_cost = channels.pass_cost().clone();
        self.local_share = Some(Box::new(LocalShare::new(channels)));
        self
    }

    /// Sets the routes of frames received from here on, if this worker receives for others. The NIC's own rules are set
    /// separately: see [`spin_nic::Queue::steering`].
    pub fn set_distribution(&mut self, routes: RoutingTable) {
        if let Some(hand_over) = &mut self.hand_over {
            let Self { core: Core { contexts, egress, .. }, ingress: Ingress { inbound, .. }, .. } = self;
            contexts.routes = routes.clone();
            hand_over.set_routes(routes, inbound, contexts, &mut egress.outbound.recycle);
        } else if let Some(local_share) = &mut self.local_share {
            local_share.distributor.routes = routes;
        }
    }

    /// One poll iteration: receives a batch of packets and runs their handlers. Contexts that share the time get as many tasks as
    /// their shares allow. `clock` returns the time since some fixed moment. It is read a few times per batch, never per packet.
    /// Returns how many frames were queued, run or dropped.
    ///
    /// # Errors
    /// When the NIC is no longer usable.
    pub fn poll(&mut self, clock: impl Fn() -> Duration) -> Result<usize, NicError> {
        self.runner.watch(self.core.telemetry.last_end, &clock);
        self.runner.take_translations(&mut self.core.contexts);
        self.take_back_frames();
        let mut taken = self.receive(&clock);
        let returned = self.parts(&clock).take_shared_tasks();
        if taken > 0 || returned > 0 || self.has_tasks() {
            taken = self.run_tasks(returned, &clock);
        } else if self.core.contexts.timeouts > 0 {
            self.core.expire_messages(clock());
        }
        self.end_drained();
        self.parts(&clock).return_shared_tasks(taken);
        self.send(&clock)?;
        self.ring_doorbells(taken > 0);
        Ok(taken)
    }

    /// Takes the distributor's drop counts. Those of a context that is gone by now are the engine's alone.
    #[inline]
    pub(crate) fn take_drops(&mut self) {
        let Self { core: Core { contexts, telemetry, .. }, arrivals, .. } = self;
        if let Some(arrivals) = arrivals {
            arrivals.read_drops(|slot, count| {
                let context = contexts.list.get_mut(slot.0 as usize).and_then(Option::as_mut);
                context.map_or(&mut telemetry.counts, |context| &mut context.counts).add(Counter::DropShare, count);
            });
        }
    }

    /// Takes what other threads returned: frames, and the distributor's drop counts.
    #[inline]
    fn take_back_frames(&mut self) {
        self.take_drops();
        let Self { core, ingress: Ingress { rx_catch_up, .. }, arrivals, local_share, .. } = self;
        if let Some(arrivals) = arrivals
            && rx_catch_up.looks_for_others()
            && !rx_catch_up.is_wanted()
        {
            // Packets of other contexts may be queued behind those of the context with the long tasks.
            let mpqs = &core.table.mpqs;
            if arrivals.has_any(rx_catch_up.worth_a_look(), |slot| mpqs.held(slot.0) == 0) {
                rx_catch_up.expect();
            }
        }
        if let Some(local_share) = local_share {
            local_share.take_back(core);
        }
        if let Some(hand_over) = &mut self.hand_over {
            hand_over.take_back(&mut self.core.egress.outbound.recycle);
        }
    }

    /// The number of frames to receive, up to `wanted`. A worker with a local share that several contexts use also receives
    /// without free HERs, since other workers may have some.
    #[inline]
    fn room_for(&self, wanted: usize) -> usize {
        let goes_on = self.local_share.is_some() && self.core.contexts.is_shared() && !self.core.contexts.stalls;
        if goes_on { wanted } else { self.core.table.mpqs.room().min(wanted) }
    }

    /// The number of frames that other workers hold.
    pub(crate) fn out_on_channels(&self) -> usize {
        let handed = self.hand_over.as_ref().map_or(0, |hand_over| hand_over.out());
        handed + self.local_share.as_ref().map_or(0, |local_share| local_share.out())
    }

    /// Whether the distributing part has work, or had some in the last poll.
    pub(crate) fn is_busy_for_others(&self) -> bool {
        let hands_over = self.hand_over.as_ref().is_some_and(|hand_over| hand_over.busy);
        hands_over
            || self
                .local_share
                .as_ref()
                .is_some_and(|local_share| local_share.is_busy() || !self.core.egress.passing.is_empty())
    }

    /// The parts of a worker that a poll iteration runs tasks on.
    #[inline]
    fn parts<'w, C: Fn() -> Duration>(&'w mut self, clock: &'w C) -> Poll<'w, C> {
        let Self { core, runner, ingress, admission, helpers, .. } = self;
        Poll { core, runner, ingress, admission, helpers: helpers.as_deref_mut(), clock }
    }

    /// Runs the tasks that a poll has time for, and accounts for them. Returns how many frames were queued, run or dropped.
    fn run_tasks(&mut self, returned: u64, clock: &impl Fn() -> Duration) -> usize {
        let arrival = clock();
        self.core.telemetry.note_first_arrival(arrival);
        let now = BatchTime { time: nanoseconds(arrival), timestamp: Timestamp::at(arrival) };
        let stall = self.admission.stall(&self.core, self.waits_for());
        let mut poll = self.parts(clock);
        let (before, waited) = (poll.rx_backlog(), poll.core.table.hers_taken() + poll.rx_backlog());
        let resumed = poll.resume_parked();
        poll.share_tasks();
        let run = poll.run(now);
        let taken = before - poll.rx_backlog();
        let (released, end) = (returned + resumed + run, clock());
        let last_end = poll.core.telemetry.end_tasks(released, end);
        let [took, since] = [arrival, last_end].map(|start| end.saturating_sub(start));
        poll.note_load(waited, run, took);
        self.ingress.processed += taken as u64;
        self.ingress.rx_catch_up.note_poll(took, since);
        self.core.sched.note_length(released, took);
        if self.core.contexts.any_waits {
            charge_waits(&mut self.core, stall, took, since);
        }
        self.core.expire_messages(end);
        taken
    }

    /// Wakes applications that sleep on the doorbell of their event ring. While there is work, events may wait for further ones.
    fn ring_doorbells(&mut self, taken: bool) {
        if self.core.telemetry.doorbell_pending.take() {
            self.ring_due_doorbells(taken || self.has_tasks());
        }
    }

    #[cold]
    fn ring_due_doorbells(&mut self, busy: bool) {
        let now = busy.then_some(self.core.telemetry.last_end);
        self.core.contexts.list.iter_mut().flatten().for_each(|context| context.event_ring.ring(now));
    }

    /// The number of frames received and not admitted.
    pub(crate) fn rx_backlog(&self) -> usize {
        self.admission.rx_backlog(&self.ingress.inbound)
    }

    /// Whether the next poll has work even if nothing arrives.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        let queued = self.rx_backlog() > 0 || !self.core.table.mpqs.backlogged().is_empty();
        queued || !self.core.parked.is_empty() || self.has_loans() || self.waits_for().is_some()
    }

    /// The context whose packets wait for room at another worker.
    #[inline]
    fn waits_for(&self) -> Option<Slot> {
        self.hand_over.as_ref().and_then(|hand_over| hand_over.waits_for())
    }

    /// Receives as many frames as there is room for, and hands over those of other threads. Returns how many frames there are to
    /// admit.
    fn receive(&mut self, clock: &impl Fn() -> Duration) -> usize {
        self.ingress.charges.begin(&self.core, clock);
        let taken = self.receive_matched();
        if let Some(local_share) = &mut self.local_share {
            local_share.hand_over(&mut *self.core.nic);
        }
        if let Some(hand_over) = &mut self.hand_over {
            hand_over.send();
        }
        self.ingress.charges.charge(&mut self.core, clock);
        taken
    }

    /// Receives and matches a batch, and prefetches its messages.
    fn receive_matched(&mut self) -> usize {
        self.ingress.rx_catch_up.batch_was_full = false;
        if !self.ingress.inbound.is_empty() {
            // While these packets were held back, rules may have changed and other packets may have joined them.
            self.core.table.prefetch(&mut self.ingress.inbound, true);
        }
        let room = self.room_for(self.wanted());
        if room == 0 || self.admission.stalled.is_some() || self.core.egress.is_full() {
            self.core.telemetry.counts.add(Counter::HerStalls, 1);
            return 0;
        }
        if !self.ingress.inbound.is_empty() {
            // Packets that a stalled one held back come first.
            return self.ingress.inbound.len();
        }
        let taken = self.receive_batch(room);
        let is_handed = self.hand_over.as_ref().is_some_and(|hand_over| hand_over.were_handed);
        self.ingress.rx_catch_up.batch_was_full |= taken >= room.min(BATCH);
        let rerouted = self.core.contexts.rolled_back > 0;
        if rerouted {
            self.reroute();
        }
        // Buckets are unknown if the distributor matched the packets, or if packets were rerouted to another context.
        let again = rerouted || is_handed || self.arrivals.is_some() || self.local_share.is_some();
        self.core.table.prefetch(&mut self.ingress.inbound, again);
        if taken > 1 && self.core.contexts.reorders && self.core.clusters.len() > 1 {
            self.sort_by_cluster();
        }
        taken
    }

    /// Receives a batch of at most `room` packets from the packet channel or the NIC. Returns how many.
    fn receive_batch(&mut self, room: usize) -> usize {
        let Self { core, arrivals, ingress, local_share, hand_over, .. } = self;
        match (arrivals, local_share, hand_over) {
            (Some(arrivals), ..) => {
                let taken = ingress.inbound.take_over(arrivals, room.min(BATCH));
                ingress.charges.count(&ingress.inbound);
                taken
            }
            (None, Some(local_share), _) if !ingress.closed => local_share.receive(core, ingress, room),
            (None, None, Some(hand_over)) => hand_over.receive(core, ingress, room),
            _ => ingress.receive_own(core, room),
        }
    }

    /// Sorts the batch by cluster, so that each cluster's tasks run consecutively. The first cluster rotates from batch to batch,
    /// since HERs may run out before all clusters are served.
    fn sort_by_cluster(&mut self) {
        let Self { core: Core { clusters, .. }, ingress: Ingress { inbound, batches, .. }, .. } = self;
        let (start, count) = (clusters.start, clusters.end - clusters.start);
        *batches = batches.wrapping_add(1);
        inbound.group(count, |found, place| match found.entry(place).owner {
            Slot::NOBODY => 0,
            _ => (home(clusters, &found.key(place)) - start).wrapping_add(*batches) % count,
        });
    }

    /// The number of frames worth receiving: few beyond the work that is queued. The NIC can hold packets that contexts would
    /// have to drop. The number is a full batch while one of several contexts may run out of tasks, and after long polls.
    fn wanted(&self) -> usize {
        let most = if self.core.contexts.is_shared() { shared_batch(self.core.contexts.linked) } else { BATCH };
        if self.ingress.low_backlog || self.ingress.rx_catch_up.is_wanted() {
            return most;
        }
        most.saturating_sub(self.core.table.hers_taken()).max(MIN_RX)
    }

    /// Hands staged frames to the NIC (PsPIN's NIC outbound engine). Frames that it has no room for stay staged.
    pub(crate) fn send(&mut self, clock: &impl Fn() -> Duration) -> Result<(), NicError> {
        if !self.core.egress.passing.is_empty() {
            self.pass(clock);
        }
        self.core.egress.flush(&mut *self.core.nic)
    }

    /// Passes frames to the kernel.
    #[cold]
    fn pass(&mut self, clock: &impl Fn() -> Duration) {
        let Core { nic, egress, telemetry, .. } = &mut self.core;
        match (&self.arrivals, &mut self.local_share) {
            // The distributor passes these frames and measures the cost.
            (Some(_), _) => _ = nic.pass_to_kernel(&mut egress.passing),
            (None, Some(local_share)) => {
                let dropped = local_share.distributor.pass_bounded(&mut **nic, &mut egress.passing, clock);
                telemetry.counts.add(Counter::DropShare, dropped);
            }
            (None, None) => {
                let took = egress.pass_to_kernel(&mut **nic, clock);
                self.ingress.rx_catch_up.note_poll(took, Duration::ZERO);
            }
        }
    }

    /// The number of frames that have not left: sent by handlers, waiting for the kernel, or held by other threads.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.out_on_channels() + self.core.egress.passing.len() + self.unsent()
    }

    /// The number of frames that handlers sent and that have not left: staged here or in the NIC's transmit ring.
    pub(crate) fn unsent(&self) -> usize {
        self.core.egress.unsent(&*self.core.nic)
    }

    /// The number of frames received, including those of other threads.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.core.telemetry.counts.get(Counter::RxPackets)
    }

    /// The current statistics block.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut counts = self.core.telemetry.counts.clone();
        for context in self.core.contexts.list.iter().flatten().filter(|context| context.may_have_counts()) {
            counts.merge(&context.counts);
        }
        Statistics { counts, latencies: self.core.telemetry.latencies.clone(), active: self.core.telemetry.active() }
    }

    /// Stops lending tasks to other threads, and stops asking for theirs.
    pub(crate) fn stop_lending(&mut self) {
        if let Some(helpers) = &mut self.helpers {
            helpers.stop_lending();
        }
    }

    /// Whether tasks of other threads were here in the last poll, or own tasks came back.
    pub(crate) fn has_exchanged(&self) -> bool {
        self.helpers.as_ref().is_some_and(|helpers| helpers.exchanged)
    }

    /// Whether other threads may still lend tasks to this one.
    pub(crate) fn may_borrow(&self) -> bool {
        self.helpers.as_ref().is_some_and(|helpers| helpers.may_borrow())
    }

    /// Whether other threads hold tasks of this one, or this one holds theirs.
    pub(crate) fn has_loans(&self) -> bool {
        self.helpers.as_ref().is_some_and(|helpers| helpers.has_loans())
    }

    /// Checks a worker's accounts against each other: message table, queues, parked tasks and contexts. A queue is held exactly
    /// when it is not free. May be called between polls only.
    ///
    /// # Panics
    /// When they disagree, which is a bug.
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
            count(|context| context.may_time_out()),
            count(|context| context.replacement.draining),
            count(|context| context.replacement.falls_back_to.is_some()),
        ];
        let noted = [contexts.linked, contexts.timeouts, contexts.draining, contexts.rolled_back];
        assert_eq!(counted, noted.map(|number| number as usize), "contexts: all, with timeout, draining, rolled back");
    }

    /// The number of queues that messages of an installed context hold.
    #[doc(hidden)]
    #[must_use]
    pub fn queues_held(&self, id: u32) -> u32 {
        self.core.contexts.slot_with(id).map_or(0, |slot| self.core.table.messages.held(slot))
    }

    /// The number of HERs that an installed context holds.
    #[doc(hidden)]
    #[must_use]
    pub fn hers_held(&self, id: u32) -> u32 {
        self.core.contexts.slot_with(id).map_or(0, |slot| self.core.table.mpqs.held(slot.0))
    }
}
