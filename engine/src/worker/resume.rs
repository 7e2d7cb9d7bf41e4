//! Parking and resuming tasks that wait on their HPUs.

use std::time::Duration;

use hpu_vm::Exit;
use spin_abi::counters::Counter;

use crate::context::{Context, Matching};
use crate::cores::helpers::{Helpers, Outcome};
use crate::sched::PollTimer;
use crate::worker::core::Core;
use crate::worker::parked::{Borrowed, Parked, ResumePoint};
use crate::worker::runner::TaskRunner;
use spin_pspin::hpu::command::{Access, CommandBudget, Commands};
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::hpu::send_rights::Received;
use spin_pspin::ids::{MessageRef, Packet, Slot};
use spin_pspin::mpq::Task;

/// Parked tasks resumed per poll while other tasks wait. Resuming one takes as long as some packets.
const LOOKED_AT: usize = 4;

impl TaskRunner {
    #[cold]
    pub(crate) fn park(
        &mut self,
        core: &mut Core,
        task: Task<MessageRef, Packet>,
        hpu: HpuId,
        issued: CommandBudget,
        borrowed: Option<Borrowed>,
    ) {
        let issued = self.send_off(core, &task, hpu, issued);
        let context = core.contexts.get(task.context.slot);
        context.counts.add(Counter::Parked, 1);
        core.parked.push(Parked { task, hpu, issued, translation: context.program.translation.clone().ok(), borrowed });
    }

    /// Sends a deferred frame now, as a copy: a parked task may be waiting for the effect of the frame that it sent.
    fn send_off(
        &mut self,
        core: &mut Core,
        task: &Task<MessageRef, Packet>,
        hpu: HpuId,
        mut issued: CommandBudget,
    ) -> CommandBudget {
        let Some(send) = issued.deferred.take() else { return issued };
        let Context { counts, hpus, matching: Matching { send: rights, .. }, .. } =
            core.contexts.get(task.context.slot);
        let (nic, outbound) = (&mut *core.nic, &mut core.egress.outbound);
        let access = Access { host: None, send: rights };
        let mut commands = Commands::new(nic, outbound, access, counts, None, false, CommandBudget::FULL);
        commands.set_received(|received| *received = Received::kept_in(&task.packet.frame));
        hpus.get(hpu).set_status(send.handle, commands.copy_deferred(send, &task.packet.frame));
        issued
    }

    /// Resumes parked tasks, and charges their contexts: all of them, or the next [few](LOOKED_AT) while other tasks wait.
    /// Returns how many packet buffers were released.
    pub(crate) fn resume_parked<C: Fn() -> Duration>(
        &mut self,
        core: &mut Core,
        helpers: Option<&mut Helpers>,
        others: bool,
        timer: impl FnOnce() -> PollTimer<C>,
    ) -> u64 {
        let most = if others { LOOKED_AT } else { usize::MAX };
        let (mut released, mut index) = (0, self.next_parked);
        let shares = !core.parked.is_empty() && core.contexts.is_shared();
        let (mut timer, mut helpers) = (shares.then(timer), helpers);
        for _ in 0..core.parked.len().min(most) {
            index = if index < core.parked.len() { index } else { 0 };
            let mut parked = core.parked.swap_remove(index);
            let begun = ResumePoint { issued: parked.issued, translation: parked.translation.as_deref() };
            let MessageRef { slot, .. } = parked.task.context;
            let flow = parked.borrowed.map_or_else(|| core.flow_of(&parked.task), |borrowed| borrowed.flow);
            let (exit, issued) = self.run_handler(core, &mut parked.task, parked.hpu, flow, Some(begun));
            if let Some(timer) = &mut timer {
                core.sched.scheduler.charge(slot.0, 0, timer.split());
            }
            if exit != Exit::Parked {
                match parked.borrowed {
                    None => released += u64::from(core.complete_task(parked.task, issued.deferred)),
                    Some(borrowed) => {
                        return_task(helpers.as_deref_mut(), borrowed, parked.task, Outcome::Ended(issued.deferred));
                    }
                }
                continue;
            }
            let issued = self.send_off(core, &parked.task, parked.hpu, issued);
            core.parked.push(Parked { issued, ..parked });
            let last = core.parked.len() - 1;
            core.parked.swap(index, last);
            index += 1;
        }
        self.next_parked = index;
        released
    }

    /// Cancels the parked tasks of a context. The caller abandons its queues next.
    pub(crate) fn abandon_parked(core: &mut Core, mut helpers: Option<&mut Helpers>, slot: Slot) {
        let theirs = core.parked.extract_if(.., |parked| parked.task.context.slot == slot);
        for Parked { task, hpu, borrowed, .. } in theirs.collect::<Vec<_>>() {
            core.contexts.get(slot).hpus.get(hpu).abandon();
            match borrowed {
                // The message is incomplete.
                None => core.drop_frame(task.packet.frame, Counter::DropRemoved),
                Some(borrowed) => return_task(helpers.as_deref_mut(), borrowed, task, Outcome::Abandoned),
            }
        }
    }
}

/// Returns a shared task to its lender.
fn return_task(helpers: Option<&mut Helpers>, borrowed: Borrowed, task: Task<MessageRef, Packet>, outcome: Outcome) {
    let Some(helpers) = helpers else { unreachable!("tasks of others come from peers") };
    helpers.return_task(borrowed.lender, borrowed.shared_task(task), outcome);
}
