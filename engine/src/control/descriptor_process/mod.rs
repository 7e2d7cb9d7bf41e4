//! The descriptor process: it receives descriptors of users for spind, each in a child process.
//!
//! A received descriptor may be of any file. If it is of a FUSE file, closing it blocks until the file's owner answers, and no signal
//! ends that. The same holds for the end of a process that has it. So spind receives only descriptors that a child has checked: those
//! of the kernel's memory, whose close never blocks. A child that blocks holds nothing that spind waits for.
//!
//! spind sends the control connection and one end of a socket pair for each descriptor. The child reports over that pair.
//!
//! * `report`: the reports.
//! * `serve`: the descriptor process and its children.
//! * `client`: starting it, and receiving through it; `children`: children that have not ended, by user.

mod children;
pub mod client;
mod report;
pub mod serve;

/// First argument of spind that makes it the descriptor process. The second is its account, if there is one. Its standard input is a
/// socket to spind.
pub const ARGUMENT: &str = "descriptor-process";
