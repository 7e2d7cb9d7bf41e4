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
//! * [`vectors`]: vector types and lengths.
//! * [`emit`]: Cranelift's intermediate representation.
//! * [`translation`]: compilation; [`code_memory`], [`sites`]: executable memory and the map from code to instructions.
//! * [`cache`]: one translation shared by all users of the same code.
//! * [`options`]: options of a translation.
//! * [`slot`], [`bounds`]: an HPU's memory, its task's description, the exact bounds.
//! * [`direct`]: copies to host memory without a call of the device.
//! * [`state`], [`enter`], [`run`]: execution.

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
mod run;
mod sites;
mod slot;
mod state;
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
