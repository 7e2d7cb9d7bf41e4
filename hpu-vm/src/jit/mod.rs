//! The translator: handlers to machine code through Cranelift, at the speed of C on the host.
//!
//! What it makes means what [`crate::interp`] says; where something is not worth translating, translated code leaves for the
//! interpreter and the task ends there. In the order of the work:
//! * [`plan`]: which instructions are reached, calls inlined.
//! * [`facts`], [`most`], [`accesses`]: constants, addresses of devices, liveness; how large values are; accesses that share a check.
//! * [`pointers`]: what most likely points into the packet; [`in_place`]: who reads it where it arrived.
//! * [`commands`]: where nobody reads what was stored of a command.
//! * [`polls`]: loops that wait.
//! * [`totals`]: what loops add up; [`rows`]: words next to each other, several at a time.
//! * [`vectors`]: vector types and lengths.
//! * [`emit`]: Cranelift's intermediate representation.
//! * [`translation`]: compilation; [`code_memory`], [`sites`]: where the code lies and what is where in it.
//! * [`cache`]: one translation for all who run the same code.
//! * [`options`]: what a translation is for.
//! * [`slot`], [`bounds`]: an HPU's memory, its task's description, the exact bounds.
//! * [`direct`]: copies to host memory without a call of the device.
//! * [`state`], [`enter`], [`run`]: executing it.

mod accesses;
mod bounds;
mod cache;
mod code_memory;
mod commands;
mod direct;
mod emit;
mod enter;
mod facts;
mod in_place;
mod most;
mod options;
mod part;
mod plan;
mod pointers;
mod polls;
mod rows;
mod run;
mod sites;
mod slot;
mod state;
mod tables;
mod totals;
mod translation;
mod vectors;

pub use cache::Translations;
pub use code_memory::CodeMemoryError;
pub use options::{Atomics, Options};
pub(crate) use plan::addresses_taken;
pub use run::{Bound, Executor, Limits, Task};
pub(crate) use sites::Site;
pub use slot::{Slot, TaskBlock};
pub(crate) use state::{Left, State};
pub use translation::{Size, Source, TranslateError, Translation};

pub use crate::trap::TrapError;
