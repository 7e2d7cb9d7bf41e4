//! What tasks may access by commands.

use spin_frame::Frame;

use crate::host_memory::HostMemory;
use crate::hpu::send_rights::{Received, SendRights};

/// What the tasks of a context may access by commands.
#[derive(Clone, Copy)]
pub struct Access<'t> {
    /// Host memory of the context.
    pub host: Option<&'t HostMemory>,
    /// Frames that may be sent.
    pub send: &'t SendRights,
}

/// The rights of a task to send frames.
pub(super) struct SendGuard<'t> {
    rights: &'t SendRights,
    /// Fields of the task's packet before any handler ran. Unknown without restrictions.
    received: Received,
}

impl<'t> SendGuard<'t> {
    /// The guard of a task whose packet is unknown.
    #[inline]
    pub(super) const fn new(rights: &'t SendRights) -> Self {
        Self { rights, received: Received::UNKNOWN }
    }

    /// Sets the fields of the task's packet, if the rights depend on them.
    #[inline(always)]
    pub(super) fn set_received(&mut self, read: impl FnOnce(&mut Received)) {
        if self.rights.is_restricted() {
            read(&mut self.received);
        }
    }

    /// Keeps the fields of the task's packet in its frame.
    pub(super) fn keep_received(&self, frame: &mut Frame) {
        if self.rights.is_restricted() {
            self.received.keep_in(frame);
        }
    }

    /// Whether the task may send a frame.
    #[inline]
    pub(super) fn allows(&self, frame: &[u8]) -> bool {
        self.rights.allow(&self.received, frame)
    }
}
