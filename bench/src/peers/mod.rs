//! spind and other programs on the same wire: throughput and round trips of a UDP echo, in interleaved rounds.
//!
//! * [`generator`]: what the load generator does by itself.
//! * [`lab`]: two namespaces joined by a veth.
//! * [`peer`]: the programs.
//! * [`measure`]: what is measured.
//! * [`machine`]: what the figures depend on: processor, kernel, commit; and what else the machine did.
//! * [`results`]: the figures of all rounds.
//! * [`table`]: tables of them.

pub mod generator;
pub mod lab;
pub mod machine;
pub mod measure;
pub mod peer;
pub mod results;
pub mod table;
