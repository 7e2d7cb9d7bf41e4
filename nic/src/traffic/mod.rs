//! Test traffic: frames with a signature, and XDP programs that send, count and reflect them.
//!
//! * [`pattern`]: the frames, defined once for user space and for the BPF program.
//! * `object`: the BPF programs.
//! * [`live`]: a sender in the kernel, on live frames.
//! * [`hook`]: programs for the XDP hook of an interface.

pub mod hook;
pub mod live;
mod object;
pub mod pattern;

pub use hook::{Hook, HookProgram};
pub use live::LiveSender;
pub use pattern::{Header, Pattern, Plan, PlanError, Signature};
