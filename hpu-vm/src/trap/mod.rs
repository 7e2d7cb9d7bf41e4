//! Signals that end tasks: memory faults of translated code, and the time limit.
//!
//! Translated code checks no address: it faults, and [`fault`] turns the signal into the task's fault. [`watchdog`]
//! checks a thread's task from time to time. Both find the task by a thread-local pointer that is set while translated
//! code may run. They leave the task through the epilogue that the program counter's [`Location`](crate::jit::Location)
//! names. The watchdog does nothing at a program counter outside of translated bodies; only bodies access memory that
//! may fault.
//!
//! Signal handlers neither allocate, lock, nor use buffered I/O. They use only atomics, the mapping's own tables and
//! system calls.
#![allow(unsafe_code, reason = "installs signal handlers, which follow the running thread's pointer to its task")]

mod context;
mod fault;
mod monitor;
mod running;
mod signals;
mod threads;
mod tick;
mod watch;
mod watchdog;

pub(crate) use running::TrapGuard;
pub use signals::TrapError;
pub(crate) use watch::{Watch, time_left};
pub(crate) use watchdog::Watchdog;

/// Whether there is a monitor; the first call starts it.
pub(crate) fn has_monitor() -> bool {
    monitor::Monitor::get().is_some()
}

#[cfg(test)]
mod tests;
