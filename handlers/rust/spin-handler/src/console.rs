//! Printing and the cycle counter, for debugging. Each character is a device access, and formatting code takes some of
//! the 32 KiB of code that an image may have.

use core::fmt;

/// Writer to spind's log; a line appears once it is complete.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        put(text);
        Ok(())
    }
}

/// Prints text.
pub(crate) fn put(text: &str) {
    text.bytes().for_each(crate::regs::put);
}

/// Prints a number.
#[cfg(target_arch = "riscv32")]
pub(crate) fn put_number(number: u32) {
    if number >= 10 {
        put_number(number / 10);
    }
    crate::regs::put(b'0' + (number % 10) as u8);
}

/// Prints a line to spind's log, formatted as by `std::println`.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => {{
        // Writing to the console cannot fail.
        let _ = ::core::fmt::Write::write_fmt(&mut $crate::console::Console, ::core::format_args!($($argument)*));
        let _ = ::core::fmt::Write::write_str(&mut $crate::console::Console, "\n");
    }};
}

/// Returns the low half of the cycle counter, which counts instructions.
#[cfg(target_arch = "riscv32")]
pub fn cycles() -> u32 {
    let value;
    // SAFETY: the instruction only reads a counter. It is written as `.insn` because the target rv32imac does not
    // declare Zicsr: csrrs value, cycle, x0.
    unsafe { core::arch::asm!(".insn i 0x73, 2, {}, x0, -1024", out(reg) value, options(nomem, nostack)) };
    value
}

/// Other targets have no such counter.
#[cfg(not(target_arch = "riscv32"))]
pub fn cycles() -> u32 {
    0
}
