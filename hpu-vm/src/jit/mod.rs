//! The translator: compiles handlers to machine code through Cranelift, which then runs at the speed of C on the host.
//!
//! Translated code has the semantics of [`crate::interp`]. Where code is not translated, it exits to the interpreter. The
//! modules in the order of the work, behind [`crate::analysis`]:
//! * [`options`]: options of a translation.
//! * [`passes`]: decisions, collected in a plan.
//! * [`emit`]: Cranelift's intermediate representation, by the plan.
//! * [`compiler`], [`translation`]: machine code of a region, and of an image.
//! * [`code_memory`], [`pc_map`]: executable memory and the map from code to instructions.
//! * [`cache`]: one translation shared by all users of the same code.
//! * [`state`], [`bounds`], [`host_copy`]: data that translated code and the host share: a slot's state, the exact
//!   bounds, and copies to host memory without a call of the device.
//! * [`convention`]: the calling convention of translated code.
//! * [`prologue`], [`side_exits`], [`entry`]: a function: resets at its start, exits, entry.
//! * [`entry_points`]: where shared regions are entered.
//! * [`run`]: execution of tasks.

mod bounds;
mod cache;
mod code_memory;
mod compiler;
mod convention;
mod emit;
mod entry;
mod entry_points;
mod error;
mod host_copy;
mod options;
mod passes;
mod pc_map;
mod prologue;
mod run;
mod side_exits;
mod state;
mod translation;

pub use cache::Translations;
pub use code_memory::CodeMemoryError;
pub use error::TranslateError;
pub use options::{Atomics, Options};
pub(crate) use pc_map::Location;
pub use run::{BoundSlot, Executor, Limits, Slot, Task, TaskDescriptor};
pub(crate) use state::{ExitReason, State};
pub use translation::{HostFunction, Size, Source, Translation, Untranslated};

pub use crate::trap::TrapError;
