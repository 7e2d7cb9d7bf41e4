//! Queues of frames: one trait, and what stands behind it.
//!
//! * [`affinity`]: which core a thread runs on.
//! * [`frame`]: the move-only [`Frame`], which owns its bytes.
//! * [`queue`]: the trait [`Queue`]: receive, allocate, send, pass, recycle, flush, wait.
//! * [`steering`]: the trait [`Steering`]: which frames these are.
//! * [`bell`]: waking a thread that waits for a ring.
//! * [`error`]: why a queue could not be opened or used.
//! * [`memory`]: a pair of connected ends in plain memory.
//! * [`rotation`]: the same frames over and over, to measure with.
//! * [`pcap`]: frames from a capture file, replies into another.
//! * [`prefetch`]: asking for memory before it is needed.
//! * [`afxdp`]: AF_XDP sockets on all queues of an interface, and the XDP program that feeds them.
//!
//! `unsafe` is in `frame` (a frame's bytes), `map` (mappings), `rotation` (frames in one), `prefetch` and `afxdp` (rings, ioctls, bpf
//! calls); nothing else needs it.

pub mod affinity;
pub mod afxdp;
pub mod bell;
mod counts;
pub mod error;
pub mod frame;
mod map;
pub mod memory;
pub mod pcap;
mod prefetch;
pub mod queue;
pub mod rotation;
pub mod steering;
mod wait;

pub use afxdp::{AfXdp, AfXdpConfig, Filter};
pub use bell::Bell;
pub use error::NicError;
pub use frame::Frame;
pub use memory::MemoryQueue;
pub use pcap::PcapQueue;
pub use prefetch::{prefetch, prefetch_all, prefetch_in, prefetch_to_write};
pub use queue::Queue;
pub use rotation::Rotation;
pub use steering::Steering;
