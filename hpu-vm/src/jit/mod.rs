//! The translator: compiles handlers to machine code through Cranelift, which then runs at the speed of C on the host.
//!
//! Translated code has the semantics of [`crate::interp`]. Where translation is not worthwhile, the code exits to the
//! interpreter, and the task ends there. The modules in the order of the work:
//! * [`plan`]: reachable instructions, with calls inlined.
//! * [`facts`], [`most`], [`accesses`]: constants, addresses of devices, liveness; bounds of values; accesses that
//!   share a check.
//! * [`pointers`]: registers that most likely point into the packet; [`in_place`]: handlers that read the packet where
//!   it arrived.
//! * [`commands`]: stored command words that nothing reads.
//! * [`polls`]: loops that wait.
//! * [`totals`]: sums of loops; [`rows`]: adjacent words that are added several at a time.
//! * [`vectors`]: vector types and lengths.
//! * [`emit`]: Cranelift's intermediate representation.
//! * [`translation`]: compilation; [`code_memory`], [`pc_map`]: executable memory and the map from code to instructions.
//! * [`cache`]: one translation shared by all users of the same code.
//! * [`options`]: options of a translation.
//! * [`state`], [`bounds`], [`host_copy`]: data that translated code and the host share: a slot's state, the exact
//!   bounds, and copies to host memory without a call of the device.
//! * [`convention`]: the calling convention of translated code.
//! * [`prologue`], [`side_exits`], [`entry`]: a handler's function: resets at its start, exits to the interpreter, entry.
//! * Execution of tasks: [`run`].

mod accesses;
mod bounds;
mod cache;
mod code_memory;
mod commands;
mod convention;
mod emit;
mod entry;
mod facts;
mod host_copy;
mod in_place;
mod most;
mod options;
mod part;
mod pc_map;
mod plan;
mod pointers;
mod polls;
mod prologue;
mod rows;
mod run;
mod side_exits;
mod state;
mod tables;
mod totals;
mod translation;
mod vectors;

pub use cache::Translations;
pub use code_memory::CodeMemoryError;
pub use options::{Atomics, Options};
pub(crate) use pc_map::Location;
pub(crate) use plan::addresses_taken;
pub use run::{BoundSlot, Executor, Limits, Slot, Task, TaskDescriptor};
pub(crate) use state::{ExitReason, State};
pub use translation::{Size, Source, TranslateError, Translation};

pub use crate::trap::TrapError;
