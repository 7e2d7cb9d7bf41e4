//! Interface between the driver and a command unit.

use hpu_vm::{RegionKind, View};
use spin_abi::command::{Command, Status};
use spin_abi::events::Event;
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::TASK_FIRST;

/// A deferred send of the packet in L2: it waits until its handler ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredSend {
    /// Handle of the command.
    pub handle: u32,
    /// Address in the L2 packet window.
    pub address: u32,
    /// First byte of the frame to send.
    pub offset: u32,
    /// Bytes to send.
    pub length: u32,
}

/// Receives events for a context's application.
pub trait EventSink {
    /// Emits an event.
    fn emit(&mut self, event: Event);
}

/// Executes the commands of tasks.
pub trait CommandUnit {
    /// Executes a command.
    fn issue(&mut self, handle: u32, command: Command, view: &mut View<'_>) -> Status;

    /// Defers a raw send of bytes of the packet in L2. No other send is deferred. Returns `false` if the send cannot be
    /// deferred: then nothing has happened, and the caller [issues](CommandUnit::issue) it.
    fn defer_send(&mut self, send: DeferredSend) -> bool {
        let _ = send;
        false
    }

    /// Counts copies to host memory that were made without the command unit, and their bytes.
    fn copied(&mut self, copies: u64, bytes: u64) {
        let _ = (copies, bytes);
    }

    /// Counts a command that was not executed.
    fn refuse(&mut self, status: Status) -> Status;

    /// A handler waits for the command `handle`, or tests it. Executes the command if it is deferred and returns its
    /// status.
    fn complete(&mut self, handle: u32, view: &View<'_>) -> Option<Status>;

    /// Whether the task has issued a command. `true` if that is unknown.
    fn has_issued(&self) -> bool {
        true
    }

    /// Handle of the deferred send.
    fn deferred_handle(&self) -> Option<u32>;

    /// Counts bytes that are copied within NIC memory.
    fn charge_copy(&mut self, bytes: u32);

    /// Cost of the commands since the last call, in instructions against the handler's limit.
    fn take_charge(&mut self) -> u64;
}

/// Checks bytes to send: all are in one kind of memory, and that is neither code nor the task registers.
///
/// # Errors
/// [`Status::BadNicAddress`].
pub fn sendable(view: &View<'_>, address: u32, len: u32) -> Result<(), Status> {
    match view.kind_of(address, len) {
        Some((RegionKind::Code | RegionKind::Task, _)) | None => Err(Status::BadNicAddress),
        Some((RegionKind::Stack, _)) if in_task_registers(view, address, len) => Err(Status::BadNicAddress),
        Some(_) => Ok(()),
    }
}

/// Whether `len` bytes of the stack overlap the task registers, which lie at its top.
#[must_use]
const fn in_task_registers(view: &View<'_>, address: u32, len: u32) -> bool {
    let registers = view.normalise(DRIVER_BASE + TASK_FIRST);
    view.normalise(address) + len > registers
}
