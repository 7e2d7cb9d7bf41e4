//! Handlers as eBPF programs, for the kernel's XDP hook.
//!
//! * [`insn`]: instructions and their encoding.
//! * [`assembler`]: programs with labels.
//! * [`machine`]: an interpreter of programs, which checks each access.
//! * [`layout`]: memory of a handler in the hook, and what the program records.
//! * [`faults`]: faults that a program keeps.
//! * [`options`]: options of a translation.
//! * [`flow`]: facts about the order of blocks and accesses.
//! * [`command_words`]: words of commands that are known.
//! * [`eligible`]: handlers that cannot run in the hook.
//! * [`queue`]: commands for host memory, on their way to user space.
//! * `emit`: emission.
//! * [`program`]: the translation of a handler.

mod assembler;
mod command_words;
mod eligible;
mod emit;
pub mod faults;
mod flow;
pub mod insn;
pub mod layout;
pub mod machine;
mod options;
mod program;
pub mod queue;

pub use assembler::Insns;
pub use eligible::Ineligible;
pub use layout::Layout;
pub use machine::Machine;
pub use options::{L1Packet, Options};
pub use program::{Program, Source};
