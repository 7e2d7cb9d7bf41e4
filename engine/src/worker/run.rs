//! The only loop that runs tasks: [`run_batch`]. A [`TaskSource`] provides the tasks.

use hpu_vm::Exit;
use spin_abi::counters::Counter;
use spin_nic::Frame;

use crate::message::flow_numbers::FlowNumbers;
use crate::message::messages::Messages;
use crate::worker::task::{about, processes, started};
use spin_pspin::hpu::command::{CommandBudget, Commands};
use spin_pspin::hpu::send_rights::Received;
use spin_pspin::hpu::{HpuRun, TaskIdentity};
use spin_pspin::ids::{MessageRef, Packet, Slot, Timestamp};
use spin_pspin::mpq::{Mpqs, Stage, Task};

/// An HPU that is bound for a batch of tasks of one handler.
pub(crate) type TaskRun<'r, 'b, 'd, 'c> = HpuRun<'r, 'b, 'd, Commands<'c>>;

/// A source of tasks of one handler on one HPU. It also handles the end of each task.
///
/// A source keeps the reason why it ended the batch in a field. As a return value, it would be passed in memory for each task.
pub(crate) trait TaskSource {
    /// A task that was taken.
    type Taken;

    /// Takes the next task. `None`: the batch ends.
    fn next(&mut self, run: &mut TaskRun<'_, '_, '_, '_>) -> Option<Self::Taken>;

    /// Prepares the task to run. Returns the identity that its handler sees.
    fn begin(&mut self, run: &mut TaskRun<'_, '_, '_, '_>, taken: &Self::Taken) -> TaskIdentity;

    /// The packet of a taken task.
    fn frame<'t>(&'t mut self, taken: &'t mut Self::Taken) -> &'t mut Frame;

    /// Handles a task that ended or parked. `returned`: its handler returned, and `run` reports everything else that it did.
    ///
    /// Returns whether the batch continues.
    fn ended(&mut self, run: &mut TaskRun<'_, '_, '_, '_>, taken: Self::Taken, returned: bool) -> bool;
}

/// Runs the tasks of a source until it ends the batch. `first` is a task that was taken already, and runs before them.
#[inline(always)]
pub(crate) fn run_batch<S: TaskSource>(run: &mut TaskRun<'_, '_, '_, '_>, source: &mut S, first: Option<S::Taken>) {
    let mut first = first;
    while let Some(mut taken) = first.take().or_else(|| source.next(run)) {
        let identity = source.begin(run, &taken);
        let returned = run.run_task(identity, source.frame(&mut taken));
        if !source.ended(run, taken, returned) {
            return;
        }
    }
}

/// How the handler of a finished task ended.
pub(crate) fn exit_of(run: &TaskRun<'_, '_, '_, '_>, returned: bool) -> Exit {
    if returned { Exit::Returned } else { run.exit() }
}

/// Queued tasks of one context, as long as they are of the same handler and home cluster.
pub(crate) struct Queued<'q> {
    pub(crate) mpqs: &'q mut Mpqs<MessageRef, Packet>,
    pub(crate) messages: &'q mut Messages,
    pub(crate) flows: FlowNumbers,
    /// Arrival time of the packet whose buffer was released last.
    pub(crate) released_last: Timestamp,
    pub(crate) slot: Slot,
    pub(crate) home: u32,
    pub(crate) stage: Stage,
    pub(crate) verdicts: bool,
    /// The number of tasks that may still be taken.
    pub(crate) left: u32,
    /// Leading bytes of a packet that a task is likely to read.
    pub(crate) looked_at: usize,
    /// The number of packet buffers released.
    pub(crate) released: u64,
    pub(crate) end: QueuedEnd,
}

/// The reason why a batch of queued tasks ended.
pub(crate) enum QueuedEnd {
    /// No task is left, or no more may run.
    Drained,
    /// The next task belongs to another handler or cluster.
    Other(Task<MessageRef, Packet>),
    /// The last task needs more than its completion.
    Unusual(Task<MessageRef, Packet>, Exit, CommandBudget),
}

impl TaskSource for Queued<'_> {
    type Taken = Task<MessageRef, Packet>;

    #[inline(always)]
    fn next(&mut self, run: &mut TaskRun<'_, '_, '_, '_>) -> Option<Self::Taken> {
        if self.left == 0 {
            return None;
        }
        let next = self.mpqs.next_task(self.slot.0)?;
        if next.stage != self.stage || next.context.home() != self.home {
            self.end = QueuedEnd::Other(next);
            return None;
        }
        run.commands().begin(next.releases_packet);
        Some(next)
    }

    #[inline(always)]
    fn begin(&mut self, run: &mut TaskRun<'_, '_, '_, '_>, task: &Self::Taken) -> TaskIdentity {
        let commands = run.commands();
        commands.counts.add(started(self.stage), 1);
        commands.set_received(|received| *received = Received::kept_in(&task.packet.frame));
        // The next packet may no longer be in the cache. It is prefetched while this task runs.
        if let Some(packet) = self.mpqs.next_packet(self.slot.0) {
            packet.frame.prefetch_first(self.looked_at);
        }
        about(task, &self.flows)
    }

    #[inline(always)]
    fn frame<'t>(&'t mut self, task: &'t mut Self::Taken) -> &'t mut Frame {
        &mut task.packet.frame
    }

    #[inline(always)]
    fn ended(&mut self, run: &mut TaskRun<'_, '_, '_, '_>, task: Self::Taken, returned: bool) -> bool {
        run.finish(returned);
        self.left -= 1;
        let usual = (returned || run.exit() == Exit::Finished) && task.packet.drop_reason.is_none();
        if !usual || self.verdicts && !processes(run.result()) {
            self.end = QueuedEnd::Unusual(task, exit_of(run, returned), run.commands().budget);
            return false;
        }
        let Task { mpq, packet, releases_packet, .. } = task;
        let kept = if releases_packet {
            self.released_last = packet.arrived;
            self.released += 1;
            run.commands().release(packet.frame);
            None
        } else {
            Some(packet)
        };
        let feedback = self.mpqs.complete(mpq, self.stage, kept);
        if feedback.message_done {
            run.commands().counts.add(Counter::Messages, 1);
        }
        if feedback.idle {
            self.messages.release(mpq);
        }
        true
    }
}
