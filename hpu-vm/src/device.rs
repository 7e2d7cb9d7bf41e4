//! Device accesses: the driver page's registers and the character output.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use spin_abi::command::{Command, Status};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, PERIPHERALS, PERIPHERALS_SIZE, STDOUT_BASE, STDOUT_SIZE, public_dma};
use spin_abi::regs::{COMMAND_INFO, COMMAND_ISSUE, COMMAND_WAIT, COMMAND_WORD_COUNT, COMMAND_WORDS};

use crate::hart::Hart;
use crate::inst::Reg;
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

/// The command words and the info register. The HPU holds them until a command is issued; they are zero when a task
/// begins.
///
/// Handlers write them word by word just before they are read. They are atomics, so that the compiler reads them word
/// by word too: a load that spans two stores waits until both have left the store buffer.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CommandRegisters {
    words: [AtomicU32; COMMAND_WORD_COUNT],
    info: AtomicU32,
}

impl CommandRegisters {
    /// As at the start of a task.
    pub(crate) const fn new() -> Self {
        Self { words: [const { AtomicU32::new(0) }; COMMAND_WORD_COUNT], info: AtomicU32::new(0) }
    }

    /// Decodes the command that the registers describe.
    ///
    /// # Errors
    /// As [`Command::decode`].
    #[inline]
    pub fn decode(&self) -> Result<Command, Status> {
        Command::decode(self.info.load(Relaxed), |index| self.words[index].load(Relaxed))
    }

    /// Offset in this structure of the register that an access of `width` bytes at `address` is to.
    pub(crate) const fn offset(address: u32, width: u32) -> Option<usize> {
        let at = address.wrapping_sub(DRIVER_BASE);
        let word = at.wrapping_sub(COMMAND_WORDS);
        if width != 4 || !at.is_multiple_of(4) {
            None
        } else if word < 4 * COMMAND_WORD_COUNT as u32 {
            Some(word as usize)
        } else if at == COMMAND_INFO {
            Some(4 * COMMAND_WORD_COUNT)
        } else {
            None
        }
    }

    fn register(&self, address: u32, width: u8) -> Option<&AtomicU32> {
        let index = Self::offset(address, width.into())? / 4;
        Some(self.words.get(index).unwrap_or(&self.info))
    }

    /// The words, then the info register.
    fn values(&self) -> impl Iterator<Item = u32> {
        self.words.iter().chain([&self.info]).map(|register| register.load(Relaxed))
    }
}

impl Clone for CommandRegisters {
    fn clone(&self) -> Self {
        let copy = |register: &AtomicU32| AtomicU32::new(register.load(Relaxed));
        Self { words: self.words.each_ref().map(copy), info: copy(&self.info) }
    }
}

impl PartialEq for CommandRegisters {
    fn eq(&self, other: &Self) -> bool {
        self.values().eq(other.values())
    }
}

impl Eq for CommandRegisters {}

/// Whether a store of `width` bytes at `address` waits for a command: no other access of a device makes a handler wait.
pub(crate) const fn waits(address: u32, width: u32) -> bool {
    address == DRIVER_BASE + COMMAND_WAIT && width == 4
}

/// A load that an instruction makes at a device's address.
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

/// A store that an instruction makes at a device's address. One that is pending is to be made anew.
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

/// Whether `address` belongs to a device: the cluster's devices, up to the driver page's registers, the character
/// output, or a cluster's DMA engine as all clusters reach it.
#[must_use]
pub const fn is_device(address: u32) -> bool {
    address.wrapping_sub(PERIPHERALS) < PERIPHERALS_SIZE
        || address.wrapping_sub(STDOUT_BASE) < STDOUT_SIZE
        || public_dma(address).is_some()
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

#[cfg(test)]
mod tests {
    use super::is_device;

    #[test]
    fn device_windows_are_exact() {
        let engines = [0x1020_1800, 0x1060_1800, 0x10a0_1800, 0x10e0_1800].map(|engine| (engine, 0x2c));
        for (first, size) in [(0x1b20_0000, 0x50c0), (0x1a10_4000, 0x1000)].into_iter().chain(engines) {
            assert!(is_device(first) && is_device(first + size - 1));
            assert!(!is_device(first - 1) && !is_device(first + size));
        }
        assert!(!is_device(0) && !is_device(u32::MAX) && !is_device(0x1120_1800));
    }
}
