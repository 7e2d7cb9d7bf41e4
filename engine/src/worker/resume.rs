//! How tasks that wait on their HPUs are parked and go on.

use std::time::Duration;

use hpu_vm::Exit;
use spin_abi::counters::Counter;

use crate::context::Context;
use crate::cores::helpers::{Helpers, Outcome};
use crate::sched::PollTimer;
use crate::worker::core::Core;
use crate::worker::parked::{Borrowed, Parked, ResumePoint};
use crate::worker::runner::TaskRunner;
use spin_pspin::hpu::command::{CommandBudget, Commands};
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::ids::{MessageRef, Packet, Slot};
use spin_pspin::mpq::Task;

/// Tasks that wait which are looked at in a turn while others have packets: it takes as long as some of these do.
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
        core.parked.push(Parked { task, hpu, issued, translation: context.program.translation.clone(), borrowed });
    }

    /// What a task waits for may come of the frame that it sent: that leaves now, as a copy, if it was put off.
    fn send_off(
        &mut self,
        core: &mut Core,
        task: &Task<MessageRef, Packet>,
        hpu: HpuId,
        mut issued: CommandBudget,
    ) -> CommandBudget {
        let Some(send) = issued.deferred.take() else { return issued };
        let Context { counts, hpus, .. } = core.contexts.get(task.context.slot);
        let (nic, outbound) = (&mut *core.nic, &mut core.egress.outbound);
        let mut commands = Commands::new(nic, outbound, None, counts, None, false, CommandBudget::FULL);
        hpus.get(hpu).set_status(send.handle, commands.copy_deferred(send, &task.packet.frame));
        issued
    }

    /// Goes on with tasks that wait, at the expense of their contexts: with each of them, or with [some](LOOKED_AT), those that are next,
    /// while others have packets. Returns how many packet buffers were given back.
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
            let flow = parked.borrowed.map_or_else(|| core.flow(slot, parked.task.mpq), |borrowed| borrowed.flow);
            let (exit, issued) = self.run_handler(core, &mut parked.task, parked.hpu, flow, Some(begun));
            if let Some(timer) = &mut timer {
                core.sched.scheduler.charge(slot.0, 0, timer.split());
            }
            if exit != Exit::Parked {
                match parked.borrowed {
                    None => released += u64::from(core.feed_back(parked.task, issued.deferred)),
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

    /// Gives up the tasks of a context that wait. Its queues are to be abandoned next.
    pub(crate) fn abandon_parked(core: &mut Core, mut helpers: Option<&mut Helpers>, slot: Slot) {
        let theirs = core.parked.extract_if(.., |parked| parked.task.context.slot == slot);
        for Parked { task, hpu, borrowed, .. } in theirs.collect::<Vec<_>>() {
            core.contexts.get(slot).hpus.get(hpu).abandon();
            match borrowed {
                // It is not complete.
                None => core.drop_frame(task.packet.frame, Counter::DropRemoved),
                Some(borrowed) => return_task(helpers.as_deref_mut(), borrowed, task, Outcome::Abandoned),
            }
        }
    }
}

/// Returns a shared task to the thread whose it is.
fn return_task(helpers: Option<&mut Helpers>, borrowed: Borrowed, task: Task<MessageRef, Packet>, outcome: Outcome) {
    let Some(helpers) = helpers else { unreachable!("tasks of others come from peers") };
    helpers.return_task(borrowed.lender, borrowed.shared_task(task), outcome);
}
