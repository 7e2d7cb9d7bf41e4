//! The command unit: executes handlers' commands on NIC and host memory (PsPIN paper §III-B1).
//!
//! * `unit`: the trait [`CommandUnit`], through which the [driver](super::driver) issues commands.
//! * `access`: what tasks may access by commands.
//! * `budget`: cost and budget of a task's commands.
//! * `outbound`: frames on their way to the NIC.
//! * `commands`: [`Commands`], the command unit of a NIC with frames.

mod access;
mod budget;
mod commands;
mod outbound;
mod unit;

pub use access::Access;
pub use budget::CommandBudget;
pub use commands::Commands;
pub use outbound::Outbound;
pub use unit::{CommandUnit, DeferredSend, EventSink, sendable};
