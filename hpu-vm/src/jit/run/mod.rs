//! Execution of tasks, on translated code and in the interpreter.
//!
//! * [`task`]: a task's code, initial registers and limits.
//! * [`slot`]: memory and registers of an HPU.
//! * [`host_calls`]: functions that translated code calls.
//! * [`interpreter`]: exits of translated code, and tasks that the interpreter runs.
//! * [`bound_slot`]: a slot prepared for tasks of one handler.
//! * [`executor`]: threads that run tasks.

mod bound_slot;
mod executor;
mod host_calls;
mod interpreter;
mod slot;
mod task;

pub use bound_slot::BoundSlot;
pub use executor::Executor;
pub use slot::{Slot, TaskDescriptor};
pub use task::{Limits, Task};
