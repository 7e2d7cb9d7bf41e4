//! Test traffic for real interfaces: a generator and sink, with loss, order and latency of each packet.
//!
//! * [`settings`]: lengths, flows and rates as they are written on the command line.
//! * [`schedule`]: when each packet is due.
//! * [`source`]: the packets: a pattern, or a capture.
//! * [`port`]: backends that send and receive.
//! * [`tally`]: what the sink saw.
//! * [`run`]: sends and receives for a time.
//! * [`ping`]: round trips of one packet at a time.
//! * [`search`]: the highest rate without loss.
//! * [`clock`]: the clock of signatures.

pub mod clock;
pub mod ping;
pub mod port;
pub mod run;
pub mod schedule;
pub mod search;
pub mod settings;
pub mod source;
pub mod tally;
