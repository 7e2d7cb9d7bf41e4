//! The paper's handlers, one call per packet on packets in memory, in each engine and as native code. Eight further ones, in
//! `bench/handlers`, are ordinary code that the translator is not tuned for.
//!
//! A packet's cost is the time from writing its task description (task registers, hart; a native version's arguments)
//! to the handler's return. It includes the commands: sends are recorded and copies to host memory done. It excludes
//! placing packets in their windows, as a NIC would do, just before.
//!
//! * [`case`]: handlers and packet sizes.
//! * [`work`]: packets and initial state of a case.
//! * [`memory`]: memory that handlers read and write.
//! * [`command`]: recorded commands to the device.
//! * [`reference`]: expected results, computed independently.
//! * [`runner`]: the interface of every variant.
//! * [`device`], [`interp`], [`jit`]: the HPU's engines.
//! * [`native`]: native functions that do the same work.
//! * [`measure`]: interleaved rounds, each one verified.
//! * [`summary`]: the ratios of the handlers that the translator is not tuned for.
//! * [`translating`]: cost of translating a handler to machine code.

pub mod case;
pub mod command;
pub mod device;
pub mod interp;
pub mod jit;
pub mod measure;
pub mod memory;
#[allow(unsafe_code, reason = "machine code from a shared library is entered")]
pub mod native;
pub mod reference;
pub mod runner;
pub mod summary;
pub mod translating;
pub mod work;

#[cfg(test)]
mod tests;
