//! Device accesses: the driver page's registers and the character output.

use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use spin_abi::command::{Command, Status};
use spin_abi::fault::Cause;
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::{COMMAND_ISSUE, COMMAND_WAIT};

pub use crate::address::is_device;
pub use crate::command_registers::CommandRegisters;
use crate::hart::Hart;
use crate::reg::Reg;
use crate::view::View;

/// Number of the `ecall` that returns the cycle counter (FPsPIN).
pub const ECALL_CYCLES: u32 = 1;

/// Outcome of a device access other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The task is finished: it read the doorbell.
    Finish,
    /// The handler is ended with this cause, at this instruction and address.
    Fault(Cause),
    /// The handler reports this error: [`Cause::Reported`] with the value as address.
    Report(u32),
}

/// Whether a store of `width` bytes at `address` waits for a command. No other device access makes a handler wait.
pub(crate) const fn waits(address: u32, width: u32) -> bool {
    address == DRIVER_BASE + COMMAND_WAIT && width == 4
}

/// Executes an instruction's load at a device's address.
pub(crate) fn load<D: Device>(
    device: &mut D,
    hart: &mut Hart,
    view: &mut View<'_>,
    address: u32,
    width: u8,
) -> Result<u32, Trap> {
    match hart.command.register(address, width) {
        Some(register) => Ok(register.load(Relaxed)),
        None if address == DRIVER_BASE + COMMAND_ISSUE && width == 4 => {
            device.issue(view, hart.command.decode()).map_err(Trap::Fault)
        }
        None => device.load(view, address, width),
    }
}

/// Executes an instruction's store at a device's address. The caller repeats a pending store.
pub(crate) fn store<D: Device>(
    device: &mut D,
    hart: &mut Hart,
    view: &mut View<'_>,
    address: u32,
    width: u8,
    value: u32,
) -> Poll<Result<(), Trap>> {
    if let Some(register) = hart.command.register(address, width) {
        register.store(value, Relaxed);
        return Poll::Ready(Ok(()));
    }
    if waits(address, width.into()) {
        return device.wait(view, value);
    }
    Poll::Ready(device.store(view, address, width, value))
}

/// Devices of an HPU. They handle addresses that are in no range of the view and for which [`is_device`] holds. Task
/// registers that lie in the view as plain bytes and the [`CommandRegisters`] are therefore never accessed here.
///
/// `view` is the task's memory, for devices that copy from or to it.
pub trait Device {
    /// Loads `width` (1, 2 or 4) bytes at `address`. The access may be misaligned or extend beyond the window's end.
    /// The result's lower `width` bytes are the value; the interpreter extends it.
    ///
    /// # Errors
    /// A [`Trap`] ends the handler.
    fn load(&mut self, view: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap>;

    /// Stores the lower `width` (1, 2 or 4) bytes of `value`, otherwise as [`Device::load`].
    ///
    /// # Errors
    /// A [`Trap`] ends the handler.
    fn store(&mut self, view: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap>;

    /// Issues the command that the [`CommandRegisters`] describe, or handles its decoding error, and returns its
    /// handle. Remaining work is [waited](Device::wait) for by that handle. By default there is no command unit.
    ///
    /// # Errors
    /// The handler is ended with this cause.
    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        let _ = (view, command);
        Err(Cause::DeviceAccess)
    }

    /// Reports copies to host memory that translated code made itself: their number and total bytes. They count as
    /// issued before the next request to the device, see [`jit::Task::host`](crate::jit::Task::host). They are not
    /// charged, since their duration is part of the task's run time.
    fn copied(&mut self, copies: u64, bytes: u64) {
        let _ = (copies, bytes);
    }

    /// Waits for the command with this handle, after a store to [`COMMAND_WAIT`]. While the command is pending, the
    /// handler is [parked](crate::Exit::Parked) and calls this again when it is resumed. By default there is no command
    /// unit.
    ///
    /// # Errors
    /// A [`Trap`] ends the handler.
    fn wait(&mut self, view: &mut View<'_>, handle: u32) -> Poll<Result<(), Trap>> {
        let _ = (view, handle);
        Poll::Ready(Err(Trap::Fault(Cause::DeviceAccess)))
    }

    /// Returns address and size of the memory written by accesses since the last call, besides the instruction's own
    /// effect. By default none.
    fn take_written(&mut self) -> Option<(u32, u32)> {
        None
    }

    /// Returns the time of device accesses since the last call beyond their own instruction, in instructions. It counts
    /// against the task's limit, which bounds the time that a handler may occupy its HPU.
    fn take_charge(&mut self) -> u64 {
        0
    }

    /// Executes an `ecall`, whose number is in `a7`; `pc` is still at the `ecall`. By default [`ECALL_CYCLES`] returns
    /// the lower half of the cycle counter in `a0`, as FPsPIN's runtime does, and any other number is a fault.
    ///
    /// # Errors
    /// A [`Trap`] ends the handler.
    fn ecall(&mut self, hart: &mut Hart, view: &mut View<'_>) -> Result<(), Trap> {
        let _ = view;
        match hart.get(Reg::A7) {
            ECALL_CYCLES => {
                hart.set(Reg::A0, crate::csr::Half::Low.of(hart.cycle()));
                Ok(())
            }
            _ => Err(Trap::Fault(Cause::UnknownEcall)),
        }
    }
}

/// A device set without devices: every access faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDevice;

impl Device for NoDevice {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }
}
