//! Traffic that checks itself, and the figures that come of it.
//!
//! * [`content`]: reproducible bytes that carry a sequence number.
//! * [`outcome`]: what a run of requests and replies came to; round-trip times; the table.
//! * [`udp`]: a client that checks every reply, and the kernel's own echo to compare with.
//! * [`tcp`]: a bulk transfer with a checksum at both ends.
//! * [`ping`]: the system's `ping`, read.
//! * [`wire`]: Ethernet, VLAN, IPv4, UDP and ICMP: built and strictly checked.
//! * [`pcap`]: the frames of a capture file.
//! * [`capture`]: whether a capture holds exactly the right reply to every request.
//! * [`odd`]: frames that kernels rarely send: tagged, padded, with options, fragments, cut short.
//! * [`raw`]: a packet socket to send those with.
//! * [`handlers`]: what the paper's handlers cost a packet, by each way to run them.
//! * [`engine`]: what a packet costs the engine.
//! * [`report`]: tables and rows of figures.
//! * [`counters`]: numbers out of `spinctl stats --json`.
#![deny(unsafe_code)]

pub mod capture;
pub mod content;
pub mod counters;
pub mod engine;
pub mod handlers;
pub mod odd;
pub mod outcome;
pub mod pcap;
pub mod ping;
pub mod raw;
pub mod report;
pub mod tcp;
pub mod udp;
pub mod wire;
