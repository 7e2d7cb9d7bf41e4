//! The loader process: it keeps the privileges that spind needs while it runs, and answers a fixed set of messages. The process that
//! parses requests, translates and runs handlers has none.
//!
//! * `message`: the messages.
//! * `serve`: the loader process.
//! * `client`: starting it, and asking it.

pub mod client;
mod message;
pub mod serve;

/// First argument of spind that makes it the loader process. Its standard input is a socket to spind.
pub const ARGUMENT: &str = "loader-process";
