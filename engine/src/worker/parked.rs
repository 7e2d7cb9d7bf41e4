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
    /// The one that it was begun with: registers and place are as that keeps them.
    pub(crate) translation: Option<Arc<Translation>>,
    /// It is another thread's.
    pub(crate) borrowed: Option<Borrowed>,
}

/// Whose task it is that another thread's engine has: see [`crate::worker::shared_tasks`].
#[derive(Clone, Copy)]
pub(crate) struct Borrowed {
    /// Of the thread's peers.
    pub(crate) lender: usize,
    /// Id of its context.
    pub(crate) context: u32,
    /// What handlers know its queue by.
    pub(crate) flow: u32,
}

impl Borrowed {
    /// What was lent, with the task that it was.
    pub(crate) const fn shared_task(self, task: Task<MessageRef, Packet>) -> SharedTask {
        SharedTask { task, context: self.context, flow: self.flow }
    }
}

/// How far a task that waits has come.
#[derive(Clone, Copy)]
pub(crate) struct ResumePoint<'b> {
    pub(crate) issued: CommandBudget,
    pub(crate) translation: Option<&'b Translation>,
}
