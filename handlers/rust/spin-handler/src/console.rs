//! Printing, and the cycle counter. For finding faults: each character is a device access, and formatting takes some of the
//! 32 KiB that an image has for code.

use core::fmt;

/// spind's log: a line is shown once it is complete.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(crate::regs::put);
        Ok(())
    }
}

/// Prints a line to spind's log, formatted like that of `std::println`.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => {{
        // The console takes everything.
        let _ = ::core::fmt::Write::write_fmt(&mut $crate::console::Console, ::core::format_args!($($argument)*));
        let _ = ::core::fmt::Write::write_str(&mut $crate::console::Console, "\n");
    }};
}

/// Low half of the cycle counter, which counts instructions.
#[cfg(target_arch = "riscv32")]
pub fn cycles() -> u32 {
    let value;
    // SAFETY: reads a counter. As `.insn`, because rv32imac does not say that it has Zicsr: csrrs value, cycle, x0.
    unsafe { core::arch::asm!(".insn i 0x73, 2, {}, x0, -1024", out(reg) value, options(nomem, nostack)) };
    value
}

/// There is no such counter where handlers do not run.
#[cfg(not(target_arch = "riscv32"))]
pub fn cycles() -> u32 {
    0
}
