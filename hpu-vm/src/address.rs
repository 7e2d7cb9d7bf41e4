//! Kinds of guest memory, and addresses that are aliases of others or belong to devices.

use spin_abi::map::{DRIVER_BASE, L1_ALIAS, PAGE, PERIPHERALS, PERIPHERALS_SIZE, STDOUT_BASE, STDOUT_SIZE, public_dma};
use spin_abi::regs::{TASK_END, TASK_FIRST};

/// Kind of a range, used by commands, counters and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Code and read-only data in program memory.
    Code,
    /// Data of the image in L2.
    Data,
    /// Packet window in L1.
    Packet,
    /// Packet window in L2.
    L2Packet,
    /// Scratchpad of a cluster.
    Scratchpad,
    /// Handler memory: the image's own, or the size requested by the context.
    HandlerMemory,
    /// The stack. The page below it reports [`StackOverflow`](spin_abi::fault::Cause::StackOverflow).
    Stack,
    /// The task registers of the driver page.
    Task,
}

/// Granularity of checks on loads, stores and atomics. Copies and [`View::kind_of`](crate::View::kind_of) are always
/// exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checks {
    /// Exactly the bytes of a range.
    #[default]
    Exact,
    /// A range's complete pages, including accesses that cross into a neighbouring page: the accesses that page
    /// protection allows. Borrowed bytes have no pages around them.
    Page,
}

/// Permissions of a task on mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads.
    Read,
    /// Loads, stores and atomics.
    Write,
}

/// Aliases of addresses, and the stack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddressMap {
    /// L1 base of the own cluster and size of its alias window at [`L1_ALIAS`]; size 0 for none.
    l1: (u32, u32),
    /// Address of the task registers, if the driver page has an alias of them.
    task: Option<u32>,
    /// First address of the stack.
    stack: Option<u32>,
}

/// Upper bits of the addresses of both aliases. One comparison thus excludes all other addresses.
const ALIASES: u32 = L1_ALIAS >> 24;
const TASK: u32 = DRIVER_BASE + TASK_FIRST;
const TASK_LEN: u32 = TASK_END - TASK_FIRST;
const _: () = assert!(TASK >> 24 == ALIASES && (TASK + TASK_LEN) >> 24 == ALIASES);

/// Whether some of `len` addresses from `base` on may be aliases, which must be translated at each access.
pub(crate) const fn has_alias(base: u32, len: u32) -> bool {
    base >> 24 <= ALIASES && base.saturating_add(len) >> 24 >= ALIASES
}

impl AddressMap {
    pub(crate) const fn set_task(&mut self, base: u32) {
        self.task = Some(base);
    }

    pub(crate) const fn set_stack(&mut self, base: u32) {
        self.stack = Some(base);
    }

    pub(crate) const fn set_l1(&mut self, base: u32, size: u32) {
        self.l1 = (base, size);
    }

    pub(crate) const fn l1_base(&self) -> u32 {
        self.l1.0
    }

    pub(crate) const fn l1_size(&self) -> u32 {
        self.l1.1
    }

    /// Address of the task registers; 0 when they have no alias.
    pub(crate) fn task_base(&self) -> u32 {
        self.task.unwrap_or(0)
    }

    /// The address that an access of `len` bytes at `address` has without aliases.
    #[inline(always)]
    pub(crate) const fn canonical(&self, address: u32, len: u32) -> u32 {
        if address >> 24 == ALIASES { self.aliased(address, len) } else { address }
    }

    /// The alias of an address in the own cluster's L1.
    pub(crate) fn in_l1_alias(&self, address: u32) -> Option<u32> {
        let (base, size) = self.l1;
        let in_l1 = address.wrapping_sub(base);
        (in_l1 < size).then(|| L1_ALIAS + in_l1)
    }

    /// The offset of `address` in the task registers of the driver page, if they are mapped there.
    pub(crate) fn task_offset(&self, address: u32) -> Option<u32> {
        let offset = address.wrapping_sub(TASK);
        (self.task.is_some() && offset < TASK_LEN).then_some(offset)
    }

    const fn aliased(&self, address: u32, len: u32) -> u32 {
        let (base, size) = self.l1;
        let (in_l1, in_task) = (address.wrapping_sub(L1_ALIAS), address.wrapping_sub(TASK));
        match self.task {
            _ if in_l1 < size => base.wrapping_add(in_l1),
            // An access that extends into the device's registers is one to the device.
            Some(task) if in_task < TASK_LEN && len <= TASK_LEN - in_task => task.wrapping_add(in_task),
            _ => address,
        }
    }

    /// See [`View::below_stack`](crate::View::below_stack).
    pub(crate) fn below_stack(&self, address: u32) -> bool {
        let address = self.canonical(address, 1);
        self.stack.is_some_and(|base| (1..=PAGE).contains(&base.wrapping_sub(address)))
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
