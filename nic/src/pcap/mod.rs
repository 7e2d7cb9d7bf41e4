//! Capture files.
//!
//! * [`Reader`]: pcap (micro- and nanoseconds, both byte orders) and pcapng, Ethernet only.
//! * [`Writer`]: pcap with nanoseconds.
//! * [`PcapQueue`]: a [`crate::Queue`] that receives from one capture and sends into another.
//!
//! Files are untrusted input. Every length is checked before use, and no claimed length above [`MAX_BLOCK`] leads to an
//! allocation. An error names its position in the file.

mod pcapng;
mod queue;
mod reader;
mod source;
mod types;
mod writer;

pub use queue::PcapQueue;
pub use reader::{Reader, read_all};
pub use types::{MAX_BLOCK, MAX_PACKET, Packet, PcapError};
pub use writer::{Writer, write_all};
