//! Self-checking traffic and the resulting figures.
//!
//! * [`content`]: reproducible bytes with a sequence number.
//! * [`outcome`]: results of request/reply runs; round-trip times; the table.
//! * [`udp`]: a client that checks every reply, and an echo server on the kernel's sockets for comparison.
//! * [`tcp`]: a bulk transfer with a checksum at both ends.
//! * [`ping`]: parsing the output of the system's `ping`.
//! * [`wire`]: Ethernet, VLAN, IPv4, UDP and ICMP: built and strictly checked.
//! * [`pcap`]: the frames of a capture file.
//! * [`capture`]: checking that a capture contains exactly one correct reply to every request.
//! * [`odd`]: unusual frames: tagged, padded, with options, fragments, truncated.
//! * [`raw`]: a packet socket to send such frames, and to relay frames.
//! * [`hook`]: handlers in the kernel's XDP hook beside the kernel and user space.
//! * [`impair`]: impairments of a wire, and the relay that makes them.
//! * [`peers`]: spind beside other programs on one wire.
//! * [`pktgen`]: a generator and sink of test traffic.
//! * [`handlers`]: cost per packet of the paper's handlers in every execution mode.
//! * [`large`]: an image of much ordinary code.
//! * [`engine`]: cost per packet of the engine.
//! * [`reflect`]: turns a datagram round.
//! * [`bad_value`]: the error of a value on the command line.
//! * [`any_handler`]: a bench for any handler image.
//! * [`compare`]: compares two builds.
//! * [`report`]: tables and rows of figures.
//! * [`page`]: the report of a run: one HTML page with plots and tables.
//! * [`counters`]: reading numbers from the output of `spinctl stats --json`.
#![deny(unsafe_code)]

pub mod any_handler;
pub mod bad_value;
pub mod capture;
pub mod compare;
pub mod content;
pub mod counters;
pub mod engine;
pub mod handlers;
pub mod hook;
pub mod impair;
pub mod large;
pub mod odd;
pub mod outcome;
pub mod page;
pub mod pcap;
pub mod peers;
pub mod ping;
pub mod pktgen;
pub mod raw;
pub mod reflect;
pub mod report;
pub mod tcp;
pub mod udp;
pub mod wire;
