//! sPIN handlers in Rust, for spind. A handler is a safe function on a [`Task`]; [`handlers!`] makes it an entry point:
//!
//! ```ignore
//! #![no_std]
//! use spin_handler::{Task, Udp, handlers};
//!
//! handlers! { payload: answer }
//!
//! /// Answers every UDP datagram with its own payload.
//! fn answer(task: &mut Task<'_>) {
//!     let Some(mut udp) = Udp::parse(task.frame()) else { return };
//!     if udp.is_unicast() {
//!         udp.swap();
//!         udp.reply();
//!     }
//! }
//! ```
//! `spin-rustc answer.rs -o answer.elf` builds the image. A panic prints its file and line to spind's log and ends the
//! handler; `spinctl stats` shows the line as the error that the handler reported.
//!
//! * [`task`]: input of a handler
//! * [`packet`]: checked views of packets
//! * [`command`]: sending, DMA, writes to host memory
//! * [`console`]: printing, cycle counter
//! * [`verdict`]: return values of handlers
#![no_std]

pub mod command;
pub mod console;
pub mod packet;
mod regs;
pub mod task;
pub mod verdict;

pub use command::{Command, Status};
pub use console::cycles;
pub use packet::Udp;
pub use task::{HostMemory, Task};
pub use verdict::Verdict;

/// Makes functions `fn(&mut Task<'_>)`, optionally returning a [`Verdict`], the entry points of an image. Any of these
/// may be given: `header` runs once per message before the others, `payload` once per packet, `completion` once per
/// message after the others.
#[macro_export]
macro_rules! handlers {
    ($($when:ident: $function:path),+ $(,)?) => {
        $($crate::__entry!($when $function);)+
        // spind refuses to install an image with verdicts as one without, and vice versa
        // (engine/src/control/install/abi_check.rs).
        core::arch::global_asm!(
            ".globl __spin_verdicts",
            ".set __spin_verdicts, {}",
            const $($crate::verdict::returned($function))|+,
        );
    };
}

/// Defines an entry point: the symbol that spind looks up.
#[doc(hidden)]
#[macro_export]
macro_rules! __entry {
    (header $function:path) => { $crate::__entry!(@ header_handler $function); };
    (payload $function:path) => { $crate::__entry!(@ payload_handler $function); };
    (completion $function:path) => { $crate::__entry!(@ completion_handler $function); };
    (@ $symbol:ident $function:path) => {
        #[unsafe(no_mangle)]
        extern "C" fn $symbol(arguments: &$crate::task::Arguments) -> u32 {
            // SAFETY: spind calls this entry point once per task, with the task's own arguments.
            let mut task = unsafe { $crate::Task::new(arguments) };
            $crate::verdict::Outcome::code($function(&mut task))
        }
    };
}

/// Ends the handler and reports `code`, which `spinctl stats` shows.
pub fn fail(code: u32) -> ! {
    regs::write(regs::ERROR, code);
    // The store above has ended the handler.
    loop {
        core::hint::spin_loop();
    }
}

#[cfg(target_arch = "riscv32")]
#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    let Some(place) = info.location() else { fail(0) };
    // Without formatting, which takes much of the code that an image may have.
    console::put("panicked at ");
    console::put(place.file());
    console::put(":");
    console::put_number(place.line());
    console::put("\n");
    fail(place.line())
}
