//! The bench's device page: records commands and copies to host memory at once.

use super::command::{Log, Send};
use hpu_vm::{Device, Trap, View};
use spin_abi::command::{Command, Direction, Source, Status};
use spin_abi::fault::Cause;

/// Address of host memory, as told to handlers.
pub const HOST_BASE: u64 = 0x7000_0000_0000;

/// The device page of a batch of tasks.
pub struct Page<'d> {
    log: &'d mut Log,
    host: &'d mut [u8],
}

const BAD: Trap = Trap::Fault(Cause::DeviceAccess);

impl<'d> Page<'d> {
    /// Makes a page that records into `log` and copies to `host`.
    pub const fn new(log: &'d mut Log, host: &'d mut [u8]) -> Self {
        Self { log, host }
    }

    /// Copies bytes, unless source or destination is partly out of bounds.
    #[inline(always)]
    fn copy(&mut self, view: &View<'_>, nic: u32, host: u64, length: u32) {
        // The wrapped offset of an address below host memory is out of bounds.
        let offset = usize::try_from(host.wrapping_sub(HOST_BASE)).unwrap_or(usize::MAX);
        let target = self.host.get_mut(offset..).and_then(|rest| rest.get_mut(..length as usize));
        if let Some(target) = target {
            // An unreadable source is not copied; the comparison of host memory then fails.
            let _ = view.copy_out(nic, target);
        }
    }
}

impl Device for Page<'_> {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(BAD)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(BAD)
    }

    /// Carries out the commands that the measured handlers issue; others are refused.
    #[inline(always)]
    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        match command {
            Ok(Command::Send { source: Source::Nic(nic), length, .. }) => {
                self.log.push(Send { from: nic.into(), length: length.into() });
            }
            Ok(Command::Dma { host, nic, length, direction: Direction::ToHost, .. }) => {
                self.log.copies.add(1, length.into());
                self.copy(view, nic, host, length);
            }
            _ => return Err(Cause::DeviceAccess),
        }
        #[allow(clippy::cast_possible_truncation, reason = "handles wrap as the engine's do")]
        Ok(self.log.commands() as u32)
    }

    fn copied(&mut self, copies: u64, bytes: u64) {
        self.log.copies.add(copies, bytes);
    }
}
