//! Tasks that wait on their HPUs.

use std::sync::Arc;

use hpu_vm::jit::Translation;
use spin_pspin::hpu::command::CommandBudget;
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::ids::{MessageRef, Packet};
use spin_pspin::mpq::Task;

use crate::cores::helpers::SharedTask;

/// A task that waits on its HPU.
pub(crate) struct Parked {
    pub(crate) task: Task<MessageRef, Packet>,
    pub(crate) hpu: HpuId,
    pub(crate) issued: CommandBudget,
    /// The translation that it was started with: the HPU's registers and resume point have that translation's layout.
    pub(crate) translation: Option<Arc<Translation>>,
    /// The lender, if the task was shared by another thread.
    pub(crate) borrowed: Option<Borrowed>,
}

/// The origin of a task that another thread shared: see [`crate::worker::shared_tasks`].
#[derive(Clone, Copy)]
pub(crate) struct Borrowed {
    /// The index of the lender among the thread's peers.
    pub(crate) lender: usize,
    /// The id of the task's context.
    pub(crate) context: u32,
    /// The number by which handlers know the queue.
    pub(crate) flow: u32,
}

impl Borrowed {
    /// The shared task again, for its return.
    pub(crate) const fn shared_task(self, task: Task<MessageRef, Packet>) -> SharedTask {
        SharedTask { task, context: self.context, flow: self.flow }
    }
}

/// The point at which a parked task resumes.
#[derive(Clone, Copy)]
pub(crate) struct ResumePoint<'b> {
    pub(crate) issued: CommandBudget,
    pub(crate) translation: Option<&'b Translation>,
}
