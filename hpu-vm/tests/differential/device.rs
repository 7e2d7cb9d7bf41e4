//! A device that answers by its own count and writes down every access.

use std::task::Poll;

use hpu_vm::{Device, Hart, Reg, Trap, View};
use spin_abi::command::{Command, Status};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, L2_BASE, STDOUT_BASE, STDOUT_SIZE};
use spin_abi::regs;

/// Linux's number of write(2) on RISC-V.
pub const WRITE: u32 = 64;
/// Linux's number of exit(2) on RISC-V.
pub const EXIT: u32 = 93;
/// The word that every command writes: a device changes memory behind the program's back.
pub const COMMAND_WRITES: u32 = L2_BASE;
/// Time a command costs, in instructions.
const COMMAND: u64 = 7;
/// Most accesses that are written down; the rest are counted, so that memory stays bounded.
const MOST: usize = 4096;

/// What arrived at the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    Load { address: u32, width: u8 },
    Store { address: u32, width: u8, value: u32 },
    Issue(Result<Command, Status>),
    Wait { handle: u32 },
    Ecall { number: u32 },
}

/// The driver page, the character output and system calls. Two recorders that see the same accesses answer alike.
#[derive(Debug, Default)]
pub struct Recorder {
    pub log: Vec<Access>,
    /// Accesses, logged or not.
    pub count: u64,
    /// Time charged since the recorder was made.
    pub charged: u64,
    charge: u64,
}

impl Recorder {
    fn record(&mut self, access: Access) {
        self.count += 1;
        if self.log.len() < MOST {
            self.log.push(access);
        }
    }

    /// A number that depends on all that happened before.
    fn answer(&self, offset: u32) -> u32 {
        let count = u32::try_from(self.count & 0xffff).unwrap_or(0);
        (count ^ offset.rotate_left(16)).wrapping_mul(0x9e37_79b9)
    }
}

const BAD: Trap = Trap::Fault(Cause::DeviceAccess);

impl Device for Recorder {
    fn load(&mut self, _: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        self.record(Access::Load { address, width });
        let offset = address.wrapping_sub(DRIVER_BASE);
        match offset {
            _ if width != 4 || !offset.is_multiple_of(4) || offset >= regs::DRIVER_SIZE => Err(BAD),
            regs::DOORBELL => Err(Trap::Finish),
            regs::ERROR | regs::COMMAND_WAIT => Err(BAD),
            _ => Ok(self.answer(offset)),
        }
    }

    fn store(&mut self, _: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        self.record(Access::Store { address, width, value });
        if address.wrapping_sub(STDOUT_BASE) < STDOUT_SIZE {
            return Ok(());
        }
        match address.wrapping_sub(DRIVER_BASE) {
            offset if width != 4 || !offset.is_multiple_of(4) => Err(BAD),
            regs::ERROR => Err(Trap::Report(value)),
            regs::HANDLER_ADDR | regs::HANDLER_SIZE | regs::DOORBELL | regs::COMMAND_ISSUE => Err(BAD),
            _ => Ok(()),
        }
    }

    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        self.record(Access::Issue(command));
        self.charge += COMMAND;
        self.charged += COMMAND;
        let handle = self.answer(regs::COMMAND_ISSUE);
        view.copy_in(COMMAND_WRITES, &handle.to_le_bytes()).ok_or(Cause::DeviceAccess)?;
        Ok(handle)
    }

    fn wait(&mut self, _: &mut View<'_>, handle: u32) -> Poll<Result<(), Trap>> {
        self.record(Access::Wait { handle });
        Poll::Ready(Ok(()))
    }

    fn take_charge(&mut self) -> u64 {
        std::mem::take(&mut self.charge)
    }

    fn ecall(&mut self, hart: &mut Hart, _: &mut View<'_>) -> Result<(), Trap> {
        let number = hart.get(Reg::A7);
        self.record(Access::Ecall { number });
        match number {
            hpu_vm::device::ECALL_CYCLES => {
                hart.set(Reg::A0, u32::try_from(hart.cycle() & 0xffff_ffff).unwrap_or(0));
                Ok(())
            }
            // Linux: what is written is compared as memory.
            WRITE => {
                hart.set(Reg::A0, hart.get(Reg::new(12)));
                Ok(())
            }
            EXIT => Err(Trap::Finish),
            _ => Err(Trap::Fault(Cause::UnknownEcall)),
        }
    }
}
