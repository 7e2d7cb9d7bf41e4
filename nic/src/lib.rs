//! Network interfaces: one trait, and its backends.
//!
//! * [`queue`]: the trait [`Queue`], the receive and control side of a NIC. Its transmit side is [`TxQueue`].
//! * [`steering`]: the trait [`FlowSteering`], which selects the frames that a NIC hands over.
//! * [`afxdp`]: AF_XDP sockets on all queues of an interface, and the XDP program that feeds them.
//! * [`hook`]: programs of raw instructions for the XDP hook, and their maps.
//! * [`memory`]: a pair of connected queues in memory.
//! * [`pcap`]: receives the packets of a capture file, writes sent packets to another.
//! * [`synthetic`]: receives the same frames again and again, for benchmarks.
//! * [`traffic`]: test traffic, sent by a BPF program or written in user space.
//! * [`affinity`]: CPU affinity of threads.
//! * [`wakeup`]: wakes a thread that waits for a ring.
//! * [`error`]: errors of opening or using a queue.
//!
//! Frames are in [`spin_frame`], which needs no system calls.
//!
//! `unsafe` is in `map` (mappings), `synthetic` (frames in a mapping), `hook::sys` (bpf calls), and `afxdp` and
//! `traffic` (rings, ioctls, bpf calls).

pub mod affinity;
pub mod afxdp;
mod bpf;
mod counts;
pub mod error;
pub mod hook;
mod map;
pub mod memory;
pub mod pcap;
pub mod queue;
pub mod steering;
pub mod synthetic;
pub mod traffic;
mod wait;
pub mod wakeup;

pub use spin_frame::{self as frame, Frame, TxQueue, prefetch, prefetch_all, prefetch_in, prefetch_to_write};

pub use afxdp::{AfXdp, AfXdpConfig, Filter};
pub use error::NicError;
pub use memory::MemoryQueue;
pub use pcap::PcapQueue;
pub use queue::Queue;
pub use steering::FlowSteering;
pub use synthetic::SyntheticSource;
pub use wakeup::Wakeup;
