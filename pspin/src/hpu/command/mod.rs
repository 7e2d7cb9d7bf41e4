//! The command unit: executes what handlers ask of NIC and host memory (PsPIN paper §III-B1).
//!
//! * `unit`: the trait [`CommandUnit`], through which the [driver](super::driver) issues commands.
//! * `budget`: what the commands of a task may cost.
//! * `outbound`: frames on their way to the NIC.
//! * `commands`: [`Commands`], the command unit of a NIC with frames.

mod budget;
mod commands;
mod outbound;
mod unit;

pub use budget::CommandBudget;
pub use commands::Commands;
pub use outbound::Outbound;
pub use unit::{CommandUnit, DeferredSend, EventSink, sendable};
