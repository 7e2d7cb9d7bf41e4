//! The packet's way, top to bottom, on one thread: receive → match → order → run → act → feed back → send. The handlers' part
//! is in [`crate::worker::runner`].

mod admission;
mod complete;
pub(crate) mod core;
mod fast_path;
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
use spin_matcher::MessageKey;
use spin_nic::{NicError, Queue};
use spin_pspin::ids::{BatchTime, Slot, Timestamp};

use crate::context::Context;
use crate::context::loader::Loader;
use crate::context::packet_rules::home;
use crate::cores::helpers::Helpers;
use crate::cores::local_share::LocalShare;
use crate::cores::packet_channel::PacketRx;
use crate::cores::packet_channels::PacketChannels;
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

/// Frames received at least, while there is room: some may be for contexts that have nothing to do.
const MIN_RX: usize = 8;

/// A per-core data plane: NIC queue, message queues and contexts with their HPUs, all owned by one thread.
pub struct Worker {
    pub(crate) core: Core,
    pub(crate) runner: TaskRunner,
    pub(crate) ingress: Ingress,
    pub(crate) admission: Admission,
    /// Packets come from another thread, which receives and matches them.
    pub(crate) arrivals: Option<PacketRx>,
    /// It receives for other threads too: see [`crate::cores::local_share`].
    pub(crate) local_share: Option<Box<LocalShare>>,
    /// Threads with which it shares tasks: see [`crate::worker::shared_tasks`].
    pub(crate) helpers: Option<Box<Helpers>>,
}

impl Worker {
    /// A worker without contexts for `clusters` of the machine, to be run on this thread. Contexts are
    /// [prepared](crate::install::Prepared) by `loader`.
    ///
    /// # Errors
    /// When this thread cannot run handlers.
    ///
    /// # Panics
    /// When there is no cluster.
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
        })
    }

    /// Has its packets come from another thread: `nic` takes them back, and gives frames to send.
    #[must_use]
    pub fn fed_by(mut self, arrivals: PacketRx) -> Self {
        self.core.egress.pass_cost = arrivals.pass_cost.clone();
        self.arrivals = Some(arrivals);
        self
    }

    /// Has other threads take payload tasks over, and takes theirs.
    #[must_use]
    pub fn with_peers(mut self, helpers: Helpers) -> Self {
        self.helpers = Some(Box::new(helpers));
        self
    }

    /// Has it receive for the threads that these channels lead to, too.
    #[must_use]
    pub fn with_local_share(mut self, channels: PacketChannels) -> Self {
        // All that others have may come back in one poll.
        self.core.egress.reserve(channels.size() + MAX_PASSING);
        self.core.egress.pass_cost = channels.pass_cost().clone();
        self.local_share = Some(Box::new(LocalShare::new(channels)));
        self
    }

    /// Where frames go that are received from here on, if it receives for others too. The NIC is to be told apart: see
    /// [`spin_nic::Queue::steering`].
    pub fn set_distribution(&mut self, routes: RoutingTable) {
        if let Some(local_share) = &mut self.local_share {
            local_share.distributor.routes = routes;
        }
    }

    /// One poll iteration: the way of a batch of packets, from the NIC to the last of their handlers. Of contexts that share the time
    /// it runs as many tasks as their shares allow at a time. `clock` tells the time since some fixed moment; it is read a few times
    /// a batch, never per packet. Returns how many frames were taken in.
    ///
    /// # Errors
    /// When the NIC is of no use any more.
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

    /// Takes what other threads returned: frames, and what the thread that receives has dropped.
    #[inline]
    fn take_back_frames(&mut self) {
        let Self { core, ingress: Ingress { rx_catch_up, .. }, arrivals, local_share, .. } = self;
        if let Some(arrivals) = arrivals {
            arrivals.read_drops(|slot, count| {
                if let Some(Some(context)) = core.contexts.list.get_mut(slot.0 as usize) {
                    context.counts.add(Counter::DropShare, count);
                }
            });
            if rx_catch_up.looks_for_others() && !rx_catch_up.is_wanted() {
                // Other contexts' packets may be behind those of the context whose tasks took so long.
                let mpqs = &core.table.mpqs;
                if arrivals.has_any(rx_catch_up.worth_a_look(), |slot| mpqs.held(slot.0) == 0) {
                    rx_catch_up.expect();
                }
            }
        }
        if let Some(local_share) = local_share {
            local_share.take_back(core);
        }
    }

    /// How many of `wanted` frames there is room for. Where several contexts share the thread, one that receives for others goes on without
    /// HERs: others have room.
    #[inline]
    fn room_for(&self, wanted: usize) -> usize {
        let goes_on = self.local_share.is_some() && self.core.contexts.is_shared() && !self.core.contexts.stalls;
        if goes_on { wanted } else { self.core.table.mpqs.room().min(wanted) }
    }

    /// Frames that others have.
    pub(crate) fn out_on_channels(&self) -> usize {
        self.local_share.as_ref().map_or(0, |local_share| local_share.out())
    }

    /// Whether there is something to do for others, or was in the last poll.
    pub(crate) fn is_busy_for_others(&self) -> bool {
        self.local_share
            .as_ref()
            .is_some_and(|local_share| local_share.is_busy() || !self.core.egress.passing.is_empty())
    }

    /// The parts that a poll iteration runs tasks on.
    #[inline]
    fn parts<'w, C: Fn() -> Duration>(&'w mut self, clock: &'w C) -> Poll<'w, C> {
        let Self { core, runner, ingress, admission, helpers, .. } = self;
        Poll { core, runner, ingress, admission, helpers: helpers.as_deref_mut(), clock }
    }

    /// Runs what there is time for in a poll, and accounts for it. Returns how many frames were taken in.
    fn run_tasks(&mut self, returned: u64, clock: &impl Fn() -> Duration) -> usize {
        let arrival = clock();
        self.core.telemetry.note_first_arrival(arrival);
        let now = BatchTime { time: nanoseconds(arrival), timestamp: Timestamp::at(arrival) };
        let stall = self.admission.stall(&self.core);
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
        if self.core.contexts.stalls {
            charge_waits(&mut self.core, stall, took, since);
        }
        self.core.expire_messages(end);
        taken
    }

    /// Wakes the applications that sleep until they are told something. While there is work their news may wait for more.
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

    /// Frames that were received and not admitted.
    pub(crate) fn rx_backlog(&self) -> usize {
        self.admission.rx_backlog(&self.ingress.inbound)
    }

    /// Whether there is something to do without that anything arrives.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        let queued = self.rx_backlog() > 0 || !self.core.table.mpqs.backlogged().is_empty();
        queued || !self.core.parked.is_empty() || self.has_loans()
    }

    /// Takes a batch from the NIC, as much as there is room for, and hands over what belongs to other threads. Returns how many frames
    /// there are to admit.
    fn receive(&mut self, clock: &impl Fn() -> Duration) -> usize {
        self.ingress.charges.begin(&self.core, clock);
        let taken = self.receive_matched();
        if let Some(local_share) = &mut self.local_share {
            local_share.hand_over(&mut *self.core.nic);
        }
        self.ingress.charges.charge(&mut self.core, clock);
        taken
    }

    /// Receives, matches and prefetches a batch.
    fn receive_matched(&mut self) -> usize {
        self.ingress.rx_catch_up.batch_was_full = false;
        if !self.ingress.inbound.is_empty() {
            // Since these packets were kept back, rules may have changed, and other packets joined them.
            self.core.table.prefetch(&mut self.ingress.inbound, true);
        }
        let room = self.room_for(self.wanted());
        if room == 0 || self.admission.stalled.is_some() || self.core.egress.is_full() {
            self.core.telemetry.counts.add(Counter::HerStalls, 1);
            return 0;
        }
        if !self.ingress.inbound.is_empty() {
            // What a stalled packet kept back comes first.
            return self.ingress.inbound.len();
        }
        let taken = self.receive_batch(room);
        self.ingress.rx_catch_up.batch_was_full |= taken >= room.min(BATCH);
        let rerouted = self.core.contexts.rolled_back > 0;
        if rerouted {
            self.reroute();
        }
        // Another thread has matched them, or they are other contexts' now: their buckets are not prefetched.
        let again = rerouted || self.arrivals.is_some() || self.local_share.is_some();
        self.core.table.prefetch(&mut self.ingress.inbound, again);
        if taken > 1 && self.core.contexts.reorders && self.core.clusters.len() > 1 {
            self.sort_by_cluster();
        }
        taken
    }

    /// Receives a batch of at most `room` packets from where they come from. Returns how many.
    fn receive_batch(&mut self, room: usize) -> usize {
        let Self { core, arrivals, ingress, local_share, .. } = self;
        if let Some(local_share) = local_share.as_mut().filter(|_| arrivals.is_none() && !ingress.closed) {
            return local_share.receive(core, ingress, room);
        }
        let Core { nic, table, contexts, telemetry, .. } = core;
        let taken = match arrivals {
            Some(arrivals) => ingress.inbound.take_over(arrivals, room.min(BATCH)),
            None if ingress.closed => 0,
            None => {
                let bucket = |slot: Slot, key: &MessageKey| table.messages.prefetch_bucket(slot, key);
                ingress.inbound.receive(&mut **nic, &contexts.routes, room, &mut telemetry.counts, bucket)
            }
        };
        ingress.charges.count(&ingress.inbound);
        taken
    }

    /// Has the batch's tasks run in a row on each cluster. Another cluster's are the first each time: room may not last for all.
    fn sort_by_cluster(&mut self) {
        let Self { core: Core { clusters, .. }, ingress: Ingress { inbound, batches, .. }, .. } = self;
        let (start, count) = (clusters.start, clusters.end - clusters.start);
        *batches = batches.wrapping_add(1);
        inbound.group(count, |found, place| match found.entry(place).owner {
            Slot::NOBODY => 0,
            _ => (home(clusters, &found.key(place)) - start).wrapping_add(*batches) % count,
        });
    }

    /// How many frames are worth taking: few more than there is work for, since what contexts could not hold would be lost, where
    /// the NIC can keep it. But as many as possible while one of several contexts may run out of it.
    fn wanted(&self) -> usize {
        let most = if self.core.contexts.is_shared() { shared_batch(self.core.contexts.linked) } else { BATCH };
        if self.ingress.low_backlog || self.ingress.rx_catch_up.is_wanted() {
            return most;
        }
        most.saturating_sub(self.core.table.hers_taken()).max(MIN_RX)
    }

    /// The NIC outbound engine: hands staged frames over; what the NIC has no room for stays staged.
    pub(crate) fn send(&mut self, clock: &impl Fn() -> Duration) -> Result<(), NicError> {
        if !self.core.egress.passing.is_empty() {
            self.pass(clock);
        }
        self.core.egress.flush(&mut *self.core.nic)
    }

    /// Hands on what is the kernel's.
    #[cold]
    fn pass(&mut self, clock: &impl Fn() -> Duration) {
        let Core { nic, egress, telemetry, .. } = &mut self.core;
        match (&self.arrivals, &mut self.local_share) {
            // The thread that these come from does it, and knows how long it takes.
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

    /// Frames that handlers sent and that have not left: staged here, or in the NIC's transmit ring; and those that other threads have.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.out_on_channels() + self.core.egress.passing.len() + self.unsent()
    }

    /// Those that have not left.
    pub(crate) fn unsent(&self) -> usize {
        self.core.egress.unsent(&*self.core.nic)
    }

    /// Frames received so far, for other threads too.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.core.telemetry.counts.get(Counter::RxPackets)
    }

    /// The statistics block so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut counts = self.core.telemetry.counts.clone();
        for context in self.core.contexts.list.iter().flatten() {
            counts.merge(&context.counts);
        }
        Statistics { counts, latencies: self.core.telemetry.latencies.clone(), active: self.core.telemetry.active() }
    }

    /// Lends no more tasks, and wants none.
    pub(crate) fn stop_lending(&mut self) {
        if let Some(helpers) = &mut self.helpers {
            helpers.stop_lending();
        }
    }

    /// Whether the last turn had tasks of others, or they had some of its own.
    pub(crate) fn has_exchanged(&self) -> bool {
        self.helpers.as_ref().is_some_and(|helpers| helpers.exchanged)
    }

    /// Whether other threads may still lend tasks.
    pub(crate) fn may_borrow(&self) -> bool {
        self.helpers.as_ref().is_some_and(|helpers| helpers.may_borrow())
    }

    /// Whether other threads have tasks of this one, or this one theirs.
    pub(crate) fn has_loans(&self) -> bool {
        self.helpers.as_ref().is_some_and(|helpers| helpers.has_loans())
    }

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
            count(|context| context.replacement.draining),
            count(|context| context.replacement.falls_back_to.is_some()),
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

    /// HERs that an installed context holds.
    #[doc(hidden)]
    #[must_use]
    pub fn hers_held(&self, id: u32) -> u32 {
        self.core.contexts.slot_with(id).map_or(0, |slot| self.core.table.mpqs.held(slot.0))
    }
}
