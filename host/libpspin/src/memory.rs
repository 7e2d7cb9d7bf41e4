//! The NIC's memory at its own addresses. Image data, handler memory and scratchpads lie where the machine has them;
//! all contexts share them, and the program can access all of them. Stacks and packets belong to each context.

use std::sync::Arc;

use hpu_vm::memory::{Access, Region, Space, SpaceError};
use hpu_vm::{Image, RegionKind};
use spin_abi::map::{L2_BASE, PROGRAM_BASE, STACK_WINDOW};
use spin_pspin::hpu::memory::HpuId;

use crate::MACHINE;

/// A memory of the NIC: its base address and bytes.
#[derive(Debug)]
struct Bank {
    base: u32,
    region: Arc<Region>,
    /// Whether programs may write it.
    writable: bool,
}

impl Bank {
    fn new(base: u32, len: u32, writable: bool) -> Result<Self, SpaceError> {
        Ok(Self { base, region: Region::new(len as usize)?, writable })
    }

    /// Returns the offset of `len` bytes at `address`, if all of them lie in this memory.
    fn offset(&self, address: u32, len: usize) -> Option<u32> {
        let offset = address.checked_sub(self.base)?;
        let room = self.region.len().checked_sub(offset as usize)?;
        (len <= room && room > 0).then_some(offset)
    }
}

/// All memories that are not specific to a task.
#[derive(Debug)]
pub struct NicMemory {
    banks: Vec<Bank>,
}

/// A range that does not lie within one memory, or may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{len} bytes of NIC memory at {address:#010x}: programs can {what} L1 data and scratchpads, L2 data and handler memory"
)]
pub struct NoMemory {
    what: &'static str,
    address: u32,
    len: usize,
}

impl NicMemory {
    /// Makes zeroed memory. Physical memory is allocated on the first write.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn new() -> Result<Self, SpaceError> {
        let l1 = (0..MACHINE.clusters).map(|cluster| Bank::new(MACHINE.l1_base(cluster), MACHINE.l1_size, true));
        let l2 = [
            Bank::new(L2_BASE, MACHINE.l2_data_size, true),
            Bank::new(MACHINE.handler_mem_base, MACHINE.handler_mem_size, true),
            Bank::new(PROGRAM_BASE, MACHINE.program_size, false),
        ];
        Ok(Self { banks: l1.chain(l2).collect::<Result<_, _>>()? })
    }

    fn find(&self, address: u32, len: usize) -> Option<(&Bank, u32)> {
        self.banks.iter().find_map(|bank| bank.offset(address, len).map(|offset| (bank, offset)))
    }

    /// Copies a program's bytes to `address`.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing was written then.
    pub fn write(&self, address: u32, from: &[u8]) -> Result<(), NoMemory> {
        let no_memory = NoMemory { what: "write", address, len: from.len() };
        let found = self.find(address, from.len()).filter(|(bank, _)| bank.writable);
        let (bank, offset) = found.filter(|_| !is_window(address, from.len())).ok_or(no_memory)?;
        bank.region.write(offset as usize, from).ok_or(no_memory)
    }

    /// Fills a program's buffer from `address`.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing was read then.
    pub fn read(&self, address: u32, to: &mut [u8]) -> Result<(), NoMemory> {
        let no_memory = NoMemory { what: "read program memory,", address, len: to.len() };
        let found = self.find(address, to.len()).filter(|_| !is_window(address, to.len()));
        let (bank, offset) = found.ok_or(no_memory)?;
        bank.region.read(offset as usize, to).ok_or(no_memory)
    }

    /// Copies an image's segments to their addresses.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn load(&self, image: &Image) -> Result<(), SpaceError> {
        for (base, kind, _, bytes) in image.segments() {
            let (bank, offset) = self.find(base, bytes.len()).ok_or_else(|| nowhere(kind, base, bytes.len()))?;
            // Zero-filled parts need no write, unless a program wrote there before.
            bank.region.write(offset as usize, bytes).ok_or_else(|| nowhere(kind, base, bytes.len()))?;
        }
        Ok(())
    }

    /// Returns the image's memory as seen by a function that is no context's handler, on `own`.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn image_space(&self, image: &Image, own: HpuId) -> Result<Space, SpaceError> {
        let mut space = Space::new()?;
        let stack = Region::new(STACK_WINDOW as usize)?;
        let base = MACHINE.stack_base(own.cluster, own.hpu);
        space.map(RegionKind::Stack, base, &stack, 0, STACK_WINDOW, Access::Write)?;
        self.show_image(&mut space, image, (0, 0))?;
        space.set_l1_alias(MACHINE.l1_base(own.cluster), MACHINE.l1_size)?;
        Ok(space)
    }

    /// Maps bytes of one memory into a task's address space.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn show(
        &self,
        space: &mut Space,
        kind: RegionKind,
        base: u32,
        len: u32,
        access: Access,
    ) -> Result<(), SpaceError> {
        if len == 0 {
            return Ok(());
        }
        let (bank, offset) = self.find(base, len as usize).ok_or_else(|| nowhere(kind, base, len as usize))?;
        space.map(kind, base, &bank.region, offset, len, access)
    }

    /// Maps an image's data and a context's handler memory; both may have bytes of the same memory.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn show_image(&self, space: &mut Space, image: &Image, handler: (u32, u32)) -> Result<(), SpaceError> {
        let (address, size) = handler;
        let mut handler = vec![(address, address + size)];
        for (base, kind, writable, bytes) in image.segments() {
            // The segment lies within the memory, so the length fits.
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let access = if writable { Access::Write } else { Access::Read };
            match kind {
                RegionKind::HandlerMemory => handler.push((base, base.saturating_add(len))),
                _ => self.show(space, kind, base, len, access)?,
            }
        }
        for (from, to) in merged(handler) {
            self.show(space, RegionKind::HandlerMemory, from, to - from, Access::Write)?;
        }
        Ok(())
    }
}

/// Whether some of the bytes lie in the stack and packet windows, which belong to each context.
fn is_window(address: u32, len: usize) -> bool {
    (0..MACHINE.clusters).any(|cluster| {
        let (first, past) = (u64::from(MACHINE.stack_base(cluster, 0)), u64::from(MACHINE.scratchpad_base(cluster)));
        u64::from(address) < past && u64::from(address) + len as u64 > first
    })
}

fn nowhere(kind: RegionKind, base: u32, len: usize) -> SpaceError {
    SpaceError::Reserved { kind, base, len: u32::try_from(len).unwrap_or(u32::MAX) }
}

/// Merges ranges that touch or overlap.
fn merged(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.retain(|(from, to)| from < to);
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => merged.push((from, to)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::{NicMemory, is_window, merged};
    use crate::MACHINE;

    #[test]
    fn ranges_that_share_bytes_become_one() {
        assert_eq!(merged(vec![(0, 0), (8, 8)]), []);
        assert_eq!(merged(vec![(20, 30), (0, 10), (10, 12), (11, 15), (40, 41)]), [(0, 15), (20, 30), (40, 41)]);
    }

    #[test]
    fn programs_reach_memories_and_nothing_else() {
        let memory = NicMemory::new().expect("memory");
        let scratchpad = MACHINE.scratchpad_base(3);
        let mut bytes = [0; 4];
        for address in [scratchpad, 0x1c00_0000, 0x1c30_0000, 0x1c3f_fffc, 0x1000_0000] {
            assert_eq!(memory.write(address, &[1, 2, 3, 4]), Ok(()), "{address:#x}");
            assert_eq!((memory.read(address, &mut bytes), bytes), (Ok(()), [1, 2, 3, 4]));
            bytes = [0; 4];
        }
        assert_eq!(memory.read(0x1d00_0000, &mut bytes), Ok(()));
        let stack = MACHINE.stack_base(0, 0);
        for address in [0, stack, 0x1c3f_fffd, 0x1c40_0000, 0x1d00_0000, u32::MAX, scratchpad - 1] {
            assert!(memory.write(address, &[0; 4]).is_err(), "{address:#x}");
        }
        for address in [0, stack, 0x1c3f_fffd, 0x1c40_0000, u32::MAX] {
            assert!(memory.read(address, &mut bytes).is_err(), "{address:#x}");
        }
        assert!(memory.read(0x1c2f_fffc, &mut [0; 8]).is_err(), "L2 data ends there");
    }

    #[test]
    fn windows_are_not_the_program_s() {
        let (stack, scratchpad) = (MACHINE.stack_base(1, 0), MACHINE.scratchpad_base(1));
        assert!(!is_window(stack - 4, 4) && is_window(stack - 4, 5));
        assert!(is_window(scratchpad - 1, 1) && !is_window(scratchpad, 4));
    }
}
