//! The paper's handlers, one call per packet on packets in memory, as each engine runs them and as native code.
//!
//! The figure is what a packet costs from its description being written (task registers, hart; a native twin's
//! arguments) to the handler's return, commands included: recorded, and copies to host memory done. That packets are
//! put into their windows just before, as a NIC would, is not in it.
//!
//! * [`case`]: which handler on packets of which size.
//! * [`work`]: the packets and the state a case starts from.
//! * [`memory`]: the bytes that handlers read and write.
//! * [`command`]: what a handler told the device.
//! * [`reference`]: what must come of it all, computed apart.
//! * [`runner`]: what every variant is.
//! * [`device`], [`interp`], [`jit`]: the HPU's engines.
//! * [`native`]: functions of the host that do the same work.
//! * [`measure`]: interleaved rounds, each one verified.
//! * [`translating`]: what it takes to make machine code of a handler.

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
pub mod translating;
pub mod work;

#[cfg(test)]
mod tests;
