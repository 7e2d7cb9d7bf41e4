//! The fast path: packets of a context that need not wait go from the batch to the payload handler without being queued.

mod decision;

use std::ops::Range;

use hpu_vm::Exit;
use spin_abi::counters::Counter;
use spin_matcher::MessageKey;
use spin_nic::Frame;

use crate::context::packet_rules::{PacketRules, home};
use crate::ingress::matched::{Match, MatchEntry};
use crate::ingress::rx_batch::{MatchedPacket, PREFETCH_SOON, RxBatch};
use crate::message::MessageTable;
use crate::message::flow_numbers::FlowNumbers;
use crate::message::messages::Messages;
use crate::worker::core::Core;
use crate::worker::fast_path::decision::{BatchExit, Decision, FastPacket, MessagePosition, SlowReason, SlowResult};
use crate::worker::run::{TaskRun, TaskSource, exit_of, run_batch};
use crate::worker::runner::TaskRunner;
use crate::worker::task::{Parts, Progress, parts, processes};
use spin_pspin::counts::Counts;
use spin_pspin::hpu::TaskIdentity;
use spin_pspin::hpu::command::{CommandBudget, Commands};
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::hpu::send_rights::Received;
use spin_pspin::ids::{BatchTime, Handler, MessageRef, Packet, Slot};
use spin_pspin::mpq::{Her, MessageParams, MpqId, Mpqs, Stage, Task};

/// Bytes of each packet that the tasks of a full batch may copy without evicting prefetched message state from the cache.
const SHORT_PACKET: usize = 128;

/// Runs a context's payload handler on up to `most` of its packets in the batch, without queueing them. A packet that has to wait
/// for another task is queued with its message. The run ends at a packet that was queued behind another one, or at a packet of
/// another context. Nothing runs while tasks of this context have to run one at a time. Also returns a packet that needs a full
/// [admission](crate::worker::admission::Admission::admit) before it may be queued.
pub(crate) fn run_fast_path(
    core: &mut Core,
    runner: &mut TaskRunner,
    inbound: &mut RxBatch,
    slot: Slot,
    most: u32,
    now: BatchTime,
) -> (Progress, Option<MatchedPacket>) {
    let (mut progress, mut left_over) = (Progress::default(), None);
    let Some(handler) = fast_handler(core, inbound, slot) else { return (progress, left_over) };
    let mut next = inbound.next().map(|found| home(&core.clusters, &found.key));
    while let Some(cluster) = next {
        let on_cluster = (slot, handler, cluster);
        let rest = if core.contexts.get(slot).matching.is_per_packet() {
            run_on_cluster::<true>(core, runner, inbound, on_cluster, most, now, &mut progress)
        } else {
            run_on_cluster::<false>(core, runner, inbound, on_cluster, most, now, &mut progress)
        };
        next = None;
        match rest {
            BatchExit::None => {}
            BatchExit::OtherCluster(cluster) => next = Some(cluster),
            BatchExit::MatchedPacket(arrival) => left_over = Some(arrival),
            BatchExit::Unusual(task, exit, issued) => {
                let hpu = HpuId { cluster, hpu: 0 };
                progress.released += u64::from(runner.end_unusual(core, task, hpu, exit, issued));
            }
        }
    }
    (progress, left_over)
}

/// The payload handler of a context, if its tasks run in batches and its packets need not wait.
fn fast_handler(core: &mut Core, inbound: &RxBatch, slot: Slot) -> Option<Handler> {
    let hpu = HpuId { cluster: core.clusters.start, hpu: 0 };
    if core.has_parked(slot.0) || inbound.is_empty() || inbound.len() > core.table.mpqs.room() {
        return None;
    }
    let context = core.contexts.get(slot);
    let in_a_row = context.runs_here()
        && context.runs_in_a_row(hpu)
        && context.replacement.predecessor.is_none()
        && context.matching.header.is_none();
    context.handler(Stage::Payload).filter(|_| in_a_row)
}

/// Runs the handler on one cluster, up to a packet of another cluster. `SINGLE`: the context is in packet mode. Each mode has its own code,
/// so that neither costs the other time.
fn run_on_cluster<const SINGLE: bool>(
    core: &mut Core,
    runner: &TaskRunner,
    inbound: &mut RxBatch,
    (slot, handler, cluster): (Slot, Handler, u32),
    most: u32,
    now: BatchTime,
    progress: &mut Progress,
) -> BatchExit {
    let context = core.contexts.get(slot);
    let verdicts = context.run.verdicts;
    let rules = PacketRules::of(slot, context);
    let nobody = TaskIdentity { flow: 0, message: 0 };
    let Parts { spec, hpus, access, counts, events, mut printer } = parts(context, handler, nobody);
    let mut print = |line: &[u8]| printer.print(line);
    let Core { nic, egress, clusters, table, telemetry, .. } = core;
    let packet_queues = table.packet_queues(slot).start;
    let MessageTable { messages, mpqs, admitted, flows, .. } = table;
    let (at, stop) = (inbound.len(), inbound.len().saturating_sub((most - progress.tasks) as usize));
    let cursor = BatchCursor { at, stop, passed: 0, queued: 0, looked_at: 0 };
    let path: FastPath<'_, SINGLE> = FastPath {
        inbound,
        clusters,
        messages,
        mpqs,
        admitted,
        counts: &mut telemetry.counts,
        rules,
        packet_queues,
        flows: *flows,
        now,
        cursor,
        restricted: access.send.is_restricted(),
    };
    let outbound = &mut egress.outbound;
    let mut commands = Commands::new(&mut **nic, outbound, access, counts, Some(events), true, CommandBudget::FULL);
    // With few buffers left, frames are released after each task: the NIC may need them before the batch ends.
    let watched = verdicts || commands.nic.low_on_buffers();
    let mut source = FastPathSource { path, cluster, verdicts, watched, messages_done: 0, rest: BatchExit::None };
    let hpu = hpus.get(HpuId { cluster, hpu: 0 });
    hpu.with_run(&runner.executor, &spec, &mut commands, &mut print, |run| {
        source.path.cursor.looked_at = run.looked_at();
        run_batch(run, &mut source, None)
    });
    let FastPathSource { mut path, messages_done, rest, .. } = source;
    path.consume(&mut commands.outbound.recycle);
    let BatchCursor { queued, passed, .. } = path.cursor;
    progress.tasks += passed as u32;
    let usual = passed - u64::from(matches!(rest, BatchExit::Unusual(..)));
    commands.counts.add(Counter::PayloadRuns, passed);
    commands.counts.add(Counter::Matched, passed + queued);
    commands.counts.add(Counter::Released, usual);
    commands.counts.add(Counter::Messages, messages_done);
    commands.recycle_frames();
    if usual > 0 {
        telemetry.note_released(slot, usual, now.timestamp);
    }
    progress.released += usual;
    rest
}

/// Packets of a batch that need not wait, as tasks of the payload handler.
struct FastPathSource<'e, const SINGLE: bool> {
    path: FastPath<'e, SINGLE>,
    cluster: u32,
    verdicts: bool,
    /// Whether the end of every task is examined.
    watched: bool,
    /// The number of messages completed.
    messages_done: u64,
    /// The reason why the batch ended.
    rest: BatchExit,
}

impl<const SINGLE: bool> TaskSource for FastPathSource<'_, SINGLE> {
    type Taken = FastPacket;

    #[inline(always)]
    fn next(&mut self, run: &mut TaskRun<'_, '_, '_, '_>) -> Option<FastPacket> {
        loop {
            let packet = match self.path.look()? {
                Some(packet) => packet,
                None => match self.path.lookup_slow() {
                    Decision::Fast(packet) => packet,
                    Decision::Nothing => return None,
                    Decision::Slow(other) => {
                        if self.take(other, &mut run.commands().outbound.recycle) {
                            continue;
                        }
                        return None;
                    }
                },
            };
            if packet.home != self.cluster {
                self.rest = BatchExit::OtherCluster(packet.home);
                return None;
            }
            return Some(packet);
        }
    }

    #[inline(always)]
    fn begin(&mut self, run: &mut TaskRun<'_, '_, '_, '_>, packet: &FastPacket) -> TaskIdentity {
        if self.path.restricted {
            run.commands().set_received(|received| *received = Received::of(self.path.frame()));
        }
        TaskIdentity { flow: packet.flow, message: packet.message }
    }

    #[inline(always)]
    fn frame<'t>(&'t mut self, _: &'t mut FastPacket) -> &'t mut Frame {
        self.path.frame()
    }

    #[inline(always)]
    fn ended(&mut self, run: &mut TaskRun<'_, '_, '_, '_>, packet: FastPacket, returned: bool) -> bool {
        let (path, FastPacket { mpq, place, .. }) = (&mut self.path, packet);
        if returned && !self.watched && run.had_no_effects() {
            path.pass();
        } else {
            run.finish(returned);
            let usual = returned || run.exit() == Exit::Finished;
            path.consume(&mut run.commands().outbound.recycle);
            let mut frame = path.take_fast();
            if !usual || self.verdicts && !processes(run.result()) {
                run.commands().keep_received(&mut frame);
                let (binding, packet) = (path.hold(mpq, place), Packet::new(frame, path.now.timestamp));
                let task = Task { mpq, stage: Stage::Payload, context: binding, packet, releases_packet: true };
                self.rest = BatchExit::Unusual(task, exit_of(run, returned), run.commands().budget);
                return false;
            }
            run.commands().release_frame(frame);
        }
        if place != MessagePosition::Open {
            self.messages_done += u64::from(place == MessagePosition::Only || path.end(mpq));
        }
        true
    }
}

impl<const SINGLE: bool> FastPathSource<'_, SINGLE> {
    /// Takes a packet that is not eligible for the fast path. Returns whether the batch continues.
    #[inline(never)]
    fn take(&mut self, other: SlowReason, spent: &mut Vec<Frame>) -> bool {
        self.path.consume(spent);
        match self.path.take(other) {
            SlowResult::Queued => {}
            SlowResult::Foreign(frame) => spent.push(frame),
            SlowResult::Behind => return false,
            SlowResult::Questionable(arrival) => {
                self.rest = BatchExit::MatchedPacket(arrival);
                return false;
            }
        }
        true
    }
}

/// The position in the batch. Frames that are done stay in the batch until the run ends or a frame is taken out. Moving many
/// frames at once takes only a few instructions per frame.
struct BatchCursor {
    /// The index behind the next packet: that one is at `at - 1`, and packets from `at` on are done.
    at: usize,
    /// The index of the last packet to examine.
    stop: usize,
    /// The number of packets that ran on the fast path.
    passed: u64,
    /// The number of packets queued.
    queued: u64,
    /// Leading bytes of a packet that a task is likely to read.
    looked_at: usize,
}

/// The parts of a worker that the fast path needs.
struct FastPath<'e, const SINGLE: bool> {
    inbound: &'e mut RxBatch,
    clusters: &'e Range<u32>,
    messages: &'e mut Messages,
    mpqs: &'e mut Mpqs<MessageRef, Packet>,
    admitted: &'e mut u64,
    counts: &'e mut Counts,
    rules: PacketRules,
    /// The context's first queue for packet mode.
    packet_queues: u32,
    flows: FlowNumbers,
    now: BatchTime,
    cursor: BatchCursor,
    /// Whether the context's sends are restricted: they then depend on its packets.
    restricted: bool,
}

impl<const SINGLE: bool> FastPath<'_, SINGLE> {
    /// Prefetches the packet of a task that runs soon. Prefetches its message again if copies since the batch arrived may have
    /// evicted it from the cache.
    #[inline]
    fn ask_ahead(&self) {
        let Some((frame, found)) = self.cursor.at.checked_sub(1 + PREFETCH_SOON).map(|place| self.inbound.at(place))
        else {
            return;
        };
        frame.prefetch_first(self.cursor.looked_at);
        if frame.len().min(self.cursor.looked_at) > SHORT_PACKET && found.first != MpqId::NONE {
            self.messages.prefetch(found.first);
            self.mpqs.prefetch(found.first);
        }
    }

    /// Examines the next packet of the batch. `None`: there is none. `Some(None)`: it needs a [slow lookup](Self::lookup_slow).
    #[inline(always)]
    fn look(&mut self) -> Option<Option<FastPacket>> {
        if self.cursor.looked_at > 0 {
            self.ask_ahead();
        }
        if self.cursor.at == self.cursor.stop {
            return None;
        }
        let place = self.cursor.at - 1;
        let entry @ &MatchEntry { owner, end_of_message, first, .. } = self.inbound.found().entry(place);
        if SINGLE {
            return Some(if owner == self.rules.slot { self.single() } else { None });
        }
        let (head, rest) = (entry.head(), || self.inbound.found().rest(place));
        if owner == self.rules.slot && self.messages.holds(first, owner, head, rest, self.now.time) {
            let next = self.mpqs.try_inline_next(first, end_of_message);
            return Some(next.map(|message| self.packet(first, &message, MessagePosition::of(end_of_message))));
        }
        let begins = owner == self.rules.slot && first == MpqId::NONE && end_of_message;
        if begins && self.messages.begun() == self.inbound.begun() { Some(self.only()) } else { Some(None) }
    }

    #[inline(always)]
    const fn packet(&self, mpq: MpqId, message: &MessageRef, place: MessagePosition) -> FastPacket {
        let flow = if SINGLE { self.flows.message(message, mpq) } else { self.flows.queue(mpq) };
        FastPacket::of(mpq, message, place, flow)
    }

    /// The packet under examination as a whole message, if no handler but the payload handler runs on it.
    #[inline(always)]
    fn only(&mut self) -> Option<FastPacket> {
        let mpq = self.messages.next_free(self.rules.slot).filter(|_| self.rules.is_simple())?;
        *self.admitted += 1;
        let key = &self.inbound.found().key(self.cursor.at - 1);
        let message = self.rules.message_params(self.clusters, key, *self.admitted).context;
        Some(self.packet(mpq, &message, MessagePosition::Only))
    }

    /// The packet under examination in packet mode, if no other packet of its queue waits.
    #[inline(always)]
    fn single(&mut self) -> Option<FastPacket> {
        let key = &self.inbound.found().key(self.cursor.at - 1);
        let message = self.rules.single_params(self.clusters, key, *self.admitted + 1).context;
        let mpq = self.packet_queue(&message);
        if self.mpqs.has_hers(mpq) {
            return None;
        }
        *self.admitted += 1;
        Some(self.packet(mpq, &message, MessagePosition::Open))
    }

    /// The parameters of a message that begins, or of a single packet.
    #[inline]
    fn params(&self, key: &MessageKey, message: u64) -> MessageParams<MessageRef> {
        if SINGLE {
            self.rules.single_params(self.clusters, key, message)
        } else {
            self.rules.message_params(self.clusters, key, message)
        }
    }

    /// The queue of a packet in packet mode.
    #[inline]
    fn packet_queue(&self, message: &MessageRef) -> MpqId {
        MpqId(self.packet_queues + message.home() - self.clusters.start)
    }

    /// The decision on any packet under examination.
    #[inline(never)]
    fn lookup_slow(&mut self) -> Decision {
        let place = self.cursor.at - 1;
        let &MatchEntry { owner, end_of_message, bucket, first, .. } = self.inbound.found().entry(place);
        let key = &self.inbound.found().key(place);
        let (slot, now) = (self.rules.slot, self.now.time);
        if owner != slot {
            return if owner == Slot::NOBODY { Decision::Slow(SlowReason::Foreign) } else { Decision::Nothing };
        }
        if SINGLE {
            let mpq = self.packet_queue(&self.params(key, 0).context);
            let fits = self.mpqs.held(slot.0) < self.rules.soft_limit && self.mpqs.accepts(mpq);
            return Decision::Slow(if fits { SlowReason::Waits(mpq) } else { SlowReason::Questionable });
        }
        debug_assert_eq!(bucket as usize, self.messages.bucket(owner, key), "all of a batch were sought");
        let found = self.messages.find_in((bucket as usize, first), owner, key, now);
        if found.is_none()
            && end_of_message
            && let Some(passing) = self.only()
        {
            return Decision::Fast(passing);
        }
        let mpq = found.or_else(|| self.messages.begin_in(bucket as usize, slot, key, now));
        let Some(mpq) = mpq else { return Decision::Slow(SlowReason::Questionable) };
        let params = || {
            *self.admitted += 1;
            self.rules.message_params(self.clusters, key, *self.admitted)
        };
        if let Some(message) = self.mpqs.try_inline(mpq, end_of_message, params) {
            return Decision::Fast(self.packet(mpq, &message, MessagePosition::of(end_of_message)));
        }
        if self.mpqs.held(slot.0) >= self.rules.soft_limit || !self.mpqs.accepts(mpq) {
            if found.is_none() {
                self.messages.release(mpq);
            }
            return Decision::Slow(SlowReason::Questionable);
        }
        Decision::Slow(SlowReason::Waits(mpq))
    }

    /// Takes the packet under examination, which is not eligible. Packets before it were [released](Self::consume).
    fn take(&mut self, other: SlowReason) -> SlowResult {
        let mut frame = self.next();
        let Match { end_of_message, key, .. } = self.inbound.taken();
        match other {
            SlowReason::Foreign => {
                self.counts.add(Counter::DropUnmatched, 1);
                SlowResult::Foreign(frame)
            }
            SlowReason::Questionable => {
                SlowResult::Questionable(MatchedPacket { frame, slot: self.rules.slot, key, end_of_message })
            }
            SlowReason::Waits(mpq) => {
                if self.restricted {
                    Received::of(&frame).keep_in(&mut frame);
                }
                let first = self.mpqs.is_quiescent(mpq);
                *self.admitted += 1;
                let params = self.params(&key, *self.admitted);
                let packet = Packet::new(frame, self.now.timestamp);
                self.mpqs.put(mpq, Her { params, end_of_message, packet });
                self.cursor.queued += 1;
                if first { SlowResult::Queued } else { SlowResult::Behind }
            }
        }
    }

    /// The frame of the packet under examination.
    #[inline(always)]
    fn frame(&mut self) -> &mut Frame {
        self.inbound.frame(self.cursor.at - 1)
    }

    /// Marks the packet under examination as done. Its frame stays in the batch.
    #[inline(always)]
    const fn pass(&mut self) {
        self.cursor.at -= 1;
    }

    /// Moves the frames of all packets that are done from the batch to `spent`.
    #[inline(always)]
    fn consume(&mut self, spent: &mut Vec<Frame>) {
        if self.cursor.at < self.inbound.len() {
            self.consume_all(spent);
        }
    }

    #[inline(never)]
    fn consume_all(&mut self, spent: &mut Vec<Frame>) {
        self.cursor.passed += (self.inbound.len() - self.cursor.at) as u64;
        self.inbound.consume(self.cursor.at, spent);
    }

    /// Takes the frame of an eligible packet. Packets before it were [released](Self::consume).
    #[inline]
    fn take_fast(&mut self) -> Frame {
        self.cursor.passed += 1;
        self.next()
    }

    #[inline]
    fn next(&mut self) -> Frame {
        debug_assert_eq!(self.cursor.at, self.inbound.len(), "those that passed were given back");
        self.cursor.at -= 1;
        let Some((frame, _)) = self.inbound.take() else { unreachable!("one was looked at") };
        frame
    }

    /// Registers the task of the packet taken last as in flight, since it has not completed. Returns the message that it is bound
    /// to.
    #[cold]
    fn hold(&mut self, mpq: MpqId, place: MessagePosition) -> MessageRef {
        let key = &self.inbound.taken().key;
        let params = self.params(key, *self.admitted);
        if place == MessagePosition::Only {
            let begun = self.messages.begin(self.rules.slot, key, self.now.time);
            let passes = self.mpqs.try_inline(mpq, true, || params);
            debug_assert!(begun == Some(mpq) && passes == Some(params.context), "the queue is free");
        }
        if SINGLE {
            // The queue may not have been used before.
            self.mpqs.try_inline(mpq, false, || params);
            self.mpqs.begin_inline(mpq, false);
            return params.context;
        }
        self.mpqs.begin_inline(mpq, place != MessagePosition::Open);
        // For an only packet, `admitted` was incremented last for its message.
        self.mpqs.context(mpq).unwrap_or(params.context)
    }

    /// Ends the task of a message's last packet. Returns whether the message is complete.
    fn end(&mut self, mpq: MpqId) -> bool {
        let feedback = self.mpqs.end_inline(mpq);
        if feedback.idle {
            self.messages.release_from(self.inbound.found().entry(self.cursor.at).bucket as usize, mpq);
        }
        feedback.message_done
    }
}
