//! The device page of the bench: commands are recorded, copies to host memory done at once.

use super::command::{Command, DMA_TO_HOST, Log, SEND};
use hpu_vm::{Device, Trap, View};
use spin_abi::command::{self, Direction, Source};
use spin_abi::fault::Cause;
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs;

/// Where handlers are told host memory is.
pub const HOST_BASE: u64 = 0x7000_0000_0000;

/// The page, as the tasks of a batch see it.
pub struct Page<'d> {
    log: &'d mut Log,
    host: &'d mut [u8],
    words: [u32; regs::COMMAND_WORD_COUNT],
    info: u32,
}

const BAD: Trap = Trap::Fault(Cause::DeviceAccess);

impl<'d> Page<'d> {
    /// A page that records into `log` and copies to `host`.
    pub const fn new(log: &'d mut Log, host: &'d mut [u8]) -> Self {
        Self { log, host, words: [0; regs::COMMAND_WORD_COUNT], info: 0 }
    }

    /// Carries out the command in the words: those that the measured handlers issue, no others.
    fn issue(&mut self, view: &View<'_>) -> Result<u32, Trap> {
        let handle = match command::Command::decode(self.info, &self.words) {
            Ok(command::Command::Send { source: Source::Nic(nic), length, .. }) => {
                self.log.push(Command { kind: SEND, length, from: nic.into(), to: 0 })
            }
            Ok(command::Command::Dma { host, nic, length, direction: Direction::ToHost, .. }) => {
                self.copy(view, nic, host, length);
                self.log.push(Command { kind: DMA_TO_HOST, length, from: nic.into(), to: host })
            }
            _ => return Err(BAD),
        };
        #[allow(clippy::cast_possible_truncation, reason = "handles wrap as the engine's do")]
        Ok(handle as u32)
    }

    /// Moves nothing when either side is not there in full.
    fn copy(&mut self, view: &View<'_>, nic: u32, host: u64, length: u32) {
        let target = host.checked_sub(HOST_BASE).and_then(|offset| {
            let offset = usize::try_from(offset).ok()?;
            self.host.get_mut(offset..offset.checked_add(length as usize)?)
        });
        if let Some(target) = target {
            // What may not be read is not copied, and that is missed when host memory is compared.
            let _ = view.copy_out(nic, target);
        }
    }
}

impl Device for Page<'_> {
    fn load(&mut self, view: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        if width == 4 && address == DRIVER_BASE + regs::COMMAND_ISSUE { self.issue(view) } else { Err(BAD) }
    }

    fn store(&mut self, _: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        let offset = address.wrapping_sub(DRIVER_BASE);
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(BAD);
        }
        if offset == regs::COMMAND_INFO {
            self.info = value;
            return Ok(());
        }
        let index = offset.checked_sub(regs::COMMAND_WORDS).ok_or(BAD)? as usize / 4;
        *self.words.get_mut(index).ok_or(BAD)? = value;
        Ok(())
    }
}
