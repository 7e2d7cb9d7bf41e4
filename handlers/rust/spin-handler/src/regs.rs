//! Registers of the device page; the numbers are those of `handlers/sdk/include/spin_regs.h`.

use core::ptr;

const DRIVER_BASE: usize = 0x1b20_5000;
const STDOUT_BASE: usize = 0x1a10_4000;

/// Error register: a write ends the handler and reports the value.
pub const ERROR: usize = 0x54;
/// Issue register: a read issues the command in the command words and returns its handle.
pub const COMMAND_ISSUE: usize = 0x80;
/// Wait register: a write of a handle waits for that command.
pub const COMMAND_WAIT: usize = 0x84;
/// Test register: after a write of a handle, a read returns 1 if that command is complete.
pub const COMMAND_TEST: usize = 0x88;
/// Type of the command.
pub const COMMAND_INFO: usize = 0x8c;
/// First command word.
pub const COMMAND_WORDS: usize = 0x90;
/// Status register: after a write of a handle, a read returns the outcome of that command.
pub const COMMAND_STATUS: usize = 0xbc;

/// Values of [`COMMAND_INFO`].
pub const INFO_DMA: u32 = 0;
pub const INFO_SEND: u32 = 2;
pub const INFO_HOST_DIRECT: u32 = 4;

/// Reads one of the registers above.
pub fn read(register: usize) -> u32 {
    // SAFETY: a device register at an aligned address. Reading the registers used here changes no memory that the
    // compiler knows of, except by commands, whose code contains the barriers.
    unsafe { ptr::read_volatile(ptr::with_exposed_provenance(DRIVER_BASE + register)) }
}

/// Writes one of the registers above.
pub fn write(register: usize, value: u32) {
    // SAFETY: as in `read`.
    unsafe { ptr::write_volatile(ptr::with_exposed_provenance_mut(DRIVER_BASE + register), value) }
}

/// Prints a byte.
pub fn put(byte: u8) {
    // SAFETY: the printing device accepts one byte per store.
    unsafe { ptr::write_volatile(ptr::with_exposed_provenance_mut(STDOUT_BASE), byte) }
}

/// Makes the compiler write back and reload memory that it may hold in registers, since the device accesses it.
pub fn barrier() {
    // SAFETY: no instruction is emitted. The compiler treats it as an access to any memory whose address is exposed.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) };
}
