//! The device page; the numbers are those of `handlers/sdk/include/spin_regs.h`.

use core::ptr;

const DRIVER_BASE: usize = 0x1b20_5000;
const STDOUT_BASE: usize = 0x1a10_4000;

/// Writing ends the handler and reports the value.
pub const ERROR: usize = 0x54;
/// Reading issues the command in the command words and gives its handle.
pub const COMMAND_ISSUE: usize = 0x80;
/// Writing a handle waits for that command.
pub const COMMAND_WAIT: usize = 0x84;
/// Write a handle, then read 1 when that command is complete.
pub const COMMAND_TEST: usize = 0x88;
/// Type of the command.
pub const COMMAND_INFO: usize = 0x8c;
/// First of the command words.
pub const COMMAND_WORDS: usize = 0x90;
/// Write a handle, then read how that command ended.
pub const COMMAND_STATUS: usize = 0xbc;

/// Values of [`COMMAND_INFO`].
pub const INFO_DMA: u32 = 0;
pub const INFO_SEND: u32 = 2;
pub const INFO_HOST_DIRECT: u32 = 4;

/// Reads a register of those above.
pub fn read(register: usize) -> u32 {
    // SAFETY: a device register at an aligned address. Reading those that are used here does nothing to memory that the
    // compiler knows of, but for commands, which tell it themselves.
    unsafe { ptr::read_volatile(ptr::with_exposed_provenance(DRIVER_BASE + register)) }
}

/// Writes a register of those above.
pub fn write(register: usize, value: u32) {
    // SAFETY: as in `read`.
    unsafe { ptr::write_volatile(ptr::with_exposed_provenance_mut(DRIVER_BASE + register), value) }
}

/// Prints a byte.
pub fn put(byte: u8) {
    // SAFETY: the printing device takes a byte a store.
    unsafe { ptr::write_volatile(ptr::with_exposed_provenance_mut(STDOUT_BASE), byte) }
}

/// The device reads and writes memory here that the compiler may else hold in registers.
pub fn barrier() {
    // SAFETY: no instruction; the compiler takes it for one that accesses any memory whose address is exposed.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) };
}
