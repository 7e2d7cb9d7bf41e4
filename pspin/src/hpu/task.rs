//! Tasks: message, handler, limits.

use hpu_vm::jit::{Limits, Task, Translation};
use hpu_vm::{HostBytes, Image};
use spin_abi::control::Isolation;
use spin_abi::map::{HANDLER_ARGS, TASK_BLOCK};

use crate::ids::Handler;

/// Message of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskIdentity {
    /// Index of the message's queue.
    pub flow: u32,
    /// Number of the message among all messages so far.
    pub message: u64,
}

/// Specification of a task.
#[derive(Clone, Copy)]
pub struct TaskSpec<'s> {
    /// The handler.
    pub handler: Handler,
    /// Message of the task's packet.
    pub identity: TaskIdentity,
    /// Bytes of the packet to copy to L1.
    pub l1_bytes: usize,
    /// The code.
    pub image: &'s Image,
    /// Machine code of the image. `None`: the handler is interpreted.
    pub translation: Option<&'s Translation>,
    /// Time and instruction limit.
    pub limits: Limits,
    /// Host memory, for copies that the executor makes without the command unit.
    pub host: Option<HostBytes<'s>>,
    /// Tasks that may see what this one leaves behind.
    pub isolation: Isolation,
}

impl<'s> TaskSpec<'s> {
    /// Task for an HPU whose stack ends at `stack_end` and whose thread pointer is `tp`.
    #[inline]
    pub(super) fn task(&self, stack_end: u32, tp: u32, may_park: bool) -> Task<'s> {
        Task {
            code: self.image.code(),
            translation: self.translation,
            entry: self.handler.address,
            sp: stack_end - TASK_BLOCK,
            argument: stack_end - HANDLER_ARGS,
            tp,
            limits: self.limits,
            may_park,
            host: self.host,
        }
    }
}
